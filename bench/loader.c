// The loader's share of a cold, slow source's rate, and the time that training waits for it.
// The source answers each request after a latency and limits the rate of all requests together,
// like a file server far away. Every figure is beside the source alone, asked by bare threads in
// the same run, or beside the same files read and hashed alone.
//
//   loader.cold.mib_s            tokens as fast as possible, empty cache, several fetches at once
//   loader.cold.one.mib_s        the same, one fetch at a time: a loader that waits for each
//   loader.cold.first_ms         from the start to the first tokens
//   loader.cached.mib_s          a second start on the cache
//   loader.paced.stall_percent   training at 3/4 of the source's rate: its waits, over its time
#include <openssl/evp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bench/report.h"
#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/format/tokens.h"
#include "worker/data/loader.h"

enum { REPEATS = 5, TOKENS = 1 << 16, SEQUENCE = 1 << 10, UNITS_MAX = 1024, WINDOW = 4 };
static const double MIB = 1 << 20;

static void wait_until(double s)
{
    double left = s - bench_now_s();
    if (left <= 0) return;
    struct timespec t = {(time_t)left, (long)((left - (double)(time_t)left) * 1e9)};
    nanosleep(&t, NULL);
}

// ---------------------------------------------------------------- the slow source

struct slow {
    struct wk_source base; // first
    struct wk_source *near;
    double latency_s, bytes_s;
    pthread_mutex_t lock;
    double line_free_s; // when the line has sent everything requested
};

static lh_err slow_read(struct wk_source *s, const char *file, uint64_t at, void *out, size_t n,
                        size_t *got)
{
    struct slow *f = (struct slow *)s;
    wait_until(bench_now_s() + f->latency_s);
    lh_err err = f->near->ops->read(f->near, file, at, out, n, got);
    pthread_mutex_lock(&f->lock);
    double now = bench_now_s(), from = f->line_free_s > now ? f->line_free_s : now;
    double sent = f->line_free_s = from + (double)*got / f->bytes_s;
    pthread_mutex_unlock(&f->lock);
    wait_until(sent);
    return err;
}

static void slow_close(struct wk_source *s) // the bench's own
{
    (void)s;
}

// ---------------------------------------------------------------- the data

struct world {
    char dir[64], cache[80];
    struct lh_unit unit[UNITS_MAX];
    struct lh_units units;
    struct slow slow;
    uint32_t fetches;
    double bytes; // bytes of all units, only tokens
};

static void put_file(struct world *w) // one file, all units in a row
{
    char path[96];
    struct lh_buf b = lh_buf((size_t)1 << 31);
    uint64_t x = 1;
    snprintf(path, sizeof path, "%s/tokens.bin", w->dir);
    lh_tokens_put_header(&b, 2, w->units.count * TOKENS);
    for (uint64_t i = 0; i < w->units.count * TOKENS; i++) {
        x = x * UINT64_C(6364136223846793005) + 1;
        lh_tokens_put(&b, 2, (uint32_t)(x >> 33) % 50000);
    }
    for (uint64_t u = 0; u < w->units.count; u++) {
        struct lh_unit *unit = &w->unit[u];
        *unit = (struct lh_unit){.id = u, .from = u * TOKENS, .tokens = TOKENS};
        snprintf(unit->file, sizeof unit->file, "tokens.bin");
        EVP_Digest(b.data + LH_TOKENS_HEADER_BYTES + u * TOKENS * 2, TOKENS * 2, unit->sha256, NULL,
                   EVP_sha256(), NULL);
    }
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(b.data, 1, b.len, file) != b.len || fclose(file)) exit(1);
    lh_buf_free(&b);
}

static void clear_cache(const struct world *w)
{
    struct wk_cache *c;
    BENCH_MUST(wk_cache_open(w->cache, 0, &c)); // no space: every file is removed
    wk_cache_settle(c);
    wk_cache_close(c);
}

static void open_world(struct world *w, uint64_t units)
{
    static const struct wk_source_ops ops = {slow_read, slow_close, NULL, NULL};
    snprintf(w->dir, sizeof w->dir, "/tmp/lh_bench.XXXXXX");
    if (!mkdtemp(w->dir)) exit(1);
    snprintf(w->cache, sizeof w->cache, "%s/cache", w->dir);
    w->units =
        (struct lh_units){.unit = w->unit, .count = units, .vocabulary = 50000, .token_bytes = 2};
    w->bytes = (double)(units * TOKENS * 2);
    put_file(w);
    BENCH_MUST(wk_source_folder(w->dir, &w->slow.near));
    w->slow.base.ops = &ops;
    pthread_mutex_init(&w->slow.lock, NULL);
}

static void close_world(struct world *w)
{
    char path[96];
    clear_cache(w);
    rmdir(w->cache);
    snprintf(path, sizeof path, "%s/tokens.bin", w->dir);
    unlink(path);
    rmdir(w->dir);
    w->slow.near->ops->close(w->slow.near);
}

// ---------------------------------------------------------------- bare threads on the same source

struct bare {
    struct world *w;
    _Atomic uint64_t next;
};

static void *ask(void *arg)
{
    struct bare *b = arg;
    struct wk_source *s = &b->w->slow.base;
    uint8_t *bytes = malloc(TOKENS * 2 + 2);
    for (uint64_t u; bytes && (u = atomic_fetch_add(&b->next, 1)) < b->w->units.count;) {
        size_t got, n = TOKENS * 2 + (u + 1 < b->w->units.count ? 2 : 0);
        BENCH_MUST(
            s->ops->read(s, "tokens.bin", LH_TOKENS_HEADER_BYTES + u * TOKENS * 2, bytes, n, &got));
    }
    free(bytes);
    return NULL;
}

static double bare_s(struct world *w, uint32_t threads)
{
    struct bare b = {.w = w};
    pthread_t thread[WK_FETCHES_MAX];
    double from = bench_now_s();
    for (uint32_t i = 0; i < threads; i++)
        if (pthread_create(&thread[i], NULL, ask, &b)) exit(1);
    for (uint32_t i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    return bench_now_s() - from;
}

// Reads and hashes the files of a second start: the cache needs at least that.
static double hash_s(const struct world *w)
{
    char path[256], hex[65];
    uint8_t *bytes = malloc(TOKENS * 2 + 22), hash[EVP_MAX_MD_SIZE];
    double from = bench_now_s();
    for (uint64_t u = 0; u < w->units.count && bytes; u++) {
        for (int i = 0; i < 32; i++) snprintf(hex + 2 * i, 3, "%02x", w->unit[u].sha256[i]);
        snprintf(path, sizeof path, "%s/00000000-%d-%s.unit", w->cache, (int)u, hex);
        FILE *file = fopen(path, "rb");
        if (!file || fread(bytes, 1, TOKENS * 2 + 22, file) != TOKENS * 2 + 22) exit(1);
        fclose(file);
        EVP_Digest(bytes + 16, TOKENS * 2, hash, NULL, EVP_sha256(), NULL);
        if (memcmp(hash, w->unit[u].sha256, 32) != 0) exit(1);
    }
    free(bytes);
    return bench_now_s() - from;
}

// ---------------------------------------------------------------- the loader

struct run {
    double all_s, first_s, waited_s;
};

// Trains units in order, announced as far ahead as the loader asks; unit_s: the time of each.
static struct run train(struct world *w, uint32_t fetches, bool cache, double unit_s)
{
    struct wk_loader_conf conf = {.units = &w->units,
                                  .source = &w->slow.base,
                                  .depth = WINDOW + WK_AHEAD_MAX,
                                  .fetches = fetches,
                                  .cache = cache ? w->cache : NULL,
                                  .cache_bytes = (uint64_t)(2 * w->bytes)};
    struct wk_loader_status status;
    struct wk_loader *l;
    struct run r = {0};
    uint32_t ids[SEQUENCE + 1];
    uint64_t announced = 0;
    double from = bench_now_s(), due = from;
    BENCH_MUST(wk_loader_open(&conf, &l));
    for (uint64_t u = 0; u < w->units.count; u++) {
        wk_loader_status(l, &status);
        for (; announced < w->units.count && announced <= u + status.ahead; announced++)
            wk_loader_announce(l, announced);
        for (uint64_t at = 0; at < TOKENS; at += SEQUENCE)
            BENCH_MUST(wk_loader_read(l, u, at, SEQUENCE, ids));
        if (u == 0) r.first_s = bench_now_s() - from;
        double now = bench_now_s();
        due = (due > now ? due : now) + unit_s;
        if (unit_s > 0) wait_until(due);
    }
    r.all_s = bench_now_s() - from;
    wk_loader_status(l, &status);
    r.waited_s = (double)status.waited_ns * 1e-9;
    wk_loader_close(l);
    return r;
}

// ---------------------------------------------------------------- rows

struct figures {
    struct bench_samples bare, one, cold, single, first, cached, hash, stall;
    double alone_ms, stall_least;
};

static void repeat(struct world *w, struct figures *f)
{
    double mib = w->bytes / MIB;
    bench_sample(&f->bare, mib / bare_s(w, w->fetches));
    bench_sample(&f->one, mib / bare_s(w, 1));
    clear_cache(w);
    struct run cold = train(w, w->fetches, true, 0);
    bench_sample(&f->cold, mib / cold.all_s);
    bench_sample(&f->first, 1e3 * cold.first_s);
    bench_sample(&f->cached, mib / train(w, w->fetches, true, 0).all_s);
    bench_sample(&f->hash, mib / hash_s(w));
    bench_sample(&f->single, mib / train(w, 1, false, 0).all_s);
    double unit_s = bare_s(w, w->fetches) / (double)w->units.count / 0.75;
    struct run paced = train(w, w->fetches, false, unit_s);
    bench_sample(&f->stall, 100 * paced.waited_s / paced.all_s);
    f->stall_least = 100 * f->alone_ms / 1e3 / paced.all_s;
}

static void report(struct bench_report *r, const struct world *w, const struct figures *f)
{
    char bare[64], one[] = "the source asked by one bare thread";
    snprintf(bare, sizeof bare, "the source asked by %u bare threads", w->fetches);
    bench_row(r, "loader.cold.mib_s", "MiB/s", &f->cold, bare, bench_median(&f->bare));
    bench_row(r, "loader.cold.one.mib_s", "MiB/s", &f->single, one, bench_median(&f->one));
    bench_row(r, "loader.cold.first_ms", "ms", &f->first, "header and unit from the source alone",
              f->alone_ms);
    bench_row(r, "loader.cached.mib_s", "MiB/s", &f->cached, "the files read and hashed alone",
              bench_median(&f->hash));
    bench_row(r, "loader.paced.stall_percent", "%", &f->stall, "the first unit, which nobody could",
              f->stall_least);
}

int main(int argc, char **argv)
{
    struct bench_flag flags[] = {{"units", "of 128 KiB", 96, NULL},
                                 {"latency-ms", "of every request", 40, NULL},
                                 {"mib-s", "that the source sends", 24, NULL},
                                 {"fetches", "at once", 16, NULL},
                                 {NULL, NULL, 0, NULL}};
    struct bench_report r = bench_start_with("loader", argc, argv, flags);
    struct world *w = calloc(1, sizeof *w);
    struct figures f = {0};
    if (!w || flags[0].value < 2 || flags[0].value > UNITS_MAX || !flags[2].value ||
        !flags[3].value || flags[3].value > WK_FETCHES_MAX) {
        fprintf(stderr, "bench_loader: 2 to %d units, a rate, 1 to %d fetches\n", UNITS_MAX,
                WK_FETCHES_MAX);
        return 2;
    }
    open_world(w, flags[0].value);
    w->slow.latency_s = (double)flags[1].value / 1e3;
    w->slow.bytes_s = (double)flags[2].value * MIB;
    w->fetches = (uint32_t)flags[3].value;
    f.alone_ms = 2 * (double)flags[1].value + 1e3 * TOKENS * 2 / w->slow.bytes_s;
    bench_condition(&r, "source", "%d ms a request, %d MiB/s together", (int)flags[1].value,
                    (int)flags[2].value);
    bench_condition(&r, "data", "%d units of %d tokens, u16", (int)flags[0].value, (int)TOKENS);
    bench_condition(&r, "fetches", "%u", w->fetches);
    for (int i = 0; i < REPEATS; i++) repeat(w, &f);
    report(&r, w, &f);
    close_world(w);
    free(w);
    return bench_finish(&r);
}
