// HTTP for Prometheus, probes and browsers. See http.h.
//
// libmicrohttpd speaks HTTP and owns the thread. The lock guards the published status and the
// curves; it is held for copies and for adding one sample to the curves, never during a send.
#include "common/app/http.h"

#include <errno.h>
#include <jansson.h>
#include <microhttpd.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/app/history.h"
#include "common/app/metrics.h"
#include "common/app/node.h"

enum {
    TEXT_BYTES = 1 << 24,
    LOG_TAIL = 64 << 10,
    IDLE_S = 10,
    SILENT_S = 15, // a status is published about once a second
    PEER_BYTES = 32 << 10,
    ENDING = 4, // connections that were shut down and are not closed yet
};

struct lh_http {
    struct lh_http_conf conf;
    struct MHD_Daemon *daemon;
    char address[80], log_file[1024];
    pthread_mutex_t lock;
    struct lh_buf status;
    int64_t told_s; // monotonic, of the last status
    struct lh_history *history;
    int peer[LH_HTTP_PEERS]; // sockets of the connections, oldest first; the server's thread's
    size_t peers;
};

struct answer {
    unsigned code;
    const char *type;
    struct lh_buf body;
};

static int64_t seconds(const struct lh_http *h)
{
    return lh_now(h->conf.env) / LH_SECOND;
}

static void say(struct answer *a, unsigned code, const char *text)
{
    a->code = code;
    a->type = "text/plain; charset=utf-8";
    lh_buf_clear(&a->body);
    lh_put(&a->body, text, strlen(text));
}

// ---------------------------------------------------------------- answers

// The last status, parsed; NULL: there is none yet.
static json_t *status_of(struct lh_http *h)
{
    pthread_mutex_lock(&h->lock);
    json_t *status = json_loadb((const char *)h->status.data, h->status.len, 0, NULL);
    pthread_mutex_unlock(&h->lock);
    return status;
}

static void answer_metrics(struct lh_http *h, struct answer *a)
{
    json_t *status = status_of(h);
    a->type = "text/plain; version=0.0.4; charset=utf-8";
    if (!status || lh_metrics_prometheus(status, &a->body))
        say(a, MHD_HTTP_SERVICE_UNAVAILABLE, "there is no status yet\n");
    json_decref(status);
}

static int64_t silent_s(struct lh_http *h)
{
    pthread_mutex_lock(&h->lock);
    int64_t silent = seconds(h) - h->told_s;
    pthread_mutex_unlock(&h->lock);
    return silent;
}

static void answer_health(struct lh_http *h, struct answer *a)
{
    char text[100];
    int64_t silent = silent_s(h);
    if (silent <= SILENT_S) return say(a, MHD_HTTP_OK, "ok\n");
    snprintf(text, sizeof text, "the program's loop has not reported for %lld s\n",
             (long long)silent);
    say(a, MHD_HTTP_SERVICE_UNAVAILABLE, text);
}

static void answer_ready(struct lh_http *h, struct answer *a)
{
    json_t *status = status_of(h);
    if (json_is_true(json_object_get(status, "ready")))
        answer_health(h, a);
    else
        say(a, MHD_HTTP_SERVICE_UNAVAILABLE,
            status ? "not ready: recovering, or waiting for others; see /status.json\n"
                   : "not ready: there is no status yet\n");
    json_decref(status);
}

static void answer_status(struct lh_http *h, struct answer *a)
{
    pthread_mutex_lock(&h->lock);
    lh_put(&a->body, h->status.data, h->status.len);
    pthread_mutex_unlock(&h->lock);
    a->type = "application/json";
    if (!a->body.len) say(a, MHD_HTTP_SERVICE_UNAVAILABLE, "there is no status yet\n");
}

static void answer_history(struct lh_http *h, struct answer *a)
{
    if (!h->history) return say(a, MHD_HTTP_NOT_FOUND, "only the coordinator keeps curves\n");
    a->type = "application/json";
    pthread_mutex_lock(&h->lock);
    lh_history_json(h->history, &a->body);
    pthread_mutex_unlock(&h->lock);
}

static void answer_log(struct lh_http *h, struct answer *a)
{
    if (!h->log_file[0])
        return say(a, MHD_HTTP_OK, "the log goes to standard error (setting log.file)\n");
    const struct lh_files_ops *files = h->conf.env->ops->files;
    struct lh_file *f;
    uint64_t size = 0;
    size_t n = 0;
    if (files->open(h->conf.env, h->log_file, LH_OPEN_READ, &f))
        return say(a, MHD_HTTP_NOT_FOUND, "the log file cannot be read\n");
    say(a, MHD_HTTP_OK, "");
    uint8_t *text = malloc(LOG_TAIL);
    lh_err err = text ? files->size(f, &size) : LH_ERR_NO_MEMORY;
    uint64_t from = size > LOG_TAIL ? size - LOG_TAIL : 0;
    if (!err) err = files->read(f, from, text, LOG_TAIL, &n);
    if (!err) { // drops the first, cut line
        const uint8_t *line = from ? memchr(text, '\n', n) : NULL;
        size_t skip = line ? (size_t)(line + 1 - text) : 0;
        lh_put(&a->body, text + skip, n - skip);
    }
    free(text);
    files->close(f);
}

static void answer_page(struct lh_http *h, struct answer *a)
{
    if (!h->conf.page) return say(a, MHD_HTTP_NOT_FOUND, "see /metrics and /status.json\n");
    a->type = "text/html; charset=utf-8";
    lh_put(&a->body, h->conf.page, strlen(h->conf.page));
}

static const struct {
    const char *path;
    void (*fn)(struct lh_http *, struct answer *);
} paths[] = {{"/metrics", answer_metrics},
             {"/healthz", answer_health},
             {"/readyz", answer_ready},
             {"/status.json", answer_status},
             {"/history.json", answer_history},
             {"/log", answer_log},
             {"/", answer_page}};

static void answer(struct lh_http *h, const char *path, struct answer *a)
{
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (!strcmp(paths[i].path, path)) return paths[i].fn(h, a);
    say(a, MHD_HTTP_NOT_FOUND, "no such page: /metrics, /healthz, /readyz, /status.json, /log\n");
}

// ---------------------------------------------------------------- libmicrohttpd

static enum MHD_Result on_request(void *arg, struct MHD_Connection *peer, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_bytes, void **request)
{
    struct lh_http *h = arg;
    struct answer a = {MHD_HTTP_OK, "", lh_buf(TEXT_BYTES)};
    (void)version, (void)upload, (void)request;
    if (*upload_bytes) return MHD_NO; // ends the connection
    bool reads = !strcmp(method, "GET") || !strcmp(method, "HEAD");
    if (reads)
        answer(h, url, &a);
    else
        say(&a, MHD_HTTP_METHOD_NOT_ALLOWED, "GET and HEAD only\n");
    if (lh_buf_err(&a.body)) say(&a, MHD_HTTP_INTERNAL_SERVER_ERROR, "no memory\n");
    struct MHD_Response *r =
        MHD_create_response_from_buffer(a.body.len, a.body.data, MHD_RESPMEM_MUST_COPY);
    lh_buf_free(&a.body);
    if (!r) return MHD_NO;
    MHD_add_response_header(r, "Content-Type", a.type);
    MHD_add_response_header(r, "Cache-Control", "no-store");
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(r, "Referrer-Policy", "no-referrer");
    MHD_add_response_header(r, "Content-Security-Policy",
                            "default-src 'none'; style-src 'unsafe-inline'; script-src "
                            "'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'");
    if (!reads) MHD_add_response_header(r, "Allow", "GET, HEAD");
    enum MHD_Result result = MHD_queue_response(peer, a.code, r);
    MHD_destroy_response(r);
    return result;
}

static void forget_peer(struct lh_http *h, size_t i)
{
    h->peers--;
    memmove(&h->peer[i], &h->peer[i + 1], (h->peers - i) * sizeof *h->peer);
}

// A peer that sends a byte now and then is never silent. Such peers must not keep others out: the
// oldest connection ends for a new one, which is answered at once.
static void on_connection(void *arg, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    struct lh_http *h = arg;
    (void)context;
    int fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    for (size_t i = h->peers; i-- > 0;)
        if (h->peer[i] == fd) forget_peer(h, i);
    if (what != MHD_CONNECTION_NOTIFY_STARTED) return;
    if (h->peers == LH_HTTP_PEERS) {
        (void)shutdown(h->peer[0], SHUT_RDWR); // the server sees the end and closes it
        forget_peer(h, 0);
    }
    h->peer[h->peers++] = fd;
}

static void quiet(void *arg, const char *format, va_list args)
{
    (void)arg, (void)format, (void)args; // errors of HTTP peers are not logged
}

// A listening socket "fd:N" that this process inherited.
static LH_MUST lh_err passed_on(const char *listen, int *fd)
{
    int yes = 0;
    char *end;
    long n = strtol(listen + 3, &end, 10);
    socklen_t len = sizeof yes;
    bool is = end > listen + 3 && !*end && n > STDERR_FILENO && n < 1 << 20;
    *fd = (int)n;
    if (is && !getsockopt(*fd, SOL_SOCKET, SO_ACCEPTCONN, &yes, &len) && yes) return LH_OK;
    return lh_fail(LH_ERR_CONFIG, "http.listen: %.80s is no listening socket", listen);
}

static LH_MUST lh_err open_socket(const char *listen_at, int *fd)
{
    char host[80];
    const char *colon = strrchr(listen_at, ':');
    LH_TRY(lh_address_check("http.listen", listen_at, true));
    bool six = listen_at[0] == '[';
    snprintf(host, sizeof host, "%.*s", (int)(colon - listen_at) - 2 * six, listen_at + six);
    struct addrinfo *at = NULL;
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE | AI_NUMERICSERV |
                                               (strcmp(host, "localhost") ? AI_NUMERICHOST : 0)};
    int why = getaddrinfo(host, colon + 1, &hints, &at), one = 1;
    if (why)
        return lh_fail(LH_ERR_CONFIG, "http.listen: %.80s: %s; give an address, as 127.0.0.1:9464",
                       listen_at, gai_strerror(why));
    *fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool fine = *fd >= 0 && !setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) &&
                !bind(*fd, at->ai_addr, at->ai_addrlen) && !listen(*fd, LH_HTTP_PEERS);
    int saved = errno;
    freeaddrinfo(at);
    if (fine) return LH_OK;
    if (*fd >= 0) close(*fd);
    return lh_fail(LH_ERR_CONFIG, "http.listen: %.80s: %s; take another port, or \"\" for none",
                   listen_at, strerror(saved));
}

static void name_address(struct lh_http *h, int fd)
{
    struct sockaddr_storage at;
    char host[64] = "", port[8] = "";
    socklen_t len = sizeof at;
    if (!getsockname(fd, (struct sockaddr *)&at, &len))
        (void)getnameinfo((struct sockaddr *)&at, len, host, sizeof host, port, sizeof port,
                          NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(h->address, sizeof h->address, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
}

static LH_MUST lh_err serve(struct lh_http *h)
{
    int fd = -1;
    bool given = !strncmp(h->conf.listen, "fd:", 3);
    LH_TRY(given ? passed_on(h->conf.listen, &fd) : open_socket(h->conf.listen, &fd));
    name_address(h, fd);
    h->daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL | MHD_USE_ITC | MHD_USE_ERROR_LOG, 0, NULL,
        NULL, on_request, h, MHD_OPTION_EXTERNAL_LOGGER, quiet, NULL, MHD_OPTION_LISTEN_SOCKET, fd,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)LH_HTTP_PEERS + ENDING, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, h, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)PEER_BYTES, MHD_OPTION_END);
    if (h->daemon) return LH_OK;
    close(fd);
    return lh_fail(LH_ERR_NO_MEMORY, "cannot start HTTP at %s", h->address);
}

lh_err lh_http_start(const struct lh_http_conf *conf, struct lh_http **out)
{
    struct lh_http *h = calloc(1, sizeof *h);
    if (!h) return lh_fail(LH_ERR_NO_MEMORY, "cannot start HTTP");
    h->conf = *conf;
    h->status = lh_buf(TEXT_BYTES);
    h->told_s = seconds(h);
    snprintf(h->log_file, sizeof h->log_file, "%s", conf->log_file);
    pthread_mutex_init(&h->lock, NULL);
    if (conf->history_s > 0) h->history = lh_history_create(conf->history_s);
    lh_err err =
        conf->history_s > 0 && !h->history ? lh_fail(LH_ERR_NO_MEMORY, "no curves") : serve(h);
    if (!err) {
        *out = h;
        return LH_OK;
    }
    lh_http_stop(h);
    return err;
}

// MHD_stop_daemon() would shut the socket down. One that was passed on has other holders, such as
// this process's next life.
static void end_daemon(struct MHD_Daemon *daemon)
{
    int fd = MHD_quiesce_daemon(daemon);
    MHD_stop_daemon(daemon);
    if (fd >= 0) close(fd);
}

void lh_http_stop(struct lh_http *h)
{
    if (!h) return;
    if (h->daemon) end_daemon(h->daemon);
    lh_history_destroy(h->history);
    pthread_mutex_destroy(&h->lock);
    lh_buf_free(&h->status);
    free(h);
}

const char *lh_http_address(const struct lh_http *h)
{
    return h->address;
}

void lh_http_publish(struct lh_http *h, struct lh_span status)
{
    json_t *root = h->history ? json_loadb((const char *)status.data, status.len, 0, NULL) : NULL;
    pthread_mutex_lock(&h->lock);
    lh_buf_clear(&h->status);
    lh_put(&h->status, status.data, status.len);
    h->told_s = seconds(h);
    if (root) lh_history_add(h->history, (double)h->told_s, root);
    pthread_mutex_unlock(&h->lock);
    json_decref(root);
}
