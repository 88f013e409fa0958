// A small S3 store in this process that fails on demand. It answers the requests of
// common/objects/s3.c.
#ifndef TESTS_UNIT_FAKE_S3_H
#define TESTS_UNIT_FAKE_S3_H

#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/objects/sigv4.h"
#include "tests/test.h"

enum { OBJECTS = 64, PART = 1000, PARTS = 16, PAGE = 3, BODY = 1 << 16 };

struct object {
    char key[200];
    uint8_t *data;
    size_t len;
};

// Faults of the store. Each number says how many more times the fault occurs.
struct faults {
    int unavailable;   // 503
    int dropped;       // the connection ends without an answer
    int lost;          // the request is carried out, then the connection ends without an answer
    int lost_after;    // answers that come before the lost ones
    int cut;           // an answer's body ends in the middle
    int denied;        // 403
    int in_body;       // a completion answers 200 with an error
    bool no_listing;   // a listing is not XML
    bool endless;      // every page of a listing announces another, without a token
    bool whole;        // a range request gets the whole object
    bool bare_parts;   // answers to parts have no ETag
    const char *error; // error code of the 403, and of `status`
    unsigned status;   // every answer has this status; 0: the right one
    const char *size;  // size of each object in a listing; NULL: the right one
    const char *away;  // keys with this in them always get a 503; NULL: none
};

struct store {
    struct MHD_Daemon *daemon;
    void (*refused)(void); // called before each 503; NULL: nothing
    pthread_mutex_t lock;
    struct object object[OBJECTS];
    struct object part[PARTS];
    unsigned uploads, aborted; // begun, aborted
    bool uploading;            // an upload is under way; one at a time
    unsigned requests, wrong;  // wrong: unsigned, or the body does not match its hash
    unsigned sessions;         // keys given as a token service
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
    char *end = NULL;
    size_t from = range ? strtoul(range + 6, &end, 10) : 0;
    if (range && from >= o->len) return answer(c, 416, "<Error><Code>InvalidRange</Code></Error>");
    size_t to = range && end[1] ? strtoul(end + 1, NULL, 10) + 1 : o->len;
    size_t len = (to < o->len ? to : o->len) - from;
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
    enum MHD_Result done = MHD_queue_response(c, range && !s->f.whole ? 206 : 200, r);
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
        char size[32];
        snprintf(size, sizeof size, "%zu", s->object[i].len);
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "<Contents><Key>%s</Key><Size>%s</Size></Contents>", s->object[i].key,
                      s->f.size ? s->f.size : size);
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

// The store also serves as the token service, at the same address.
static enum MHD_Result give_session(struct store *s, struct MHD_Connection *c)
{
    char text[512];
    snprintf(text, sizeof text,
             "<R><Credentials><AccessKeyId>ASIA</AccessKeyId><SecretAccessKey>s</SecretAccessKey>"
             "<SessionToken>session-%u</SessionToken><Expiration>2999-01-01T00:00:00Z</Expiration>"
             "</Credentials></R>",
             ++s->sessions);
    return answer(c, 200, text);
}

static void look(struct store *s, struct MHD_Connection *c, struct lh_span body)
{
    char hash[LH_SIGV4_SHA256_BYTES];
    const char *said = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "x-amz-content-sha256");
    const char *authorization = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "authorization");
    lh_sigv4_sha256(body, hash);
    s->wrong += !said || strcmp(said, hash) != 0 || !authorization ||
                !strstr(authorization, "host;") || !strstr(authorization, "x-amz-date");
    if (!s->sessions) return;
    char session[32];
    const char *token = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "x-amz-security-token");
    snprintf(session, sizeof session, "session-%u", s->sessions);
    s->wrong += !token || strcmp(token, session) != 0 || !strstr(authorization, "ASIA/");
}

static enum MHD_Result decide(struct store *s, struct MHD_Connection *c, const char *method,
                              const char *url, struct lh_span body)
{
    if (!strcmp(method, "POST") && !strcmp(url, "/")) return give_session(s, c);
    s->requests++;
    look(s, c, body);
    if (s->f.dropped > 0) {
        s->f.dropped--;
        return MHD_NO;
    }
    if (s->f.unavailable > 0) {
        s->f.unavailable--;
        if (s->refused) s->refused();
        return answer(c, 503, "<Error><Code>SlowDown</Code></Error>");
    }
    if (s->f.away && strstr(url, s->f.away))
        return answer(c, 503, "<Error><Code>SlowDown</Code></Error>");
    if (s->f.denied > 0 || s->f.status) {
        char text[200];
        s->f.denied -= s->f.denied > 0;
        snprintf(text, sizeof text, "<Error><Code>%s</Code><Message>no\x1b[31m</Message></Error>",
                 s->f.error);
        return answer(c, s->f.status ? s->f.status : 403, text);
    }
    enum MHD_Result done = carry_out(s, c, method, url, body);
    if (s->f.lost <= 0) return done;
    if (s->f.lost_after > 0) {
        s->f.lost_after--;
        return done;
    }
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

// Starts the store on loopback and writes its URL to `endpoint`.
static void start_store(struct store *s, char endpoint[64])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    pthread_mutex_init(&s->lock, NULL);
    s->f.error = "AccessDenied";
    s->daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, on_request, s,
                                 MHD_OPTION_SOCK_ADDR, &at, MHD_OPTION_NOTIFY_COMPLETED, on_end,
                                 NULL, MHD_OPTION_END);
    assert_non_null(s->daemon);
    snprintf(endpoint, 64, "http://127.0.0.1:%u/",
             MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
}

static void stop_store(struct store *s)
{
    MHD_stop_daemon(s->daemon); // its thread writes `wrong`
    assert_int_equal(s->wrong, 0);
    for (int i = 0; i < OBJECTS; i++) drop(&s->object[i]);
    for (int i = 0; i < PARTS; i++) drop(&s->part[i]);
    pthread_mutex_destroy(&s->lock);
}

static const char *variable(const char *name)
{
    if (!strcmp(name, "AWS_ACCESS_KEY_ID")) return "AKID";
    return strcmp(name, "AWS_SECRET_ACCESS_KEY") ? NULL : "secret";
}

#endif
