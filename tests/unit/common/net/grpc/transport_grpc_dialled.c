// A server that we dialled and that floods us: its certificate is good, its HTTP/2 is made by hand.
// The connection ends, and memory stays bounded.
#include "tests/unit/common/net/grpc/transport_grpc.h"

#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>

enum { MEMORY_BYTES_MAX = 64 * MIB, FRAME_BYTES = 16384, TIMES = 32768 };

struct flooder {
    struct world *w;
    int fd;
    char address[64];
    uint8_t first[64], frame[9 + FRAME_BYTES]; // sent once, then again and again
    size_t first_bytes, bytes;
    long times, sent;
    bool ended; // the client ended the connection
    struct mark done;
    pthread_t thread;
};

static int choose_h2(SSL *ssl, const unsigned char **out, unsigned char *n, const unsigned char *in,
                     unsigned int in_bytes, void *arg)
{
    (void)ssl, (void)in, (void)in_bytes, (void)arg;
    *out = (const unsigned char *)"h2";
    *n = 2;
    return SSL_TLSEXT_ERR_OK;
}

static void put_head(uint8_t *at, size_t length, uint8_t type, uint8_t stream)
{
    at[0] = (uint8_t)(length >> 16), at[1] = (uint8_t)(length >> 8), at[2] = (uint8_t)length;
    at[3] = type, at[8] = stream;
}

static void flood(struct flooder *f, SSL *ssl)
{
    uint8_t in[4096];
    f->ended = SSL_read(ssl, in, sizeof in) <= 0 || SSL_write(ssl, "\0\0\0\4\0\0\0\0", 9) <= 0;
    if (!f->ended) f->ended = SSL_read(ssl, in, sizeof in) <= 0; // the first request
    if (!f->ended) f->ended = SSL_write(ssl, f->first, (int)f->first_bytes) <= 0;
    for (; f->sent < f->times && !f->ended; f->sent++)
        f->ended = SSL_write(ssl, f->frame, (int)f->bytes) <= 0;
}

static void *serve(void *arg)
{
    struct flooder *f = arg;
    struct paths p = paths_of(f->w, "server");
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    bool ready = context && SSL_CTX_use_certificate_file(context, p.cert, SSL_FILETYPE_PEM) == 1 &&
                 SSL_CTX_use_PrivateKey_file(context, p.key, SSL_FILETYPE_PEM) == 1;
    if (ready) SSL_CTX_set_alpn_select_cb(context, choose_h2, NULL);
    SSL *ssl = ready ? SSL_new(context) : NULL;
    int fd = accept(f->fd, NULL, NULL);
    if (ssl && fd >= 0 && SSL_set_fd(ssl, fd) && SSL_accept(ssl) == 1) flood(f, ssl);
    SSL_free(ssl);
    SSL_CTX_free(context);
    if (fd >= 0) close(fd);
    lh_post(f->w->env, pass_mark, &f->done);
    return NULL;
}

static void begin_flooder(struct world *w, struct flooder *f)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    f->w = w;
    f->done = (struct mark){.w = w};
    f->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(f->fd, (struct sockaddr *)&at, n), 0);
    assert_int_equal(listen(f->fd, 1), 0);
    assert_int_equal(getsockname(f->fd, (struct sockaddr *)&at, &n), 0);
    snprintf(f->address, sizeof f->address, "127.0.0.1:%d", ntohs(at.sin_port));
    assert_int_equal(pthread_create(&f->thread, NULL, serve, f), 0);
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

static void assert_ends(struct world *w, struct flooder *f)
{
    struct side s = {0};
    struct lh_link *usual = w->link;
    assert_works(w, w->link);
    begin_flooder(w, f);
    long before = resident_bytes();
    w->link = dial(w->client, f->address, LH_S);
    side_open(w, &s, LH_RPC_FOLLOW, 0);
    UNTIL(w, f->done.passed);
    long more = resident_bytes() - before;
    pthread_join(f->thread, NULL);
    close(f->fd);
    if (!f->ended) fail_msg("it took all %ld frames, and %ld MiB of memory", f->sent, more / MIB);
    if (MEMORY_IS_SEEN && more > MEMORY_BYTES_MAX)
        fail_msg("%ld MiB more after %ld frames", more / MIB, f->sent);
    UNTIL(w, s.closes);
    assert_int_equal(s.status, LH_ERR_UNAVAILABLE);
    w->link->transport_ops->hangup(w->link);
    w->link = usual;
    assert_works(w, w->link); // other servers are not affected
}

// gRPC 1.51 keeps a value of a header until its end (CVE-2023-33953).
IN_PAIR(headers_without_an_end, struct world *w)
{
    static const uint8_t begins[] = {0, 1, 'a', 0x7f, 0x80, 0x80, 0x80, 0x80, 4}; // 1 GiB follow
    struct flooder f = {.times = TIMES};
    put_head(f.first, sizeof begins, 1, 1);
    memcpy(f.first + 9, begins, sizeof begins);
    f.first_bytes = 9 + sizeof begins;
    put_head(f.frame, FRAME_BYTES, 9, 1);
    memset(f.frame + 9, 'b', FRAME_BYTES);
    f.bytes = 9 + FRAME_BYTES;
    assert_ends(w, &f);
}

IN_PAIR(pings_without_an_end, struct world *w)
{
    struct flooder f = {.times = TIMES};
    enum { EACH = 17, PINGS = 400 };
    for (int i = 0; i < PINGS; i++) put_head(f.frame + i * EACH, 8, 6, 0);
    f.bytes = (size_t)PINGS * EACH;
    assert_ends(w, &f);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    return test_run(keep_openssl, NULL);
}
