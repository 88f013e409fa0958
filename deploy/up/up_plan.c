// The cost of a run. See up_plan.h.
//
// Sources: density and eta from worker/rule.h, expected gaps from bench/learning; bits of a top-k
// payload are Rice-coded gaps with b of DESIGN.md#section-7, one fp16 per chunk and one sign per
// value; headers are not counted.
#include "deploy/up/up_plan.h"

#include <math.h>
#include <string.h>

#include "common/base/text.h"
#include "common/format/manifest.h"
#include "common/format/manifest_pace.h"
#include "kernels/outer.h"
#include "worker/ranks/reduce.h"
#include "worker/rule.h"

static double clamp(double v, double low, double high)
{
    return v < low ? low : v > high ? high : v;
}

// ---------------------------------------------------------------- figures

static int64_t region_h(const struct dp_topology *t, const struct dp_region *r, double fastest)
{
    uint32_t named = ps_settings_h(t->server_base, r->name);
    if (named) return named;
    double base = ps_settings_h_base(t->server_base);
    if (t->server_base->coordinator.cadence == PS_CADENCE_FIXED) return (int64_t)base;
    return (int64_t)clamp(round(base * r->speed / fastest), 1, 300);
}

static double density_of(const struct wk_settings *w, double rounds)
{
    if (wk_codec_is_dense(w)) return 1;
    if (w->codec.density > 0) return w->codec.density;
    return wk_rule_density(rounds);
}

static double eta_of(const struct dp_topology *t, double density, double rounds)
{
    if (t->server_base->update.eta > 0) return t->server_base->update.eta;
    return wk_rule_eta(density, rounds, t->workers, ps_momentum(t->server_base) > 0);
}

// Rows of bench/results/learning-fresh14.json, learning.json and learning-p64.json with at least
// five seeds; tests/unit/deploy/up/up_plan.c checks all four.
static const struct dp_gap GAP[] = {{0.075, 1.4, 8, -1.34, -0.63, -0.0192},
                                    {0.075, 2, 8, -1.03, -0.28, -0.0127},
                                    {1.0 / 32, 2, 5, -1.25, 0.08, -0.0113},
                                    {1.0 / 64, 3, 15, 0.09, 0.59, 0.0065}};
static const double MEASURED_PARAMETERS = 0.43e6, MEASURED_ROUNDS = 400;
static const double MEASURED_RATE = 0.006,
                    MEASURED_END = 0.02; // peak; final fraction of the cosine

static const double LONG_ROUNDS = 1600, LONG_ETA = 1.7, LONG_DENSITY = 0.075;

static bool within(double is, double measured, double part)
{
    return fabs(is - measured) <= part * measured;
}

// Asynchronous, plain outer steps, built-in trainer: the measured setup.
static bool trained_alike(const struct dp_topology *t)
{
    const struct ps_settings *s = t->server_base;
    return !s->update.mode && !s->update.optimizer && !t->worker_base->trainer.kind && !t->trainers;
}

static bool scheduled_alike(const struct wk_settings *w)
{
    return within(w->trainer.learning_rate, MEASURED_RATE, 0.1) &&
           within(w->trainer.min_ratio, MEASURED_END, 0.1) && w->trainer.decay <= 0;
}

const struct dp_gap *dp_plan_gap(const struct dp_topology *t, const struct dp_plan *plan,
                                 double rounds)
{
    const struct wk_settings *w = t->worker_base;
    int64_t steps = 0, most = 0;
    for (unsigned i = 0; i < t->regions; i++) {
        steps += plan->region[i].h;
        if (plan->region[i].h > most) most = plan->region[i].h;
    }
    bool alike = t->regions == 3 && t->workers == 3 && steps == 8 + 4 + 2 && most == 8 &&
                 within((double)plan->parameters, MEASURED_PARAMETERS, 0.1) &&
                 within(rounds, MEASURED_ROUNDS, 0.1) && trained_alike(t) &&
                 !strcmp(wk_codec_name(w), "topk-sign") && scheduled_alike(w);
    for (size_t i = 0; alike && i < LH_COUNT(GAP); i++)
        if (within(plan->density, GAP[i].density, 0.05) && within(plan->eta, GAP[i].eta, 0.03))
            return &GAP[i];
    return NULL;
}

const char *dp_gap_text(const struct dp_gap *gap, char out[200])
{
    if (gap)
        snprintf(
            out, 200,
            "%+.1f to %+.1f %% against synchronous dense fp32 at the end (mean of %d seeds: 0.43 M "
            "parameters, 3 regions, 400 rounds, peak 0.006, cosine to 2 %%, density %.3g, eta %g)",
            gap->low_percent, gap->high_percent, gap->seeds, gap->density, gap->eta);
    else
        snprintf(out, 200, "not measured for such a run (bench/learning has what was)");
    return out;
}

// Bits of one gap (>= 1, geometric with p) in the Rice code of parameter b: b + 1 + E[gap >> b].
static double rice_bits(double p)
{
    double b = fmax(0, 1 + floor(log2(0.4812 / -log1p(-p))));
    double stay = pow(1 - p, exp2(b)); // probability that one more unary bit follows
    return b + 1 + stay / (1 - stay);
}

static double bits_of(const struct wk_settings *w, double p)
{
    static const struct {
        const char *value;
        double bits, chunk; // bits per value, and of a chunk's fp16 numbers
    } of[] = {{"sign", 1, 16}, {"q4", 4, 16}, {"fp16", 16, 0}, {"fp32", 32, 0}};
    const char *name = wk_codec_name(w), *value = strchr(name, '-') + 1;
    size_t i = 0;
    while (i + 1 < LH_COUNT(of) && strcmp(value, of[i].value)) i++;
    double chunk = of[i].chunk / LH_CHUNK;
    if (wk_codec_is_dense(w)) return of[i].bits + chunk;
    return p * (rice_bits(p) + of[i].bits) + chunk;
}

static double largest_server(const struct dp_topology *t)
{
    uint32_t most = 0;
    for (unsigned i = 0; i < t->servers; i++)
        if (t->server[i].shards.count > most) most = t->server[i].shards.count;
    return (double)most / t->shards;
}

// fp32 copies held by the ranks beside a worker: one gradient each, with bf16 half a copy more to
// send; as peers also parameters and two moments.
static double copies_of(const struct dp_topology *t, const struct dp_region *r)
{
    if (dp_region_has_records(r)) return 4;
    double shm = t->worker_base->ranks.wire == WK_SUM_BF16 ? 1.5 : 1.0;
    return dp_region_helpers(r) * (r->reduce == WK_REDUCE_SHM ? shm : 4.0);
}

// Memory of a server or worker that does not grow with the model: code, libraries, the transport,
// and the fixed areas that a loop shares.
static const double FIXED_BYTES = 48 << 20;

// fp32 copies of the model that a worker's process holds in a run (worker/README.md#memory).
// Always: the replica with the outer optimizer's state, and the residual. For a command: two slots,
// and corrections of one and a half. For the built-in trainer: two slots, parameters, gradient, two
// moments.
static double worker_copies(const struct dp_topology *t, const struct dp_region *r, double outer)
{
    double trainer = t->worker_base->trainer.kind == WK_TRAINER_SYNTHETIC ? 1 : 4;
    return outer + 1 + (r->command ? 3.5 : 2 + trainer) + copies_of(t, r);
}

// The copies that come on top for a moment: the replica, while it is written durably, and the
// moments of the built-in trainer, while they are saved.
static double passing_copies(const struct dp_topology *t, double outer)
{
    bool moments = t->trainers < t->workers && t->worker_base->trainer.kind == WK_TRAINER_BUILTIN;
    return outer + (moments ? 2 : 0);
}

// fp32 copies on a worker's disk: two slots; the residual's snapshot, and the one that replaces it;
// three copies of the replica; likewise the moments of the built-in trainer.
static double disk_copies(const struct dp_topology *t, double outer)
{
    return 4 + 3 * outer + (passing_copies(t, outer) > outer ? 4 : 0);
}

void dp_plan_make(const struct dp_topology *t, uint64_t parameters, struct dp_plan *out)
{
    const struct wk_settings *w = t->worker_base;
    double outer = 1 + lk_outer_bytes_per_value((uint8_t)t->server_base->update.optimizer) / 4.0;
    double fastest = 0, speed = 0, copies = 0, tokens_round = 0, values = (double)parameters;
    uint64_t step = (uint64_t)(w->trainer.batch * w->trainer.accumulate * t->run->model.context);
    *out = (struct dp_plan){.parameters = parameters};
    for (unsigned i = 0; i < t->regions; i++) {
        fastest = fmax(fastest, t->region[i].speed);
        copies = fmax(copies, worker_copies(t, &t->region[i], outer));
        speed += t->region[i].speed * (double)t->region[i].workers;
    }
    for (unsigned i = 0; i < t->regions; i++) {
        struct dp_plan_region *r = &out->region[i];
        r->h = region_h(t, &t->region[i], fastest);
        r->step_tokens = step;
        if (dp_region_is_private(&t->region[i])) // its pushes say so, whatever it trained
            r->step_tokens = (uint64_t)t->server_base->coordinator.step_tokens;
        r->tokens_per_s = t->run->tokens_per_s * t->region[i].speed / speed;
        tokens_round += (double)(t->region[i].workers * r->h) * (double)r->step_tokens;
    }
    out->rounds = fmax(1, (double)t->run->budget_tokens / tokens_round);
    out->density = density_of(w, out->rounds);
    out->eta = eta_of(t, out->density, out->rounds);
    out->density_rounds = out->density * out->rounds;
    out->gap = dp_plan_gap(t, out, out->rounds);
    out->bits = bits_of(w, out->density);
    out->payload_bytes = out->bits * values / 8;
    if (t->run->tokens_per_s > 0)
        out->train_s = (double)t->run->budget_tokens / t->run->tokens_per_s;
    for (unsigned i = 0; i < t->regions; i++) {
        double workers = (double)t->region[i].workers;
        out->region[i].up_bytes_round = workers * out->payload_bytes;
        out->region[i].down_bytes_round = workers * (t->workers - 1) * out->payload_bytes;
    }
    // fp32 copies. Server: parameters, and for a moment a checkpoint being made and what a joining
    // worker is sent (server/README.md#bytes-and-memory), each with the outer optimizer's state. On
    // a worker's disk pushes stay until they are stable: those of the last two points.
    double share = largest_server(t) * values * 4,
           every = (double)t->server_base->checkpoint.every_versions;
    out->log_bytes = out->rounds * t->workers * out->payload_bytes;
    double tail = fmin(out->rounds * t->workers, every * (double)t->server_base->checkpoint.keep);
    // Checkpoints that are kept, and the shard's that is being written.
    double files =
        outer * share * (double)t->server_base->checkpoint.keep + outer * values * 4 / t->shards;
    out->server_disk_bytes =
        files + tail * out->payload_bytes * largest_server(t) + 2.0 * LH_SEGMENT_BYTES_MAX;
    out->server_held_bytes = outer * share + FIXED_BYTES;
    out->server_memory_bytes = out->server_held_bytes + 2 * outer * share;
    double waiting = fmin(out->rounds, fmax(1, 2.0 * LH_POINT_EVERY / t->workers));
    out->worker_disk_bytes = disk_copies(t, outer) * values * 4 + waiting * out->payload_bytes;
    // A push is there as frame and as payload.
    out->worker_held_bytes = copies * values * 4 + 2 * out->payload_bytes + FIXED_BYTES;
    out->worker_memory_bytes = out->worker_held_bytes + passing_copies(t, outer) * values * 4;
}

// ---------------------------------------------------------------- print

const char *dp_bytes_text(double n, char out[16])
{
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    int i = 0;
    for (; n >= 999.5 && i < 5; i++) n /= 1000;
    snprintf(out, 16, n < 9.95 && i ? "%.1f %s" : "%.0f %s", n, unit[i]);
    return out;
}

static void print_ranks(const struct dp_topology *t, FILE *out)
{
    for (unsigned i = 0; i < t->regions; i++) {
        const struct dp_region *r = &t->region[i];
        if (!dp_region_helpers(r)) continue;
        fprintf(out, "%-12s %lld ranks a worker", r->name, (long long)r->ranks);
        if (r->hosts > 1) fprintf(out, " on %lld hosts", (long long)r->hosts);
        fprintf(out, ", %s%s", wk_reduce_word(r->reduce),
                t->worker_base->ranks.wire == WK_SUM_BF16 ? " in bf16" : "");
        fprintf(out, "%s\n", r->gpus ? ", a GPU each" : "");
    }
}

// Prints the sum over all regions; if no speed is set, also what it makes in a day.
static void print_total(const struct dp_topology *t, const struct dp_plan *plan, double day,
                        FILE *out)
{
    char a[16], b[16];
    double up = 0, down = 0, minutes = 24 * 60;
    for (unsigned i = 0; i < t->regions; i++) {
        up += plan->region[i].up_bytes_round;
        down += plan->region[i].down_bytes_round;
    }
    if (t->regions > 1)
        fprintf(out, "%-12s %8u %6s %12s %14s %14s\n", "total", t->workers, "", "",
                dp_bytes_text(up * (day > 0 ? day : 1), a),
                dp_bytes_text(down * (day > 0 ? day : 1), b));
    if (!(day > 0))
        fprintf(out,
                "bytes a day       %s up, %s down in all if a round (H steps) takes a minute; half "
                "of that\n                  if it takes two\n",
                dp_bytes_text(up * minutes, a), dp_bytes_text(down * minutes, b));
}

static void print_links(const struct dp_topology *t, const struct dp_plan *plan, FILE *out)
{
    char a[16], b[16];
    double day = plan->train_s > 0 ? plan->rounds / plan->train_s * 86400 : 0;
    fprintf(out, "\n%-12s %8s %6s %12s %14s %14s\n", "region", "workers", "H", "tokens/s",
            day > 0 ? "up a day" : "up a round", day > 0 ? "down a day" : "down a round");
    for (unsigned i = 0; i < t->regions; i++) {
        const struct dp_plan_region *r = &plan->region[i];
        char speed[24] = "unthrottled";
        if (t->region[i].command) snprintf(speed, sizeof speed, "command's");
        if (r->tokens_per_s > 0)
            snprintf(speed, sizeof speed, "%.0f", r->tokens_per_s * (double)t->region[i].workers);
        fprintf(out, "%-12s %8lld %6lld %12s %14s %14s\n", t->region[i].name,
                (long long)t->region[i].workers, (long long)r->h, speed,
                dp_bytes_text(r->up_bytes_round * (day > 0 ? day : 1), a),
                dp_bytes_text(r->down_bytes_round * (day > 0 ? day : 1), b));
    }
    print_total(t, plan, day, out);
    print_ranks(t, out);
    if (t->links) fprintf(out, "\n%-26s %10s %12s %22s\n", "link", "rtt", "rate", "one push takes");
    for (unsigned i = 0; i < t->links; i++) {
        const struct dp_link *link = &t->link[i];
        char name[96], rate[24] = "unlimited";
        double s = link->shape.rtt_ms / 1000;
        snprintf(name, sizeof name, "%s - %s", t->region[link->a].name, t->region[link->b].name);
        if (link->shape.mbit > 0) {
            snprintf(rate, sizeof rate, "%g Mbit/s", link->shape.mbit);
            s += plan->payload_bytes * 8 / (link->shape.mbit * 1e6);
        }
        fprintf(out, "%-26s %7g ms %12s %20.2f s\n", name, link->shape.rtt_ms, rate, s);
    }
}

// The commands of the regions, with each word as the program gets it.
static void print_commands(const struct dp_topology *t, FILE *out)
{
    if (t->trainers) fprintf(out, "\n%-12s %s\n", "region", "command beside each worker");
    for (unsigned i = 0; t->trainers && i < t->regions; i++) {
        const struct dp_words *words = t->region[i].command;
        fprintf(out, "%-12s", t->region[i].name);
        for (unsigned k = 0; words && k < words->count; k++) {
            bool plain = words->at[k][0] && !strpbrk(words->at[k], " \t\n\"'");
            fprintf(out, plain ? " %s" : " '%s'", words->at[k]);
        }
        fprintf(out, words ? "\n" : " (the built-in trainer)\n");
    }
}

// Is this the rule measured at LONG_ROUNDS (bench/learning/README.md#what-these-figures-are-not)?
static bool ruled_as_measured(const struct dp_topology *t, const struct dp_plan *plan)
{
    return plan->rounds >= LONG_ROUNDS / 2 && within(plan->density, LONG_DENSITY, 0.2) &&
           within(plan->eta, LONG_ETA, 0.1) && trained_alike(t);
}

static void print_update(const struct dp_topology *t, const struct dp_plan *plan, FILE *out)
{
    fprintf(out, "update            eta %.3g\n", plan->eta);
    if (ruled_as_measured(t, plan))
        fprintf(out,
                "learning rate     in long runs 0.6 of dense training's peak gave the same loss "
                "(%.0f rounds,\n                  0.05 M parameters: bench/learning)\n",
                LONG_ROUNDS);
}

static void print_node(const char *which, double disk, double memory, double held, FILE *out)
{
    char a[16], b[16], c[16];
    fprintf(out, "%-17s disk %s, memory %s, of it %s only while copies are made", which,
            dp_bytes_text(disk, a), dp_bytes_text(memory, b), dp_bytes_text(memory - held, c));
}

void dp_plan_print(const struct dp_topology *t, const struct dp_plan *plan, FILE *out)
{
    char a[16], gap[200];
    const char *codec = wk_codec_name(t->worker_base);
    fprintf(out,
            "run %s: %.2f M parameters in %u shard%s, %u worker%s in %u region%s, %u server%s\n",
            t->run->run, (double)plan->parameters / 1e6, t->shards, lh_s(t->shards), t->workers,
            lh_s(t->workers), t->regions, lh_s(t->regions), t->servers, lh_s(t->servers));
    fprintf(out, "rounds            %.0f (%.2f M tokens)\n", plan->rounds,
            (double)t->run->budget_tokens / 1e6);
    if (t->run->epochs > 1)
        fprintf(out, "data epochs       %lld, or fewer if the tokens end the run earlier\n",
                (long long)t->run->epochs);
    if (t->trainers)
        fprintf(out,
                "                  if the commands' steps have %llu tokens (worker.trainer.batch x "
                "accumulate x\n                  model.context)\n",
                (unsigned long long)(t->worker_base->trainer.batch *
                                     t->worker_base->trainer.accumulate * t->run->model.context));
    fprintf(out, "codec             %s, density %.4f: each value is sent about %.1f times\n", codec,
            plan->density, plan->density_rounds);
    print_update(t, plan, out);
    fprintf(out, "loss gap          %s\n", dp_gap_text(plan->gap, gap));
    fprintf(out, "payload           %.3f bit per parameter and round, %s a push\n", plan->bits,
            dp_bytes_text(plan->payload_bytes, a));
    if (plan->train_s > 0)
        fprintf(out, "training time     %.0f s at %g tokens/s\n", plan->train_s,
                t->run->tokens_per_s);
    print_links(t, plan, out);
    print_commands(t, out);
    fprintf(out, "\nlogs, untrimmed   %s in all\n", dp_bytes_text(plan->log_bytes, a));
    print_node("largest server", plan->server_disk_bytes, plan->server_memory_bytes,
               plan->server_held_bytes, out);
    fputc('\n', out);
    print_node("a worker", plan->worker_disk_bytes, plan->worker_memory_bytes,
               plan->worker_held_bytes, out);
    fprintf(out, " (without %s)\n", t->trainers ? "the command's own" : "activations");
}
