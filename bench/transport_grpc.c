// How fast is the transport? Pushes and pulls of 64 MiB as 1 MiB messages, and small round trips,
// between two processes on loopback under mutual TLS, beside OpenSSL alone over the same loopback
// (the same certificates, TLS 1.3, writes of 1 MiB): the difference is the cost of gRPC, the loop
// and the hand-offs.
//
// With `--turns 1` it measures on request, for benches that need ceilings from the same seconds as
// their figures: for each line of its input, `push` or `pull`, it prints two figures in GB/s, of
// OpenSSL alone and of the transport, which moves the same bytes and does nothing with them.
//
// The children are forked before gRPC starts anything: it does not survive a fork.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/report.h"
#include "common/base/check.h"
#include "common/net/grpc/transport_grpc.h"
#include "common/security/certs.h"

enum { MIB = 1 << 20, MESSAGES = 64, REPEATS = 9, TRIPS = 400, PING = 64 };

struct files {
    char dir[64], ca[96], server[96], server_key[96], worker[96], worker_key[96];
};

static void make_files(struct files *f)
{
    struct lh_peer p = {
        .role = LH_S, .domain = "bench", .run = "r", .region = "eu", .name = "server"};
    snprintf(f->dir, sizeof f->dir, "/tmp/lh_bench.XXXXXX");
    if (!mkdtemp(f->dir)) exit(1);
    BENCH_MUST(lh_certs_ca_create(f->dir, "bench", 2, true));
    BENCH_MUST(lh_certs_issue(f->dir, &p, 1, f->dir, true));
    p.role = LH_W;
    snprintf(p.name, sizeof p.name, "worker");
    BENCH_MUST(lh_certs_issue(f->dir, &p, 1, f->dir, true));
    snprintf(f->ca, sizeof f->ca, "%s/ca.pem", f->dir);
    snprintf(f->server, sizeof f->server, "%s/server.pem", f->dir);
    snprintf(f->server_key, sizeof f->server_key, "%s/server.key", f->dir);
    snprintf(f->worker, sizeof f->worker, "%s/worker.pem", f->dir);
    snprintf(f->worker_key, sizeof f->worker_key, "%s/worker.key", f->dir);
}

static void drop_files(const struct files *f)
{
    char ca_key[96];
    snprintf(ca_key, sizeof ca_key, "%s/ca.key", f->dir);
    const char *all[] = {f->ca, ca_key, f->server, f->server_key, f->worker, f->worker_key};
    for (size_t i = 0; i < LH_COUNT(all); i++) unlink(all[i]);
    rmdir(f->dir);
}

// ---------------------------------------------------------------- one side of a call

struct side {
    struct lh_env *env;
    struct lh_call *call;
    struct lh_blob *bulk;
    int to_send, messages, trips;
    bool server, echo, over;
    lh_err status;
};

static void send_next(struct side *s)
{
    if (s->to_send == 0) return;
    const struct lh_out out = {lh_span_str("head"), s->bulk, 0, MIB};
    BENCH_MUST(lh_call_send(s->call, &out));
    if (--s->to_send == 0) lh_call_finish(s->call, LH_OK, "");
}

static void send_ping(struct side *s)
{
    static const char ping[PING];
    const struct lh_out out = {.head = lh_span(ping, sizeof ping)};
    BENCH_MUST(lh_call_send(s->call, &out));
}

static void on_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct side *s = self;
    (void)msg;
    s->messages++;
    if (s->echo && (s->server || s->messages < s->trips))
        send_ping(s);
    else if (s->echo)
        lh_call_finish(call, LH_OK, "");
    lh_call_read(call);
}

static void on_half_close(void *self, struct lh_call *call)
{
    struct side *s = self;
    if (s->to_send == 0) lh_call_finish(call, LH_OK, "");
}

static void on_sent(void *self, struct lh_call *call)
{
    (void)call;
    send_next(self);
}

static void on_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    struct side *s = self;
    (void)call;
    s->over = true;
    s->status = status;
    if (s->server) {
        free(s);
        return;
    }
    if (status) fprintf(stderr, "%s\n", text);
    lh_env_real_stop(s->env);
}

static const struct lh_call_ops side_ops = {on_message, on_half_close, on_sent, on_close};

static void side_start(struct side *s)
{
    lh_call_read(s->call);
    for (int i = 0; i < LH_CALL_SENDS_MAX; i++) send_next(s);
}

// ---------------------------------------------------------------- the server's process

struct server {
    struct lh_blob *bulk;
};

static lh_err on_call(void *self, struct lh_call *call, enum lh_rpc rpc, const struct lh_peer *peer,
                      const struct lh_call_ops **ops, void **call_self)
{
    struct server *v = self;
    struct side *s = calloc(1, sizeof *s);
    (void)peer;
    if (!s) return LH_ERR_NO_MEMORY;
    *s = (struct side){.call = call, .server = true, .bulk = v->bulk};
    s->echo = rpc == LH_RPC_JOIN;
    s->to_send = rpc == LH_RPC_SNAPSHOT ? MESSAGES : 0;
    *ops = &side_ops;
    *call_self = s;
    side_start(s);
    return LH_OK;
}

static struct lh_blob *noise(struct lh_env *env)
{
    struct lh_blob *b = lh_blob_new(MIB);
    if (!b) exit(1);
    lh_random(env, b->data, b->len);
    return b;
}

// Starts a child; returns its first output (its address) in `address`.
static pid_t start_child(void (*run)(const struct files *f, int out), const struct files *f,
                         char *address, size_t size)
{
    int fd[2];
    if (pipe(fd)) exit(1);
    pid_t pid = fork();
    if (pid < 0) exit(1);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(fd[0]);
        run(f, fd[1]);
        _exit(0);
    }
    close(fd[1]);
    ssize_t n = read(fd[0], address, size - 1);
    close(fd[0]);
    if (n <= 0) exit(1);
    address[n] = 0;
    return pid;
}

static void run_grpc_server(const struct files *f, int out)
{
    struct lh_env *env;
    struct lh_transport *t;
    char bound[64];
    BENCH_MUST(lh_env_real_create(&env));
    struct server v = {noise(env)};
    const struct lh_service service = {&v, on_call};
    const struct lh_grpc_conf conf = {.env = env,
                                      .ca = f->ca,
                                      .cert = f->server,
                                      .key = f->server_key,
                                      .run = "r",
                                      .domain = "bench"};
    BENCH_MUST(lh_transport_grpc_create(&conf, &t));
    BENCH_MUST(t->ops->listen(t, "127.0.0.1:0", &service, bound, sizeof bound));
    if (write(out, bound, strlen(bound)) < 0) exit(1);
    close(out);
    lh_env_real_run(env); // until it is killed
}

// ---------------------------------------------------------------- OpenSSL alone

static SSL_CTX *tls_context(const struct files *f, bool server)
{
    SSL_CTX *c = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
    if (!c ||
        SSL_CTX_use_certificate_file(c, server ? f->server : f->worker, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_use_PrivateKey_file(c, server ? f->server_key : f->worker_key, SSL_FILETYPE_PEM) !=
            1 ||
        SSL_CTX_load_verify_locations(c, f->ca, NULL) != 1)
        exit(1);
    SSL_CTX_set_verify(c, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    return c;
}

static void read_all(SSL *ssl, char *into, size_t n)
{
    for (size_t at = 0, k; at < n; at += k)
        if (SSL_read_ex(ssl, into + at % MIB, n - at < MIB - at % MIB ? n - at : MIB - at % MIB,
                        &k) != 1)
            exit(1);
}

static void write_all(SSL *ssl, const char *from, size_t n)
{
    for (size_t at = 0, k; at < n; at += k)
        if (SSL_write_ex(ssl, from, n - at < MIB ? n - at : MIB, &k) != 1) exit(1);
}

static void serve_tls(SSL *ssl, char *memory)
{
    char what;
    for (size_t k; SSL_read_ex(ssl, &what, 1, &k) == 1;) {
        if (what == 'u') read_all(ssl, memory, (size_t)MESSAGES * MIB);
        if (what == 'd') write_all(ssl, memory, (size_t)MESSAGES * MIB);
        if (what == 'p') read_all(ssl, memory, PING);
        if (what == 'p') write_all(ssl, memory, PING);
        if (what == 'u') write_all(ssl, "k", 1);
    }
}

static void run_tls_server(const struct files *f, int out)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int door = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    char *memory = calloc(1, MIB), text[16];
    if (bind(door, (struct sockaddr *)&at, n) || listen(door, 4) ||
        getsockname(door, (struct sockaddr *)&at, &n) || !memory)
        exit(1);
    snprintf(text, sizeof text, "%d", ntohs(at.sin_port));
    if (write(out, text, strlen(text)) < 0) exit(1);
    close(out);
    int fd = accept(door, NULL, NULL);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    SSL *ssl = SSL_new(tls_context(f, true));
    SSL_set_fd(ssl, fd);
    if (SSL_accept(ssl) == 1) serve_tls(ssl, memory);
}

static SSL *connect_tls(const struct files *f, const char *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    at.sin_port = htons((uint16_t)strtol(port, NULL, 10));
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    SSL *ssl = SSL_new(tls_context(f, false));
    if (connect(fd, (struct sockaddr *)&at, sizeof at)) exit(1);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    SSL_set_fd(ssl, fd);
    if (SSL_connect(ssl) != 1) exit(1);
    return ssl;
}

// ---------------------------------------------------------------- measuring

static double gb_per_s(int64_t ns)
{
    return (double)MESSAGES * MIB / (double)ns;
}

static int64_t tls_transfer(struct lh_env *env, SSL *ssl, char *memory, bool up)
{
    int64_t start = lh_now(env);
    write_all(ssl, up ? "u" : "d", 1);
    if (up) write_all(ssl, memory, (size_t)MESSAGES * MIB);
    read_all(ssl, memory, up ? 1 : (size_t)MESSAGES * MIB);
    return lh_now(env) - start;
}

static int64_t tls_trips(struct lh_env *env, SSL *ssl, char *memory)
{
    int64_t start = lh_now(env);
    for (int i = 0; i < TRIPS; i++) {
        char ping[1 + PING] = {'p'};
        write_all(ssl, ping, sizeof ping);
        read_all(ssl, memory, PING);
    }
    return lh_now(env) - start;
}

static int64_t grpc_call(struct lh_env *env, struct lh_link *link, enum lh_rpc rpc, struct side s)
{
    int64_t start = lh_now(env);
    s.env = env;
    BENCH_MUST(lh_call_open(link, rpc, 0, &side_ops, &s, &s.call));
    side_start(&s);
    if (s.echo)
        send_ping(&s);
    else if (rpc == LH_RPC_SNAPSHOT)
        lh_call_finish(s.call, LH_OK, "");
    while (!s.over) lh_env_real_run(env);
    if (s.status) exit(1);
    return lh_now(env) - start;
}

static int64_t grpc_unary(struct lh_env *env, struct lh_link *link)
{
    int64_t start = lh_now(env);
    for (int i = 0; i < TRIPS; i++)
        grpc_call(env, link, LH_RPC_JOIN, (struct side){.echo = true, .trips = 1});
    return lh_now(env) - start;
}

static void measure(struct bench_report *r, struct lh_env *env, struct lh_link *link, SSL *ssl)
{
    struct bench_samples tls_up = {0}, tls_down = {0}, up = {0}, down = {0}, trip = {0},
                         unary = {0}, tls_trip = {0};
    struct lh_blob *bulk = noise(env);
    const struct side push = {.bulk = bulk, .to_send = MESSAGES};
    const struct side echo = {.echo = true, .trips = TRIPS};
    char *memory = calloc(1, MIB);
    if (!memory) exit(1);
    grpc_call(env, link, LH_RPC_PUSH, push); // connects, opens the windows
    for (int i = 0; i < REPEATS; i++) {      // alternating, so that load affects all alike
        bench_sample(&tls_up, gb_per_s(tls_transfer(env, ssl, memory, true)));
        bench_sample(&up, gb_per_s(grpc_call(env, link, LH_RPC_PUSH, push)));
        bench_sample(&tls_down, gb_per_s(tls_transfer(env, ssl, memory, false)));
        bench_sample(&down, gb_per_s(grpc_call(env, link, LH_RPC_SNAPSHOT, (struct side){0})));
        bench_sample(&tls_trip, (double)tls_trips(env, ssl, memory) / TRIPS / 1e3);
        bench_sample(&trip, (double)grpc_call(env, link, LH_RPC_JOIN, echo) / TRIPS / 1e3);
        bench_sample(&unary, (double)grpc_unary(env, link) / TRIPS / 1e3);
    }
    bench_row(r, "transport.push.64mib", "GB/s", &up, "OpenSSL alone", bench_median(&tls_up));
    bench_row(r, "transport.pull.64mib", "GB/s", &down, "OpenSSL alone", bench_median(&tls_down));
    bench_row(r, "transport.stream.trip", "us", &trip, "OpenSSL alone", bench_median(&tls_trip));
    bench_row(r, "transport.unary.trip", "us", &unary, "OpenSSL alone", bench_median(&tls_trip));
    free(memory);
    lh_blob_release(bulk);
}

// Each transfer lasts until the other end has the last byte.
static void take_turns(struct lh_env *env, struct lh_link *link, SSL *ssl)
{
    char word[8];
    char *memory = calloc(1, MIB);
    struct lh_blob *bulk = noise(env);
    const struct side push = {.bulk = bulk, .to_send = MESSAGES};
    if (!memory) exit(1);
    grpc_call(env, link, LH_RPC_PUSH, push);
    while (fgets(word, sizeof word, stdin)) {
        bool up = !strcmp(word, "push\n");
        if (!up && strcmp(word, "pull\n") != 0) exit(2);
        double alone = gb_per_s(tls_transfer(env, ssl, memory, up));
        double grpc = gb_per_s(
            grpc_call(env, link, up ? LH_RPC_PUSH : LH_RPC_SNAPSHOT, up ? push : (struct side){0}));
        printf("%.6g %.6g\n", alone, grpc);
        fflush(stdout);
    }
    free(memory);
    lh_blob_release(bulk);
}

int main(int argc, char **argv)
{
    struct bench_flag flag[] = {{"turns", "1: measure when the input says so", 0, NULL}, {0}};
    struct bench_report r = bench_start_with("transport_grpc", argc, argv, flag);
    bool turns = flag[0].value != 0;
    struct files f;
    char address[64], port[16];
    struct lh_env *env;
    struct lh_transport *t;
    struct lh_link *link;
    make_files(&f);
    pid_t child[] = {start_child(run_grpc_server, &f, address, sizeof address),
                     start_child(run_tls_server, &f, port, sizeof port)};
    BENCH_MUST(lh_env_real_create(&env));
    const struct lh_grpc_conf conf = {.env = env,
                                      .ca = f.ca,
                                      .cert = f.worker,
                                      .key = f.worker_key,
                                      .run = "r",
                                      .domain = "bench"};
    BENCH_MUST(lh_transport_grpc_create(&conf, &t));
    BENCH_MUST(t->ops->dial(t, address, LH_S, LH_LINE_FIRST, &link));
    SSL *ssl = connect_tls(&f, port);
    bench_condition(&r, "link", "loopback, two processes, mutual TLS, %s", SSL_get_cipher(ssl));
    bench_condition(&r, "messages", "%d of 1 MiB; round trips of %d bytes", MESSAGES, PING);
    if (turns)
        take_turns(env, link, ssl);
    else
        measure(&r, env, link, ssl);
    lh_transport_grpc_destroy(t);
    lh_env_real_destroy(env);
    for (size_t i = 0; i < LH_COUNT(child); i++) {
        kill(child[i], SIGKILL);
        waitpid(child[i], NULL, 0);
    }
    drop_files(&f);
    return turns ? 0 : bench_finish(&r);
}
