// The cost of a boundary, a cut and a renewal to an external training loop, beside memcpy of the
// same parameters by the same threads, measured alternately.
//
//   frontdoor.boundary.us        a boundary at which nothing is due
//   frontdoor.cut.SIZE.ms        longhaul_cut_piece() on all threads
//   frontdoor.renew.SIZE.ms      longhaul_renew_piece(), a dense correction
//   frontdoor.sparse.SIZE.ms     the same, one value of each 64
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/report.h"
#include "common/base/check.h"
#include "worker/client/longhaul.h"
#include "worker/external/external.h"
#include "worker/external/socket.h"

enum { REPEATS = 5, THREADS_MAX = 16, IDLE = 2000, TIMEOUT_MS = 60000 };

struct world {
    struct lh_env *env;
    struct wk_external *x;
    pthread_t loop;
    char path[64];
    uint64_t values;
    uint32_t threads;
    float *view, *mine, *other;
    struct longhaul *c;
    uint64_t step;
    void (*errand)(struct world *w);
    sem_t done;
};

static void must(const struct world *w, int err)
{
    if (!err) return;
    fprintf(stderr, "%s: %s\n", longhaul_error_name(err), longhaul_text(w->c));
    exit(1);
}

// ---------------------------------------------------------------- the worker

static lh_err described(void *arg, const struct wk_channel_tensor *tensor, uint32_t tensors)
{
    (void)arg, (void)tensor, (void)tensors;
    return LH_OK;
}

static void view(void *arg, uint32_t part, bool final, float *out)
{
    const struct world *w = arg;
    (void)part, (void) final;
    memcpy(out, w->view, w->values * sizeof *out);
}

static uint64_t committed(void *arg, const uint8_t life[WK_CHANNEL_LIFE], uint32_t part)
{
    (void)arg, (void)life, (void)part;
    return 0;
}

static void came(void *arg, const uint8_t life[WK_CHANNEL_LIFE], bool resumed)
{
    (void)arg, (void)life, (void)resumed;
}

static void trained(void *arg, uint32_t rank, uint64_t unit, uint64_t upto, uint64_t step)
{
    (void)arg, (void)rank, (void)unit, (void)upto, (void)step;
}

static void cut(void *arg, const struct wk_external_cut *c)
{
    struct world *w = arg;
    wk_external_committed(w->x, 0, c->number);
}

static void ending(void *arg)
{
    (void)arg;
}

static void over(void *arg, uint64_t lost, bool orderly)
{
    (void)arg, (void)lost, (void)orderly;
}

static void run_errand(void *arg)
{
    struct world *w = arg;
    w->errand(w);
    sem_post(&w->done);
}

static void on_loop(struct world *w, void (*errand)(struct world *w))
{
    w->errand = errand;
    lh_post(w->env, run_errand, w);
    while (sem_wait(&w->done)) continue;
}

static void nothing(struct world *w)
{
    (void)w;
}

static void want(struct world *w)
{
    wk_external_want(w->x, 0, 0);
}

static void publish(struct world *w)
{
    LH_ASSERT(wk_external_renew(w->x, 0, &(struct wk_external_view){.theta = w->view}) == LH_OK);
}

static void reported(void *arg, const char *name, double value)
{
    (void)arg, (void)name, (void)value;
}

static void settled(void *arg)
{
    (void)arg;
}

static void damaged(void *arg, uint64_t unit)
{
    (void)arg, (void)unit;
}

static void *run_loop(void *arg)
{
    lh_env_real_run(arg);
    return NULL;
}

static void open_world(struct world *w)
{
    static const struct wk_external_ops ops = {
        described, view, committed, came, trained, reported, cut, ending, over, settled, damaged};
    const uint64_t first[] = {0, w->values}, shape[] = {w->values};
    w->view = calloc(w->values, sizeof *w->view);
    w->mine = calloc(w->values, sizeof *w->mine);
    w->other = malloc(w->values * sizeof *w->other);
    LH_ASSERT(w->view && w->mine && w->other && lh_env_real_create(&w->env) == LH_OK);
    memset(w->other, 1, w->values * sizeof *w->other);
    sem_init(&w->done, 0, 0);
    snprintf(w->path, sizeof w->path, "/tmp/lh_frontdoor.%ld", (long)getpid());
    struct wk_external_conf conf = {
        .env = w->env, .values = w->values, .parts = 1, .first = first, .ranks = 1, .run_on = 1};
    lh_err err = wk_external_listen(&conf, &ops, w, w->path, &w->x);
    if (err) fprintf(stderr, "%s\n", lh_err_text(err));
    LH_ASSERT(!err && !pthread_create(&w->loop, NULL, run_loop, w->env));
    setenv("LONGHAUL_SOCKET", w->path, 1);
    must(w, longhaul_open(&w->c));
    struct longhaul_tensor t = {.size = sizeof t,
                                .dtype = LONGHAUL_FP32,
                                .ndim = 1,
                                .shape = shape,
                                .name = "all",
                                .data = w->mine};
    must(w, longhaul_parameter(w->c, &t));
    must(w, longhaul_connect(w->c, TIMEOUT_MS));
    must(w, longhaul_start(w->c));
}

static void close_world(struct world *w)
{
    longhaul_close(w->c);
    lh_env_real_stop(w->env);
    pthread_join(w->loop, NULL);
    wk_external_stop(w->x);
    lh_post(w->env, (lh_fn)lh_env_real_stop, w->env); // after everything that is still posted
    lh_env_real_run(w->env);
    lh_env_real_destroy(w->env);
    free(w->view);
    free(w->mine);
    free(w->other);
}

// ---------------------------------------------------------------- on all threads

struct piece {
    struct world *w;
    uint32_t i;
    int (*run)(struct world *w, uint32_t i);
};

static int copy_piece(struct world *w, uint32_t i)
{
    uint64_t from = w->values * i / w->threads, until = w->values * (i + 1) / w->threads;
    memcpy(w->other + from, w->mine + from, (until - from) * sizeof *w->mine);
    return 0;
}

static int cut_piece(struct world *w, uint32_t i)
{
    return longhaul_cut_piece(w->c, i, w->threads);
}

static int renew_piece(struct world *w, uint32_t i)
{
    return longhaul_renew_piece(w->c, i, w->threads);
}

static void *run_piece(void *arg)
{
    struct piece *p = arg;
    must(p->w, p->run(p->w, p->i));
    return NULL;
}

static double timed_ms(struct world *w, int (*run)(struct world *w, uint32_t i))
{
    pthread_t thread[THREADS_MAX];
    struct piece piece[THREADS_MAX];
    double start = bench_now_s();
    for (uint32_t i = 1; i < w->threads; i++) {
        piece[i] = (struct piece){w, i, run};
        LH_ASSERT(!pthread_create(&thread[i], NULL, run_piece, &piece[i]));
    }
    must(w, run(w, 0));
    for (uint32_t i = 1; i < w->threads; i++) pthread_join(thread[i], NULL);
    return (bench_now_s() - start) * 1e3;
}

static void boundary(struct world *w, unsigned wanted)
{
    unsigned due = 0;
    must(w, longhaul_boundary(w->c, ++w->step, 1, &due));
    LH_ASSERT(due == wanted);
}

// ---------------------------------------------------------------- the figures

struct figures {
    struct bench_samples copy, cut, renew, sparse;
};

static void measure_round(struct world *w, struct figures *f)
{
    on_loop(w, want);
    boundary(w, LONGHAUL_CUT);
    bench_sample(&f->copy, timed_ms(w, copy_piece));
    bench_sample(&f->cut, timed_ms(w, cut_piece));
    must(w, longhaul_cut_done(w->c));
    do {
        on_loop(w, nothing); // the commit came before it, or will before the next one
    } while (longhaul_wait(w->c, TIMEOUT_MS) != LONGHAUL_OK);
    for (uint64_t i = 0; i < w->values; i++) w->view[i] += 1;
    on_loop(w, publish);
    boundary(w, LONGHAUL_RENEW);
    bench_sample(&f->copy, timed_ms(w, copy_piece));
    bench_sample(&f->renew, timed_ms(w, renew_piece));
    must(w, longhaul_renew_done(w->c));
    uint64_t draw = 1; // the largest values of a push may be anywhere
    for (uint64_t i = 0; i + 64 <= w->values; i += 64) {
        draw = draw * UINT64_C(6364136223846793005) + 1442695040888963407;
        w->view[i + (draw >> 58)] += 1;
    }
    on_loop(w, publish);
    boundary(w, LONGHAUL_RENEW);
    bench_sample(&f->sparse, timed_ms(w, renew_piece));
    must(w, longhaul_renew_done(w->c));
}

static void measure_idle(struct world *w, struct bench_report *r)
{
    struct bench_samples s = {.n = 0};
    for (int k = 0; k < REPEATS; k++) {
        double start = bench_now_s();
        for (int i = 0; i < IDLE; i++) boundary(w, 0);
        bench_sample(&s, (bench_now_s() - start) * 1e6 / IDLE);
    }
    bench_row(r, "frontdoor.boundary.us", "us", &s, NULL, 0);
}

static void measure(struct bench_report *r, uint64_t values, uint32_t threads, bool idle)
{
    struct world w = {.values = values, .threads = threads};
    struct figures f = {.copy = {.n = 0}};
    char name[64], size[BENCH_SIZE_BYTES];
    bench_size(values, size);
    open_world(&w);
    if (idle) measure_idle(&w, r);
    struct figures warm = f;
    measure_round(&w, &warm);
    for (int i = 0; i < REPEATS; i++) measure_round(&w, &f);
    double copy = bench_median(&f.copy);
#define ROW(what)                                                                                  \
    snprintf(name, sizeof name, "frontdoor." #what ".%s.ms", size);                                \
    bench_row(r, name, "ms", &f.what, "memcpy, the same threads", copy)
    ROW(cut);
    ROW(renew);
    ROW(sparse);
    close_world(&w);
}

int main(int argc, char **argv)
{
    struct bench_flag flag[] = {{"values", "parameters of the smaller size", 10000000, NULL},
                                {"more-values", "and of the larger; 0: none", 100000000, NULL},
                                {"threads", "threads of the trainer; 0: as many as cores", 0, NULL},
                                {NULL, NULL, 0, NULL}};
    struct bench_report r = bench_start_with("frontdoor_client", argc, argv, flag);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t threads = flag[2].value ? flag[2].value : (uint64_t)cores;
    if (threads > THREADS_MAX) threads = THREADS_MAX;
    bench_condition(&r, "threads", "%llu", (unsigned long long)threads);
    measure(&r, flag[0].value, (uint32_t)threads, true);
    if (flag[1].value) measure(&r, flag[1].value, (uint32_t)threads, false);
    return bench_finish(&r);
}
