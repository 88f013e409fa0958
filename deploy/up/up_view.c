// Live progress of a run. See up_view.h.
//
// A terminal shows one picture, redrawn once a second: a line per region, cut to the screen because
// the next picture can't be drawn over a wrapped line. Other outputs get the same lines every five
// seconds, each with its time, without control sequences.
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/env/env.h"
#include "deploy/tool/table.h"
#include "deploy/up/up.h"
#include "deploy/up/up_view.h"
#include "deploy/up/up_watch.h"

enum { PICTURE_BYTES = 1 << 16 };

void dp_view_open(struct dp_view *v)
{
    const char *term = getenv("TERM");
    *v = (struct dp_view){.terminal = isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") != 0};
}

// ---------------------------------------------------------------- lines

struct region_line {
    struct dp_counts counts;
    double loss, tokens_per_s; // 0: no worker reports a loss
    int64_t h;
    uint64_t behind;
    const char *state;
};

static struct region_line line_of(const struct dp_up *up, unsigned region)
{
    struct region_line line = {.counts = dp_watch_region(up, region), .state = "-"};
    unsigned told = 0;
    for (unsigned i = 0; i < up->nodes; i++) {
        const struct dp_node *node = &up->node[i];
        if (node->kind != DP_WORKER || node->region != region) continue;
        told += node->status.loss > 0;
        line.loss += node->status.loss;
        line.tokens_per_s += node->status.tokens_per_s;
        if (node->status.h > line.h) line.h = node->status.h;
        uint64_t behind = dp_watch_behind(up, node);
        if (behind > line.behind) line.behind = behind;
        bool down = !node->proc || node->proc->state != DP_PROC_RUNNING;
        bool done = !strcmp(node->status.state, "done");
        const char *lacks = dp_watch_lacks(up, node);
        bool stalls = dp_watch_stalls(up, node) != NULL;
        line.state = done     ? "done"
                     : down   ? "down"
                     : lacks  ? lacks
                     : stalls ? "stalled"
                              : node->status.state;
    }
    if (told) line.loss /= told;
    return line;
}

static void put_lines(const struct dp_up *up, const char *indent, struct lh_buf *out)
{
    char a[16], b[16], loss[16];
    dp_put(out, "%s%-12s %-9s %7s %7s %9s %7s %9s %9s %4s\n", indent, "region", "state", "step",
           "loss", "tokens/s", "behind", "up", "down", "H");
    for (unsigned r = 0; r < up->t->regions; r++) {
        struct region_line line = line_of(up, r);
        snprintf(loss, sizeof loss, line.loss > 0 ? "%.3f" : "-", line.loss);
        dp_put(out, "%s%-12s %-9s %7llu %7s %9.0f %7llu %9s %9s %4lld\n", indent,
               up->t->region[r].name, line.state[0] ? line.state : "starting",
               (unsigned long long)line.counts.steps, loss, line.tokens_per_s,
               (unsigned long long)line.behind, dp_bytes_text((double)line.counts.payload_up, a),
               dp_bytes_text((double)line.counts.payload_down, b), (long long)line.h);
    }
}

// An end that `up` asked for was reported already and needs no attention.
static const char *asked_of(const struct dp_up *up, const struct dp_status *c)
{
    if (up->ender || !strcmp(c->state, "ended")) return "";
    if (c->ending) return " (its end was requested)";
    return c->draining ? " (drained by an operator until `longhaul drain run --undo`)" : "";
}

// A full or hung disk makes pushes wait while training goes on: only this line shows it.
static void put_full(const struct dp_up *up, struct lh_buf *out)
{
    const char *before = ", DISK FULL: ";
    for (unsigned i = 0; i < up->nodes; i++) {
        if (!dp_watch_full(&up->node[i])) continue;
        dp_put(out, "%s%s", before, up->node[i].name);
        before = ", ";
    }
    for (unsigned i = 0; i < up->nodes; i++) {
        const struct dp_node *node = &up->node[i];
        const char *hangs = dp_watch_full(node) ? NULL : dp_watch_hangs(node, time(NULL));
        if (hangs) dp_put(out, ", %s: %s", hangs, node->name);
    }
}

static void put_head(const struct dp_up *up, struct lh_buf *out)
{
    const struct dp_status *c = &dp_up_leader(up)->status;
    unsigned running = dp_procs_running(&up->procs);
    dp_put(out, "%6.0f s  %s  %.2f of %.2f M tokens (%.0f %%), phase %s%s, %u of %u processes",
           dp_up_seconds(up), up->t->run->run, dp_watch_tokens(up) / 1e6,
           (double)up->t->run->budget_tokens / 1e6, 100 * dp_watch_progress(up),
           c->state[0] ? c->state : "starting", asked_of(up, c), running, up->nodes);
    put_full(up, out);
    dp_put(out, "\n");
}

void dp_view_show(struct dp_view *v, const struct dp_up *up, bool now)
{
    int64_t at = dp_now_ns(), every = (v->terminal ? 1 : 5) * LH_SECOND;
    if (!now && at - v->last_ns < every) return;
    v->last_ns = at;
    struct lh_buf picture = lh_buf(PICTURE_BYTES), out = lh_buf(PICTURE_BYTES);
    unsigned columns = UINT16_MAX, lines = UINT16_MAX;
    if (v->terminal) dp_table_screen(&columns, &lines);
    if (v->terminal && v->lines) dp_put(&out, "\033[%uA\033[J", v->lines);
    v->lines = up->t->regions + 2;
    if (v->lines >= lines) v->lines = lines > 1 ? lines - 1 : 1; // the cursor needs the last one
    put_head(up, &picture);
    put_lines(up, "  ", &picture);
    dp_table_fit(&out, lh_buf_span(&picture), columns, v->lines);
    dp_put(&out, "\n");
    fwrite(out.data, 1, out.len, stdout);
    fflush(stdout);
    lh_buf_free(&out);
    lh_buf_free(&picture);
}

void dp_view_say(struct dp_view *v, const struct dp_up *up, const char *format, ...)
{
    if (v->terminal && v->lines) printf("\033[%uA\033[J", v->lines);
    v->lines = 0; // the picture is redrawn below the news
    printf("%6.1f s  ", dp_up_seconds(up));
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    fflush(stdout);
}
