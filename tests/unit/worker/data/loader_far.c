// worker/data/loader.c over a remote source: its cache, the warm-up at the start, concurrent
// fetches. This test's source can block its readers and counts them.
// labels: tsan
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/format/tokens.h"
#include "tests/remove_tree.h"
#include "tests/test.h"
#include "worker/data/loader.h"

enum { UNITS = 40, TOKENS = 64, OWN = 30, FETCHES = 4 };
enum { ENTRY_BYTES = (TOKENS + 1) * 2 + 20 }; // bytes of a unit in the cache

struct far {
    struct wk_source base; // first
    struct wk_source *near;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned inside, wanted; // inside: current readers; they block until `wanted` are inside
    unsigned delay_us;       // duration of each read
    bool held;               // readers of europe's files block
    bool gone;               // every read fails
};

struct fixture {
    char dir[64], cache[80];
    struct lh_unit unit[UNITS];
    char name[UNITS][16];
    struct lh_units units;
    struct far far;
};

static struct timespec in_a_minute(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += 60;
    return t;
}

static lh_err far_read(struct wk_source *s, const char *file, uint64_t at, void *out, size_t n,
                       size_t *got)
{
    struct far *f = (struct far *)s;
    struct timespec end = in_a_minute();
    int late = 0;
    pthread_mutex_lock(&f->lock);
    bool gone = f->gone;
    f->inside++;
    pthread_cond_broadcast(&f->changed);
    while (f->inside < f->wanted && !late)
        late = pthread_cond_timedwait(&f->changed, &f->lock, &end);
    if (!late) f->wanted = 0; // all came: nobody blocks any more
    while (f->held && strtol(file + 1, NULL, 10) >= OWN) pthread_cond_wait(&f->changed, &f->lock);
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    usleep(f->delay_us);
    *got = 0;
    lh_err err = gone ? lh_fail(LH_ERR_IO, "the source is away")
                      : f->near->ops->read(f->near, file, at, out, n, got);
    pthread_mutex_lock(&f->lock);
    f->inside--;
    pthread_mutex_unlock(&f->lock);
    return err;
}

static void far_close(struct wk_source *s) // the fixture frees it
{
    (void)s;
}

static void put_unit(struct fixture *f, uint64_t u)
{
    struct lh_unit *x = &f->unit[u];
    struct lh_buf b = lh_buf(1 << 16);
    char path[256];
    *x = (struct lh_unit){.id = u, .tokens = TOKENS};
    snprintf(x->file, sizeof x->file, "t%d.bin", (int)u);
    snprintf(x->home, sizeof x->home, u < OWN ? "asia" : "europe");
    lh_tokens_put_header(&b, 2, TOKENS);
    for (uint32_t i = 0; i < TOKENS; i++) lh_tokens_put(&b, 2, (uint32_t)(u * 100 + i) % 5000);
    assert_int_equal(EVP_Digest(b.data + LH_TOKENS_HEADER_BYTES, b.len - LH_TOKENS_HEADER_BYTES,
                                x->sha256, NULL, EVP_sha256(), NULL),
                     1);
    snprintf(path, sizeof path, "%s/%s", f->dir, x->file);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(b.data, 1, b.len, file), b.len);
    assert_int_equal(fclose(file), 0);
    lh_buf_free(&b);
}

static int setup(void **state)
{
    static const struct wk_source_ops ops = {far_read, far_close, NULL, NULL};
    struct fixture *f = calloc(1, sizeof *f);
    *state = f;
    snprintf(f->dir, sizeof f->dir, "/tmp/lh-far-XXXXXX");
    if (!mkdtemp(f->dir)) return -1;
    snprintf(f->cache, sizeof f->cache, "%s/cache", f->dir);
    f->units =
        (struct lh_units){.unit = f->unit, .count = UNITS, .vocabulary = 5000, .token_bytes = 2};
    for (uint64_t u = 0; u < UNITS; u++) put_unit(f, u);
    pthread_mutex_init(&f->far.lock, NULL);
    pthread_cond_init(&f->far.changed, NULL);
    f->far.base.ops = &ops;
    return wk_source_folder(f->dir, &f->far.near) == LH_OK ? 0 : -1;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    int failed = remove_tree(f->dir);
    f->far.near->ops->close(f->far.near);
    pthread_cond_destroy(&f->far.changed);
    pthread_mutex_destroy(&f->far.lock);
    free(f);
    return failed;
}

static struct wk_loader_conf conf_of(struct fixture *f)
{
    return (struct wk_loader_conf){.units = &f->units,
                                   .source = &f->far.base,
                                   .depth = UNITS,
                                   .fetches = FETCHES,
                                   .cache = f->cache,
                                   .cache_bytes = UNITS * ENTRY_BYTES};
}

static struct wk_loader *open_loader(const struct wk_loader_conf *conf)
{
    struct wk_loader *l;
    lh_err err = wk_loader_open(conf, &l);
    if (err) fail_msg("%s", lh_err_text(err));
    return l;
}

static void expect_unit(struct wk_loader *l, uint64_t unit)
{
    uint32_t ids[TOKENS + 1];
    lh_err err = wk_loader_read(l, unit, 0, TOKENS, ids);
    if (err) fail_msg("unit %d: %s", (int)unit, lh_err_text(err));
    for (uint32_t i = 0; i < TOKENS; i++) assert_int_equal(ids[i], (unit * 100 + i) % 5000);
    assert_int_equal(ids[TOKENS], ids[TOKENS - 1]);
}

static struct wk_loader_status status_of(struct wk_loader *l)
{
    struct wk_loader_status s;
    wk_loader_status(l, &s);
    return s;
}

#define IN_FIXTURE(name, parameter) TEST_WITH(name, parameter, setup, teardown)

IN_FIXTURE(a_unit_is_fetched_once, struct fixture *f)
{
    struct wk_loader_conf c = conf_of(f);
    struct wk_loader *l = open_loader(&c);
    for (uint64_t u = 0; u < 10; u++) expect_unit(l, u);
    assert_int_equal(status_of(l).counts.fetched, 10);
    uint64_t bytes = 10 * (LH_TOKENS_HEADER_BYTES + TOKENS * 2);
    assert_int_equal(status_of(l).counts.bytes, bytes);
    wk_loader_close(l);
    f->far.gone = true; // everything must come from the cache
    l = open_loader(&c);
    for (uint64_t u = 0; u < 10; u++) expect_unit(l, u);
    assert_int_equal(status_of(l).counts.cached, 10);
    assert_int_equal(status_of(l).counts.bytes, 0);
    uint32_t ids[2];
    assert_int_equal(wk_loader_read(l, 10, 0, 1, ids), LH_ERR_IO);
    wk_loader_close(l);
    f->units.hash.b[0] = 1; // another manifest: other units
    l = open_loader(&c);
    assert_int_equal(wk_loader_read(l, 0, 0, 1, ids), LH_ERR_IO);
    wk_loader_close(l);
}

// A cache entry with a right checksum over wrong tokens, like one from other data.
IN_FIXTURE(cached_tokens_are_checked, struct fixture *f)
{
    struct wk_loader_conf c = conf_of(f);
    struct wk_loader *l = open_loader(&c);
    expect_unit(l, 3);
    wk_loader_close(l);
    struct wk_cache *cache;
    uint8_t wrong[(TOKENS + 1) * 2] = {1};
    char name[WK_CACHE_NAME] = "00000000-3-";
    for (int i = 0; i < 32; i++) snprintf(name + 11 + 2 * i, 3, "%02x", f->unit[3].sha256[i]);
    assert_int_equal(wk_cache_open(f->cache, c.cache_bytes, &cache), LH_OK);
    assert_true(wk_cache_has(cache, name));
    assert_true(wk_cache_put(cache, name, wrong, sizeof wrong));
    wk_cache_close(cache);
    l = open_loader(&c);
    expect_unit(l, 3);
    assert_int_equal(status_of(l).counts.fetched, 1);
    wk_loader_close(l);
}

static void tokens_of(uint64_t unit, uint8_t *tokens)
{
    for (uint32_t i = 0; i < TOKENS; i++) {
        uint32_t id = (uint32_t)(unit * 100 + i) % 5000;
        tokens[2 * i] = (uint8_t)id;
        tokens[2 * i + 1] = (uint8_t)(id >> 8);
    }
}

// A unit without a file, received over the network as tokens only.
IN_FIXTURE(arrived_units_are_read_from_memory, struct fixture *f)
{
    struct wk_loader_conf c = conf_of(f);
    struct wk_loader *l = open_loader(&c);
    char path[256];
    bool kept;
    uint8_t tokens[TOKENS * 2];
    tokens_of(35, tokens);
    assert_true(wk_loader_find(l, 35, &kept) && !kept); // its file exists
    snprintf(path, sizeof path, "%s/t35.bin", f->dir);
    assert_int_equal(unlink(path), 0);
    assert_false(wk_loader_find(l, 35, &kept));
    assert_int_equal(wk_loader_keep(l, 35, tokens, sizeof tokens), LH_OK);
    assert_true(wk_loader_find(l, 35, &kept));
    expect_unit(l, 35); // the last token is repeated after the end
    assert_int_equal(status_of(l).counts.arrived, 1);
    assert_int_equal(status_of(l).counts.fetched, 0);
    wk_loader_close(l);
    l = open_loader(&c); // after a restart it is in the cache
    assert_true(wk_loader_find(l, 35, &kept) && kept);
    expect_unit(l, 35);
    assert_int_equal(status_of(l).counts.arrived, 1);
    wk_loader_close(l);
    c.cache = NULL;
    l = open_loader(&c);
    assert_false(wk_loader_find(l, 35, &kept));
    assert_int_equal(wk_loader_keep(l, 35, tokens, sizeof tokens), LH_OK);
    wk_loader_drop(l, 35);
    wk_loader_drop(l, 35);
    assert_false(wk_loader_find(l, 35, &kept));
    uint32_t ids[2];
    assert_int_equal(wk_loader_read(l, 35, 0, 1, ids), LH_ERR_NOT_FOUND);
    wk_loader_close(l);
}

static void wait_until_inside(struct fixture *f, unsigned readers)
{
    pthread_mutex_lock(&f->far.lock);
    while (f->far.inside != readers) pthread_cond_wait(&f->far.changed, &f->far.lock);
    pthread_mutex_unlock(&f->far.lock);
}

// The unit was dropped while its fetch was under way, and arrives again: the earlier failure must
// not count.
IN_FIXTURE(an_earlier_failed_fetch_does_not_count, struct fixture *f)
{
    struct wk_loader_conf c = conf_of(f);
    c.cache = NULL;
    c.fetches = 1;
    uint8_t tokens[TOKENS * 2];
    tokens_of(35, tokens);
    for (int late = 0; late < 2; late++) {
        f->far.gone = f->far.held = true;
        struct wk_loader *l = open_loader(&c);
        wk_loader_announce(l, 35);
        wait_until_inside(f, 1);
        assert_int_equal(wk_loader_keep(l, 35, tokens, sizeof tokens), LH_OK);
        if (late) wk_loader_announce(l, 35); // before the fetch fails
        pthread_mutex_lock(&f->far.lock);
        f->far.held = false;
        pthread_cond_broadcast(&f->far.changed);
        pthread_mutex_unlock(&f->far.lock);
        uint32_t ids[2];
        if (!late) { // reading another unit shows that the only thread is done
            assert_int_equal(wk_loader_read(l, 36, 0, 1, ids), LH_ERR_IO);
            wk_loader_announce(l, 35);
        }
        expect_unit(l, 35);
        assert_int_equal(status_of(l).counts.arrived, 1);
        wk_loader_close(l);
    }
}

static void wait_until_warm(struct wk_loader *l, uint64_t units)
{
    for (int i = 0; status_of(l).warmed < units; i++) {
        if (i > 30000) fail_msg("%d units were warmed", (int)status_of(l).warmed);
        usleep(2000);
    }
}

IN_FIXTURE(the_start_warms_the_regions_first_units, struct fixture *f)
{
    struct wk_loader_conf c = conf_of(f);
    c.warm = 0.1;
    c.region = "asia";
    for (int again = 0; again < 2; again++) {
        struct wk_loader *l = open_loader(&c);
        wait_until_warm(l, OWN / 10);
        assert_int_equal(status_of(l).counts.fetched, again ? 0 : OWN / 10);
        f->far.gone = true;
        for (uint64_t u = 0; u < OWN / 10; u++) expect_unit(l, u);
        f->far.gone = false;
        wk_loader_close(l);
    }
    c.region = "europe"; // its first unit is 30
    struct wk_loader *l = open_loader(&c);
    wait_until_warm(l, 1);
    f->far.gone = true;
    expect_unit(l, OWN);
    wk_loader_close(l);
}

IN_FIXTURE(warming_pushes_nothing_out, struct fixture *f)
{
    struct wk_loader_conf c = conf_of(f);
    c.cache_bytes = 5 * ENTRY_BYTES;
    struct wk_loader *l = open_loader(&c);
    for (uint64_t u = 20; u < 23; u++) expect_unit(l, u);
    wk_loader_close(l);
    c.warm = 1;
    c.region = "asia";
    c.fetches = 1;
    l = open_loader(&c);
    wait_until_warm(l, 1);
    expect_unit(l, 35); // fetched after, or during, the warm-up
    f->far.gone = true;
    for (uint64_t u = 20; u < 23; u++) expect_unit(l, u);
    wk_loader_close(l);
}

// The warm-up blocks; units that are needed are still fetched.
IN_FIXTURE(warming_leaves_a_thread_for_what_is_needed, struct fixture *f)
{
    struct wk_loader_conf c = conf_of(f);
    c.warm = 1;
    c.region = "europe";
    c.fetches = 2;
    f->far.held = true;
    struct wk_loader *l = open_loader(&c);
    pthread_mutex_lock(&f->far.lock);
    while (!f->far.inside) pthread_cond_wait(&f->far.changed, &f->far.lock);
    pthread_mutex_unlock(&f->far.lock);
    for (uint64_t u = 0; u < 20; u++) expect_unit(l, u);
    pthread_mutex_lock(&f->far.lock);
    f->far.held = false;
    pthread_cond_broadcast(&f->far.changed);
    pthread_mutex_unlock(&f->far.lock);
    wait_until_warm(l, UNITS - OWN);
    wk_loader_close(l);
}

// Little's law: if units are used up quickly and the source is slow, all threads fetch at once and
// further ahead. The source blocks its readers until that many are there.
IN_FIXTURE(a_slow_source_is_asked_ahead_and_at_once, struct fixture *f)
{
    struct wk_loader_conf c = conf_of(f);
    c.cache = NULL;
    c.depth = 2 * FETCHES;
    f->far.delay_us = 20000;
    struct wk_loader *l = open_loader(&c);
    assert_int_equal(status_of(l).ahead, WK_AHEAD_MIN); // nothing is measured yet
    struct wk_loader_status s;
    uint64_t u = 0;
    for (int i = 0; i < 2000; i++) { // the last 32 units count, so a stalled machine recovers
        s = status_of(l);
        if (s.unit_s > 0 && s.fetch_s / s.unit_s > 8) break;
        expect_unit(l, u++ % UNITS);
    }
    assert_true(s.fetch_s >= 0.02 && s.unit_s > 0);
    assert_true(s.ahead > 2 * WK_AHEAD_MIN && s.ahead <= WK_AHEAD_MAX);
    pthread_mutex_lock(&f->far.lock);
    f->far.wanted = FETCHES;
    pthread_mutex_unlock(&f->far.lock);
    for (uint64_t k = 0; k < FETCHES; k++) wk_loader_announce(l, (u + k) % UNITS);
    for (uint64_t k = 0; k < FETCHES; k++) expect_unit(l, (u + k) % UNITS);
    assert_int_equal(f->far.wanted, 0); // all readers were inside at once
    wk_loader_close(l);
}
