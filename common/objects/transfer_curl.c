// One HTTP request and its answer. See transfer.h.
//
// A connection is kept between requests. SIGPIPE is blocked while libcurl runs, because OpenSSL
// writes to sockets without MSG_NOSIGNAL, and tools do not ignore the signal.
#include "common/objects/transfer.h"

#ifdef LH_WITH_CURL

#include <curl/curl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct lh_transfer {
    CURL *curl;
    const atomic_bool *stop;
    const char *ca_file;
    char error[CURL_ERROR_SIZE];
    const struct lh_transfer_request *request;
    struct lh_transfer_reply *reply;
    lh_err err; // error of a callback, which libcurl reports as a "write error"
};

lh_err lh_transfer_open(const atomic_bool *stop, const char *ca_file, struct lh_transfer **out)
{
    struct lh_transfer *t = calloc(1, sizeof *t);
    if (!t) return lh_fail(LH_ERR_NO_MEMORY, "no memory for a connection to the store");
    t->stop = stop;
    t->ca_file = ca_file;
    t->curl = curl_easy_init();
    if (!t->curl) {
        free(t);
        return lh_fail(LH_ERR_NO_MEMORY, "libcurl does not start");
    }
    *out = t;
    return LH_OK;
}

void lh_transfer_close(struct lh_transfer *t)
{
    if (!t) return;
    curl_easy_cleanup(t->curl);
    free(t);
}

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
    struct lh_transfer *t = arg;
    struct lh_span bytes = lh_span(data, size * n);
    long status = 0;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
    if (t->request->sink && (status == 200 || status == 206))
        t->err = t->request->sink(t->request->arg, status, bytes);
    else {
        lh_put(&t->reply->body, data, bytes.len);
        t->err = lh_buf_err(&t->reply->body);
    }
    return t->err ? 0 : bytes.len;
}

static size_t on_header(char *data, size_t size, size_t n, void *arg)
{
    static const char name[] = "etag:";
    struct lh_transfer *t = arg;
    size_t len = size * n, from = sizeof name - 1;
    if (len < from || strncasecmp(data, name, from) != 0) return len;
    while (len > from && strchr(" \r\n", data[len - 1])) len--;
    while (from < len && data[from] == ' ') from++;
    if (len - from >= sizeof t->reply->etag) return size * n;
    memcpy(t->reply->etag, data + from, len - from);
    t->reply->etag[len - from] = 0;
    return size * n;
}

static int on_progress(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    const struct lh_transfer *t = arg;
    (void)a, (void)b, (void)c, (void)d;
    return t->stop && atomic_load(t->stop);
}

static void set_up(struct lh_transfer *t, const struct lh_transfer_request *r,
                   struct curl_slist *headers)
{
    CURL *c = t->curl;
    curl_easy_reset(c); // keeps the connection
    curl_easy_setopt(c, CURLOPT_URL, r->url);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, t->error);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)LH_TRANSFER_CONNECT_S);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)LH_TRANSFER_SILENT_S);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, t);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, t);
    if (r->most_ms) curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)r->most_ms);
    if (t->ca_file[0]) curl_easy_setopt(c, CURLOPT_CAINFO, t->ca_file);
    if (r->has_body) {
        curl_easy_setopt(c, CURLOPT_POSTFIELDS, r->body.len ? (const char *)r->body.data : "");
        curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->body.len);
    }
    curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, r->method);
}

static CURLcode perform(CURL *c)
{
    sigset_t pipe, before;
    static const struct timespec now = {0, 0};
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    CURLcode code = curl_easy_perform(c);
    if (!sigismember(&before, SIGPIPE))
        (void)sigtimedwait(&pipe, NULL, &now); // the signal of this call, if any
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

lh_err lh_transfer_do(struct lh_transfer *t, const struct lh_transfer_request *r,
                      struct lh_transfer_reply *reply)
{
    struct curl_slist *headers = NULL;
    *reply = (struct lh_transfer_reply){.body = lh_buf(LH_TRANSFER_ANSWER_MAX)};
    t->request = r;
    t->reply = reply;
    t->err = LH_OK;
    t->error[0] = 0;
    for (unsigned i = 0; i < r->headers; i++) {
        struct curl_slist *more = curl_slist_append(headers, r->header[i]);
        if (!more) curl_slist_free_all(headers);
        if (!more) return lh_fail(LH_ERR_NO_MEMORY, "no memory for an HTTP request");
        headers = more;
    }
    set_up(t, r, headers);
    CURLcode code = perform(t->curl);
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &reply->status);
    curl_slist_free_all(headers);
    if (t->err == LH_ERR_TOO_LARGE)
        return lh_fail(t->err, "an answer of more than %d bytes", LH_TRANSFER_ANSWER_MAX);
    if (t->err) return t->err;
    if (code == CURLE_OK) return LH_OK;
    if (code == CURLE_ABORTED_BY_CALLBACK)
        return lh_fail(LH_ERR_CANCELLED, "the transfer was stopped");
    return lh_fail(LH_ERR_UNAVAILABLE, "%s", t->error[0] ? t->error : curl_easy_strerror(code));
}

#else

lh_err lh_transfer_open(const atomic_bool *stop, const char *ca_file, struct lh_transfer **out)
{
    (void)stop, (void)ca_file;
    *out = NULL;
    return lh_fail(LH_ERR_UNSUPPORTED,
                   "s3:// and webhooks need libcurl, and this build is without it: build again "
                   "where libcurl4-openssl-dev is installed");
}

void lh_transfer_close(struct lh_transfer *t)
{
    (void)t;
}

lh_err lh_transfer_do(struct lh_transfer *t, const struct lh_transfer_request *r,
                      struct lh_transfer_reply *reply)
{
    (void)t, (void)r;
    *reply = (struct lh_transfer_reply){.status = 0};
    return LH_ERR_UNSUPPORTED;
}

#endif
