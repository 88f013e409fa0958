// worker/data/source_store.c under the loader, against a small S3 store in this process that fails
// on demand: truncated, slow and wrong answers, refusals; a worker ends while it waits for the
// store.
// labels: tsan
#include "tests/unit/common/objects/fake_s3.h"

#include <openssl/evp.h>

#include "common/base/check.h"
#include "common/format/tokens.h"
#include "worker/data/loader.h"

enum { UNITS = 6, TOKENS = 64, ALL = UNITS * TOKENS };

struct rig {
    struct store store;
    struct lh_env env; // the real env with another clock
    struct lh_env_ops ops;
    struct lh_env *real;
    _Atomic int64_t later_ns;
    struct lh_unit unit[UNITS];
    struct lh_units units;
    struct wk_source *source;
    struct wk_loader *loader;
    struct lh_buf file;
    char endpoint[64];
};

static struct rig *its; // the rig of the env's operations

static int64_t now_ns(struct lh_env *env)
{
    (void)env;
    return its->real->ops->now_ns(its->real) + atomic_load(&its->later_ns);
}

static int64_t wall_s(struct lh_env *env)
{
    (void)env;
    return its->real->ops->wall_s(its->real);
}

static void draw(struct lh_env *env, void *out, size_t n)
{
    (void)env;
    its->real->ops->random(its->real, out, n);
}

static void open_source(struct rig *r, int64_t pause_ns)
{
    const struct lh_objects_conf conf = {.env = &r->env,
                                         .address = "s3://bucket/run",
                                         .endpoint = r->endpoint,
                                         .variable = variable,
                                         .pause_ns = pause_ns};
    assert_int_equal(wk_source_store(&conf, &r->source), LH_OK);
    assert_true(r->source->far);
}

static int set_up(void **state)
{
    struct rig *r = its = *state = calloc(1, sizeof *r);
    start_store(&r->store, r->endpoint);
    assert_int_equal(lh_env_real_create(&r->real), LH_OK);
    r->ops = (struct lh_env_ops){.now_ns = now_ns, .wall_s = wall_s, .random = draw};
    r->env.ops = &r->ops;
    r->file = lh_buf(1 << 16);
    lh_tokens_put_header(&r->file, 2, ALL);
    for (uint32_t i = 0; i < ALL; i++) lh_tokens_put(&r->file, 2, i * 7 % 5000);
    for (uint32_t i = 0; i < UNITS; i++) {
        r->unit[i] = (struct lh_unit){.id = i, .from = i * TOKENS, .tokens = TOKENS};
        snprintf(r->unit[i].file, sizeof r->unit[i].file, "all.bin");
        assert_int_equal(EVP_Digest(r->file.data + LH_TOKENS_HEADER_BYTES + (size_t)i * TOKENS * 2,
                                    TOKENS * 2, r->unit[i].sha256, NULL, EVP_sha256(), NULL),
                         1);
    }
    keep(r->store.object, OBJECTS, "run/all.bin", r->file.data, r->file.len);
    r->units =
        (struct lh_units){.unit = r->unit, .count = UNITS, .vocabulary = 5000, .token_bytes = 2};
    return 0;
}

static int tear_down(void **state)
{
    struct rig *r = *state;
    if (r->loader)
        wk_loader_close(r->loader); // closes its source
    else if (r->source)
        r->source->ops->close(r->source);
    stop_store(&r->store);
    lh_env_real_destroy(r->real);
    lh_buf_free(&r->file);
    free(r);
    return 0;
}

static void open_loader(struct rig *r)
{
    open_source(r, LH_MS);
    const struct wk_loader_conf conf = {
        .units = &r->units, .source = r->source, .depth = UNITS, .fetches = 4};
    assert_int_equal(wk_loader_open(&conf, &r->loader), LH_OK);
}

static lh_err read_unit(struct rig *r, uint64_t unit)
{
    uint32_t ids[TOKENS + 1];
    lh_err err = wk_loader_read(r->loader, unit, 0, TOKENS, ids);
    for (uint32_t i = 0; !err && i < TOKENS; i++)
        assert_int_equal(ids[i], (unit * TOKENS + i) * 7 % 5000);
    uint64_t next = unit + 1 < UNITS ? (unit + 1) * TOKENS : unit * TOKENS + TOKENS - 1;
    if (!err) assert_int_equal(ids[TOKENS], next * 7 % 5000);
    return err;
}

static unsigned requests(struct rig *r)
{
    pthread_mutex_lock(&r->store.lock);
    unsigned n = r->store.requests;
    pthread_mutex_unlock(&r->store.lock);
    return n;
}

// Sets the store's faults, under the lock of its thread.
static void set_faults(struct rig *r, struct faults f)
{
    f.error = "AccessDenied";
    pthread_mutex_lock(&r->store.lock);
    r->store.f = f;
    pthread_mutex_unlock(&r->store.lock);
}

static struct faults left(struct rig *r)
{
    pthread_mutex_lock(&r->store.lock);
    struct faults f = r->store.f;
    pthread_mutex_unlock(&r->store.lock);
    return f;
}

// Flips a byte of the object and removes `cut` bytes from its end; a negative `cut` restores them.
static void damage(struct rig *r, size_t at, int cut)
{
    pthread_mutex_lock(&r->store.lock);
    struct object *o = find(r->store.object, OBJECTS, "run/all.bin");
    o->data[at] ^= 1;
    o->len -= (size_t)cut;
    pthread_mutex_unlock(&r->store.lock);
}

#define IN_RIG(name, parameter) TEST_WITH(name, parameter, set_up, tear_down)

IN_RIG(units_come_out_of_the_store, struct rig *r)
{
    bool kept;
    open_loader(r);
    for (uint64_t u = 0; u < UNITS; u++) wk_loader_announce(r->loader, u);
    for (uint64_t u = 0; u < UNITS; u++) assert_int_equal(read_unit(r, u), LH_OK);
    unsigned before = requests(r);
    // one range for each unit; the header once, or once for each thread
    assert_true(before <= UNITS + 4);
    for (uint64_t u = 0; u < UNITS; u++) assert_true(wk_loader_find(r->loader, u, &kept) && !kept);
    assert_int_equal(requests(r), before); // the file is already known
    snprintf(r->unit[1].file, sizeof r->unit[1].file, "gone.bin");
    assert_false(wk_loader_find(r->loader, 1, &kept));
}

IN_RIG(passing_failures_are_not_noticed, struct rig *r)
{
    open_loader(r);
    set_faults(r, (struct faults){.cut = 2, .unavailable = 2, .dropped = 1});
    assert_int_equal(read_unit(r, 0), LH_OK);
    struct faults f = left(r);
    assert_int_equal(f.cut + f.unavailable + f.dropped, 0);
}

IN_RIG(wrong_bytes_are_refused, struct rig *r)
{
    open_loader(r);
    damage(r, LH_TOKENS_HEADER_BYTES + 5, 10); // damages unit 0 and cuts the last unit
    assert_int_equal(read_unit(r, 0), LH_ERR_CORRUPT);
    assert_int_equal(read_unit(r, 1), LH_OK);
    assert_int_equal(read_unit(r, UNITS - 1), LH_ERR_CORRUPT);
    damage(r, LH_TOKENS_HEADER_BYTES + 5, -10);
    assert_int_equal(read_unit(r, 0), LH_OK);
    assert_int_equal(read_unit(r, UNITS - 1), LH_OK);
    pthread_mutex_lock(&r->store.lock);
    drop(find(r->store.object, OBJECTS, "run/all.bin"));
    pthread_mutex_unlock(&r->store.lock);
    assert_int_equal(read_unit(r, 2), LH_ERR_NOT_FOUND);
    assert_non_null(strstr(lh_err_text(LH_ERR_NOT_FOUND), "there is no s3://bucket/run/all.bin"));
}

static int64_t away_ns(struct rig *r)
{
    struct wk_loader_status is;
    wk_loader_status(r->loader, &is);
    return is.away_ns;
}

IN_RIG(a_store_that_is_away_is_asked_again_after_a_while, struct rig *r)
{
    open_loader(r);
    set_faults(r, (struct faults){.unavailable = 1000});
    assert_int_equal(read_unit(r, 0), LH_ERR_UNAVAILABLE);
    unsigned before = requests(r);
    assert_int_equal(before, LH_OBJECT_ATTEMPTS);
    assert_int_equal(read_unit(r, 1), LH_ERR_UNAVAILABLE); // fails at once
    assert_non_null(strstr(lh_err_text(LH_ERR_UNAVAILABLE), "503"));
    assert_int_equal(requests(r), before);
    set_faults(r, (struct faults){.unavailable = 0});
    atomic_store(&r->later_ns, WK_SOURCE_AWAY_S * LH_SECOND);
    assert_true(away_ns(r) >= WK_SOURCE_AWAY_S * LH_SECOND);
    assert_int_equal(read_unit(r, 1), LH_OK);
    assert_int_equal(away_ns(r), 0);
    set_faults(r, (struct faults){.denied = 1}); // an expired access key
    assert_int_equal(read_unit(r, 2), LH_ERR_UNAVAILABLE);
    assert_non_null(strstr(lh_err_text(LH_ERR_UNAVAILABLE), "access key"));
    atomic_store(&r->later_ns, 3 * WK_SOURCE_AWAY_S * LH_SECOND);
    assert_int_equal(read_unit(r, 2), LH_OK);
}

static void *read_one(void *arg)
{
    struct rig *r = arg;
    uint8_t byte;
    size_t got;
    return (void *)(uintptr_t)r->source->ops->read(r->source, "all.bin", 0, &byte, 1, &got);
}

// Waiting for the retries would take minutes.
IN_RIG(a_worker_that_ends_waits_for_no_store, struct rig *r)
{
    pthread_t thread;
    void *err;
    open_source(r, 3600 * LH_SECOND);
    set_faults(r, (struct faults){.unavailable = 1000});
    assert_int_equal(pthread_create(&thread, NULL, read_one, r), 0);
    while (!requests(r)) sched_yield();
    r->source->ops->hush(r->source);
    assert_int_equal(pthread_join(thread, &err), 0);
    assert_int_equal((uintptr_t)err, LH_ERR_CANCELLED);
}

IN_RIG(wrong_addresses_are_told, struct rig *r)
{
    struct lh_objects_conf conf = {
        .env = &r->env, .address = "s3://bucket/", .endpoint = r->endpoint, .variable = variable};
    assert_int_equal(wk_source_store(&conf, &r->source), LH_ERR_CONFIG);
    assert_non_null(strstr(lh_err_text(LH_ERR_CONFIG), "data.dir: s3://bucket/"));
    conf.address = "s3://bucket/run";
    conf.endpoint = "ftp://nowhere";
    assert_int_equal(wk_source_store(&conf, &r->source), LH_ERR_CONFIG);
    r->source = NULL;
}
