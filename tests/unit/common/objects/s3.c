// common/objects/s3.c, s3_request.c, transfer_curl.c against a small S3 store in this process,
// which fails as it is told to: retries, parts, conditions, listings of several pages, refusals.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/objects/objects.h"
#include "common/objects/sigv4.h"

enum { OBJECTS = 64, PART = 1000, PARTS = 16, PAGE = 3, BODY = 1 << 16 };

struct object {
    char key[200];
    uint8_t *data;
    size_t len;
};

// How the store fails, each so many times more.
struct faults {
    int unavailable;   // 503
    int dropped;       // the connection ends without an answer
    int lost;          // it is carried out, and the connection ends without an answer
    int cut;           // a body of an answer ends in the middle
    int denied;        // 403
    int in_body;       // a completion answers 200 with an error
    bool no_listing;   // a listing is no XML
    bool endless;      // every page of a listing names a next one, with no token
    bool bare_parts;   // parts are answered without an ETag
    const char *error; // the 403's code
};

struct store {
    struct MHD_Daemon *daemon;
    pthread_mutex_t lock;
    struct object object[OBJECTS];
    struct object part[PARTS];
    unsigned uploads, aborted; // begun, given up
    bool uploading;            // one at a time
    unsigned requests, wrong;  // wrong: unsigned, or a body of another hash
    struct faults f;
};

struct request {
    struct lh_buf body;
};

static struct object *find(struct object *of, size_t count, const char *key)
{
    for (size_t i = 0; i < count; i++)
        if (of[i].data && !strcmp(of[i].key, key)) return &of[i];
    return NULL;
}

static void drop(struct object *o)
{
    free(o->data);
    *o = (struct object){.data = NULL};
}

static void keep(struct object *of, size_t count, const char *key, const void *data, size_t len)
{
    struct object *o = find(of, count, key);
    for (size_t i = 0; !o && i < count; i++)
        if (!of[i].data) o = &of[i];
    assert_non_null(o);
    drop(o);
    snprintf(o->key, sizeof o->key, "%s", key);
    o->data = malloc(len + 1);
    if (len) memcpy(o->data, data, len);
    o->len = len;
}

// ---------------------------------------------------------------- the store's answers

static enum MHD_Result answer(struct MHD_Connection *c, unsigned status, const char *text)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text,
                                                             MHD_RESPMEM_MUST_COPY);
    MHD_add_response_header(r, "ETag", "\"0123abcd\"");
    enum MHD_Result done = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return done;
}

struct cutting {
    uint8_t *data;
    size_t len;
};

static ssize_t read_cut(void *arg, uint64_t at, char *out, size_t max)
{
    struct cutting *c = arg;
    if (at >= c->len) return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t n = c->len - (size_t)at < max ? c->len - (size_t)at : max;
    memcpy(out, c->data + at, n);
    return (ssize_t)n;
}

static void free_cut(void *arg)
{
    free(((struct cutting *)arg)->data);
    free(arg);
}

static enum MHD_Result answer_object(struct store *s, struct MHD_Connection *c,
                                     const struct object *o)
{
    const char *range = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "range");
    size_t from = range ? strtoul(range + 6, NULL, 10) : 0, len = o->len - from;
    struct MHD_Response *r;
    if (s->f.cut > 0) {
        s->f.cut--;
        struct cutting *cutting = malloc(sizeof *cutting);
        *cutting = (struct cutting){malloc(len), len / 2};
        memcpy(cutting->data, o->data + from, len);
        r = MHD_create_response_from_callback(len, 256, read_cut, cutting, free_cut);
    } else {
        r = MHD_create_response_from_buffer(len, o->data + from, MHD_RESPMEM_MUST_COPY);
    }
    enum MHD_Result done = MHD_queue_response(c, from ? 206 : 200, r);
    MHD_destroy_response(r);
    return done;
}

static const char *argument(struct MHD_Connection *c, const char *name)
{
    return MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, name);
}

static enum MHD_Result answer_listing(struct store *s, struct MHD_Connection *c)
{
    char text[8192];
    const char *prefix = argument(c, "prefix"), *token = argument(c, "continuation-token");
    size_t from = token ? strtoul(token, NULL, 10) : 0, i;
    int count = 0, n = snprintf(text, sizeof text, "<?xml version=\"1.0\"?><ListBucketResult>");
    if (s->f.no_listing) return answer(c, 200, "<html><p>it works</html");
    for (i = from; i < OBJECTS && count < PAGE; i++) {
        if (!s->object[i].data || strncmp(s->object[i].key, prefix, strlen(prefix)) != 0) continue;
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "<Contents><Key>%s</Key><Size>%zu</Size></Contents>", s->object[i].key,
                      s->object[i].len);
        count++;
    }
    if (i < OBJECTS || s->f.endless)
        n += snprintf(text + n, sizeof text - (size_t)n, "<IsTruncated>true</IsTruncated>");
    if (i < OBJECTS && !s->f.endless)
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "<NextContinuationToken>%zu</NextContinuationToken>", i);
    snprintf(text + n, sizeof text - (size_t)n, "</ListBucketResult>");
    return answer(c, 200, text);
}

static enum MHD_Result answer_uploads(struct store *s, struct MHD_Connection *c, const char *key)
{
    char text[512];
    (void)key;
    snprintf(text, sizeof text, "<ListMultipartUploadsResult>%s</ListMultipartUploadsResult>",
             s->uploading ? "<Upload><Key>run/left</Key><UploadId>a+b/1=</UploadId></Upload>" : "");
    return answer(c, 200, text);
}

static enum MHD_Result complete(struct store *s, struct MHD_Connection *c, const char *key)
{
    uint8_t whole[PARTS * PART];
    size_t len = 0;
    if (s->f.in_body > 0) {
        s->f.in_body--;
        return answer(c, 200, "<Error><Code>InternalError</Code></Error>");
    }
    if (!s->uploading) return answer(c, 404, "<Error><Code>NoSuchUpload</Code></Error>");
    for (int i = 1; i <= PARTS; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        struct object *p = find(s->part, PARTS, number);
        if (!p) continue;
        memcpy(whole + len, p->data, p->len);
        len += p->len;
        drop(p);
    }
    keep(s->object, OBJECTS, key, whole, len);
    s->uploading = false;
    return answer(c, 200, "<CompleteMultipartUploadResult/>");
}

static enum MHD_Result abort_upload(struct store *s, struct MHD_Connection *c, const char *id)
{
    for (int i = 0; i < PARTS; i++) drop(&s->part[i]);
    s->uploading = false;
    s->aborted++;
    return answer(c, strcmp(id, "a+b/1=") ? 404 : 204, "");
}

static enum MHD_Result put(struct store *s, struct MHD_Connection *c, const char *key,
                           struct lh_span body)
{
    const char *part = argument(c, "partNumber");
    const char *none = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "if-none-match");
    if (part && s->f.bare_parts) {
        struct MHD_Response *r = MHD_create_response_from_buffer(0, "", MHD_RESPMEM_PERSISTENT);
        enum MHD_Result done = MHD_queue_response(c, 200, r);
        MHD_destroy_response(r);
        return done;
    }
    if (none && find(s->object, OBJECTS, key))
        return answer(c, 412, "<Error><Code>PreconditionFailed</Code></Error>");
    keep(part ? s->part : s->object, part ? PARTS : OBJECTS, part ? part : key, body.data,
         body.len);
    return answer(c, 200, "");
}

static enum MHD_Result carry_out(struct store *s, struct MHD_Connection *c, const char *method,
                                 const char *url, struct lh_span body)
{
    const char *key = strchr(url + 1, '/') ? strchr(url + 1, '/') + 1 : "";
    const char *upload = argument(c, "uploadId");
    struct object *o = find(s->object, OBJECTS, key);
    if (!strcmp(method, "PUT")) return put(s, c, key, body);
    if (!strcmp(method, "DELETE") && upload) return abort_upload(s, c, upload);
    if (!strcmp(method, "POST") && upload) return complete(s, c, key);
    if (!strcmp(method, "POST")) {
        s->uploading = true;
        s->uploads++;
        return answer(c, 200,
                      "<InitiateMultipartUploadResult><UploadId>a+b/1=</UploadId>"
                      "</InitiateMultipartUploadResult>");
    }
    if (!strcmp(method, "DELETE")) {
        if (o) drop(o);
        return answer(c, 204, "");
    }
    if (!*key && argument(c, "list-type")) return answer_listing(s, c);
    if (!*key) return answer_uploads(s, c, key);
    return o ? answer_object(s, c, o) : answer(c, 404, "<Error><Code>NoSuchKey</Code></Error>");
}

static void look(struct store *s, struct MHD_Connection *c, struct lh_span body)
{
    char hash[LH_SIGV4_SHA256_BYTES];
    const char *said = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "x-amz-content-sha256");
    const char *authorization = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "authorization");
    lh_sigv4_sha256(body, hash);
    s->wrong += !said || strcmp(said, hash) != 0 || !authorization ||
                !strstr(authorization, "host;") || !strstr(authorization, "x-amz-date");
}

static enum MHD_Result decide(struct store *s, struct MHD_Connection *c, const char *method,
                              const char *url, struct lh_span body)
{
    s->requests++;
    look(s, c, body);
    if (s->f.dropped > 0) {
        s->f.dropped--;
        return MHD_NO;
    }
    if (s->f.unavailable > 0) {
        s->f.unavailable--;
        return answer(c, 503, "<Error><Code>SlowDown</Code></Error>");
    }
    if (s->f.denied > 0) {
        char text[200];
        s->f.denied--;
        snprintf(text, sizeof text, "<Error><Code>%s</Code><Message>no\x1b[31m</Message></Error>",
                 s->f.error);
        return answer(c, 403, text);
    }
    enum MHD_Result done = carry_out(s, c, method, url, body);
    if (s->f.lost <= 0) return done;
    s->f.lost--;
    return MHD_NO;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *len, void **own)
{
    struct store *s = arg;
    struct request *r = *own;
    (void)version;
    if (!r) {
        *own = r = calloc(1, sizeof *r);
        r->body = lh_buf(BODY);
        return MHD_YES;
    }
    if (*len) {
        lh_put(&r->body, data, *len);
        *len = 0;
        return MHD_YES;
    }
    pthread_mutex_lock(&s->lock);
    enum MHD_Result done = decide(s, c, method, url, lh_buf_span(&r->body));
    pthread_mutex_unlock(&s->lock);
    return done;
}

static void on_end(void *arg, struct MHD_Connection *c, void **own,
                   enum MHD_RequestTerminationCode code)
{
    struct request *r = *own;
    (void)arg, (void)c, (void)code;
    if (r) lh_buf_free(&r->body);
    free(r);
    *own = NULL;
}

// ---------------------------------------------------------------- the rig

struct rig {
    struct store store;
    struct lh_env *env;
    struct lh_objects *objects;
    atomic_bool stop;
    char dir[64], file[96], back[96], endpoint[64];
    char listed[2048];
};

static const char *variable(const char *name)
{
    if (!strcmp(name, "AWS_ACCESS_KEY_ID")) return "AKID";
    return strcmp(name, "AWS_SECRET_ACCESS_KEY") ? NULL : "secret";
}

static int set_up(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    pthread_mutex_init(&r->store.lock, NULL);
    r->store.f.error = "AccessDenied";
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    r->store.daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, on_request,
                                       &r->store, MHD_OPTION_SOCK_ADDR, &at,
                                       MHD_OPTION_NOTIFY_COMPLETED, on_end, NULL, MHD_OPTION_END);
    assert_non_null(r->store.daemon);
    snprintf(r->endpoint, sizeof r->endpoint, "http://127.0.0.1:%u/",
             MHD_get_daemon_info(r->store.daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
    snprintf(r->dir, sizeof r->dir, "/tmp/longhaul-s3-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    snprintf(r->file, sizeof r->file, "%s/file", r->dir);
    snprintf(r->back, sizeof r->back, "%s/back", r->dir);
    assert_int_equal(lh_env_real_create(&r->env), LH_OK);
    const struct lh_objects_conf conf = {.env = r->env,
                                         .address = "s3://bucket/run",
                                         .endpoint = r->endpoint,
                                         .credentials = "",
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
    assert_int_equal(r->store.wrong, 0);
    lh_objects_close(r->objects);
    MHD_stop_daemon(r->store.daemon);
    for (int i = 0; i < OBJECTS; i++) drop(&r->store.object[i]);
    for (int i = 0; i < PARTS; i++) drop(&r->store.part[i]);
    pthread_mutex_destroy(&r->store.lock);
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

static void files_come_back_bit_for_bit(void **state)
{
    struct rig *r = *state;
    static const size_t sizes[] = {0, 1, PART - 1, PART, PART + 1, 5 * PART, 5 * PART + 17};
    for (size_t i = 0; i < LH_COUNT(sizes); i++) {
        write_file(r, sizes[i]);
        assert_int_equal(r->objects->ops->put(r->objects, "file", r->file), LH_OK);
        comes_back(r, "file", sizes[i]);
    }
    assert_int_equal(r->store.uploads, 3); // those above one part
    assert_int_equal(r->store.aborted, 0);
    assert_int_equal(r->objects->ops->get_file(r->objects, "file", 7, r->back), LH_ERR_CORRUPT);
    assert_int_equal(r->objects->ops->get_file(r->objects, "file", 1 << 20, r->back),
                     LH_ERR_CORRUPT);
    assert_int_equal(r->objects->ops->put(r->objects, "x", "/nonexistent/f"), LH_ERR_NOT_FOUND);
    assert_int_equal(r->objects->ops->remove(r->objects, "file"), LH_OK);
    assert_int_equal(r->objects->ops->get_file(r->objects, "file", 7, r->back), LH_ERR_NOT_FOUND);
}

static void passing_failures_are_tried_again(void **state)
{
    struct rig *r = *state;
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

static void a_lost_answer_changes_nothing(void **state)
{
    struct rig *r = *state;
    struct lh_buf got = lh_buf(100);
    write_file(r, 2 * PART + 5);
    for (int lost = 1; lost <= 4; lost++) { // the begin, a part, the completion
        r->store.f.lost = lost;
        assert_int_equal(r->objects->ops->put(r->objects, "file", r->file), LH_OK);
        comes_back(r, "file", 2 * PART + 5);
    }
    // A conditional write whose answer is lost finds itself: its caller compares.
    r->store.f.lost = 1;
    assert_int_equal(r->objects->ops->put_new(r->objects, "mark", lh_span_str("m")), LH_ERR_EXISTS);
    assert_int_equal(r->objects->ops->get(r->objects, "mark", &got), LH_OK);
    assert_int_equal(got.len, 1);
    assert_int_equal(r->objects->ops->put_new(r->objects, "other", lh_span_str("m")), LH_OK);
    assert_int_equal(r->objects->ops->put_new(r->objects, "other", lh_span_str("n")),
                     LH_ERR_EXISTS);
    lh_buf_free(&got);
}

static void what_fails_in_the_middle_is_given_up(void **state)
{
    struct rig *r = *state;
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
    r->store.uploading = true; // A process that died left it.
    assert_int_equal(r->objects->ops->tidy(r->objects, "left"), LH_OK);
    assert_int_equal(r->store.aborted, 3);
    assert_false(r->store.uploading);
}

static void listings_have_pages(void **state)
{
    struct rig *r = *state;
    char key[16], want[256] = "";
    for (int i = 0; i < 8; i++) {
        snprintf(key, sizeof key, "k-%d", i);
        assert_int_equal(r->objects->ops->put_new(r->objects, key, lh_span_str("12")), LH_OK);
        size_t n = strlen(want);
        snprintf(want + n, sizeof want - n, "%s=2;", key);
    }
    keep(r->store.object, OBJECTS, "run/of/others", "x", 1); // no key of ours
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

static void refusals_are_not_tried_again(void **state)
{
    struct rig *r = *state;
    r->store.f.denied = 1;
    assert_int_equal(list(r, ""), LH_ERR_DENIED);
    assert_int_equal(r->store.requests, 1);
    assert_non_null(strstr(lh_err_text(LH_ERR_DENIED), "access key"));
    assert_null(strchr(lh_err_text(LH_ERR_DENIED), 27)); // the store's text is tame
    r->store.f.denied = 1;
    r->store.f.error = "RequestTimeTooSkewed";
    assert_int_equal(list(r, ""), LH_ERR_DENIED);
    assert_non_null(strstr(lh_err_text(LH_ERR_DENIED), "clock"));
}

static void a_stop_ends_the_tries(void **state)
{
    struct rig *r = *state;
    r->store.f.unavailable = LH_OBJECT_ATTEMPTS;
    atomic_store(&r->stop, true);
    assert_int_equal(list(r, ""), LH_ERR_CANCELLED);
}

static void endpoints_and_buckets(void **state)
{
    struct rig *r = *state;
    static const char *const bad[] = {"127.0.0.1:9000", "ftp://x", "http://", "https://a/b",
                                      "https://u@x"};
    struct lh_objects *o;
    struct lh_objects_conf conf = {
        .env = r->env, .address = "s3://bucket", .credentials = "", .variable = variable};
    for (size_t i = 0; i < LH_COUNT(bad); i++) {
        conf.endpoint = bad[i];
        assert_int_equal(lh_objects_open(&conf, &o), LH_ERR_CONFIG);
    }
    conf.endpoint = "";
    assert_int_equal(lh_objects_open(&conf, &o), LH_OK);
    lh_objects_close(o);
    conf.address = "s3://b";
    assert_int_equal(lh_objects_open(&conf, &o), LH_ERR_CONFIG);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(files_come_back_bit_for_bit),   TEST(passing_failures_are_tried_again),
        TEST(a_lost_answer_changes_nothing), TEST(what_fails_in_the_middle_is_given_up),
        TEST(listings_have_pages),           TEST(refusals_are_not_tried_again),
        TEST(a_stop_ends_the_tries),         TEST(endpoints_and_buckets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
