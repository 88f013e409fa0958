// longhaul top: shows a run, redrawn every second.
//
// A terminal is cleared for every picture, which is cut to its lines; other outputs get the
// pictures one after the other, separated by a blank line, without control sequences.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/text.h"
#include "common/format/json.h"
#include "deploy/ask/get.h"
#include "deploy/ask/look.h"
#include "deploy/tool/commands.h"
#include "deploy/tool/files.h"
#include "deploy/tool/table.h"
#include "deploy/up/up_plan.h"

enum { PICTURE_BYTES_MAX = 4 << 20 };

// clang-format off
// Columns of both regions and workers.
#define TRAINING                                                                                   \
    {"TOKENS", "tokens", 12}, {"TOKENS/S", "tokens_per_s", 10}, {"BUSY", "busy", 5},               \
    {"RTT MS", "rtt_ms", 7}, {"PUSH MS", "push_ms", 8}, {"LOSS", "loss", 7}, {"H", "h", 4},        \
    {"SENT", "sent", 9}, {"RECEIVED", "received", 9}, {"SILENT S", "silent_s", 8}

static const struct dp_column regions[] = {
    {"REGION", "region", -12},
    {"WORKERS", "workers", 7},
    {"LIVE", "live", 5},
    {"DRAINED", "drained", 7},
    {"EPSILON", "epsilon", 8},
    TRAINING,
    {NULL, NULL, 0},
};
static const struct dp_column workers[] = {
    {"WORKER", "name", -20},
    {"REGION", "region", -12},
    {"STATE", "member_state", -9},
    TRAINING,
    {NULL, NULL, 0},
};
// clang-format on
static const struct dp_column shards[] = {
    {"SHARD", "shard", 5},
    {"SERVER", "server", -12},
    {"EPOCH", "epoch", 5},
    {"VERSION", "version", 9},
    {"STABLE", "stable", 9},
    {"ADMITTED", "admitted", 9},
    {"REFUSED", "refused", 7},
    {"FOLLOW", "followers", 6},
    {"STALE P50", "staleness_p50", 9},
    {"P99", "staleness_p99", 4},
    {"BOUND", "staleness_bound", 5},
    {"PHASE", "phase", -10},
    {NULL, NULL, 0},
};

static void put_head(const json_t *run, struct lh_buf *out)
{
    const char *phase = json_string_value(json_object_get(run, "phase"));
    bool draining = lh_json_yes(run, "draining");
    bool ending = lh_json_yes(run, "ending");
    bool over = phase && !strcmp(phase, "ended");
    const char *asked = ending     ? " (its end was requested)"
                        : draining ? " (drained by an operator)"
                                   : "";
    dp_put(out, "%s%s  %.0f of %.0f tokens", phase ? phase : "-", over ? "" : asked,
           lh_json_number(run, "credited_tokens"), lh_json_number(run, "budget_tokens"));
    if (json_object_get(run, "percent")) dp_put(out, " (%.1f %%)", lh_json_number(run, "percent"));
    dp_put(out, "  %.0f tokens/s", lh_json_number(run, "tokens_per_s"));
    if (json_object_get(run, "eta_s")) dp_put(out, "  %.0f s left", lh_json_number(run, "eta_s"));
    dp_put(out, "\nunits %.0f: %.0f credited, %.0f leased", lh_json_number(run, "units"),
           lh_json_number(run, "credited"), lh_json_number(run, "leased"));
    if (lh_json_number(run, "data_epochs") > 1)
        dp_put(out, "   data epoch %.0f of %.0f", lh_json_number(run, "data_epoch") + 1,
               lh_json_number(run, "data_epochs"));
    dp_put(out, "   workers %.0f: %.0f live", lh_json_number(run, "workers"),
           lh_json_number(run, "live"));
    if (lh_json_number(run, "stalled") > 0)
        dp_put(out, ", %.0f stalled", lh_json_number(run, "stalled"));
    dp_put(out, "   plan %.0f%s\n", lh_json_number(run, "plan"),
           lh_json_yes(run, "frozen") ? ", balancer frozen" : "");
    double unheard = lh_json_number(run, "unheard_shards");
    if (unheard > 0)
        dp_put(out,
               "credits of %.0f shard%s are not known: no server reported %s since the "
               "coordinator started\n",
               unheard, lh_s((uint64_t)unheard), unheard > 1 ? "them" : "it");
    dp_put_paused(run, out);
    dp_put(out, "\n");
}

// Adds readable numbers; JSON keeps the raw ones.
static void write_out(json_t *rows)
{
    static const char *const key[][2] = {{"sent_bytes", "sent"}, {"received_bytes", "received"}};
    json_t *row;
    size_t i;
    json_array_foreach(rows, i, row)
    {
        for (size_t k = 0; k < LH_COUNT(key); k++) {
            char text[16];
            json_t *bytes = json_object_get(row, key[k][0]);
            if (bytes)
                json_object_set_new(row, key[k][1],
                                    json_string(dp_bytes_text(json_number_value(bytes), text)));
        }
        if (json_object_get(row, "loss"))
            json_object_set_new(row, "loss", json_sprintf("%.3f", lh_json_number(row, "loss")));
        if (json_object_get(row, "utilisation"))
            json_object_set_new(row, "busy",
                                json_sprintf("%.0f%%", 100 * lh_json_number(row, "utilisation")));
    }
}

static void put_picture(json_t *look, bool each, struct lh_buf *out)
{
    write_out(json_object_get(look, "regions"));
    put_head(json_object_get(look, "run"), out);
    dp_table_put(out, regions, json_object_get(look, "regions"));
    dp_put(out, "\n");
    if (each) {
        write_out(json_object_get(look, "workers"));
        dp_table_put(out, workers, json_object_get(look, "workers"));
        dp_put(out, "\n");
    }
    dp_table_put(out, shards, json_object_get(look, "shards"));
}

struct request {
    struct dp_admin admin;
    const char *every;
    uint64_t every_s;
    bool once, json, terminal, workers;
};

// Cuts the picture to the screen: a wrapped or extra line would break it.
static void put_screen(struct lh_span picture, struct lh_buf *out)
{
    unsigned columns, lines;
    dp_table_screen(&columns, &lines);
    dp_put(out, "\033[H\033[J");
    dp_table_fit(out, picture, columns, lines);
}

static LH_MUST lh_err put_next(const struct request *q, json_t *look, bool first,
                               struct lh_buf *out)
{
    struct lh_buf picture = lh_buf(PICTURE_BYTES_MAX);
    put_picture(look, q->workers, &picture);
    if (q->terminal && !q->once)
        put_screen(lh_buf_span(&picture), out);
    else
        dp_put(out, "%s%.*s", first ? "" : "\n", (int)picture.len, (const char *)picture.data);
    lh_err err = lh_buf_err(&picture);
    lh_buf_free(&picture);
    return err;
}

static LH_MUST lh_err draw(struct request *q, bool first)
{
    json_t *look;
    struct lh_buf out = lh_buf(PICTURE_BYTES_MAX);
    lh_err err = dp_look(&q->admin, &look);
    if (err == LH_ERR_UNAVAILABLE && !q->once && !first) { // it may be restarting
        dp_put(&out, "%s%s\n", q->terminal ? "\033[H\033[J" : "\n", lh_err_text(err));
        err = LH_OK;
    } else if (!err && q->json) {
        err = dp_table_json(&out, look);
    } else if (!err) {
        err = put_next(q, look, first, &out);
    }
    err = dp_print(&out, err);
    fflush(stdout);
    json_decref(look);
    return err;
}

static LH_MUST lh_err top(struct request *q)
{
    lh_err err = dp_admin_open(&q->admin);
    const char *term = getenv("TERM");
    q->terminal = isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") != 0;
    for (bool first = true; !err; first = false) {
        err = draw(q, first);
        if (q->once || ferror(stdout)) break;
        if (!err) dp_admin_pause(&q->admin, (int64_t)q->every_s * LH_SECOND);
    }
    dp_admin_close(&q->admin);
    return err;
}

lh_err dp_cmd_top(int argc, char **argv)
{
    struct request q = {.every_s = 1};
    const struct dp_flag flags[] = {
        {"--once", DP_SWITCH, &q.once, NULL, "print once and exit"},
        {"--workers", DP_SWITCH, &q.workers, NULL, "a line for each worker, too"},
        {"--every", DP_TEXT, &q.every, "SECONDS", "between two pictures (1)"},
        DP_ADMIN_FLAGS(q.admin),
        {"-o", DP_FORM, &q.json, "table|json", "form of the output"},
    };
    const struct dp_usage usage = {
        "longhaul top --dir RUNDIR | --coordinator HOST:PORT [flags]",
        "Shows a running run until Ctrl-C, with a line for each region and each shard. The\n"
        "regions' figures come from the coordinator, the shards' from their servers. BUSY is\n"
        "the share of time in which a step ran (mean of a region's live workers). RTT MS is the\n"
        "round trip to a server, PUSH MS the time from a push's first byte to its decision\n"
        "(both for the slowest server and the region's slowest worker); \"-\" means not\n"
        "measured yet. Loss and bytes come from the workers' status files, so they need --dir.\n"
        "Without a terminal the screens are printed one after another as plain text. Exit code\n"
        "4: no coordinator answers.",
        flags, LH_COUNT(flags)};
    bool help;
    LH_TRY(dp_flags(&usage, argc, argv, NULL, &help));
    if (help) return LH_OK;
    LH_TRY(dp_number("--every", q.every, 1, 86400, &q.every_s));
    return top(&q);
}
