// An S3 store's objects. See objects.h.
//
//  1. A file larger than one part is sent in parts (multipart upload). One part is in memory at a
//     time, and the object appears when the upload is completed. Each part's SHA-256 is signed.
//  2. The answer to a request that succeeded may be lost. A repeated completion that finds no such
//     upload looks at the object. After a repeated conditional write the caller compares the
//     object.
//  3. An object is read as one stream. After a failure the next request continues where it ended.
#include "common/objects/s3_request.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/env/environment.h"
#include "common/objects/address.h"
#include "common/objects/xml.h"

enum {
    PARTS_MAX = 9000, // S3's bound is 10,000
    QUERY_BYTES = 4 << 10,
    COMPLETE_BYTES = PARTS_MAX * (LH_TRANSFER_ETAG_BYTES + 80),
};

// ---------------------------------------------------------------- listing

struct listing {
    const struct lh_s3 *s;
    lh_object_fn each;
    void *arg;
    uint32_t count;
};

// Gives NULL, so that the object is skipped, for a key that is not one of ours.
static const char *key_below(const struct lh_s3 *s, const char *key)
{
    size_t n = strlen(s->prefix);
    if (strncmp(key, s->prefix, n) != 0 || !lh_object_key_fits(key + n)) return NULL;
    return key + n;
}

static lh_err list_row(void *arg, const struct lh_xml_row *row)
{
    struct listing *l = arg;
    const char *key = key_below(l->s, row->key);
    char *end;
    uint64_t bytes = strtoull(row->value, &end, 10);
    if (!row->value[0] || *end || row->value[0] == '-')
        return lh_fail(LH_ERR_MALFORMED, "%s: an object without a size in the listing",
                       l->s->address);
    if (l->count++ >= LH_OBJECTS_MAX)
        return lh_fail(LH_ERR_TOO_LARGE,
                       "%s: more than %d objects: give each run a prefix of its own", l->s->address,
                       LH_OBJECTS_MAX);
    return key ? l->each(l->arg, key, bytes) : LH_OK;
}

static void put_field(struct lh_buf *query, const char *name, const char *value)
{
    if (query->len) lh_put(query, "&", 1);
    lh_put(query, name, strlen(name));
    lh_put(query, "=", 1);
    lh_sigv4_encode(query, value, false);
}

// Requests the page of a listing that `token` names ("": the first one), and gives the next page's
// token. The fields of the query are sorted.
static LH_MUST lh_err list_page(struct lh_s3 *s, struct listing *l, const char *prefix,
                                char token[LH_XML_TEXT_BYTES])
{
    char whole[LH_PATH_BYTES + LH_OBJECT_KEY_BYTES], more[8];
    struct lh_transfer_reply reply;
    struct lh_buf query = lh_buf(QUERY_BYTES);
    snprintf(whole, sizeof whole, "%s%s", s->prefix, prefix);
    if (token[0]) put_field(&query, "continuation-token", token);
    put_field(&query, "list-type", "2");
    put_field(&query, "prefix", whole);
    lh_put_u8(&query, 0);
    const struct lh_s3_request r = {.method = "GET", .query = (const char *)query.data};
    lh_err err = lh_buf_err(&query);
    reply.body = lh_buf(0);
    if (!err) err = lh_s3_do(s, &r, &reply);
    struct lh_span xml = lh_buf_span(&reply.body);
    if (!err) err = lh_xml_rows(xml, "Contents", "Key", "Size", list_row, l);
    if (!err) {
        lh_xml_find(xml, "IsTruncated", "Contents", more, sizeof more);
        lh_xml_find(xml, "NextContinuationToken", "Contents", token, LH_XML_TEXT_BYTES);
        if (!strcmp(more, "true") && !token[0])
            err =
                lh_fail(LH_ERR_MALFORMED, "%s: a listing whose next page has no token", s->address);
        if (strcmp(more, "true") != 0) token[0] = 0;
    }
    lh_buf_free(&reply.body);
    lh_buf_free(&query);
    return err;
}

static lh_err list(struct lh_objects *base, const char *prefix, lh_object_fn each, void *arg)
{
    struct lh_s3 *s = (struct lh_s3 *)base;
    struct listing l = {s, each, arg, 0};
    char token[LH_XML_TEXT_BYTES] = "";
    for (uint32_t pages = 0; pages < LH_OBJECTS_MAX; pages++) {
        LH_TRY(list_page(s, &l, prefix, token));
        if (!token[0]) return LH_OK;
    }
    return lh_fail(LH_ERR_MALFORMED, "%s: a listing that does not end", s->address);
}

// ---------------------------------------------------------------- put

static LH_MUST lh_err send(struct lh_s3 *s, const char *key, struct lh_span bytes, bool new)
{
    struct lh_transfer_reply reply;
    const struct lh_s3_request r = {
        .method = "PUT", .key = key, .body = bytes, .has_body = true, .if_none_match = new};
    lh_err err = lh_s3_do(s, &r, &reply);
    lh_buf_free(&reply.body);
    return err;
}

struct upload {
    struct lh_s3 *s;
    const char *key;
    char id[LH_XML_TEXT_BYTES];
    struct lh_buf list; // The parts, in the form that the completion lists them.
};

static LH_MUST lh_err begin(struct upload *u)
{
    struct lh_transfer_reply reply;
    const struct lh_s3_request r = {
        .method = "POST", .key = u->key, .query = "uploads=", .has_body = true};
    lh_err err = lh_s3_do(u->s, &r, &reply);
    if (!err) {
        lh_xml_find(lh_buf_span(&reply.body), "UploadId", NULL, u->id, sizeof u->id);
        if (!u->id[0])
            err = lh_fail(LH_ERR_MALFORMED, "%s: an upload without an id", u->s->address);
    }
    lh_buf_free(&reply.body);
    return err;
}

static lh_err query_of(const struct upload *u, uint32_t part, struct lh_buf *out)
{
    char number[16];
    snprintf(number, sizeof number, "%" PRIu32, part);
    if (part) put_field(out, "partNumber", number);
    put_field(out, "uploadId", u->id);
    lh_put_u8(out, 0);
    return lh_buf_err(out);
}

// The ETag goes into XML unchanged. Quotes are allowed there, other characters of markup are not.
static bool is_etag(const char *etag)
{
    return etag[0] && !etag[strspn(etag, "0123456789abcdefABCDEF-\"")];
}

static LH_MUST lh_err send_part(struct upload *u, uint32_t part, struct lh_span bytes)
{
    struct lh_transfer_reply reply = {.body = lh_buf(0)};
    struct lh_buf query = lh_buf(QUERY_BYTES);
    char row[LH_TRANSFER_ETAG_BYTES + 80];
    lh_err err = query_of(u, part, &query);
    if (!err) {
        const struct lh_s3_request r = {.method = "PUT",
                                        .key = u->key,
                                        .query = (const char *)query.data,
                                        .body = bytes,
                                        .has_body = true};
        err = lh_s3_do(u->s, &r, &reply);
    }
    if (!err && !is_etag(reply.etag))
        err = lh_fail(LH_ERR_MALFORMED, "%s: a part without an ETag", u->s->address);
    if (!err) {
        int n = snprintf(row, sizeof row,
                         "<Part><PartNumber>%" PRIu32 "</PartNumber><ETag>%s</ETag></Part>", part,
                         reply.etag);
        lh_put(&u->list, row, (size_t)n);
        err = lh_buf_err(&u->list);
    }
    lh_buf_free(&reply.body);
    lh_buf_free(&query);
    return err;
}

struct found {
    const char *key;
    uint64_t bytes;
    bool is;
};

static lh_err look(void *arg, const char *key, uint64_t bytes)
{
    struct found *f = arg;
    if (!strcmp(key, f->key)) *f = (struct found){key, bytes, true};
    return LH_OK;
}

static LH_MUST lh_err complete(struct upload *u, uint64_t bytes)
{
    static const char open[] = "<CompleteMultipartUpload>", end[] = "</CompleteMultipartUpload>";
    struct lh_transfer_reply reply = {.body = lh_buf(0)};
    struct lh_buf query = lh_buf(QUERY_BYTES), body = lh_buf(COMPLETE_BYTES);
    lh_put(&body, open, sizeof open - 1);
    lh_put(&body, u->list.data, u->list.len);
    lh_put(&body, end, sizeof end - 1);
    lh_err err = query_of(u, 0, &query);
    if (!err) err = lh_buf_err(&body);
    if (!err) {
        const struct lh_s3_request r = {.method = "POST",
                                        .key = u->key,
                                        .query = (const char *)query.data,
                                        .body = lh_buf_span(&body),
                                        .has_body = true};
        err = lh_s3_do(u->s, &r, &reply);
        if (!err) err = lh_s3_check_body(u->s, &r, &reply);
    }
    if (err == LH_ERR_NOT_FOUND) { // An earlier attempt may have completed the upload.
        struct found f = {.key = u->key};
        lh_err listed = list(&u->s->base, u->key, look, &f);
        if (listed)
            err = listed;
        else if (f.is && f.bytes == bytes)
            err = LH_OK;
        else
            err = lh_fail(LH_ERR_UNAVAILABLE, "%s: the store no longer knows an upload",
                          u->s->address);
    }
    lh_buf_free(&reply.body);
    lh_buf_free(&query);
    lh_buf_free(&body);
    return err;
}

// Best effort: tidy() aborts the upload if this fails. Keeps the thread's current error.
static void give_up(struct lh_s3 *s, const char *key, const char *id)
{
    struct lh_transfer_reply reply = {.body = lh_buf(0)};
    struct lh_buf query = lh_buf(QUERY_BYTES);
    struct lh_err_said said;
    lh_err_take(&said);
    put_field(&query, "uploadId", id);
    lh_put_u8(&query, 0);
    const struct lh_s3_request r = {
        .method = "DELETE", .key = key, .query = (const char *)query.data};
    lh_err err = lh_buf_err(&query);
    if (!err) err = lh_s3_do(s, &r, &reply);
    lh_buf_free(&reply.body);
    lh_buf_free(&query);
    lh_err_give(&said);
}

// Sends a file of `bytes` bytes in parts of at most `part`.
static LH_MUST lh_err put_parts(struct lh_s3 *s, const char *key, struct lh_file *file,
                                uint64_t bytes, uint64_t part, uint8_t *memory)
{
    struct upload u = {.s = s, .key = key, .list = lh_buf(COMPLETE_BYTES)};
    uint64_t at = 0;
    LH_TRY(begin(&u));
    lh_err err = LH_OK;
    for (uint32_t number = 1; !err && at < bytes; number++) {
        size_t got = 0, want = bytes - at < part ? (size_t)(bytes - at) : (size_t)part;
        err = s->env->ops->files->read(file, at, memory, want, &got);
        if (!err && got != want)
            err = lh_fail(LH_ERR_IO, "%s: the file shrank during the upload", key);
        if (!err) err = send_part(&u, number, lh_span(memory, got));
        at += got;
    }
    if (!err) err = complete(&u, bytes);
    if (err && err != LH_ERR_CANCELLED) give_up(s, key, u.id);
    lh_buf_free(&u.list);
    return err;
}

static lh_err put(struct lh_objects *base, const char *key, const char *path)
{
    struct lh_s3 *s = (struct lh_s3 *)base;
    const struct lh_files_ops *files = s->env->ops->files;
    struct lh_file *file;
    uint64_t bytes = 0;
    size_t got = 0;
    LH_TRY(files->open(s->env, path, LH_OPEN_READ, &file));
    lh_err err = files->size(file, &bytes);
    uint64_t part = s->part_bytes > bytes / PARTS_MAX ? s->part_bytes : bytes / PARTS_MAX + 1;
    uint8_t *memory = err ? NULL : malloc((size_t)(part < bytes ? part : bytes + 1));
    if (!err && !memory) err = lh_fail(LH_ERR_NO_MEMORY, "no memory for a part of %s", path);
    if (!err && bytes > part) err = put_parts(s, key, file, bytes, part, memory);
    if (!err && bytes <= part) {
        err = files->read(file, 0, memory, (size_t)bytes, &got);
        if (!err) err = send(s, key, lh_span(memory, got), false);
    }
    free(memory);
    files->close(file);
    return err;
}

static lh_err put_new(struct lh_objects *base, const char *key, struct lh_span bytes)
{
    return send((struct lh_s3 *)base, key, bytes, true);
}

// ---------------------------------------------------------------- get

struct getting {
    struct lh_env *env;
    struct lh_file *file; // NULL: the object goes into `out`
    struct lh_buf *out;
    uint8_t *memory; // NULL: no memory of `bytes` bytes takes it
    uint64_t at, bytes;
};

static lh_err get_more(void *arg, struct lh_span bytes)
{
    struct getting *g = arg;
    if (bytes.len > g->bytes - g->at)
        return lh_fail(LH_ERR_CORRUPT, "an object is larger than its %" PRIu64 " bytes", g->bytes);
    if (g->file) LH_TRY(g->env->ops->files->write(g->file, g->at, bytes));
    if (g->out) lh_put(g->out, bytes.data, bytes.len);
    if (g->memory) memcpy(g->memory + g->at, bytes.data, bytes.len);
    g->at += bytes.len;
    return g->out ? lh_buf_err(g->out) : LH_OK;
}

static LH_MUST lh_err stream(struct lh_s3 *s, const char *key, struct getting *g)
{
    struct lh_transfer_reply reply;
    const struct lh_s3_request r = {
        .method = "GET", .key = key, .sink = get_more, .arg = g, .from = &g->at};
    lh_err err = lh_s3_do(s, &r, &reply);
    lh_buf_free(&reply.body);
    return err;
}

static lh_err get(struct lh_objects *base, const char *key, struct lh_buf *out)
{
    struct getting g = {.out = out, .bytes = out->max};
    lh_buf_clear(out);
    return stream((struct lh_s3 *)base, key, &g);
}

static lh_err get_file(struct lh_objects *base, const char *key, uint64_t bytes, const char *path)
{
    struct lh_s3 *s = (struct lh_s3 *)base;
    struct getting g = {.env = s->env, .bytes = bytes};
    const struct lh_files_ops *files = s->env->ops->files;
    LH_TRY(files->open(s->env, path, LH_OPEN_WRITE | LH_OPEN_CREATE | LH_OPEN_TRUNCATE, &g.file));
    lh_err err = stream(s, key, &g);
    if (!err && g.at != bytes)
        err = lh_fail(LH_ERR_CORRUPT, "%s: %s has %" PRIu64 " bytes and should have %" PRIu64,
                      s->address, key, g.at, bytes);
    if (!err) err = files->sync(g.file);
    files->close(g.file);
    return err;
}

struct range {
    struct getting g;
    uint64_t from, at; // the range's first byte; the next one
};

static lh_err range_more(void *arg, struct lh_span bytes)
{
    struct range *r = arg;
    LH_TRY(get_more(&r->g, bytes));
    r->at = r->from + r->g.at;
    return LH_OK;
}

static lh_err get_range(struct lh_objects *base, const char *key, uint64_t at, void *out, size_t n,
                        size_t *got)
{
    enum { BEHIND_THE_END = 416 };
    struct range range = {.g = {.memory = out, .bytes = n}, .from = at, .at = at};
    struct lh_transfer_reply reply;
    const struct lh_s3_request r = {.method = "GET",
                                    .key = key,
                                    .sink = range_more,
                                    .arg = &range,
                                    .from = &range.at,
                                    .to = at + n};
    *got = 0;
    if (!n) return LH_OK;
    lh_err err = lh_s3_do((struct lh_s3 *)base, &r, &reply);
    if (err && reply.status == BEHIND_THE_END) err = LH_OK;
    lh_buf_free(&reply.body);
    *got = (size_t)range.g.at;
    return err;
}

// ---------------------------------------------------------------- remove, tidy

static lh_err drop(struct lh_objects *base, const char *key)
{
    struct lh_transfer_reply reply;
    const struct lh_s3_request r = {.method = "DELETE", .key = key};
    lh_err err = lh_s3_do((struct lh_s3 *)base, &r, &reply);
    lh_buf_free(&reply.body);
    return err == LH_ERR_NOT_FOUND ? LH_OK : err;
}

static lh_err tidy_row(void *arg, const struct lh_xml_row *row)
{
    struct lh_s3 *s = arg;
    const char *key = key_below(s, row->key);
    if (key && row->value[0]) give_up(s, key, row->value);
    return LH_OK;
}

// Handles one page; the next start handles the next one.
static lh_err tidy(struct lh_objects *base, const char *prefix)
{
    struct lh_s3 *s = (struct lh_s3 *)base;
    struct lh_transfer_reply reply = {.body = lh_buf(0)};
    struct lh_buf query = lh_buf(QUERY_BYTES);
    char whole[LH_PATH_BYTES + LH_OBJECT_KEY_BYTES];
    snprintf(whole, sizeof whole, "%s%s", s->prefix, prefix);
    put_field(&query, "prefix", whole);
    put_field(&query, "uploads", "");
    lh_put_u8(&query, 0);
    const struct lh_s3_request r = {.method = "GET", .query = (const char *)query.data};
    lh_err err = lh_buf_err(&query);
    if (!err) err = lh_s3_do(s, &r, &reply);
    if (!err) err = lh_xml_rows(lh_buf_span(&reply.body), "Upload", "Key", "UploadId", tidy_row, s);
    lh_buf_free(&reply.body);
    lh_buf_free(&query);
    return err;
}

// ---------------------------------------------------------------- open, close

static void close_s3(struct lh_objects *base)
{
    struct lh_s3 *s = (struct lh_s3 *)base;
    lh_transfer_close(s->transfer);
    lh_web_identity_forget(&s->web);
    free(s);
}

static const char *first_set(const struct lh_s3 *s, const char *a, const char *b, const char *other)
{
    const char *value = s->variable(a);
    if (!value || !value[0]) value = b ? s->variable(b) : NULL;
    return value && value[0] ? value : other;
}

// Takes SCHEME://HOST[:PORT], without a slash at the end. The default port is dropped, because the
// header Host, which is signed, does not contain it.
static LH_MUST lh_err take_endpoint(struct lh_s3 *s, const char *endpoint)
{
    size_t len = strlen(endpoint);
    while (len && endpoint[len - 1] == '/') len--;
    int n = snprintf(s->origin, sizeof s->origin, "%.*s", (int)len, endpoint);
    const char *host = strstr(s->origin, "://");
    bool tls = !strncmp(s->origin, "https://", 8), plain = !strncmp(s->origin, "http://", 7);
    if ((size_t)n >= sizeof s->origin || !(tls || plain) || !host[3] ||
        host[3 + strcspn(host + 3, "/?#@ ")])
        return lh_fail(LH_ERR_CONFIG,
                       "%.100s: want an endpoint such as https://s3.example.org:9000", endpoint);
    char *port = strrchr(host + 3, ':');
    if (port && !strcmp(port, tls ? ":443" : ":80")) *port = 0;
    return LH_OK;
}

static LH_MUST lh_err take_address(struct lh_s3 *s, const char *address)
{
    const char *bucket = address + 5;
    size_t n = strcspn(bucket, "/");
    if (n < 3 || n >= sizeof s->bucket)
        return lh_fail(LH_ERR_CONFIG, "%.100s: a bucket's name has 3 to 63 characters", address);
    snprintf(s->address, sizeof s->address, "%s", address);
    snprintf(s->bucket, sizeof s->bucket, "%.*s", (int)n, bucket);
    if (bucket[n]) snprintf(s->prefix, sizeof s->prefix, "%s/", bucket + n + 1);
    return LH_OK;
}

lh_err lh_objects_s3(const struct lh_objects_conf *conf, struct lh_objects **out)
{
    static const struct lh_objects_ops ops = {.list = list,
                                              .put = put,
                                              .put_new = put_new,
                                              .get = get,
                                              .get_file = get_file,
                                              .get_range = get_range,
                                              .remove = drop,
                                              .tidy = tidy,
                                              .close = close_s3};
    char amazon[128];
    struct lh_s3 *s = calloc(1, sizeof *s);
    if (!s) return lh_fail(LH_ERR_NO_MEMORY, "no memory for a store");
    s->base.ops = &ops;
    s->env = conf->env;
    s->variable = conf->variable ? conf->variable : lh_environment;
    s->stop = conf->stop;
    s->part_bytes = conf->part_bytes ? conf->part_bytes : LH_OBJECT_PART;
    s->pause_ns = conf->pause_ns ? conf->pause_ns : 250 * LH_MS;
    snprintf(s->region, sizeof s->region, "%s",
             first_set(s, "AWS_REGION", "AWS_DEFAULT_REGION", "us-east-1"));
    snprintf(s->ca_file, sizeof s->ca_file, "%s", first_set(s, "AWS_CA_BUNDLE", NULL, ""));
    snprintf(amazon, sizeof amazon, "https://s3.%s.amazonaws.com", s->region);
    const char *endpoint = conf->endpoint;
    if (!endpoint) endpoint = first_set(s, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", amazon);
    lh_err err = take_address(s, conf->address);
    if (!err) err = take_endpoint(s, endpoint);
    if (!err) err = lh_transfer_open(s->stop, s->ca_file, &s->transfer);
    s->web = (struct lh_web_identity){
        .env = s->env, .variable = s->variable, .region = s->region, .transfer = s->transfer};
    if (err)
        close_s3(&s->base);
    else
        *out = &s->base;
    return err;
}
