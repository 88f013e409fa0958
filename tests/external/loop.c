// A training loop in fixed point, on leased units or data of its own, for runs with real servers:
//
//     external_loop TENSORS RANKS STEP_MS own|leased [STEPS]      (LONGHAUL_SOCKET: the worker's)
//
// A line of TENSORS is a parameter of the run's model: its name and its shape. A step lowers
// parameter i by the tokens of all ranks times exact_mass(i) (tests/crash/exact.h), so crash_mass
// can compute from the credited tokens what the pushes carried. Ranks are threads with a handle
// each; their all-reduce is a barrier. The loop ends by itself after STEPS steps. When a life is
// over, the loop begins another, as if torchrun had restarted it. $LOOP_TOKENS, if set, names a
// file that always holds the number of tokens that this process trained (8 bytes).
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/crash/exact.h"
#include "worker/client/longhaul.h"

enum { TENSORS_MAX = 256, RANKS_MAX = 4, STEP_TOKENS = 64, TIMEOUT_MS = 120000 };

struct tensor {
    char name[128];
    uint64_t shape[4], values;
    int dims;
};
static struct tensor tensor[TENSORS_MAX];
static int tensors;
static uint64_t values, step_ms, last_step;
static bool own_data;
static uint32_t ranks;
static int told = -1;    // $LOOP_TOKENS
static uint64_t trained; // rank 0's count of all ranks' tokens
static pthread_barrier_t in_step;
static uint64_t spent[RANKS_MAX]; // tokens of each rank's step
static int over[RANKS_MAX];       // whether each rank found that the life is over

struct rank {
    uint32_t rank;
    float *value;
    struct longhaul *c;
};

static void die(const struct rank *r, int err, const char *what)
{
    fprintf(stderr, "external_loop: rank %u: %s: %s: %s\n", r->rank, what, longhaul_error_name(err),
            longhaul_text(r->c));
    exit(1);
}

static void must(const struct rank *r, int err, const char *what)
{
    if (err) die(r, err, what);
}

static void read_tensors(const char *path)
{
    FILE *file = fopen(path, "r");
    char line[256];
    if (!file) exit(2);
    while (tensors < TENSORS_MAX && fgets(line, sizeof line, file)) {
        struct tensor *t = &tensor[tensors++];
        t->dims = sscanf(line, "%127s %lu %lu %lu %lu", t->name, &t->shape[0], &t->shape[1],
                         &t->shape[2], &t->shape[3]) -
                  1;
        t->values = 1;
        for (int i = 0; i < t->dims; i++) t->values *= t->shape[i];
        values += t->values;
    }
    fclose(file);
}

static void describe(const struct rank *r)
{
    uint64_t at = 0;
    for (int i = 0; i < tensors; i++) {
        const struct longhaul_tensor t = {.size = sizeof t,
                                          .dtype = LONGHAUL_FP32,
                                          .ndim = tensor[i].dims,
                                          .shape = tensor[i].shape,
                                          .name = tensor[i].name,
                                          .data = r->value + at};
        must(r, longhaul_parameter(r->c, &t), "longhaul_parameter");
        at += tensor[i].values;
    }
}

// Returns the tokens that this rank trains in this step, from the unit that it holds.
static uint64_t use(const struct rank *r, struct longhaul_unit *u)
{
    if (own_data) return STEP_TOKENS;
    if (u->from >= u->tokens && longhaul_lease(r->c, u)) return 0;
    uint64_t n = u->tokens - u->from < STEP_TOKENS ? u->tokens - u->from : STEP_TOKENS;
    if (longhaul_trained(r->c, u->unit, u->from + n)) return 0;
    u->from += n;
    return n;
}

// Returns the sum of all ranks' tokens, as an all-reduce of gradients would.
static uint64_t reduce(const struct rank *r, uint64_t mine)
{
    uint64_t sum = 0;
    spent[r->rank] = mine;
    pthread_barrier_wait(&in_step);
    for (uint32_t i = 0; i < ranks; i++) sum += spent[i];
    pthread_barrier_wait(&in_step);
    return sum;
}

// Returns whether any rank found that this life is over.
static bool agree(const struct rank *r, bool mine)
{
    bool any = false;
    over[r->rank] = mine;
    pthread_barrier_wait(&in_step);
    for (uint32_t i = 0; i < ranks; i++) any |= over[i];
    pthread_barrier_wait(&in_step);
    return any;
}

static void train(const struct rank *r, uint64_t tokens)
{
    struct timespec t = {(time_t)(step_ms / 1000), (long)(step_ms % 1000) * 1000000};
    for (uint64_t i = 0; i < values && tokens; i++)
        r->value[i] -= (float)((double)tokens * exact_mass(i));
    nanosleep(&t, NULL);
}

static void tell(const struct rank *r, uint64_t tokens)
{
    if (r->rank || told < 0) return;
    trained += tokens;
    if (pwrite(told, &trained, sizeof trained, 0) != sizeof trained) exit(3);
}

static int step_once(const struct rank *r, uint64_t step, struct longhaul_unit *u, unsigned *due)
{
    uint64_t mine = use(r, u), all = reduce(r, mine);
    train(r, all);
    tell(r, all);
    int err = longhaul_boundary(r->c, step, mine, due);
    if (!err && *due & LONGHAUL_RENEW) err = longhaul_renew(r->c);
    if (!err && *due & LONGHAUL_CUT) err = longhaul_cut(r->c);
    if (!err && (*due & LONGHAUL_WAIT || !all)) longhaul_wait(r->c, 20);
    while (!err && *due & LONGHAUL_PAUSE && longhaul_wait(r->c, 1000) == LONGHAUL_E_TIMEOUT)
        continue;
    return err;
}

// Trains one life. Returns 0 when the run is over.
static int live(const struct rank *r)
{
    struct longhaul_unit u = {0, 0, 0};
    unsigned due = 0;
    must(r, longhaul_connect(r->c, TIMEOUT_MS), "longhaul_connect");
    must(r, longhaul_start(r->c), "longhaul_start");
    for (uint64_t step = 1; !(due & LONGHAUL_DRAIN) && (!last_step || step <= last_step); step++) {
        int err = step_once(r, step, &u, &due);
        if (err && err != LONGHAUL_E_RESTART) die(r, err, "a boundary");
        if (agree(r, err != 0)) return LONGHAUL_E_RESTART;
    }
    int err = longhaul_finish(r->c, TIMEOUT_MS);
    if (err && err != LONGHAUL_E_RESTART) die(r, err, "longhaul_finish");
    return agree(r, err != 0) ? LONGHAUL_E_RESTART : 0;
}

static void *run(void *arg)
{
    struct rank *r = arg;
    r->value = calloc(values, sizeof *r->value);
    if (!r->value || longhaul_open(&r->c)) exit(1);
    must(r, longhaul_ranks(r->c, r->rank, ranks), "longhaul_ranks");
    describe(r);
    while (live(r)) continue;
    return NULL;
}

static void leave_final(const struct rank *all)
{
    for (uint32_t i = 1; i < ranks; i++)
        if (memcmp(all[0].value, all[i].value, values * sizeof(float)) != 0) exit(4);
    fwrite(all[0].value, sizeof(float), values, stdout);
}

int main(int argc, char **argv)
{
    static struct rank rank[RANKS_MAX];
    pthread_t thread[RANKS_MAX];
    if (argc < 5) return 2;
    read_tensors(argv[1]);
    ranks = (uint32_t)strtoul(argv[2], NULL, 10);
    step_ms = strtoul(argv[3], NULL, 10);
    own_data = strcmp(argv[4], "own") == 0;
    last_step = argc > 5 ? strtoul(argv[5], NULL, 10) : 0;
    if (!values || !ranks || ranks > RANKS_MAX) return 2;
    const char *tokens = getenv("LOOP_TOKENS");
    if (tokens && (told = open(tokens, O_WRONLY | O_CREAT | O_CLOEXEC, 0644)) < 0) return 2;
    pthread_barrier_init(&in_step, NULL, ranks);
    for (uint32_t i = 0; i < ranks; i++) {
        rank[i].rank = i;
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
