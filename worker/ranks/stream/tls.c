// Mutual TLS between the processes of a region. See tls.h.
//
// Invariants: 1. A session is ready only after the peer's identity was checked. 2. There are no
// session tickets: nothing is resumed without a check, and if only one end sends, the other has no
// unread data. Every program of ours ignores SIGPIPE (common/app/program.c), because OpenSSL uses
// write(2).
#include "worker/ranks/stream/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/security/certs.h"

struct wk_tls {
    struct wk_tls_conf conf;
    SSL_CTX *context;
    int64_t loaded_ns;
};

struct wk_tls_session {
    SSL *ssl;
    struct wk_tls_conf conf;
    uint32_t records; // sent under the current key
};

// ---------------------------------------------------------------- certificates

static lh_err openssl_failed(lh_err code, const char *what)
{
    char text[160] = "no reason given";
    unsigned long reason = ERR_peek_last_error();
    if (reason) ERR_error_string_n(reason, text, sizeof text);
    ERR_clear_error();
    return lh_fail(code, "%s: %s", what, text);
}

static int no_passphrase(char *out, int size, int writing, void *arg)
{
    (void)out, (void)size, (void)writing, (void)arg;
    return -1; // otherwise OpenSSL would ask the terminal
}

static LH_MUST lh_err check_identity(const struct wk_tls_conf *c, const char *who,
                                     const struct lh_certs_info *info)
{
    char uri[LH_URI_BYTES];
    const struct lh_peer *p = &info->peer;
    if (info->ca) return lh_fail(LH_ERR_UNAUTHENTICATED, "%s shows a CA's certificate", who);
    bool same = p->role == LH_W && !strcmp(p->domain, c->domain) && !strcmp(p->run, c->run) &&
                !strcmp(p->region, c->region);
    if (same) return LH_OK;
    lh_peer_uri(p, uri);
    return lh_fail(LH_ERR_UNAUTHENTICATED,
                   "%s is %s, but the ranks of a region are workers of region %s in run %s of "
                   "domain %s",
                   who, uri, c->region, c->run, c->domain);
}

static LH_MUST lh_err check_own(const struct wk_tls_conf *c)
{
    struct lh_certs_info own;
    int64_t now = c->env->ops->wall_s(c->env);
    LH_TRY(lh_certs_inspect(c->cert, &own));
    LH_TRY(check_identity(c, c->cert, &own));
    if (now >= own.not_before && now <= own.not_after) return LH_OK;
    return lh_fail(LH_ERR_UNAUTHENTICATED, "the certificate %s %s", c->cert,
                   now > own.not_after ? "expired; issue a new one (`longhaul certs issue`)"
                                       : "is not valid yet: is this machine's clock right?");
}

static LH_MUST lh_err fill(const struct wk_tls_conf *c, SSL_CTX *x)
{
    static const long modes = SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER;
    SSL_CTX_set_mode(x, modes);
    SSL_CTX_set_session_cache_mode(x, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_verify(x, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_default_passwd_cb(x, no_passphrase);
    bool set = SSL_CTX_set_min_proto_version(x, TLS1_3_VERSION) && SSL_CTX_set_num_tickets(x, 0);
    if (!set) return openssl_failed(LH_ERR_UNSUPPORTED, "TLS 1.3");
    if (SSL_CTX_load_verify_locations(x, c->ca, NULL) != 1)
        return openssl_failed(LH_ERR_CONFIG, c->ca);
    if (SSL_CTX_use_certificate_chain_file(x, c->cert) != 1)
        return openssl_failed(LH_ERR_CONFIG, c->cert);
    bool fits = SSL_CTX_use_PrivateKey_file(x, c->key, SSL_FILETYPE_PEM) == 1 &&
                SSL_CTX_check_private_key(x) == 1;
    return fits ? LH_OK : openssl_failed(LH_ERR_CONFIG, c->key);
}

static LH_MUST lh_err load(const struct wk_tls_conf *c, SSL_CTX **out)
{
    LH_TRY(check_own(c));
    ERR_clear_error();
    *out = SSL_CTX_new(TLS_method());
    if (!*out) return openssl_failed(LH_ERR_NO_MEMORY, "TLS");
    lh_err err = fill(c, *out);
    if (!err) return LH_OK;
    SSL_CTX_free(*out);
    *out = NULL;
    return err;
}

lh_err wk_tls_open(const struct wk_tls_conf *conf, struct wk_tls **out)
{
    struct wk_tls *t = calloc(1, sizeof *t);
    *out = t;
    if (!t) return lh_fail(LH_ERR_NO_MEMORY, "TLS between ranks");
    t->conf = *conf;
    if (!t->conf.rekey_records) t->conf.rekey_records = WK_TLS_REKEY_RECORDS;
    t->loaded_ns = lh_now(conf->env);
    lh_err err = load(&t->conf, &t->context);
    if (!err) return LH_OK;
    wk_tls_close(t);
    *out = NULL;
    return err;
}

void wk_tls_close(struct wk_tls *t)
{
    if (!t) return;
    SSL_CTX_free(t->context);
    free(t);
}

// Reloads the certificates. Unusable files change nothing: the peer reports errors of the old ones.
static void renew(struct wk_tls *t)
{
    SSL_CTX *fresh;
    int64_t now = lh_now(t->conf.env);
    if (now - t->loaded_ns < WK_TLS_RELOAD_S * LH_SECOND) return;
    t->loaded_ns = now;
    if (load(&t->conf, &fresh)) return;
    SSL_CTX_free(t->context);
    t->context = fresh;
}

// ---------------------------------------------------------------- sessions

lh_err wk_tls_begin(struct wk_tls *t, int fd, bool accepts, struct wk_tls_session **out)
{
    renew(t);
    struct wk_tls_session *s = calloc(1, sizeof *s);
    SSL *ssl = s ? SSL_new(t->context) : NULL;
    *out = s;
    if (!ssl || SSL_set_fd(ssl, fd) != 1) {
        SSL_free(ssl);
        free(s);
        *out = NULL;
        return openssl_failed(LH_ERR_NO_MEMORY, "a connection under TLS");
    }
    *s = (struct wk_tls_session){ssl, t->conf, 0};
    if (accepts)
        SSL_set_accept_state(ssl);
    else
        SSL_set_connect_state(ssl);
    return LH_OK;
}

void wk_tls_end(struct wk_tls_session *s)
{
    if (!s) return;
    SSL_free(s->ssl);
    ERR_clear_error();
    free(s);
}

static LH_MUST lh_err check_peer(const struct wk_tls_session *s)
{
    struct lh_certs_info info;
    char *text = NULL;
    X509 *cert = SSL_get1_peer_certificate(s->ssl);
    BIO *bio = BIO_new(BIO_s_mem());
    lh_err err = lh_fail(LH_ERR_NO_MEMORY, "a peer's certificate");
    if (cert && bio && PEM_write_bio_X509(bio, cert) == 1) {
        long bytes = BIO_get_mem_data(bio, &text);
        err = lh_certs_inspect_pem("the peer", lh_span(text, (size_t)bytes), &info);
        if (!err) err = check_identity(&s->conf, "the peer", &info);
    }
    BIO_free(bio);
    X509_free(cert);
    return err;
}

lh_err wk_tls_shake(struct wk_tls_session *s, bool *writes)
{
    ERR_clear_error();
    errno = 0;
    int n = SSL_do_handshake(s->ssl), failed = errno, why = SSL_get_error(s->ssl, n);
    *writes = why == SSL_ERROR_WANT_WRITE;
    if (n == 1) return check_peer(s);
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) return LH_ERR_BEHIND;
    long verified = SSL_get_verify_result(s->ssl);
    if (verified != X509_V_OK)
        return lh_fail(LH_ERR_UNAUTHENTICATED, "the peer's certificate: %s",
                       X509_verify_cert_error_string(verified));
    if (ERR_peek_last_error()) return openssl_failed(LH_ERR_UNAUTHENTICATED, "no TLS with a peer");
    return lh_fail(LH_ERR_UNAVAILABLE, "a peer is gone%s%s", failed ? ": " : "",
                   failed ? strerror(failed) : "");
}

// Converts a result of OpenSSL to one of send(2) or recv(2).
static ssize_t result(const struct wk_tls_session *s, int n)
{
    int failed = errno;
    if (n > 0) return n;
    int why = SSL_get_error(s->ssl, n);
    unsigned long reason = ERR_peek_last_error();
    ERR_clear_error();
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) {
        errno = EAGAIN;
        return -1;
    }
    bool end = why == SSL_ERROR_ZERO_RETURN || (why == SSL_ERROR_SYSCALL && !failed) ||
               ERR_GET_REASON(reason) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
    if (end) return 0;
    errno = why == SSL_ERROR_SYSCALL ? failed : EPROTO;
    return -1;
}

static int clamp(size_t bytes)
{
    enum { MOST = 1 << 30 };
    return bytes < MOST ? (int)bytes : MOST;
}

ssize_t wk_tls_send(struct wk_tls_session *s, const void *data, size_t bytes)
{
    ERR_clear_error();
    errno = 0;
    ssize_t n = result(s, SSL_write(s->ssl, data, clamp(bytes)));
    if (n == 0) { // send(2) has no end of file
        errno = EPIPE;
        return -1;
    }
    if (n < 0 || ++s->records < s->conf.rekey_records) return n;
    s->records = 0; // the next call first sends the peer the new key
    if (SSL_key_update(s->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1) return n;
    ERR_clear_error();
    errno = EPROTO;
    return -1;
}

ssize_t wk_tls_recv(struct wk_tls_session *s, void *to, size_t bytes)
{
    ERR_clear_error();
    errno = 0;
    return result(s, SSL_read(s->ssl, to, clamp(bytes)));
}
