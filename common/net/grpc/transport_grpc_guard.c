// Guard: checks handshakes and ends connections. See transport_grpc_core.h.
//
// gRPC (1.51) checks a client's certificate against the CA and shows it to us with each call.
// Before the first call, a holder of another run's certificate of that CA could make gRPC hold
// gigabytes. gRPC has no callback in a server's handshake, counts no frames and ends no connection
// on request. So the programs define their own SSL_CTX_set_verify(), SSL_do_handshake() and
// SSL_read(), which libgrpc's calls resolve to before OpenSSL's (like accept4() in
// transport_grpc_door.c). A failed read ends the connection with all its calls, on gRPC's own
// thread.
//
//  1. A server's handshake accepts only a certificate of its own run and domain that is not
//     revoked, of a peer that is not barred. No session is resumed, so each connection shows its
//     certificate.
//  2. Every byte of a client's connection is counted before gRPC reads it, against one allowance
//     for all connections of that peer (transport_grpc_frames.h). A peer that exceeds it loses its
//     connections and is barred for BAR_MS, doubled for each further time within BAR_MS_MAX.
//     At our end of a connection that we dialled, the server's bytes are counted too, for that
//     connection alone.
//  3. A peer has CONNECTIONS_PER_PEER connections; a further one ends the oldest.
//  4. At either end a connection whose peer's certificate has expired or is revoked ends at the
//     next byte; a silent wire is probed every LH_GRPC_KEEPALIVE_MS.
//  5. Refused handshakes and ended connections are logged, at a bounded rate with a count of
//     suppressed lines.
#include <dlfcn.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/format/frame.h"
#include "common/net/grpc/transport_grpc_core.h"
#include "common/net/grpc/transport_grpc_frames.h"
#include "common/security/certs.h"

enum {
    CONNECTIONS_PER_PEER = 32, // a worker has two or three; broken ones linger for a minute or two
    PEERS_MAX = 4096,
    BAR_MS = 10000,
    BAR_MS_MAX = 600000,
    WHY_BYTES = 160,
};

struct known { // one peer of this server; kept at least while connected or barred
    struct known *next;
    uint64_t id;
    struct lh_grpc_allowance allowance;
    int64_t barred_until_ns, bar_ms, used_ns;
    unsigned connections;
    uint64_t first; // connections with lower numbers end
    char uri[LH_URI_BYTES];
};

struct lh_grpc_guard {
    atomic_uint owners; // the certificates, TLS contexts, connections
    pthread_mutex_t lock;
    struct lh_env *env; // NULL: the transport is gone
    struct lh_log *log;
    struct lh_grpc_revoked *revoked;
    char run[LH_NAME_BYTES], domain[LH_NAME_BYTES];
    struct known *peers;
    unsigned count;
    uint64_t numbers; // number of the last connection
    atomic_uint_least64_t ended;
};

struct connection { // used by one thread at a time
    struct lh_grpc_guard *guard;
    struct known *peer; // NULL: we dialled the connection
    struct lh_grpc_frames frames;
    struct lh_grpc_allowance allowance; // if we dialled
    uint64_t number;
    int64_t not_after, looked_s;
    uint64_t list; // list in which the peer's certificate was last looked up
    char serial[LH_CERTS_SERIAL_BYTES], uri[LH_URI_BYTES]; // the peer's
};

// These functions have no context; a transport's state is attached to its TLS context.
static struct {
    pthread_once_t once;
    int of_context, of_ssl; // indices of OpenSSL's ex_data
    pthread_key_t making;   // guard of the TLS context that this thread makes; owned
    void (*set_verify)(SSL_CTX *, int, SSL_verify_cb);
    int (*do_handshake)(SSL *);
    int (*read)(SSL *, void *, int);
} hooks = {.once = PTHREAD_ONCE_INIT};

static void drop_of_context(void *parent, void *ptr, CRYPTO_EX_DATA *data, int index, long n,
                            void *arg)
{
    (void)parent, (void)data, (void)index, (void)n, (void)arg;
    if (ptr) lh_grpc_guard_drop(ptr);
}

static void end_of_ssl(void *parent, void *ptr, CRYPTO_EX_DATA *data, int index, long n, void *arg)
{
    (void)parent, (void)data, (void)index, (void)n, (void)arg;
    struct connection *c = ptr;
    if (!c) return;
    pthread_mutex_lock(&c->guard->lock);
    if (c->peer) c->peer->connections--;
    pthread_mutex_unlock(&c->guard->lock);
    lh_grpc_guard_drop(c->guard);
    free(c);
}

static void drop_of_thread(void *g)
{
    lh_grpc_guard_drop(g);
}

static void find_hooks(void)
{
    hooks.of_context = SSL_CTX_get_ex_new_index(0, NULL, NULL, NULL, drop_of_context);
    hooks.of_ssl = SSL_get_ex_new_index(0, NULL, NULL, NULL, end_of_ssl);
    LH_ASSERT(!pthread_key_create(&hooks.making, drop_of_thread));
    *(void **)&hooks.set_verify = dlsym(RTLD_NEXT, "SSL_CTX_set_verify");
    *(void **)&hooks.do_handshake = dlsym(RTLD_NEXT, "SSL_do_handshake");
    *(void **)&hooks.read = dlsym(RTLD_NEXT, "SSL_read");
    LH_ASSERT(hooks.set_verify && hooks.do_handshake && hooks.read);
}

// ---------------------------------------------------------------- life

struct lh_grpc_guard *lh_grpc_guard_new(struct lh_env *env, struct lh_log *log, const char *run,
                                        const char *domain, struct lh_grpc_revoked *revoked)
{
    struct lh_grpc_guard *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    pthread_once(&hooks.once, find_hooks);
    atomic_init(&g->owners, 1);
    pthread_mutex_init(&g->lock, NULL);
    g->env = env;
    g->log = log;
    g->revoked = lh_grpc_revoked_share(revoked);
    snprintf(g->run, sizeof g->run, "%s", run);
    snprintf(g->domain, sizeof g->domain, "%s", domain);
    return g;
}

struct lh_grpc_guard *lh_grpc_guard_share(struct lh_grpc_guard *g)
{
    atomic_fetch_add(&g->owners, 1);
    return g;
}

void lh_grpc_guard_drop(struct lh_grpc_guard *g)
{
    if (atomic_fetch_sub(&g->owners, 1) != 1) return;
    while (g->peers) {
        struct known *k = g->peers;
        g->peers = k->next;
        free(k);
    }
    pthread_mutex_destroy(&g->lock);
    lh_grpc_revoked_close(g->revoked);
    free(g);
}

void lh_grpc_guard_close(struct lh_grpc_guard *g)
{
    pthread_mutex_lock(&g->lock);
    g->env = NULL;
    g->log = NULL;
    pthread_mutex_unlock(&g->lock);
    lh_grpc_guard_drop(g);
}

// By then the guard may be closed.
void lh_grpc_guard_make(struct lh_grpc_guard *g)
{
    struct lh_grpc_guard *before = pthread_getspecific(hooks.making);
    pthread_setspecific(hooks.making, lh_grpc_guard_share(g));
    if (before) lh_grpc_guard_drop(before);
}

// Takes the guard of this thread's next context, with its reference; NULL: none.
static struct lh_grpc_guard *take_made(void)
{
    struct lh_grpc_guard *g = pthread_getspecific(hooks.making);
    if (!g) return NULL;
    pthread_setspecific(hooks.making, NULL);
    pthread_mutex_lock(&g->lock);
    bool closed = !g->env;
    pthread_mutex_unlock(&g->lock);
    if (!closed) return g;
    lh_grpc_guard_drop(g);
    return NULL;
}

uint64_t lh_grpc_guard_ended(struct lh_grpc_guard *g)
{
    return atomic_load(&g->ended);
}

// ---------------------------------------------------------------- peers; under the lock

static struct known *find_peer(struct lh_grpc_guard *g, uint64_t id)
{
    struct known *k = g->peers;
    while (k && k->id != id) k = k->next;
    return k;
}

static bool is_barred(const struct known *k, int64_t now_ns)
{
    return now_ns < k->barred_until_ns;
}

// Forgets the peer that has been away longest.
static void forget_one(struct lh_grpc_guard *g, int64_t now_ns)
{
    struct known **oldest = NULL;
    for (struct known **at = &g->peers; *at; at = &(*at)->next)
        if (!(*at)->connections && !is_barred(*at, now_ns) &&
            (!oldest || (*at)->used_ns < (*oldest)->used_ns))
            oldest = at;
    if (!oldest) return;
    struct known *gone = *oldest;
    *oldest = gone->next;
    g->count--;
    free(gone);
}

static struct known *need_peer(struct lh_grpc_guard *g, const struct lh_peer *peer, int64_t now_ns)
{
    struct known *k = find_peer(g, lh_worker_id(peer));
    if (k) return k;
    if (g->count >= PEERS_MAX) forget_one(g, now_ns);
    k = g->count < PEERS_MAX ? calloc(1, sizeof *k) : NULL;
    if (!k) return NULL;
    k->id = lh_worker_id(peer);
    lh_peer_uri(peer, k->uri);
    lh_grpc_allowance_begin(&k->allowance, now_ns);
    k->next = g->peers;
    g->peers = k;
    g->count++;
    return k;
}

static void bar(struct lh_grpc_guard *g, struct known *k, const char *much, int64_t now_ns)
{
    if (is_barred(k, now_ns)) return;
    bool again = k->bar_ms && now_ns - k->barred_until_ns < BAR_MS_MAX * LH_MS;
    k->bar_ms = again && k->bar_ms * 2 < BAR_MS_MAX ? k->bar_ms * 2 : again ? BAR_MS_MAX : BAR_MS;
    k->barred_until_ns = now_ns + k->bar_ms * LH_MS;
    lh_log_peer(g->log, LH_WARN, "net.flood",
                "%s asks for more than any of our programs does (%s): its connections end, and it "
                "is not let in for %lld s; if it is no program of yours, withdraw its certificate",
                k->uri, much, (long long)(k->bar_ms / 1000));
}

void lh_grpc_guard_blame(struct lh_grpc_guard *g, uint64_t id)
{
    pthread_mutex_lock(&g->lock);
    struct known *k = g->env ? find_peer(g, id) : NULL;
    int64_t now_ns = k ? lh_now(g->env) : 0;
    const char *much = k ? lh_grpc_spend(&k->allowance, LH_GRPC_RESETS_SPENT, 1, now_ns) : NULL;
    if (much) bar(g, k, much, now_ns);
    pthread_mutex_unlock(&g->lock);
}

// ---------------------------------------------------------------- handshakes

static lh_err inspect(X509 *cert, struct lh_certs_info *out)
{
    char *text = NULL;
    BIO *bio = BIO_new(BIO_s_mem());
    lh_err err = LH_ERR_NO_MEMORY;
    if (bio && PEM_write_bio_X509(bio, cert)) {
        long n = BIO_get_mem_data(bio, &text);
        err = lh_certs_inspect_pem("its certificate", lh_span(text, (size_t)n), out);
    }
    BIO_free(bio);
    return err;
}

static lh_err judge(struct lh_grpc_guard *g, const struct lh_certs_info *info)
{
    const struct lh_peer *p = &info->peer;
    char uri[LH_URI_BYTES];
    if (info->ca) return lh_fail(LH_ERR_UNAUTHENTICATED, "it shows a CA's certificate");
    lh_peer_uri(p, uri);
    if (strcmp(p->run, g->run) != 0 || strcmp(p->domain, g->domain) != 0)
        return lh_fail(LH_ERR_UNAUTHENTICATED, "%s is not of run %s in domain %s", uri, g->run,
                       g->domain);
    if (lh_grpc_revoked_has(g->revoked, info->serial))
        return lh_fail(LH_ERR_UNAUTHENTICATED, "the certificate %s of %s is revoked", info->serial,
                       uri);
    struct known *k = g->env ? find_peer(g, lh_worker_id(p)) : NULL;
    if (k && is_barred(k, lh_now(g->env)))
        return lh_fail(LH_ERR_BUSY, "%s asked for too much and is barred for another %lld s", uri,
                       (long long)((k->barred_until_ns - lh_now(g->env)) / LH_SECOND + 1));
    return LH_OK;
}

static void tell_refused(struct lh_grpc_guard *g, const char *why)
{
    lh_log_peer(g->log, LH_WARN, "net.handshake", "a handshake was refused: %s", why);
}

static struct lh_grpc_guard *guard_of(const SSL *ssl)
{
    return SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), hooks.of_context);
}

// Called in the handshake for each certificate of the chain, the peer's own last.
static int verify(int passed, X509_STORE_CTX *context)
{
    SSL *ssl = X509_STORE_CTX_get_ex_data(context, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct lh_grpc_guard *g = ssl ? guard_of(ssl) : NULL;
    struct lh_certs_info info;
    if (!passed || !g || !SSL_is_server(ssl) || X509_STORE_CTX_get_error_depth(context) > 0)
        return passed;
    lh_err err = inspect(X509_STORE_CTX_get_current_cert(context), &info);
    pthread_mutex_lock(&g->lock);
    if (!err) err = judge(g, &info);
    if (err) tell_refused(g, lh_err_text(err));
    pthread_mutex_unlock(&g->lock);
    if (!err) return 1;
    X509_STORE_CTX_set_error(context, X509_V_ERR_APPLICATION_VERIFICATION);
    return 0;
}

// Replaces SSL_CTX_set_verify() for the linker. On gRPC's threads.
void lh_grpc_set_verify(SSL_CTX *context, int mode,
                        SSL_verify_cb callback) __asm__("SSL_CTX_set_verify");
void lh_grpc_set_verify(SSL_CTX *context, int mode, SSL_verify_cb callback)
{
    pthread_once(&hooks.once, find_hooks);
    struct lh_grpc_guard *g = take_made();
    if (g && !SSL_CTX_set_ex_data(context, hooks.of_context, g)) {
        lh_grpc_guard_drop(g);
        g = NULL;
    }
    if (g && (mode & SSL_VERIFY_FAIL_IF_NO_PEER_CERT)) { // a server's
        callback = verify;
        SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
        SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
        SSL_CTX_set_num_tickets(context, 0);
    }
    hooks.set_verify(context, mode, callback);
}

// Replaces SSL_do_handshake() for the linker. On gRPC's threads.
int lh_grpc_do_handshake(SSL *ssl) __asm__("SSL_do_handshake");
int lh_grpc_do_handshake(SSL *ssl)
{
    pthread_once(&hooks.once, find_hooks);
    int result = hooks.do_handshake(ssl);
    struct lh_grpc_guard *g = guard_of(ssl);
    unsigned long reason = ERR_peek_last_error();
    if (result > 0 || !g || !SSL_is_server(ssl) || SSL_get_error(ssl, result) != SSL_ERROR_SSL)
        return result;
    // verify() has logged its own refusals.
    if (SSL_get_verify_result(ssl) == X509_V_ERR_APPLICATION_VERIFICATION) return result;
    char text[WHY_BYTES] = "broken off";
    if (SSL_get_verify_result(ssl) != X509_V_OK)
        snprintf(text, sizeof text, "its certificate: %s",
                 X509_verify_cert_error_string(SSL_get_verify_result(ssl)));
    else if (reason && ERR_reason_error_string(reason))
        snprintf(text, sizeof text, "%s", ERR_reason_error_string(reason));
    pthread_mutex_lock(&g->lock);
    tell_refused(g, text);
    pthread_mutex_unlock(&g->lock);
    return result;
}

// ---------------------------------------------------------------- connections

static void begin_dialled(struct connection *c)
{
    struct lh_grpc_guard *g = c->guard;
    pthread_mutex_lock(&g->lock);
    lh_grpc_allowance_begin(&c->allowance, g->env ? lh_now(g->env) : 0);
    pthread_mutex_unlock(&g->lock);
    c->frames.dialled = true;
}

static bool join_peer(struct connection *c, const struct lh_certs_info *info)
{
    struct lh_grpc_guard *g = c->guard;
    pthread_mutex_lock(&g->lock);
    int64_t now_ns = g->env ? lh_now(g->env) : 0;
    struct known *k = g->env ? need_peer(g, &info->peer, now_ns) : NULL;
    if (k) {
        c->number = ++g->numbers;
        k->used_ns = now_ns;
        if (++k->connections > CONNECTIONS_PER_PEER) k->first = c->number - CONNECTIONS_PER_PEER;
        c->peer = k;
    }
    pthread_mutex_unlock(&g->lock);
    return k != NULL;
}

static struct connection *begin(SSL *ssl, struct lh_grpc_guard *g)
{
    struct lh_certs_info info;
    X509 *cert = SSL_get0_peer_certificate(ssl);
    struct connection *c = cert && !inspect(cert, &info) ? calloc(1, sizeof *c) : NULL;
    if (!c) return NULL;
    atomic_fetch_add(&g->owners, 1);
    c->guard = g;
    c->not_after = info.not_after;
    c->list = UINT64_MAX;
    memcpy(c->serial, info.serial, sizeof c->serial);
    lh_peer_uri(&info.peer, c->uri);
    if (!SSL_is_server(ssl)) begin_dialled(c);
    if ((!SSL_is_server(ssl) || join_peer(c, &info)) && SSL_set_ex_data(ssl, hooks.of_ssl, c))
        return c;
    end_of_ssl(NULL, c, NULL, 0, 0, NULL);
    return NULL;
}

static bool has_expired(struct connection *c)
{
    struct lh_grpc_guard *g = c->guard;
    int64_t now_s = g->env->ops->wall_s(g->env);
    bool look = now_s != c->looked_s;
    c->looked_s = now_s;
    if (!look || now_s <= c->not_after) return false;
    lh_log_peer(g->log, LH_WARN, "net.expired",
                "the certificate of %s has expired: its connection ends", c->uri);
    return true;
}

static bool is_revoked(struct connection *c)
{
    struct lh_grpc_guard *g = c->guard;
    // Read first, so that a later list is checked again.
    uint64_t list = lh_grpc_revoked_generation(g->revoked);
    if (c->list == list) return false;
    if (!lh_grpc_revoked_has(g->revoked, c->serial)) {
        c->list = list;
        return false;
    }
    lh_log_peer(g->log, LH_WARN, "net.revoked",
                "the certificate %s of %s is revoked: its connection ends", c->serial, c->uri);
    return true;
}

// Whether the bytes of a server that we dialled may be read: it may be no program of ours.
static bool server_may(struct connection *c, int64_t now_ns, const uint8_t *data, size_t n)
{
    const char *much = lh_grpc_frames_read(&c->frames, &c->allowance, now_ns, data, n);
    if (much)
        lh_log_peer(c->guard->log, LH_WARN, "net.flood",
                    "%s sends more than any of our programs does (%s): this connection to it ends",
                    c->uri, much);
    return !much;
}

// Whether the received bytes may be read. Under the lock.
static bool may_read(struct connection *c, const uint8_t *data, size_t n)
{
    struct lh_grpc_guard *g = c->guard;
    struct known *k = c->peer;
    if (!g->env) return false;
    if (has_expired(c) || is_revoked(c)) return false;
    int64_t now_ns = lh_now(g->env);
    if (!k) return server_may(c, now_ns, data, n);
    if (c->number < k->first) return false;
    k->used_ns = now_ns;
    if (is_barred(k, now_ns)) return false;
    const char *much = lh_grpc_frames_read(&c->frames, &k->allowance, now_ns, data, n);
    if (much) bar(g, k, much, now_ns);
    return !much;
}

static bool is_fine(SSL *ssl, struct lh_grpc_guard *g, const uint8_t *data, size_t n)
{
    struct connection *c = SSL_get_ex_data(ssl, hooks.of_ssl);
    if (!c) c = begin(ssl, g);
    if (!c) return false;
    pthread_mutex_lock(&g->lock);
    bool fine = may_read(c, data, n);
    pthread_mutex_unlock(&g->lock);
    if (!fine) atomic_fetch_add(&g->ended, 1);
    return fine;
}

// Replaces SSL_read() for the linker. On gRPC's threads.
int lh_grpc_ssl_read(SSL *ssl, void *out, int size) __asm__("SSL_read");
int lh_grpc_ssl_read(SSL *ssl, void *out, int size)
{
    pthread_once(&hooks.once, find_hooks);
    int n = hooks.read(ssl, out, size);
    struct lh_grpc_guard *g = guard_of(ssl); // NULL: no gRPC connection
    if (n <= 0 || !g || is_fine(ssl, g, out, (size_t)n)) return n;
    OPENSSL_cleanse(out, (size_t)n);
    ERR_raise(ERR_LIB_USER, ERR_R_OPERATION_FAIL);
    return -1;
}
