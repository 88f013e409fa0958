// A step of a region's ranks on this host: gradients summed beside the backward pass, and the same
// in one bucket after it; measured alternately, each with its own processes. Beside them a process
// that has one rank's part of the step and waits for no other.
//
//   ranks.alone.ms      one rank's part, and the optimizer of all parameters
//   ranks.after.ms      a bucket of 1 GiB: nothing is summed before the pass has ended
//   ranks.beside.ms     buckets of --bucket-kib
//
// The condition `early` is the number of buckets of `beside` that were begun during the pass.
// On one host ranks share its processors and its memory: the savings of overlap on a network, or
// with NCCL, show only there (--reduce nccl, which finds its libraries as a worker does).
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/report.h"
#include "common/base/buf.h"
#include "common/base/check.h"
#include "kernels/blas.h"
#include "worker/ranks/comm/comm_nccl.h"
#include "worker/ranks/comm/comm_tcp.h"
#include "worker/ranks/peer.h"
#include "worker/ranks/reduce_peers.h"
#include "worker/train/passes.h"

enum { ALONE, AFTER, BESIDE, ARMS };
enum {
    FLAG_RANKS,
    FLAG_LAYERS,
    FLAG_DIM,
    FLAG_LENGTH,
    FLAG_SEQUENCES,
    FLAG_BUCKET,
    FLAG_REPEATS,
    FLAG_REDUCE
};
static const char *const names[] = {"alone", "after", "beside"};

struct conf {
    uint32_t ranks, length, sequences; // a rank's part has `sequences`
    uint64_t bucket_bytes;
    bool nccl;
    struct wk_shape shape;
};

struct arm { // the leader of a region, or a process alone
    int kind;
    struct lh_env *env;
    struct wk_reduce *reduce;
    struct wk_params params;
    struct wk_passes passes;
    float *value, *m, *v, *gradient;
    uint32_t *ids;
    uint64_t steps;
    pid_t pid[WK_RANKS_MAX];
};

// ---------------------------------------------------------------- ranks

static void open_comm(const struct conf *c, struct lh_env *env, uint32_t rank, struct wk_comm **out)
{
    const struct wk_comm_nccl_conf nccl = {
        .library = "", .plugin = "", .interface = "lo", .log_file = "", .rank = rank};
    const struct wk_comm_tcp_conf tcp = {.env = env, .address = ""};
    BENCH_MUST(c->nccl ? wk_comm_nccl_create(&nccl, out) : wk_comm_tcp_create(&tcp, out));
}

static struct wk_peers_conf peers_conf(const struct conf *c, int kind, struct lh_env *env,
                                       uint32_t rank, pid_t leader)
{
    struct wk_peers_conf p = {.env = env,
                              .rank = rank,
                              .ranks = c->ranks,
                              .bucket_bytes = kind == AFTER ? 1 << 30 : c->bucket_bytes,
                              .address = "",
                              .patience_ns = 600 * LH_SECOND,
                              .gather_ns = 600 * LH_SECOND};
    snprintf(p.name, sizeof p.name, "/longhaul-bench-%d-%d", (int)leader, kind);
    open_comm(c, env, rank, &p.comm);
    return p;
}

static void ended(void *arg, lh_err err, const char *text)
{
    (void)arg;
    if (err) fprintf(stderr, "rank: %s\n", text);
    _exit(err ? 1 : 0);
}

static _Noreturn void be_rank(const struct conf *c, int kind, uint32_t rank, pid_t leader)
{
    struct lh_env *env;
    struct wk_peer *peer;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    BENCH_MUST(lh_env_real_create(&env));
    const struct wk_peer_conf conf = {.peers = peers_conf(c, kind, env, rank, leader),
                                      .shape = c->shape,
                                      .length = c->length,
                                      .batch = c->sequences,
                                      .ended = ended};
    BENCH_MUST(wk_peer_start(&conf, &peer));
    for (;;) lh_env_real_run(env);
}

// ---------------------------------------------------------------- a step

static void open_arm(const struct conf *c, struct arm *a)
{
    const struct wk_transformer_conf t = {c->shape, c->length, (size_t)c->sequences * c->length,
                                          true};
    size_t ids = (size_t)c->ranks * c->sequences * (c->length + 1);
    BENCH_MUST(wk_params_list(&c->shape, &a->params));
    size_t values = a->params.values;
    float **array[] = {&a->value, &a->m, &a->v, &a->gradient};
    for (size_t i = 0; i < LH_COUNT(array); i++) {
        *array[i] = lh_zeros(values + WK_FIGURES, sizeof **array[i]);
        LH_ASSERT(*array[i]);
    }
    a->ids = malloc(ids * sizeof *a->ids);
    LH_ASSERT(a->ids);
    for (size_t i = 0; i < ids; i++) a->ids[i] = (uint32_t)(i * 2654435761u >> 8) % c->shape.vocab;
    BENCH_MUST(wk_model_init(&c->shape, 1, a->value));
    BENCH_MUST(wk_transformer_create(&t, &a->passes.transformer));
    a->passes.batch = c->sequences;
    if (a->kind == ALONE) return;
    BENCH_MUST(lh_env_real_create(&a->env));
    const struct wk_reduce_peers_conf lead = {.peers = peers_conf(c, a->kind, a->env, 0, getpid())};
    BENCH_MUST(wk_reduce_peers_create(&lead, &a->reduce));
    const struct wk_reduce_state state = {a->value, a->m,      a->v,       a->gradient,
                                          values,   &a->steps, &a->params, NULL};
    BENCH_MUST(a->reduce->ops->bind(a->reduce, &state));
}

static void tell_final(void *arg, uint64_t from)
{
    struct wk_reduce *r = arg;
    if (r) r->ops->final(r, from);
}

// As the built-in trainer does it.
static void take_step(const struct conf *c, struct arm *a)
{
    struct wk_reduce *r = a->reduce;
    const struct wk_update update = {1e-3, 0.9, 0.95, 1e-8, 0.1, 1, a->steps + 1};
    uint32_t sequences = a->kind == ALONE ? c->sequences : c->ranks * c->sequences;
    const struct wk_reduce_step step = {.ids = a->ids,
                                        .sequences = sequences,
                                        .length = c->length,
                                        .values = a->params.values,
                                        .scale = 1 / (float)(sequences * c->length),
                                        .update = &update};
    const struct wk_final final = {tell_final, r};
    const struct wk_update_arrays arrays = {a->gradient, a->m, a->v, a->value, NULL};
    struct wk_gathered sum = {.fresh = true};
    struct wk_part part = {0, sequences};
    double norm;
    memset(a->gradient, 0, a->params.values * sizeof *a->gradient);
    if (r) r->ops->deal(r, &step, &part);
    do {
        struct wk_share share = {0};
        BENCH_MUST(
            wk_passes_run(&a->passes, a->value, &step, part, true, a->gradient, &final, &share));
        if (!r) break;
        BENCH_MUST(r->ops->gather(r, true, a->gradient, &sum, &part));
    } while (part.count);
    BENCH_MUST(wk_update_norm(&a->params, a->gradient, update.step, NULL, &norm));
    wk_update_apply(&update, &a->params, norm, &arrays, NULL);
    a->steps = update.step;
    if (r) r->ops->applied(r);
}

static void close_arm(const struct conf *c, struct arm *a)
{
    if (a->reduce) a->reduce->ops->close(a->reduce, true);
    for (uint32_t rank = 1; a->kind != ALONE && rank < c->ranks; rank++) {
        int status = 0;
        bool fine = waitpid(a->pid[rank], &status, 0) == a->pid[rank] && !status;
        if (!fine)
            fprintf(stderr, "ranks.%s: rank %u ended with %d\n", names[a->kind], rank, status);
        if (!fine) exit(1);
    }
    wk_transformer_destroy(a->passes.transformer);
    wk_params_free(&a->params);
    free(a->value);
    free(a->m);
    free(a->v);
    free(a->gradient);
    free(a->ids);
    if (a->env) lh_env_real_destroy(a->env);
}

// ---------------------------------------------------------------- figures

// Checks that the ranks never differed; reports the buckets that were begun early.
static void look_at(struct bench_report *r, struct arm *a)
{
    struct wk_peers_status is;
    wk_reduce_peers_status(a->reduce, &is);
    if (is.failures) fprintf(stderr, "ranks.%s: %s\n", names[a->kind], is.cause);
    if (is.failures) exit(1);
    if (a->kind != BESIDE) return;
    bench_condition(r, "early", "%llu of %llu buckets", (unsigned long long)is.counts.early,
                    (unsigned long long)is.counts.buckets);
}

static void measure(struct bench_report *r, const struct conf *c, struct arm *arm, uint64_t repeats)
{
    struct bench_samples took[ARMS] = {{.n = 0}};
    char name[64];
    for (int i = 0; i < ARMS; i++) take_step(c, &arm[i]); // until all ranks have joined
    for (uint64_t n = 0; n < repeats; n++)
        for (int i = 0; i < ARMS; i++) {
            double start = bench_now_s();
            take_step(c, &arm[i]);
            bench_sample(&took[i], 1e3 * (bench_now_s() - start));
        }
    for (int i = AFTER; i < ARMS; i++) look_at(r, &arm[i]);
    for (int i = 0; i < ARMS; i++) {
        int against = i <= AFTER ? ALONE : AFTER;
        snprintf(name, sizeof name, "ranks.%s.ms", names[i]);
        bench_row(r, name, "ms", &took[i],
                  i == ALONE   ? NULL
                  : i == AFTER ? "one rank's part, alone"
                               : "one bucket, after the pass",
                  i == ALONE ? 0 : bench_median(&took[against]));
    }
}

int main(int argc, char **argv)
{
    struct bench_flag flag[] = {
        [FLAG_RANKS] = {"ranks", "processes of a region", 2, NULL},
        [FLAG_LAYERS] = {"layers", "of the model", 6, NULL},
        [FLAG_DIM] = {"dim", "its width; a multiple of 8", 384, NULL},
        [FLAG_LENGTH] = {"length", "tokens of a sequence", 64, NULL},
        [FLAG_SEQUENCES] = {"sequences", "of each rank's part", 2, NULL},
        [FLAG_BUCKET] = {"bucket-kib", "a bucket; a worker has 25600", 4096, NULL},
        [FLAG_REPEATS] = {"repeats", "steps of each that count", 9, NULL},
        [FLAG_REDUCE] = {"reduce", "ranks.reduce", 0, "tcp|nccl"},
        {NULL, NULL, 0, NULL},
    };
    setenv("OPENBLAS_NUM_THREADS", "1", 0); // ranks share the processors
    lk_blas_choose(argv);
    struct bench_report r = bench_start_with("ranks", argc, argv, flag);
    uint32_t dim = (uint32_t)flag[FLAG_DIM].value;
    struct conf c = {.ranks = (uint32_t)flag[FLAG_RANKS].value,
                     .length = (uint32_t)flag[FLAG_LENGTH].value,
                     .sequences = (uint32_t)flag[FLAG_SEQUENCES].value,
                     .bucket_bytes = flag[FLAG_BUCKET].value << 10,
                     .nccl = flag[FLAG_REDUCE].value == 1};
    c.shape = (struct wk_shape){
        256,   dim, (uint32_t)flag[FLAG_LAYERS].value, 4, 4, 8 * dim / 3, c.length, 1e4, 1e-6,
        false, true};
    BENCH_MUST(wk_shape_check(&c.shape));
    if (c.ranks < 2 || c.ranks > WK_RANKS_MAX || !c.sequences || !c.bucket_bytes ||
        !flag[FLAG_REPEATS].value || flag[FLAG_REPEATS].value > BENCH_SAMPLES_MAX) {
        fprintf(stderr, "ranks: --ranks 2 to %d, --repeats 1 to %d, the others above 0\n",
                WK_RANKS_MAX, BENCH_SAMPLES_MAX);
        return 2;
    }
    bench_condition(&r, "ranks", "%u, %u sequences of %u tokens each", c.ranks, c.sequences,
                    c.length);
    bench_condition(&r, "model", "%llu layers of width %u",
                    (unsigned long long)flag[FLAG_LAYERS].value, dim);
    bench_condition(&r, "buckets", "%s, %llu KiB, on one host", c.nccl ? "nccl" : "tcp",
                    (unsigned long long)flag[FLAG_BUCKET].value);
    struct arm arm[ARMS] = {{.kind = ALONE}, {.kind = AFTER}, {.kind = BESIDE}};
    pid_t leader = getpid();
    for (int i = AFTER; i < ARMS; i++) // before there are threads
        for (uint32_t rank = 1; rank < c.ranks; rank++) {
            arm[i].pid[rank] = fork();
            LH_ASSERT(arm[i].pid[rank] >= 0);
            if (!arm[i].pid[rank]) be_rank(&c, i, rank, leader);
        }
    for (int i = 0; i < ARMS; i++) open_arm(&c, &arm[i]);
    measure(&r, &c, arm, flag[FLAG_REPEATS].value);
    for (int i = 0; i < ARMS; i++) close_arm(&c, &arm[i]);
    return bench_finish(&r);
}
