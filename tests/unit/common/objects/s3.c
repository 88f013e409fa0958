// common/objects/s3.c, s3_request.c and transfer_curl.c against a small S3 store in this process
// that fails on demand: retries, parts, conditions, paged listings, refusals.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/objects/address.h"
#include "common/objects/s3_request.h"
#include "tests/test.h"
#include "tests/unit/common/objects/fake_s3.h"

// ---------------------------------------------------------------- the rig

struct rig {
    struct store store;
    struct lh_env *env;
    struct lh_objects *objects;
    atomic_bool stop;
    char dir[64], file[96], back[96], endpoint[64];
    char listed[2048];
};

static int set_up(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    start_store(&r->store, r->endpoint);
    snprintf(r->dir, sizeof r->dir, "/tmp/longhaul-s3-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    snprintf(r->file, sizeof r->file, "%s/file", r->dir);
    snprintf(r->back, sizeof r->back, "%s/back", r->dir);
    assert_int_equal(lh_env_real_create(&r->env), LH_OK);
    const struct lh_objects_conf conf = {.env = r->env,
                                         .address = "s3://bucket/run",
                                         .endpoint = r->endpoint,
                                         .stop = &r->stop,
                                         .variable = variable,
                                         .part_bytes = PART,
                                         .pause_ns = LH_MS};
    lh_err err = lh_objects_open(&conf, &r->objects);
    assert_int_equal(err, LH_OK);
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *r = *state;
    char command[128];
    lh_objects_close(r->objects);
    stop_store(&r->store);
    lh_env_real_destroy(r->env);
    snprintf(command, sizeof command, "rm -rf %s", r->dir);
    assert_int_equal(system(command), 0);
    free(r);
    return 0;
}

static void write_file(struct rig *r, size_t bytes)
{
    uint8_t *data = malloc(bytes + 1);
    for (size_t i = 0; i < bytes; i++) data[i] = (uint8_t)(i * 7 + i / 251);
    assert_int_equal(lh_file_replace(r->env, r->file, lh_span(data, bytes)), LH_OK);
    free(data);
}

static void comes_back(struct rig *r, const char *key, uint64_t bytes)
{
    char a[LH_OBJECT_HASH_BYTES], b[LH_OBJECT_HASH_BYTES];
    uint64_t got;
    assert_int_equal(r->objects->ops->get_file(r->objects, key, bytes, r->back), LH_OK);
    assert_int_equal(lh_object_hash(r->env, r->file, a, &got), LH_OK);
    assert_int_equal(lh_object_hash(r->env, r->back, b, &got), LH_OK);
    assert_int_equal(got, bytes);
    assert_string_equal(a, b);
}

static lh_err note(void *arg, const char *key, uint64_t bytes)
{
    struct rig *r = arg;
    size_t n = strlen(r->listed);
    snprintf(r->listed + n, sizeof r->listed - n, "%s=%llu;", key, (unsigned long long)bytes);
    return LH_OK;
}

static lh_err list(struct rig *r, const char *prefix)
{
    r->listed[0] = 0;
    return r->objects->ops->list(r->objects, prefix, note, r);
}

// ---------------------------------------------------------------- tests

static lh_err range(struct rig *r, uint64_t at, size_t n, const char *want)
{
    char is[16];
    size_t got = 99;
    assert_true(n <= sizeof is);
    lh_err err = r->objects->ops->get_range(r->objects, "file", at, is, n, &got);
    if (err) return err;
    assert_int_equal(got, strlen(want));
    assert_memory_equal(is, want, got);
    return LH_OK;
}

static const char *its_endpoint; // web_identity() returns it

static const char *web_identity(const char *name)
{
    // any text serves as a token
    if (!strcmp(name, "AWS_WEB_IDENTITY_TOKEN_FILE")) return "/proc/self/comm";
    if (!strcmp(name, "AWS_ROLE_ARN")) return "arn:aws:iam::1:role/a";
    return strcmp(name, "AWS_ENDPOINT_URL_STS") ? NULL : its_endpoint;
}

#define IN_RIG(name, parameter) TEST_WITH(name, parameter, set_up, tear_down)

IN_RIG(a_web_identity_gets_a_key_and_another_when_it_is_refused, struct rig *r)
{
    struct lh_objects *o;
    const struct lh_objects_conf conf = {.env = r->env,
                                         .address = "s3://bucket/run",
                                         .endpoint = r->endpoint,
                                         .variable = web_identity,
                                         .pause_ns = LH_MS};
    its_endpoint = r->endpoint;
    assert_int_equal(lh_objects_open(&conf, &o), LH_OK);
    assert_int_equal(o->ops->put_new(o, "a", lh_span_str("1")), LH_OK);
    assert_int_equal(o->ops->put_new(o, "b", lh_span_str("2")), LH_OK);
    assert_int_equal(r->store.sessions, 1);
    r->store.f.denied = 1; // the key expired early
    assert_int_equal(o->ops->put_new(o, "c", lh_span_str("3")), LH_ERR_DENIED);
    assert_int_equal(o->ops->put_new(o, "c", lh_span_str("3")), LH_OK);
    assert_int_equal(r->store.sessions, 2);
    assert_int_equal(r->store.requests, 4);
    lh_objects_close(o);
}

IN_RIG(ranges_are_what_was_asked_for, struct rig *r)
{
    assert_int_equal(range(r, 0, 4, ""), LH_ERR_NOT_FOUND);
    assert_int_equal(lh_file_replace(r->env, r->file, lh_span_str("0123456789")), LH_OK);
    assert_int_equal(r->objects->ops->put(r->objects, "file", r->file), LH_OK);
    assert_int_equal(range(r, 0, 4, "0123"), LH_OK);
    assert_int_equal(range(r, 4, 3, "456"), LH_OK);
    assert_int_equal(range(r, 8, 9, "89"), LH_OK); // only the end of the object
    assert_int_equal(range(r, 10, 3, ""), LH_OK);
    assert_int_equal(range(r, 99, 3, ""), LH_OK);
    assert_int_equal(range(r, 5, 0, ""), LH_OK);
    r->store.f.cut = 2; // continues where it was cut
    assert_int_equal(range(r, 1, 8, "12345678"), LH_OK);
    r->store.f.unavailable = LH_OBJECT_ATTEMPTS;
    assert_int_equal(range(r, 1, 8, ""), LH_ERR_UNAVAILABLE);
    r->store.f.whole = true; // the store ignores the range and sends the whole object
    assert_int_equal(range(r, 0, 4, ""), LH_ERR_MALFORMED);
}

IN_RIG(files_come_back_bit_for_bit, struct rig *r)
{
    static const size_t sizes[] = {0, 1, PART - 1, PART, PART + 1, 5 * PART, 5 * PART + 17};
    for (size_t i = 0; i < LH_COUNT(sizes); i++) {
        write_file(r, sizes[i]);
        assert_int_equal(r->objects->ops->put(r->objects, "file", r->file), LH_OK);
        comes_back(r, "file", sizes[i]);
    }
    assert_int_equal(r->store.uploads, 3); // objects larger than one part
    assert_int_equal(r->store.aborted, 0);
    assert_int_equal(r->objects->ops->get_file(r->objects, "file", 7, r->back), LH_ERR_CORRUPT);
    assert_int_equal(r->objects->ops->get_file(r->objects, "file", 1 << 20, r->back),
                     LH_ERR_CORRUPT);
    assert_int_equal(r->objects->ops->put(r->objects, "x", "/nonexistent/f"), LH_ERR_NOT_FOUND);
    assert_int_equal(r->objects->ops->remove(r->objects, "file"), LH_OK);
    assert_int_equal(r->objects->ops->get_file(r->objects, "file", 7, r->back), LH_ERR_NOT_FOUND);
}

IN_RIG(passing_failures_are_tried_again, struct rig *r)
{
    struct lh_buf got = lh_buf(100);
    write_file(r, 3 * PART);
    for (int i = 1; i < LH_OBJECT_ATTEMPTS; i++) {
        r->store.f.unavailable = i;
        assert_int_equal(r->objects->ops->put(r->objects, "a", r->file), LH_OK);
        r->store.f.dropped = i;
        assert_int_equal(r->objects->ops->put(r->objects, "b", r->file), LH_OK);
        r->store.f.cut = i;
        comes_back(r, "a", 3 * PART);
    }
    r->store.f.unavailable = LH_OBJECT_ATTEMPTS;
    assert_int_equal(r->objects->ops->get(r->objects, "a", &got), LH_ERR_UNAVAILABLE);
    assert_non_null(strstr(lh_err_text(LH_ERR_UNAVAILABLE), "503 SlowDown"));
    lh_buf_free(&got);
}

static _Atomic int64_t skew; // added to the clock as the time that the store took to answer
static int64_t (*real_now)(struct lh_env *);
static int64_t skewed_now(struct lh_env *env)
{
    return real_now(env) + atomic_load(&skew);
}
static void takes_half_a_minute(void)
{
    atomic_fetch_add(&skew, 30 * LH_SECOND);
}

// With two attempts a store that hangs is reported after a minute, like one that cannot be reached.
IN_RIG(a_store_that_hangs_is_tried_twice, struct rig *r)
{
    struct lh_buf got = lh_buf(100);
    struct lh_env_ops ops = *r->env->ops;
    const struct lh_env_ops *was = r->env->ops;
    real_now = ops.now_ns;
    ops.now_ns = skewed_now;
    r->env->ops = &ops;
    r->store.refused = takes_half_a_minute;
    r->store.f.unavailable = 1;
    assert_int_equal(r->objects->ops->get(r->objects, "a", &got), LH_ERR_NOT_FOUND);
    r->store.f.unavailable = LH_OBJECT_ATTEMPTS;
    assert_int_equal(r->objects->ops->get(r->objects, "a", &got), LH_ERR_UNAVAILABLE);
    assert_int_equal(r->store.f.unavailable, LH_OBJECT_ATTEMPTS - 2);
    r->env->ops = was;
    lh_buf_free(&got);
}

IN_RIG(a_lost_answer_changes_nothing, struct rig *r)
{
    struct lh_buf got = lh_buf(100);
    write_file(r, 2 * PART + 5);
    for (int after = 0; after < 5; after++) { // the start, three parts, the completion
        r->store.f.lost = 1;
        r->store.f.lost_after = after;
        assert_int_equal(r->objects->ops->put(r->objects, "file", r->file), LH_OK);
        comes_back(r, "file", 2 * PART + 5);
    }
    // A conditional write whose answer is lost finds its own object on the retry; the caller
    // compares.
    r->store.f.lost = 1;
    assert_int_equal(r->objects->ops->put_new(r->objects, "mark", lh_span_str("m")), LH_ERR_EXISTS);
    assert_int_equal(r->objects->ops->get(r->objects, "mark", &got), LH_OK);
    assert_int_equal(got.len, 1);
    assert_int_equal(r->objects->ops->put_new(r->objects, "other", lh_span_str("m")), LH_OK);
    assert_int_equal(r->objects->ops->put_new(r->objects, "other", lh_span_str("n")),
                     LH_ERR_EXISTS);
    lh_buf_free(&got);
}

IN_RIG(a_failed_upload_is_aborted, struct rig *r)
{
    write_file(r, 3 * PART);
    r->store.f.bare_parts = true;
    assert_int_equal(r->objects->ops->put(r->objects, "file", r->file), LH_ERR_MALFORMED);
    assert_int_equal(r->store.aborted, 1);
    r->store.f.bare_parts = false;
    r->store.f.in_body = 1;
    assert_int_equal(r->objects->ops->put(r->objects, "file", r->file), LH_ERR_UNAVAILABLE);
    assert_int_equal(r->store.aborted, 2);
    assert_int_equal(list(r, ""), LH_OK);
    assert_string_equal(r->listed, "");
    r->store.uploading = true; // left by a process that died
    assert_int_equal(r->objects->ops->tidy(r->objects, "left"), LH_OK);
    assert_int_equal(r->store.aborted, 3);
    assert_false(r->store.uploading);
}

IN_RIG(listings_have_pages, struct rig *r)
{
    char key[16], want[256] = "";
    for (int i = 0; i < 8; i++) {
        snprintf(key, sizeof key, "k-%d", i);
        assert_int_equal(r->objects->ops->put_new(r->objects, key, lh_span_str("12")), LH_OK);
        size_t n = strlen(want);
        snprintf(want + n, sizeof want - n, "%s=2;", key);
    }
    keep(r->store.object, OBJECTS, "run/of/others", "x", 1); // not a key of ours
    assert_int_equal(list(r, "k-"), LH_OK);
    assert_string_equal(r->listed, want);
    assert_int_equal(list(r, "k-7"), LH_OK);
    assert_string_equal(r->listed, "k-7=2;");
    r->store.f.endless = true;
    assert_int_equal(list(r, ""), LH_ERR_MALFORMED);
    r->store.f.endless = false;
    r->store.f.no_listing = true;
    assert_int_equal(list(r, ""), LH_ERR_MALFORMED);
}

IN_RIG(refusals_are_not_tried_again, struct rig *r)
{
    r->store.f.denied = 1;
    assert_int_equal(list(r, ""), LH_ERR_DENIED);
    assert_int_equal(r->store.requests, 1);
    assert_non_null(strstr(lh_err_text(LH_ERR_DENIED), "access key"));
    // control characters of the store's text are replaced
    assert_null(strchr(lh_err_text(LH_ERR_DENIED), 27));
    r->store.f.denied = 1;
    r->store.f.error = "RequestTimeTooSkewed";
    assert_int_equal(list(r, ""), LH_ERR_DENIED);
    assert_non_null(strstr(lh_err_text(LH_ERR_DENIED), "clock"));
}

IN_RIG(each_status_has_its_meaning, struct rig *r)
{
    enum { AGAIN = LH_OBJECT_ATTEMPTS };
    static const struct {
        unsigned status;
        const char *code;
        lh_err err;
        unsigned requests;
    } row[] = {{404, "NoSuchBucket", LH_ERR_CONFIG, 1},
               {404, "NoSuchKey", LH_ERR_NOT_FOUND, 1},
               {412, "PreconditionFailed", LH_ERR_EXISTS, 1},
               {400, "RequestTimeTooSkewed", LH_ERR_DENIED, 1},
               {401, "Unauthorized", LH_ERR_DENIED, 1},
               {403, "AccessDenied", LH_ERR_DENIED, 1},
               {300, "Elsewhere", LH_ERR_CONFIG, 1},
               {399, "Elsewhere", LH_ERR_CONFIG, 1},
               {400, "InvalidRequest", LH_ERR_MALFORMED, 1},
               {400, "RequestTimeout", LH_ERR_UNAVAILABLE, AGAIN},
               {408, "RequestTimeout", LH_ERR_UNAVAILABLE, AGAIN},
               {409, "OperationAborted", LH_ERR_UNAVAILABLE, AGAIN},
               {429, "TooManyRequests", LH_ERR_UNAVAILABLE, AGAIN},
               {500, "InternalError", LH_ERR_UNAVAILABLE, AGAIN}};
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        r->store.requests = 0;
        r->store.f.status = row[i].status;
        r->store.f.error = row[i].code;
        lh_err err = r->objects->ops->put_new(r->objects, "a", lh_span_str("1"));
        assert_int_equal(err, row[i].err);
        assert_int_equal(r->store.requests, row[i].requests);
    }
    r->store.f.status = 299; // any success
    assert_int_equal(r->objects->ops->put_new(r->objects, "a", lh_span_str("1")), LH_OK);
}

IN_RIG(listings_have_sizes_of_digits, struct rig *r)
{
    static const char *const bad[] = {"", "-1", "1x", "x"};
    assert_int_equal(r->objects->ops->put_new(r->objects, "a", lh_span_str("1")), LH_OK);
    for (size_t i = 0; i < LH_COUNT(bad); i++) {
        r->store.f.size = bad[i];
        assert_int_equal(list(r, ""), LH_ERR_MALFORMED);
        assert_string_equal(r->listed, "");
    }
    r->store.f.size = "12345678901";
    assert_int_equal(list(r, ""), LH_OK);
    assert_string_equal(r->listed, "a=12345678901;");
}

IN_RIG(a_stop_ends_the_tries, struct rig *r)
{
    r->store.f.unavailable = LH_OBJECT_ATTEMPTS;
    atomic_store(&r->stop, true);
    assert_int_equal(list(r, ""), LH_ERR_CANCELLED);
}

IN_RIG(endpoints_and_buckets, struct rig *r)
{
    static const char *const bad[] = {"127.0.0.1:9000", "ftp://x", "http://", "https://a/b",
                                      "https://u@x"};
    struct lh_objects *o;
    struct lh_objects_conf conf = {.env = r->env, .address = "s3://bucket", .variable = variable};
    for (size_t i = 0; i < LH_COUNT(bad); i++) {
        conf.endpoint = bad[i];
        assert_int_equal(lh_objects_open(&conf, &o), LH_ERR_CONFIG);
    }
    conf.endpoint = NULL;
    assert_int_equal(lh_objects_open(&conf, &o), LH_OK);
    lh_objects_close(o);
    conf.address = "s3://b";
    assert_int_equal(lh_objects_open(&conf, &o), LH_ERR_CONFIG);
}

static const char *said[3][2]; // environment variables of the next test

static const char *said_variable(const char *name)
{
    for (size_t i = 0; i < LH_COUNT(said); i++)
        if (said[i][0] && !strcmp(said[i][0], name)) return said[i][1];
    return NULL;
}

IN_RIG(variables_name_the_region_and_the_endpoint, struct rig *r)
{
    static const struct {
        const char *endpoint, *name[3], *value[3], *region, *origin;
    } row[] = {
        {NULL, {NULL}, {NULL}, "us-east-1", "https://s3.us-east-1.amazonaws.com"},
        {NULL, {"AWS_DEFAULT_REGION"}, {"r1"}, "r1", "https://s3.r1.amazonaws.com"},
        {NULL,
         {"AWS_DEFAULT_REGION", "AWS_REGION"},
         {"r1", "r2"},
         "r2",
         "https://s3.r2.amazonaws.com"},
        {NULL,
         {"AWS_DEFAULT_REGION", "AWS_REGION"},
         {"r1", ""},
         "r1",
         "https://s3.r1.amazonaws.com"},
        {NULL, {"AWS_ENDPOINT_URL"}, {"http://h:80//"}, "us-east-1", "http://h"},
        {NULL,
         {"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"},
         {"http://h", "https://i:443"},
         "us-east-1",
         "https://i"},
        {"https://h:80", {"AWS_ENDPOINT_URL_S3"}, {"http://i"}, "us-east-1", "https://h:80"},
        {"http://h:443", {NULL}, {NULL}, "us-east-1", "http://h:443"},
    };
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        struct lh_objects *o;
        const struct lh_objects_conf conf = {.env = r->env,
                                             .address = "s3://buc/a/b",
                                             .endpoint = row[i].endpoint,
                                             .variable = said_variable};
        for (size_t k = 0; k < LH_COUNT(said); k++)
            said[k][0] = row[i].name[k], said[k][1] = row[i].value[k];
        assert_int_equal(lh_objects_open(&conf, &o), LH_OK);
        const struct lh_s3 *s = (const struct lh_s3 *)o;
        assert_string_equal(s->region, row[i].region);
        assert_string_equal(s->origin, row[i].origin);
        assert_string_equal(s->bucket, "buc");
        assert_string_equal(s->prefix, "a/b/");
        lh_objects_close(o);
    }
    char long_name[80] = "s3://";
    for (size_t n = 63; n < 65; n++) {
        struct lh_objects *o;
        memset(long_name + 5, 'b', n);
        const struct lh_objects_conf conf = {
            .env = r->env, .address = long_name, .variable = said_variable};
        assert_int_equal(lh_objects_open(&conf, &o), n == 63 ? LH_OK : LH_ERR_CONFIG);
        if (n == 63) lh_objects_close(o);
    }
}
