// Requests to an S3 store. See s3_request.h.
#include "common/objects/s3_request.h"

#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/objects/xml.h"

enum { PAUSE_MAX_S = 8, LOOK_MS = 50, ERROR_CODE_BYTES = 64, ERROR_TEXT_BYTES = 200 };

// ---------------------------------------------------------------- one attempt

struct headers {
    struct lh_buf text; // all headers, each with a 0 at its end
    size_t at[LH_TRANSFER_HEADERS_MAX];
    unsigned count;
};

static void add(struct headers *h, const char *name, const char *value)
{
    LH_ASSERT(h->count < LH_TRANSFER_HEADERS_MAX);
    h->at[h->count++] = h->text.len;
    lh_put(&h->text, name, strlen(name));
    lh_put(&h->text, ": ", 2);
    lh_put(&h->text, value, strlen(value) + 1);
}

static void add_signed(struct headers *h, struct lh_sigv4_request *r, const char *name,
                       const char *value)
{
    r->header[r->headers++] = (struct lh_sigv4_header){name, value};
    add(h, name, value);
}

static void put_target(const struct lh_s3 *s, const struct lh_s3_request *r, struct lh_buf *path)
{
    lh_put(path, "/", 1);
    lh_sigv4_encode(path, s->bucket, false);
    if (r->key) {
        lh_put(path, "/", 1);
        lh_sigv4_encode(path, s->prefix, true);
        lh_sigv4_encode(path, r->key, false);
    }
    lh_put_u8(path, 0);
}

// True: the request names a range.
static bool is_part(const struct lh_s3_request *r)
{
    return r->sink && (*r->from || r->to);
}

static LH_MUST lh_err make_headers(const struct lh_s3 *s, const struct lh_s3_request *r,
                                   const struct lh_sigv4_keys *keys, const char *path,
                                   struct headers *h)
{
    char sha256[LH_SIGV4_SHA256_BYTES], time[LH_SIGV4_TIME_BYTES], range[64];
    char authorization[LH_SIGV4_AUTHORIZATION_BYTES];
    lh_sigv4_sha256(r->has_body ? r->body : lh_span("", 0), sha256);
    lh_sigv4_time(s->env->ops->wall_s(s->env), time);
    struct lh_sigv4_request sign = {.method = r->method,
                                    .path = path,
                                    .query = r->query ? r->query : "",
                                    .sha256 = sha256,
                                    .region = s->region,
                                    .service = "s3",
                                    .time = time};
    add_signed(h, &sign, "host", strstr(s->origin, "://") + 3);
    if (r->if_none_match) add_signed(h, &sign, "if-none-match", "*");
    if (is_part(r)) {
        int n = snprintf(range, sizeof range, "bytes=%llu-", (unsigned long long)*r->from);
        if (r->to)
            snprintf(range + n, sizeof range - (size_t)n, "%llu", (unsigned long long)r->to - 1);
        add_signed(h, &sign, "range", range);
    }
    add_signed(h, &sign, "x-amz-content-sha256", sha256);
    add_signed(h, &sign, "x-amz-date", time);
    if (keys->token[0]) add_signed(h, &sign, "x-amz-security-token", keys->token);
    LH_TRY(lh_sigv4_sign(&sign, keys, authorization));
    add(h, "authorization", authorization);
    add(h, "content-type",
        "application/octet-stream"); // By default libcurl calls a body a form.
    add(h, "expect", "");            // no round trip before a body
    return lh_buf_err(&h->text);
}

struct sinking {
    const struct lh_s3_request *r;
    bool part; // the request names a range
};

static lh_err take(void *arg, long status, struct lh_span bytes)
{
    const struct sinking *s = arg;
    if (status == 200 && s->part)
        return lh_fail(LH_ERR_MALFORMED,
                       "the store sent a whole object where a range was requested");
    return s->r->sink(s->r->arg, bytes);
}

static LH_MUST lh_err load_keys(struct lh_s3 *s, struct lh_sigv4_keys *out)
{
    if (lh_web_identity_is(s->variable)) return lh_web_identity_keys(&s->web, out);
    return lh_credentials_load(s->variable, out);
}

static LH_MUST lh_err try_once(struct lh_s3 *s, const struct lh_s3_request *r,
                               struct lh_transfer_reply *reply)
{
    struct lh_sigv4_keys keys;
    struct lh_buf path = lh_buf(LH_S3_URL_BYTES), url = lh_buf(LH_S3_URL_BYTES);
    struct headers h = {.text = lh_buf(16 << 10)};
    struct sinking sinking = {r, is_part(r)};
    *reply = (struct lh_transfer_reply){.status = 0};
    LH_TRY(load_keys(s, &keys));
    put_target(s, r, &path);
    lh_err err = lh_buf_err(&path);
    if (!err) err = make_headers(s, r, &keys, (const char *)path.data, &h);
    sodium_memzero(&keys, sizeof keys);
    if (!err) {
        lh_put(&url, s->origin, strlen(s->origin));
        lh_put(&url, path.data, path.len - 1);
        if (r->query) lh_put(&url, "?", 1);
        if (r->query) lh_put(&url, r->query, strlen(r->query));
        lh_put_u8(&url, 0);
        err = lh_buf_err(&url);
    }
    if (!err) {
        struct lh_transfer_request t = {.method = r->method,
                                        .url = (const char *)url.data,
                                        .headers = h.count,
                                        .has_body = r->has_body,
                                        .body = r->body,
                                        .sink = r->sink ? take : NULL,
                                        .arg = &sinking};
        for (unsigned i = 0; i < h.count; i++) t.header[i] = (const char *)h.text.data + h.at[i];
        err = lh_transfer_do(s->transfer, &t, reply);
    }
    if (h.text.data) sodium_memzero(h.text.data, h.text.len);
    lh_buf_free(&h.text);
    lh_buf_free(&path);
    lh_buf_free(&url);
    return err;
}

// ---------------------------------------------------------------- answers

static lh_err fail(struct lh_s3 *s, const struct lh_s3_request *r, lh_err err, long status,
                   struct lh_span body, const char *advice)
{
    char code[ERROR_CODE_BYTES], text[ERROR_TEXT_BYTES];
    lh_xml_find(body, "Code", NULL, code, sizeof code);
    lh_xml_find(body, "Message", NULL, text, sizeof text);
    return lh_fail(err, "%s: %s %s: the store at %s answers %ld%s%s%s%s%s", s->address, r->method,
                   r->key ? r->key : "the bucket", s->origin, status, code[0] ? " " : "", code,
                   text[0] ? ": " : "", text, advice);
}

static bool says(const struct lh_transfer_reply *reply, const char *code)
{
    char found[ERROR_CODE_BYTES];
    lh_xml_find(lh_buf_span(&reply->body), "Code", NULL, found, sizeof found);
    return !strcmp(found, code);
}

static lh_err meaning(struct lh_s3 *s, const struct lh_s3_request *r,
                      const struct lh_transfer_reply *reply)
{
    struct lh_span body = lh_buf_span(&reply->body);
    long status = reply->status;
    if (status >= 200 && status < 300) return LH_OK;
    if (status == 404 && says(reply, "NoSuchBucket"))
        return fail(s, r, LH_ERR_CONFIG, status, body, ": make the bucket first");
    if (status == 404) return fail(s, r, LH_ERR_NOT_FOUND, status, body, "");
    if (status == 412) return fail(s, r, LH_ERR_EXISTS, status, body, "");
    if (says(reply, "RequestTimeTooSkewed"))
        return fail(s, r, LH_ERR_DENIED, status, body, ": set this machine's clock");
    if (status == 401 || status == 403)
        return fail(s, r, LH_ERR_DENIED, status, body,
                    ": look at the access key and at what it may do");
    if (status >= 300 && status < 400)
        return fail(s, r, LH_ERR_CONFIG, status, body,
                    ": check the endpoint and the region (AWS_REGION)");
    if (status >= 500 || status == 408 || status == 409 || status == 429 ||
        says(reply, "RequestTimeout"))
        return fail(s, r, LH_ERR_UNAVAILABLE, status, body, "");
    return fail(s, r, LH_ERR_MALFORMED, status, body, "");
}

lh_err lh_s3_check_body(struct lh_s3 *s, const struct lh_s3_request *r,
                        const struct lh_transfer_reply *reply)
{
    char code[ERROR_CODE_BYTES];
    lh_xml_find(lh_buf_span(&reply->body), "Code", NULL, code, sizeof code);
    if (!code[0]) return LH_OK;
    return fail(s, r, LH_ERR_UNAVAILABLE, reply->status, lh_buf_span(&reply->body), "");
}

// ---------------------------------------------------------------- retries

// Waits for a random part of `most_ns`, so that servers don't retry in step.
static LH_MUST lh_err pause_for(struct lh_s3 *s, int64_t most_ns)
{
    int64_t end = lh_now(s->env) + lh_random_below(s->env, most_ns);
    while (lh_now(s->env) < end) {
        if (s->stop && atomic_load(s->stop))
            return lh_fail(LH_ERR_CANCELLED, "%s: stopped", s->address);
        int64_t left = (end - lh_now(s->env)) / LH_MS + 1;
        (void)poll(NULL, 0, left < LOOK_MS ? (int)left : LOOK_MS);
    }
    return LH_OK;
}

lh_err lh_s3_do(struct lh_s3 *s, const struct lh_s3_request *r, struct lh_transfer_reply *reply)
{
    int64_t most = s->pause_ns;
    unsigned silent = 0; // attempts that took as long as a store may say nothing
    for (int attempt = 1;; attempt++) {
        int64_t began = lh_now(s->env);
        lh_err err = try_once(s, r, reply);
        silent += lh_now(s->env) - began >= LH_TRANSFER_SILENT_S * LH_SECOND;
        if (err == LH_ERR_UNAVAILABLE)
            err = lh_fail(err, "%s: %s %s: %s: %s", s->address, r->method,
                          r->key ? r->key : "the bucket", s->origin, lh_err_text(err));
        if (!err) err = meaning(s, r, reply);
        if (err == LH_ERR_DENIED) lh_web_identity_forget(&s->web); // it may have ended early
        if (err != LH_ERR_UNAVAILABLE || attempt == LH_OBJECT_ATTEMPTS) return err;
        if (silent == LH_OBJECT_SILENT_ATTEMPTS) return err; // a process that hangs, most likely
        struct lh_err_said said;
        lh_err_take(&said);
        lh_buf_free(&reply->body);
        *reply = (struct lh_transfer_reply){.status = 0};
        LH_TRY(pause_for(s, most));
        lh_err_give(&said);
        most = most * 2 < PAUSE_MAX_S * LH_SECOND ? most * 2 : PAUSE_MAX_S * LH_SECOND;
    }
}
