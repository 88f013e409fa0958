// The end of a run: held-out losses before and after, tables, the picture, the verdict. See
// up_report.h.
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "deploy/up/up_report.h"
#include "deploy/up/up_summary.h"
#include "deploy/up/up_trainers.h"
#include "deploy/up/up_watch.h"
#include "deploy/up/up_weights.h"

// ---------------------------------------------------------------- evaluation

static LH_MUST lh_err evaluate(struct dp_up *up, const float *theta, bool after)
{
    struct dp_eval_row row[DP_LANGUAGES_MAX];
    if (up->unjudged) return LH_OK;
    LH_TRY(dp_eval(&up->units, up->texts, &up->shape, theta, DP_EVAL_BYTES, row));
    for (uint32_t i = 0; i < up->units.heldout_count; i++)
        *(after ? &up->heldout[i].after : &up->heldout[i].before) = row[i];
    return LH_OK;
}

static LH_MUST lh_err write_floats(const char *path, const float *v, uint64_t count)
{
    struct lh_buf bytes = lh_buf(count * sizeof(float));
    for (uint64_t i = 0; i < count; i++) lh_put_f32(&bytes, v[i]);
    lh_err err = lh_buf_err(&bytes);
    if (!err) err = dp_file_write(path, lh_buf_span(&bytes), 0640);
    lh_buf_free(&bytes);
    return err;
}

// Losses of the initial and the final parameters; writes the latter to `final`.
static LH_MUST lh_err evaluate_both(struct dp_up *up, const char *final)
{
    char path[DP_PATH_BYTES];
    float *theta = NULL;
    LH_TRY(dp_path(path, "%s/weights.bin", up->dir));
    LH_TRY(dp_floats_load(path, up->manifest.values, &theta));
    lh_err err = evaluate(up, theta, false);
    if (!err) err = dp_weights_final(up, theta);
    if (!err) err = write_floats(final, theta, up->manifest.values);
    if (!err) err = evaluate(up, theta, true);
    free(theta);
    return err;
}

// ---------------------------------------------------------------- tables

static void print_heldout(const struct dp_up *up)
{
    double before = 0, after = 0;
    if (up->unjudged) return;
    printf("\n%-10s %10s %10s %10s   held-out text, nats per byte\n", "language", "before", "after",
           "bigram");
    for (uint32_t i = 0; i < up->units.heldout_count; i++) {
        const struct dp_heldout *h = &up->heldout[i];
        before += h->before.nats;
        after += h->after.nats;
        printf("%-10s %10.3f %10.3f %10.3f   of %.0f kB\n", h->after.language, h->before.nats,
               h->after.nats, h->after.bigram, (double)h->after.bytes / 1e3);
    }
    double n = up->units.heldout_count ? up->units.heldout_count : 1;
    printf("%-10s %10.3f %10.3f\n", "mean", before / n, after / n);
}

static void print_regions(const struct dp_up *up)
{
    char b[4][16];
    printf("\n%-12s %9s %7s %7s %9s %9s %9s %9s %9s %24s %7s\n", "region", "tokens", "steps",
           "rounds", "tokens/s", "up", "down", "wire up", "wire down", "admitted/damped/returned",
           "stall");
    for (unsigned r = 0; r < up->t->regions; r++) {
        struct dp_counts c = dp_watch_region(up, r);
        char decided[32];
        snprintf(decided, sizeof decided, "%llu/%llu/%llu", (unsigned long long)c.accepted,
                 (unsigned long long)c.damped, (unsigned long long)c.returned);
        printf(
            "%-12s %9llu %7llu %7llu %9.0f %9s %9s %9s %9s %24s %6.2f%%\n", up->t->region[r].name,
            (unsigned long long)c.tokens, (unsigned long long)c.steps, (unsigned long long)c.rounds,
            up->trained_s > 0 ? (double)c.tokens / up->trained_s : 0,
            dp_bytes_text((double)c.payload_up, b[0]), dp_bytes_text((double)c.payload_down, b[1]),
            dp_bytes_text((double)c.wire_up, b[2]), dp_bytes_text((double)c.wire_down, b[3]),
            decided,
            up->trained_s > 0 ? 100 * c.stall_s / (up->trained_s * (double)up->t->region[r].workers)
                              : 0);
    }
}

static void print_shards(const struct dp_up *up)
{
    printf("\n%-6s %-14s %8s %6s %9s %9s %27s  %s\n", "shard", "server", "version", "epoch",
           "admitted", "refused", "staleness p50/p99/max/limit", "digest");
    for (uint32_t shard = 0; shard < up->t->shards; shard++) {
        const struct dp_node *server = NULL;
        const struct dp_holding *h = dp_watch_shard(up, shard, &server);
        if (!h) continue;
        char stale[64];
        snprintf(stale, sizeof stale, "%.0f/%.0f/%.0f/%.0f", h->staleness_p50, h->staleness_p99,
                 h->staleness_max, h->staleness_bound);
        printf("%-6u %-14s %8llu %6llu %9llu %9llu %27s  %.16s\n", shard, server->name,
               (unsigned long long)h->version, (unsigned long long)h->epoch,
               (unsigned long long)h->admitted, (unsigned long long)h->refused, stale, h->digest);
    }
}

static void print_faults(const struct dp_up *up)
{
    if (up->faults) printf("\n%-28s %-16s %9s %12s\n", "fault", "target", "at", "recovered");
    for (unsigned i = 0; i < up->faults; i++) {
        const struct dp_fault *f = &up->fault[i];
        char healed[32] = "never";
        if (f->recovered_s >= 0) snprintf(healed, sizeof healed, "%.1f s", f->recovered_s);
        printf("%-28s %-16s %7.0f s %12s\n", f->what, f->target, f->t_s, healed);
    }
}

static void print_commands(const struct dp_up *up)
{
    if (up->t->trainers) printf("\n%-28s %9s  %s\n", "command", "restarts", "ended with");
    for (unsigned i = 0; i < up->nodes; i++) {
        const struct dp_node *node = &up->node[i];
        char how[64];
        if (node->kind != DP_TRAINER) continue;
        dp_trainer_ending(node, how, sizeof how);
        printf("%-28s %9u  %s\n", node->name, node->proc ? node->proc->restarts : 0, how);
    }
}

// ---------------------------------------------------------------- picture

static void curves_of(const struct dp_up *up, struct dp_curve *curve, size_t *curves)
{
    *curves = 0;
    for (unsigned i = 0; i < up->nodes; i++)
        if (up->node[i].kind == DP_WORKER)
            curve[(*curves)++] =
                (struct dp_curve){up->node[i].name, up->node[i].point, up->node[i].points};
}

static bool terminal_speaks_utf8(void)
{
    setlocale(LC_CTYPE, "");
    return !strcmp(nl_langinfo(CODESET), "UTF-8");
}

static LH_MUST lh_err draw(const struct dp_up *up, const char *svg)
{
    struct dp_curve curve[DP_WORKERS_MAX];
    size_t curves;
    struct winsize screen;
    unsigned width = 72;
    curves_of(up, curve, &curves);
    if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &screen) && screen.ws_col > 30)
        width = screen.ws_col > 112 ? 100 : screen.ws_col - 12u;
    struct lh_buf text = lh_buf(4 << 20);
    dp_plot_text(curve, curves, "s", "training loss, nats per token", width, 18,
                 terminal_speaks_utf8(), &text);
    printf("\n%.*s", (int)text.len, text.data ? (const char *)text.data : "");
    lh_buf_clear(&text);
    dp_plot_svg(curve, curves, up->t->run->run, "s", "training loss, nats per token", &text);
    lh_err err = lh_buf_err(&text);
    if (!err) err = dp_file_write(svg, lh_buf_span(&text), 0640);
    lh_buf_free(&text);
    return err;
}

// ---------------------------------------------------------------- verdict

static void verdict_line(bool good, const char *what)
{
    printf("%s %s\n", good ? "  ok    " : "  FAILED", what);
}

static void print_verdict(const struct dp_up *up, const struct dp_verdict *v)
{
    char text[160];
    printf("\n");
    snprintf(text, sizeof text, "%u replicas of each shard are equal at its last version",
             v->compared);
    verdict_line(v->replicas_equal && v->compared >= 2, text);
    for (unsigned i = 0; i < up->nodes; i++) {
        const char *why = up->node[i].kind == DP_WORKER ? dp_watch_left(up, &up->node[i]) : NULL;
        if (why) printf("  note     the run ended without %s, which %s\n", up->node[i].name, why);
    }
    for (unsigned i = 0; i < up->nodes; i++) {
        const struct dp_node *node = &up->node[i];
        const struct dp_node *worker = node->kind == DP_TRAINER ? dp_worker_of(up, node) : NULL;
        if (worker && node->proc && !worker->total.steps && !dp_watch_left(up, worker))
            printf("  note     %s %s: its worker trained nothing\n", node->name,
                   node->trainer.ever ? "made no step" : "never joined the run");
    }
    if (up->unjudged)
        printf("  note     held-out losses are not judged: %s\n", up->unjudged);
    else
        verdict_line(v->learned, "every language was learned (held-out loss fell)");
    if (dp_up_leader(up)->status.seen && dp_watch_tokens(up) <= 0)
        printf("  note     nothing was trained: the run ended before any progress was taken\n");
    verdict_line(
        v->credited_once,
        dp_topology_own_data(up->t) ? "no unit of data is claimed: the commands use their own data"
        : up->t->run->epochs > 1    ? "every unit of every data epoch is credited at most once"
                                    : "every unit of data is credited at most once");
    if (up->t->trainers) verdict_line(v->commands, "every command ended without an error");
    if (!v->below_bigram) printf("  note     a language's loss is above its own bigram entropy\n");
    if (up->flags.with_faults) verdict_line(v->drill, "every fault of the drill came and healed");
}

static LH_MUST lh_err finish(struct dp_up *up, const struct dp_verdict *v, const char *final)
{
    char svg[DP_PATH_BYTES], summary[DP_PATH_BYTES], gap[200], bits[48] = "";
    struct dp_learning l = dp_learning_of(up);
    LH_TRY(dp_path(svg, "%s/loss.svg", up->dir));
    LH_TRY(dp_path(summary, "%s/summary.json", up->dir));
    LH_TRY(draw(up, svg));
    print_heldout(up);
    print_regions(up);
    print_shards(up);
    print_commands(up);
    print_faults(up);
    if (l.payload_bits >= 0) snprintf(bits, sizeof bits, " (payloads alone %.4f)", l.payload_bits);
    printf("\n%s at density %.4f: %.4f bit per parameter and round in whole frames%s, %.0f rounds, "
           "each value sent about %.1f times\n",
           wk_codec_name(up->t->worker_base), up->plan.density, l.frame_bits, bits, l.rounds,
           l.density_rounds);
    if (l.gap) printf("loss gap %s\n", dp_gap_text(l.gap, gap));
    print_verdict(up, v);
    LH_TRY(dp_summary_write(up, v, final, summary));
    if (up->flags.json) LH_TRY(dp_summary_write(up, v, final, up->flags.json));
    printf("\nparameters  %s\nsummary     %s\npicture     %s\n", final, summary, svg);
    return LH_OK;
}

lh_err dp_report(struct dp_up *up, struct dp_verdict *out)
{
    char final[DP_PATH_BYTES];
    LH_TRY(dp_path(final, "%s/final.bin", up->dir));
    LH_TRY(evaluate_both(up, final));
    dp_verdict_of(up, out);
    return finish(up, out, final);
}
