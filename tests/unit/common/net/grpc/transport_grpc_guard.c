// The gRPC transport's guard over real TLS: accepted and refused handshakes, what a peer may
// request over HTTP/2, the cost of a flood, and honest peers beside it. The strangers here write
// HTTP/2 frames by hand, over OpenSSL.
#include "tests/unit/common/net/grpc/transport_grpc.h"

#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>

#include "common/net/grpc/transport_grpc_core.h"
#include "common/net/grpc/transport_grpc_frames.h"

enum { LOG_BYTES = 1 << 16, MEMORY_BYTES_MAX = 64 * MIB };

// ---------------------------------------------------------------- a server with a log

struct logged {
    struct world *w;
    struct lh_log *log;
    char path[128], list[128]; // list: path of revoked certificates; "": none
};

static void log_server(struct world *w, struct logged *l)
{
    struct paths p = paths_of(w, "server");
    l->w = w;
    snprintf(l->path, sizeof l->path, "%s/log", w->dir);
    assert_int_equal(lh_log_open(&l->log, w->env, "server", LH_INFO, false, l->path), LH_OK);
    struct lh_grpc_conf conf = conf_of(w, &p);
    conf.log = l->log;
    conf.revoked = l->list;
    lh_transport_grpc_destroy(w->server);
    assert_int_equal(lh_transport_grpc_create(&conf, &w->server), LH_OK);
    listen_at(w, "127.0.0.1:0");
    w->link = dial(w->client, w->bound, LH_S);
}

static bool log_says(const struct logged *l, const char *what)
{
    struct lh_buf text = lh_buf(LOG_BYTES);
    assert_int_equal(lh_file_load(l->w->env, l->path, &text), LH_OK);
    lh_put_u8(&text, 0);
    bool says = strstr((char *)text.data, what) != NULL;
    lh_buf_free(&text);
    return says;
}

static void wait_for_log(const struct logged *l, const char *what)
{
    for (int64_t start = lh_now(l->w->env); !log_says(l, what);) {
        if (lh_now(l->w->env) - start > PATIENCE_S * LH_SECOND) fail_msg("no \"%s\"", what);
        pass_ms(l->w, 10);
    }
}

static void end_log(struct logged *l)
{
    lh_transport_grpc_destroy(l->w->server);
    l->w->server = NULL;
    lh_log_close(l->log);
}

// ---------------------------------------------------------------- strangers

struct stranger {
    struct world *w;
    struct paths files;
    in_port_t port;
    // It sends `frames` repeatedly, at most `times`. Where a frame opens a stream, the stream
    // number rises by 2.
    uint8_t frames[512];
    size_t bytes;
    size_t once;         // bytes of `frames` that are sent only the first time
    size_t number_at[2]; // offsets of stream numbers in `frames`; 0: none
    long times;
    bool takes; // reads the server's settings first
    // results
    long sent;
    bool shook, ended, kept; // kept: the server was silent for PATIENCE_S and did not close
    struct mark done;
};

static SSL_CTX *context_of(const struct stranger *s)
{
    SSL_CTX *c = SSL_CTX_new(TLS_client_method());
    static const unsigned char h2[] = {2, 'h', '2'};
    if (!c || SSL_CTX_use_certificate_file(c, s->files.cert, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_use_PrivateKey_file(c, s->files.key, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_set_alpn_protos(c, h2, sizeof h2) != 0) {
        SSL_CTX_free(c);
        return NULL;
    }
    return c;
}

static int reach(in_port_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = port};
    const struct timeval patience = {PATIENCE_S, 0};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&to, sizeof to) == 0) return fd;
    close(fd);
    return -1;
}

static void put_number(uint8_t *at, uint32_t number)
{
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(number >> (24 - 8 * i));
}

// Sends until the server ends the connection, then reads to the end.
static void flood(struct stranger *s, SSL *ssl)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";
    uint8_t in[4096];
    // the terminating zero ends the empty SETTINGS
    s->ended = SSL_write(ssl, preface, sizeof preface) <= 0;
    // gRPC 1.51 misreads much data right behind the handshake, so the server speaks first.
    if (!s->ended) s->ended = SSL_read(ssl, in, sizeof in) <= 0;
    if (s->takes && !s->ended) s->ended = SSL_write(ssl, "\0\0\0\4\1\0\0\0", 9) <= 0;
    for (uint32_t number = 1; s->sent < s->times && !s->ended; number += 2) {
        for (int i = 0; i < 2; i++)
            if (s->number_at[i]) put_number(s->frames + s->number_at[i], number);
        size_t from = s->sent ? s->once : 0;
        s->ended = SSL_write(ssl, s->frames + from, (int)(s->bytes - from)) <= 0;
        s->sent++;
    }
    int n = 0;
    while (!s->ended) s->ended = (n = SSL_read(ssl, in, sizeof in)) <= 0;
    s->kept = SSL_get_error(ssl, n) == SSL_ERROR_WANT_READ;
}

static void *be_strange(void *arg)
{
    struct stranger *s = arg;
    SSL_CTX *context = context_of(s);
    SSL *ssl = context ? SSL_new(context) : NULL;
    int fd = ssl ? reach(s->port) : -1;
    if (fd >= 0 && SSL_set_fd(ssl, fd) && SSL_connect(ssl) == 1) {
        s->shook = true;
        flood(s, ssl);
    }
    SSL_free(ssl);
    SSL_CTX_free(context);
    if (fd >= 0) close(fd);
    lh_post(s->w->env, pass_mark, &s->done);
    return NULL;
}

static pthread_t begin_stranger(struct world *w, const char *name, struct stranger *s)
{
    pthread_t thread;
    const char *colon = strrchr(w->bound, ':');
    s->w = w;
    s->files = paths_of(w, name);
    s->port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
    s->done = (struct mark){.w = w};
    assert_int_equal(pthread_create(&thread, NULL, be_strange, s), 0);
    return thread;
}

static void end_stranger(pthread_t thread, struct stranger *s)
{
    UNTIL(s->w, s->done.passed);
    pthread_join(thread, NULL);
}

static void send_stranger(struct world *w, const char *name, struct stranger *s)
{
    end_stranger(begin_stranger(w, name, s), s);
}

static void add(struct stranger *s, uint8_t type, uint8_t flags, uint32_t stream,
                const void *payload, size_t n)
{
    uint8_t *h = s->frames + s->bytes;
    assert_true(s->bytes + 9 + n <= sizeof s->frames);
    h[0] = (uint8_t)(n >> 16), h[1] = (uint8_t)(n >> 8), h[2] = (uint8_t)n;
    h[3] = type, h[4] = flags;
    put_number(h + 5, stream);
    if (n) memcpy(h + 9, payload, n);
    s->bytes += 9 + n;
}

// Headers of a Push call; none is kept in HPACK's table.
static const char push_headers[] = "\x83\x87"
                                   "\x04\x17/longhaul.v1.Shard/Push"
                                   "\x01\x01x"
                                   "\x0f\x10\x10"
                                   "application/grpc"
                                   "\x00\x02te\x08trailers";

static void add_request(struct stranger *s, uint8_t flags)
{
    s->number_at[0] = s->bytes + 5;
    add(s, 1, flags, 1, push_headers, sizeof push_headers - 1);
}

static long resident_bytes(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*s %ld", &pages), 1);
    fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

// ---------------------------------------------------------------- handshakes

IN_PAIR(another_runs_certificate_is_refused_in_the_handshake, struct world *w)
{
    struct logged l = {0};
    struct stranger s = {.times = 1};
    log_server(w, &l);
    issue(w, LH_W, "guest", "r2", 1);
    add_request(&s, 5);
    send_stranger(w, "guest", &s);
    assert_true(s.ended);
    wait_for_log(&l, "net.handshake");
    wait_for_log(&l, "longhaul/r2/worker/eu/guest is not of run r1");
    assert_int_equal(w->asked, 0);
    assert_false(log_says(&l, "net.refused")); // gRPC saw no call
    assert_works(w, w->link);
    end_log(&l);
}

IN_PAIR(a_handshake_without_a_certificate_is_told, struct world *w)
{
    struct logged l = {0};
    struct sockaddr_in to = {.sin_family = AF_INET};
    log_server(w, &l);
    to.sin_port = htons((uint16_t)strtoul(strrchr(w->bound, ':') + 1, NULL, 10));
    int fd = reach(to.sin_port);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "GET / HTTP/1.1\r\n\r\n", 18), 18);
    wait_for_log(&l, "net.handshake");
    close(fd);
    end_log(&l);
}

IN_PAIR(a_connection_that_breaks_off_is_told, struct world *w)
{
    struct logged l = {0};
    log_server(w, &l);
    int fd = reach(htons((uint16_t)strtoul(strrchr(w->bound, ':') + 1, NULL, 10)));
    assert_true(fd >= 0);
    close(fd);
    wait_for_log(&l, "ended before they made a call, the last from 127.0.0.1:");
    end_log(&l);
}

// ---------------------------------------------------------------- floods

// Sends the flood beside an honest worker. The flood's connection must end and its peer be barred,
// memory stays bounded, and the honest worker's call stays open.
static void assert_ends(struct world *w, struct stranger *s, const char *what)
{
    struct logged l = {0};
    struct side open = {0};
    log_server(w, &l);
    issue(w, LH_W, "rogue", "r1", 1);
    w->plan.hold = true;
    w->out = "rogue"; // it asks for more calls than the world has sides, and some come late
    side_open(w, &open, LH_RPC_FOLLOW, 0);
    UNTIL(w, w->accepts == 1);
    long before = resident_bytes();
    s->times = 1000000;
    send_stranger(w, "rogue", s);
    assert_true(s->shook && s->ended);
    assert_true(s->sent < s->times);
    wait_for_log(&l, "net.flood");
    wait_for_log(&l, what);
    wait_for_log(&l, "/worker/eu/rogue asks for more");
    long more = resident_bytes() - before;
    if (MEMORY_IS_SEEN && more > MEMORY_BYTES_MAX)
        fail_msg("%ld MiB more after %ld", more / MIB, s->sent);
    struct stranger again = {.times = 1};
    add_request(&again, 5);
    send_stranger(w, "rogue", &again);
    assert_true(again.ended);
    wait_for_log(&l, "is barred for");
    assert_int_equal(open.closes, 0);
    w->plan.hold = false;
    assert_works(w, w->link);
    lh_call_cancel(open.call);
    UNTIL(w, open.closes);
    end_log(&l);
}

IN_PAIR(rapid_reset, struct world *w)
{
    struct stranger s = {.takes = true};
    add_request(&s, 4);
    s.number_at[1] = s.bytes + 5;
    add(&s, 3, 0, 1, "\0\0\0\x08", 4);
    assert_ends(w, &s, "took back");
}

// gRPC enforces the limit of streams only after the peer acknowledged the settings.
IN_PAIR(a_flood_of_requests, struct world *w)
{
    struct stranger s = {0};
    add_request(&s, 5);
    assert_ends(w, &s, "(requests before it took our settings)");
}

IN_PAIR(headers_without_an_end, struct world *w)
{
    struct stranger s = {0};
    uint8_t filler[300];
    for (size_t i = 0; i < sizeof filler; i++) filler[i] = (uint8_t) "\0\1a\1b"[i % 5];
    add(&s, 1, 1, 1, push_headers, sizeof push_headers - 1);
    s.once = s.bytes;
    add(&s, 9, 0, 1, filler, sizeof filler);
    assert_ends(w, &s, "headers");
}

IN_PAIR(pings_without_an_end, struct world *w)
{
    struct stranger s = {0};
    for (int i = 0; i < 20; i++) add(&s, 6, 1, 0, "longhaul", 8); // replies to no ping
    assert_ends(w, &s, "carry nothing");
}

IN_PAIR(settings_without_an_end, struct world *w)
{
    struct stranger s = {0};
    for (int i = 0; i < 20; i++) add(&s, 4, 0, 0, "\0\3\0\0\0\x64", 6);
    assert_ends(w, &s, "carry nothing");
}

IN_PAIR(data_without_bytes, struct world *w)
{
    struct stranger s = {.takes = true};
    add(&s, 1, 4, 1, push_headers, sizeof push_headers - 1);
    s.once = s.bytes;
    for (int i = 0; i < 40; i++) add(&s, 0, 0, 1, "", 0);
    assert_ends(w, &s, "carry nothing");
}

IN_PAIR(calls_that_its_role_may_not_make, struct world *w)
{
    struct logged l = {0};
    struct lh_transport *rogue;
    log_server(w, &l);
    issue(w, LH_W, "rogue", "r1", 1);
    assert_int_equal(create(w, "rogue", &rogue), LH_OK);
    struct lh_link *link = dial(rogue, w->bound, LH_S);
    struct side s = {.status = LH_ERR_DENIED};
    int calls = 0;
    assert_false(lh_rpc_allowed(LH_RPC_REPORT, LH_W));
    while (s.status == LH_ERR_DENIED && calls++ < 1000000) s = call_once(w, link, LH_RPC_REPORT);
    assert_int_equal(s.status, LH_ERR_UNAVAILABLE);
    wait_for_log(&l, "or that were refused");
    assert_works(w, w->link);
    lh_transport_grpc_destroy(rogue);
    end_log(&l);
}

// ---------------------------------------------------------------- expired

static int64_t days_later;

static int64_t wall_later(struct lh_env *env)
{
    (void)env;
    return time(NULL) + days_later * 86400;
}

IN_PAIR(an_expired_peers_connection_ends, struct world *w)
{
    struct logged l = {0};
    struct side open = {0};
    // The server's certificate lasts longer, so the server must end the connection.
    issue(w, LH_S, "server", "r1", 9);
    log_server(w, &l);
    side_open(w, &open, LH_RPC_FOLLOW, 0);
    UNTIL(w, w->accepts == 1);
    side_say(&open, "in time");
    UNTIL(w, w->accepted[0].messages == 1);
    const struct lh_env_ops *real = w->env->ops;
    struct lh_env_ops later = *real;
    days_later = 2; // the client's certificate is valid for one day
    later.wall_s = wall_later;
    w->env->ops = &later;
    for (int64_t start = lh_now(w->env); !open.closes;) {
        assert_true(lh_now(w->env) - start < PATIENCE_S * LH_SECOND);
        if (open.sent >= open.messages) side_say(&open, "too late");
        pass_ms(w, 20);
    }
    w->env->ops = real;
    wait_for_log(&l, "net.expired");
    end_log(&l);
}

// ---------------------------------------------------------------- revoked

static void write_list(const struct logged *l, const char *name)
{
    struct lh_certs_info info;
    FILE *f = fopen(l->list, "w");
    assert_non_null(f);
    if (name) {
        assert_int_equal(lh_certs_inspect(paths_of(l->w, name).cert, &info), LH_OK);
        fprintf(f, "%s\n", info.serial);
    }
    fclose(f);
}

static void log_server_with_list(struct world *w, struct logged *l)
{
    *l = (struct logged){.w = w};
    snprintf(l->list, sizeof l->list, "%s/revoked", w->dir);
    write_list(l, NULL);
    log_server(w, l);
}

// The peer reads and sends nothing, so no probe would end the connection soon.
IN_PAIR(a_revoked_peers_connection_ends_though_it_is_silent, struct world *w)
{
    struct logged l;
    struct stranger s = {.times = 1};
    log_server_with_list(w, &l);
    issue(w, LH_W, "rogue", "r1", 1);
    w->plan.hold = true;
    add_request(&s, 4);
    pthread_t thread = begin_stranger(w, "rogue", &s);
    UNTIL(w, w->accepts == 1);
    write_list(&l, "rogue");
    assert_int_equal(lh_transport_grpc_reload(w->server), LH_OK);
    assert_int_equal(w->accepted[0].closes, 1);
    end_stranger(thread, &s);
    assert_true(s.shook && s.ended);
    assert_false(s.kept);
    wait_for_log(&l, "is revoked: its connection ends");
    w->plan.hold = false;
    assert_works(w, w->link);
    struct stranger again = {.times = 1};
    add_request(&again, 5);
    int asked = w->asked;
    send_stranger(w, "rogue", &again);
    assert_true(again.ended);
    assert_false(again.kept);
    assert_int_equal(w->asked, asked);
    wait_for_log(&l, "a handshake was refused: the certificate ");
    end_log(&l);
}

IN_PAIR(a_revoked_peers_connection_without_a_call_ends, struct world *w)
{
    struct logged l;
    log_server_with_list(w, &l);
    assert_works(w, w->link); // connects
    int asked = w->asked;
    write_list(&l, "worker");
    assert_int_equal(lh_transport_grpc_reload(w->server), LH_OK);
    struct side s = call_once(w, w->link, LH_RPC_JOIN);
    assert_int_equal(s.status, LH_ERR_UNAVAILABLE);
    assert_int_equal(w->asked, asked);
    wait_for_log(&l, "is revoked: its connection ends");
    end_log(&l);
}

// ---------------------------------------------------------------- the key

#ifndef LH_ASAN // ASan maps memory that cannot be read
static bool holds(const uint8_t *at, size_t n, const uint8_t *what, size_t m)
{
    return memmem(at, n, what, m) != NULL;
}

// Counts this process's mappings that contain these bytes, except our own copy.
static int copies(const uint8_t *what, size_t n, const void *ours)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int found = 0;
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        char mode[8];
        if (sscanf(line, "%lx-%lx %7s", &from, &to, mode) != 3 || strncmp(mode, "rw", 2) != 0)
            continue;
        const uint8_t *own = ours;
        for (const uint8_t *at = (const uint8_t *)from, *end = (const uint8_t *)to;
             holds(at, (size_t)(end - at), what, n);) {
            at = (const uint8_t *)memmem(at, (size_t)(end - at), what, n) + 1;
            found += at - 1 != own;
        }
    }
    fclose(maps);
    return found;
}

IN_PAIR(a_keys_text_lies_nowhere, struct world *w)
{
    assert_works(w, w->link); // creates the TLS contexts of both sides
    struct lh_buf pem = lh_buf(1 << 16);
    assert_int_equal(lh_file_load(w->env, paths_of(w, "server").key, &pem), LH_OK);
    const uint8_t *body = memchr(pem.data, '\n', pem.len);
    assert_non_null(body);
    body += 1 + 20; // the secret of a P-256 key in PKCS #8 starts here
    assert_int_equal(copies(body, 40, body), 0);
    lh_buf_free(&pem);
}
#endif

int main(void)
{
    signal(SIGPIPE, SIG_IGN); // writing to a closed connection must not kill the test
    return test_run(keep_openssl, NULL);
}
