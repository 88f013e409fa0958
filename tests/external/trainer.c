// A fake trainer on the real client library: a step adds a known amount to every parameter. Ranks
// are threads with a handle each, kept in step by a barrier as an all-reduce would.
//
//     external_trainer DIR RANKS        (LONGHAUL_SOCKET names the worker's socket)
//
// Its parameters are on a device if LONGHAUL_CUDART names a runtime. It exits with 0 after
// longhaul_finish(), with rank 0's parameters in DIR/final; and with 3 when a life of several ranks
// is over, so that its starter restarts all of them.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/external/world.h"
#include "worker/client/longhaul.h"

enum { STEP_NS = 100000, TIMEOUT_MS = 20000, RANKS_MAX = 2, ROWS = 2 };

static pthread_barrier_t in_step;

struct rank {
    uint32_t rank, ranks;
    const char *dir;
    float *value; // the whole model; of `rows`, only this rank's are valid
    struct longhaul *c;
};

static void die(struct rank *r, int err, const char *what)
{
    if (err == LONGHAUL_E_RESTART && r->ranks > 1) exit(3);
    fprintf(stderr, "external_trainer: rank %u: %s: %s: %s\n", r->rank, what,
            longhaul_error_name(err), longhaul_text(r->c));
    exit(1);
}

#define MUST(r, call)                                                                              \
    do {                                                                                           \
        int must_ = (call);                                                                        \
        if (must_) die(r, must_, #call);                                                           \
    } while (0)

static void describe(struct rank *r)
{
    uint64_t at = 0;
    int32_t memory = getenv("LONGHAUL_CUDART") ? LONGHAUL_CUDA : LONGHAUL_HOST;
    for (int k = 0; k < EX_TENSORS; k++) {
        uint64_t n = 1;
        for (int i = 0; i < ex_dims[k]; i++) n *= ex_shape[k][i];
        struct longhaul_tensor t = {.size = sizeof t,
                                    .dtype = LONGHAUL_FP32,
                                    .memory = memory,
                                    .ndim = ex_dims[k],
                                    .shape = ex_shape[k],
                                    .name = ex_name[k],
                                    .data = r->value + at};
        if (k == ROWS && r->ranks > 1) { // Shard(0)
            t.first = n * r->rank / r->ranks;
            t.count = n * (r->rank + 1) / r->ranks - t.first;
            t.data = r->value + at + t.first;
        }
        MUST(r, longhaul_parameter(r->c, &t));
        at += n;
    }
}

static void train(struct rank *r, uint64_t step)
{
    struct timespec t = {0, STEP_NS}; // time of forward and backward, beside a cut's copies
    nanosleep(&t, NULL);
    MUST(r, longhaul_before_step(r->c));
    for (uint64_t i = 0; i < EX_VALUES; i++) r->value[i] += ex_progress(i, step);
}

// Returns the tokens that this step trains; *u keeps the lease that they belong to.
static uint64_t use_unit(struct rank *r, struct longhaul_unit *u)
{
    if (u->from >= u->tokens && longhaul_lease(r->c, u) != LONGHAUL_OK) return 0;
    if (longhaul_trained(r->c, u->unit, u->from + EX_STEP_TOKENS) != LONGHAUL_OK) return 0;
    u->from += EX_STEP_TOKENS;
    return EX_STEP_TOKENS;
}

// Trains one life. Returns whether the run is over.
static int live(struct rank *r)
{
    struct longhaul_unit u = {0, 0, 0};
    MUST(r, longhaul_connect(r->c, TIMEOUT_MS));
    MUST(r, longhaul_start(r->c));
    for (uint64_t step = 1;; step++) {
        unsigned due = 0;
        train(r, step);
        uint64_t tokens = use_unit(r, &u);
        if (r->ranks > 1) pthread_barrier_wait(&in_step);
        int err = longhaul_boundary(r->c, step, tokens, &due);
        if (err == LONGHAUL_E_RESTART && r->ranks == 1) return 0;
        if (err) die(r, err, "longhaul_boundary");
        if (due & LONGHAUL_RENEW) MUST(r, longhaul_renew(r->c));
        if (due & LONGHAUL_CUT) MUST(r, longhaul_cut(r->c));
        if (due & LONGHAUL_DRAIN) break;
        if (due & LONGHAUL_WAIT) longhaul_wait(r->c, 10);
        while (due & LONGHAUL_PAUSE && longhaul_wait(r->c, 1000) == LONGHAUL_E_TIMEOUT) continue;
    }
    MUST(r, longhaul_finish(r->c, TIMEOUT_MS));
    return 1;
}

static void *run(void *arg)
{
    struct rank *r = arg;
    r->value = calloc(EX_VALUES, sizeof *r->value);
    if (!r->value || longhaul_open(&r->c)) exit(1);
    MUST(r, longhaul_ranks(r->c, r->rank, r->ranks));
    describe(r);
    while (!live(r)) continue;
    return NULL;
}

static void leave_final(const struct rank *all)
{
    char path[300];
    snprintf(path, sizeof path, "%s/final", all[0].dir);
    if (all[0].ranks > 1) // rank 1's rows
        for (uint64_t i = 3001 + 3000; i < 3001 + 6000; i++) all[0].value[i] = all[1].value[i];
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(all[0].value, sizeof(float), EX_VALUES, file) != EX_VALUES || fclose(file))
        exit(1);
}

int main(int argc, char **argv)
{
    struct rank rank[RANKS_MAX];
    pthread_t thread[RANKS_MAX];
    if (argc != 3) return 2;
    uint32_t ranks = (uint32_t)strtoul(argv[2], NULL, 10);
    if (!ranks || ranks > RANKS_MAX) return 2;
    pthread_barrier_init(&in_step, NULL, ranks);
    for (uint32_t i = 0; i < ranks; i++) {
        rank[i] = (struct rank){.rank = i, .ranks = ranks, .dir = argv[1]};
        if (pthread_create(&thread[i], NULL, run, &rank[i])) return 1;
    }
    for (uint32_t i = 0; i < ranks; i++) pthread_join(thread[i], NULL);
    leave_final(rank);
    for (uint32_t i = 0; i < ranks; i++) {
        longhaul_close(rank[i].c);
        free(rank[i].value);
    }
    return 0;
}
