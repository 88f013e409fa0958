// Certificates of the gRPC transport: our own, checks of peers', and renewal while running.
//
//  1. Certificates in use passed every check (they parse, the key fits, our CA signed them, they
//     are valid now, the one URI names a peer of our own run). New files that fail a check change
//     nothing.
//  2. `lock` guards the texts and their generation: gRPC reads them on its own threads, during
//     handshakes. The loop alone reads files and swaps the texts.
//  3. A server's certificate must name the dialled role, in our run and domain. The check runs in
//     the handshake, before we send application data. A client's run is also checked in its
//     handshake (transport_grpc_guard.c), its role per call (transport_grpc_server.c).
//
// gRPC's defaults are TLS 1.2 or newer with AEAD suites; 1.51 cannot require 1.3.
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/check.h"
#include "common/format/frame.h"
#include "common/net/grpc/transport_grpc_core.h"
#include "common/security/certs.h"

enum { PEM_BYTES_MAX = 64 << 10, PATH_BYTES = LH_CERTS_PATH_BYTES };

struct texts { // PEM with a terminating zero, counted by `len`
    struct lh_buf ca, cert;
    struct lh_buf key; // empty once the key is stored: its text is then nowhere
    struct lh_hash key_hash;
    char key_name[LH_GRPC_KEY_NAME_BYTES]; // "": not stored yet
};

struct lh_grpc_certs {
    struct lh_env *env;
    char ca[PATH_BYTES], cert[PATH_BYTES], key[PATH_BYTES];
    char run[LH_NAME_BYTES], domain[LH_NAME_BYTES];
    int64_t not_before, not_after; // dates of our own certificate; owned by the loop
    struct lh_grpc_guard *guard;
    pthread_mutex_t lock;
    struct texts texts;
    uint64_t generation, served; // served: the generation that the server uses
};

struct lh_grpc_expect {
    atomic_uint owners; // the line, and gRPC's channels
    enum lh_role role;
    _Atomic uint64_t identity; // expected lh_worker_id; 0: any of that role
    struct lh_grpc_revoked *revoked;
    char run[LH_NAME_BYTES], domain[LH_NAME_BYTES], address[LH_GRPC_ADDRESS_BYTES];
    pthread_mutex_t lock;
    char refused[LH_GRPC_TEXT_BYTES];   // "": the last handshake passed
    char serial[LH_CERTS_SERIAL_BYTES]; // serial of the last certificate that passed; "": none
};

// ---------------------------------------------------------------- reading and checking

static void wipe_key(struct texts *x)
{
    if (x->key.data) OPENSSL_cleanse(x->key.data, x->key.len);
    lh_buf_free(&x->key);
}

static void free_texts(struct texts *x)
{
    wipe_key(x);
    lh_grpc_key_drop(x->key_name);
    lh_buf_free(&x->ca);
    lh_buf_free(&x->cert);
}

static lh_err load_text(struct lh_env *env, const char *path, struct lh_buf *out)
{
    *out = lh_buf(PEM_BYTES_MAX);
    LH_TRY(lh_file_load(env, path, out));
    if (out->len && memchr(out->data, 0, out->len))
        return lh_fail(LH_ERR_MALFORMED, "%s is no PEM file", path);
    lh_put_u8(out, 0);
    return lh_buf_err(out);
}

static lh_err load_texts(struct lh_grpc_certs *c, struct texts *x)
{
    LH_TRY(load_text(c->env, c->ca, &x->ca));
    LH_TRY(load_text(c->env, c->cert, &x->cert));
    LH_TRY(load_text(c->env, c->key, &x->key));
    const struct lh_span text = lh_buf_span(&x->key);
    x->key_hash = lh_hash_of((struct lh_span){0}, &text, 1);
    return LH_OK;
}

static int no_passphrase(char *out, int size, int writing, void *arg)
{
    (void)out, (void)size, (void)writing, (void)arg;
    return -1; // OpenSSL would ask the terminal otherwise
}

static BIO *bio_of(const struct lh_buf *text)
{
    return BIO_new_mem_buf(text->data, (int)text->len - 1);
}

// All certificates of a PEM text, in order. Gives; NULL: none.
static STACK_OF(X509) * read_all(const struct lh_buf *text)
{
    STACK_OF(X509) *all = sk_X509_new_null();
    BIO *bio = bio_of(text);
    X509 *cert = NULL;
    while (all && bio && (cert = PEM_read_bio_X509(bio, NULL, no_passphrase, NULL)) != NULL)
        if (!sk_X509_push(all, cert)) X509_free(cert);
    BIO_free(bio);
    ERR_clear_error(); // the end of the text counts as an error
    if (all && sk_X509_num(all) > 0) return all;
    sk_X509_free(all);
    return NULL;
}

// Parses the key and stores it in place of its text.
static lh_err take_key(const struct lh_grpc_certs *c, struct texts *x, X509 *leaf)
{
    BIO *bio = bio_of(&x->key);
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL) : NULL;
    BIO_free(bio);
    bool fits = key && X509_check_private_key(leaf, key) == 1;
    lh_err err = LH_OK;
    if (!key)
        err = lh_fail(LH_ERR_MALFORMED, "%s holds no plain PEM private key", c->key);
    else if (!fits)
        err = lh_fail(LH_ERR_UNAUTHENTICATED, "%s is not the key of %s", c->key, c->cert);
    if (!err) err = lh_grpc_key_keep(key, c->guard, x->key_name);
    wipe_key(x);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return err;
}

static void date_of(int64_t seconds, char out[32])
{
    struct tm parts;
    time_t t = (time_t)seconds;
    out[0] = 0;
    if (gmtime_r(&t, &parts)) strftime(out, 32, "%Y-%m-%d %H:%M UTC", &parts);
}

static lh_err check_dates(const char *path, int64_t not_before, int64_t not_after, int64_t now)
{
    char date[32];
    date_of(now > not_after ? not_after : not_before, date);
    if (now > not_after)
        return lh_fail(LH_ERR_UNAUTHENTICATED,
                       "the certificate %s expired on %s; issue a new one (`longhaul certs issue`)",
                       path, date);
    if (now < not_before)
        return lh_fail(LH_ERR_UNAUTHENTICATED,
                       "the certificate %s is valid from %s on: is this machine's clock right?",
                       path, date);
    return LH_OK;
}

// Checks that the CA in our file signed this chain. (Dates were checked before, with a better
// text.)
static lh_err check_chain(const struct lh_grpc_certs *c, STACK_OF(X509) * roots,
                          STACK_OF(X509) * chain)
{
    X509_STORE *store = X509_STORE_new();
    X509_STORE_CTX *context = X509_STORE_CTX_new();
    bool ready = store && context;
    for (int i = 0; ready && i < sk_X509_num(roots); i++)
        ready = X509_STORE_add_cert(store, sk_X509_value(roots, i)) == 1;
    ready = ready && X509_STORE_CTX_init(context, store, sk_X509_value(chain, 0), chain) == 1;
    if (ready) X509_STORE_CTX_set_time(context, 0, (time_t)c->env->ops->wall_s(c->env));
    lh_err err = LH_OK;
    if (!ready)
        err = LH_ERR_NO_MEMORY;
    else if (X509_verify_cert(context) != 1)
        err = lh_fail(LH_ERR_UNAUTHENTICATED, "the CA in %s did not sign %s (%s)", c->ca, c->cert,
                      X509_verify_cert_error_string(X509_STORE_CTX_get_error(context)));
    X509_STORE_CTX_free(context);
    X509_STORE_free(store);
    ERR_clear_error();
    return err;
}

static lh_err check_identity(const struct lh_grpc_certs *c, const struct lh_certs_info *own)
{
    if (own->ca) return lh_fail(LH_ERR_UNAUTHENTICATED, "%s is a CA's certificate", c->cert);
    if (!strcmp(own->peer.run, c->run) && !strcmp(own->peer.domain, c->domain)) return LH_OK;
    return lh_fail(LH_ERR_UNAUTHENTICATED,
                   "%s is a certificate of run %s in domain %s, this is run %s in domain %s",
                   c->cert, own->peer.run, own->peer.domain, c->run, c->domain);
}

static lh_err check_texts(const struct lh_grpc_certs *c, struct texts *x, struct lh_certs_info *own)
{
    LH_TRY(lh_certs_inspect_pem(c->cert, lh_span(x->cert.data, x->cert.len - 1), own));
    LH_TRY(check_identity(c, own));
    LH_TRY(check_dates(c->cert, own->not_before, own->not_after, c->env->ops->wall_s(c->env)));
    STACK_OF(X509) *chain = read_all(&x->cert), *roots = read_all(&x->ca);
    lh_err err = LH_OK;
    if (!chain)
        err = LH_ERR_NO_MEMORY;
    else if (!roots)
        err = lh_fail(LH_ERR_MALFORMED, "%s holds no PEM certificate", c->ca);
    if (!err) err = take_key(c, x, sk_X509_value(chain, 0));
    if (!err) err = check_chain(c, roots, chain);
    sk_X509_pop_free(chain, X509_free);
    sk_X509_pop_free(roots, X509_free);
    return err;
}

static bool same_texts(const struct texts *a, const struct texts *b)
{
    return lh_span_equal(lh_buf_span(&a->ca), lh_buf_span(&b->ca)) &&
           lh_span_equal(lh_buf_span(&a->cert), lh_buf_span(&b->cert)) &&
           lh_hash_equal(&a->key_hash, &b->key_hash);
}

lh_err lh_grpc_certs_reload(struct lh_grpc_certs *c, bool *changed)
{
    struct texts fresh = {0};
    struct lh_certs_info own = {0};
    lh_err err = load_texts(c, &fresh);
    *changed = !err && !same_texts(&fresh, &c->texts); // only the loop writes the texts
    if (*changed) err = check_texts(c, &fresh, &own);
    if (err) *changed = false;
    if (*changed) {
        pthread_mutex_lock(&c->lock);
        struct texts old = c->texts;
        c->texts = fresh;
        c->generation++;
        pthread_mutex_unlock(&c->lock);
        c->not_before = own.not_before;
        c->not_after = own.not_after;
        fresh = old;
    }
    free_texts(&fresh);
    return err;
}

lh_err lh_grpc_certs_open(const struct lh_grpc_conf *conf, struct lh_grpc_revoked *revoked,
                          struct lh_grpc_certs **out)
{
    struct lh_grpc_certs *c = calloc(1, sizeof *c);
    if (!c) return LH_ERR_NO_MEMORY;
    pthread_mutex_init(&c->lock, NULL);
    c->env = conf->env;
    lh_grpc_key_prepare();
    bool fits = snprintf(c->ca, PATH_BYTES, "%s", conf->ca) < PATH_BYTES &&
                snprintf(c->cert, PATH_BYTES, "%s", conf->cert) < PATH_BYTES &&
                snprintf(c->key, PATH_BYTES, "%s", conf->key) < PATH_BYTES &&
                snprintf(c->run, sizeof c->run, "%s", conf->run) < LH_NAME_BYTES &&
                snprintf(c->domain, sizeof c->domain, "%s", conf->domain) < LH_NAME_BYTES;
    bool changed;
    lh_err err = fits ? LH_OK : lh_fail(LH_ERR_TOO_LARGE, "a certificate's path or the run's name");
    if (!err) c->guard = lh_grpc_guard_new(conf->env, conf->log, c->run, c->domain, revoked);
    if (!err && !c->guard) err = LH_ERR_NO_MEMORY;
    if (!err) err = lh_grpc_certs_reload(c, &changed);
    if (err)
        lh_grpc_certs_close(c);
    else
        *out = c;
    return err;
}

void lh_grpc_certs_close(struct lh_grpc_certs *c)
{
    if (c->guard) lh_grpc_guard_close(c->guard);
    free_texts(&c->texts);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

struct lh_grpc_guard *lh_grpc_certs_guard(const struct lh_grpc_certs *c)
{
    return c->guard;
}

uint64_t lh_grpc_certs_generation(struct lh_grpc_certs *c)
{
    pthread_mutex_lock(&c->lock);
    uint64_t generation = c->generation;
    pthread_mutex_unlock(&c->lock);
    return generation;
}

const char *lh_grpc_certs_ca(const struct lh_grpc_certs *c)
{
    return c->ca;
}

const char *lh_grpc_certs_run(const struct lh_grpc_certs *c)
{
    return c->run;
}

const char *lh_grpc_certs_domain(const struct lh_grpc_certs *c)
{
    return c->domain;
}

lh_err lh_grpc_certs_check(struct lh_grpc_certs *c)
{
    return check_dates(c->cert, c->not_before, c->not_after, c->env->ops->wall_s(c->env));
}

int64_t lh_grpc_certs_left_s(const struct lh_grpc_certs *c, char *text, size_t size)
{
    char date[32];
    date_of(c->not_after, date);
    snprintf(text, size, "the certificate %s is valid until %s", c->cert, date);
    return c->not_after - c->env->ops->wall_s(c->env);
}

// ---------------------------------------------------------------- the server's side

static grpc_ssl_pem_key_cert_pair pair_of(const struct texts *x)
{
    return (grpc_ssl_pem_key_cert_pair){x->key_name, (const char *)x->cert.data};
}

// gRPC calls this before each handshake, on its own thread.
static grpc_ssl_certificate_config_reload_status fetch(void *arg,
                                                       grpc_ssl_server_certificate_config **out)
{
    struct lh_grpc_certs *c = arg;
    grpc_ssl_certificate_config_reload_status status = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    pthread_mutex_lock(&c->lock);
    if (c->served != c->generation) {
        grpc_ssl_pem_key_cert_pair pair = pair_of(&c->texts);
        *out = grpc_ssl_server_certificate_config_create((const char *)c->texts.ca.data, &pair, 1);
        c->served = c->generation;
        status = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
    }
    pthread_mutex_unlock(&c->lock);
    return status;
}

grpc_server_credentials *lh_grpc_certs_server(struct lh_grpc_certs *c)
{
    pthread_mutex_lock(&c->lock);
    c->served = 0;
    pthread_mutex_unlock(&c->lock);
    return grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, fetch, c));
}

// ---------------------------------------------------------------- the client's side

void lh_grpc_certs_renew_channels(struct lh_grpc_certs *c)
{
    pthread_mutex_lock(&c->lock);
    c->generation++;
    pthread_mutex_unlock(&c->lock);
}

struct lh_grpc_expect *lh_grpc_expect_new(struct lh_grpc_certs *c, struct lh_grpc_revoked *revoked,
                                          enum lh_role role, const char *address)
{
    struct lh_grpc_expect *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    atomic_init(&e->owners, 1);
    atomic_init(&e->identity, 0);
    pthread_mutex_init(&e->lock, NULL);
    e->role = role;
    e->revoked = lh_grpc_revoked_share(revoked);
    memcpy(e->run, c->run, sizeof e->run);
    memcpy(e->domain, c->domain, sizeof e->domain);
    snprintf(e->address, sizeof e->address, "%s", address);
    return e;
}

bool lh_grpc_expect_identity(struct lh_grpc_expect *e, uint64_t identity)
{
    return atomic_exchange(&e->identity, identity) != identity;
}

bool lh_grpc_expect_is(const struct lh_grpc_expect *e, uint64_t identity)
{
    return atomic_load(&e->identity) == identity;
}

void lh_grpc_expect_drop(struct lh_grpc_expect *e)
{
    if (atomic_fetch_sub(&e->owners, 1) != 1) return;
    pthread_mutex_destroy(&e->lock);
    lh_grpc_revoked_close(e->revoked);
    free(e);
}

bool lh_grpc_expect_refused(struct lh_grpc_expect *e, char *out, size_t size)
{
    pthread_mutex_lock(&e->lock);
    bool refused = e->refused[0] != 0;
    if (refused) snprintf(out, size, "%s", e->refused);
    pthread_mutex_unlock(&e->lock);
    return refused;
}

bool lh_grpc_expect_revoked(struct lh_grpc_expect *e)
{
    pthread_mutex_lock(&e->lock);
    bool revoked = e->serial[0] && lh_grpc_revoked_has(e->revoked, e->serial);
    pthread_mutex_unlock(&e->lock);
    return revoked;
}

static lh_err check_server(const struct lh_grpc_expect *e, const char *pem,
                           char serial[LH_CERTS_SERIAL_BYTES])
{
    struct lh_certs_info info;
    LH_TRY(lh_certs_inspect_pem(e->address, lh_span_str(pem), &info));
    const struct lh_peer *p = &info.peer;
    char uri[LH_URI_BYTES];
    memcpy(serial, info.serial, LH_CERTS_SERIAL_BYTES);
    if (lh_grpc_revoked_has(e->revoked, info.serial))
        return lh_fail(LH_ERR_UNAUTHENTICATED, "the certificate of %s is revoked", e->address);
    if (info.ca)
        return lh_fail(LH_ERR_UNAUTHENTICATED, "%s presented a CA certificate", e->address);
    bool ours = lh_role_serves(p->role, e->role) && !strcmp(p->run, e->run) &&
                !strcmp(p->domain, e->domain);
    uint64_t identity = atomic_load(&e->identity);
    if (ours && (!identity || identity == lh_worker_id(p))) return LH_OK;
    lh_peer_uri(p, uri);
    if (ours)
        return lh_fail(LH_ERR_UNAUTHENTICATED,
                       "%s is %s, and the coordinator named another %s there: it answers in that "
                       "one's place",
                       e->address, uri, lh_role_name(e->role));
    return lh_fail(LH_ERR_UNAUTHENTICATED,
                   "%s is %s where a %s of run %s in domain %s was expected", e->address, uri,
                   lh_role_name(e->role), e->run, e->domain);
}

// Called in the handshake, on a gRPC thread, after gRPC has checked chain, dates and host name.
static int verify(const char *host, const char *pem, void *arg)
{
    (void)host;
    struct lh_grpc_expect *e = arg;
    char serial[LH_CERTS_SERIAL_BYTES];
    lh_err err = check_server(e, pem, serial);
    pthread_mutex_lock(&e->lock);
    if (!err) memcpy(e->serial, serial, sizeof e->serial);
    snprintf(e->refused, sizeof e->refused, "%s", err ? lh_err_text(err) : "");
    pthread_mutex_unlock(&e->lock);
    return err ? 1 : 0;
}

static void drop_expect(void *arg)
{
    lh_grpc_expect_drop(arg);
}

grpc_channel_credentials *lh_grpc_certs_channel(struct lh_grpc_certs *c, struct lh_grpc_expect *e,
                                                uint64_t *generation)
{
    atomic_fetch_add(&e->owners, 1);
    const grpc_ssl_verify_peer_options options = {verify, e, drop_expect};
    pthread_mutex_lock(&c->lock);
    grpc_ssl_pem_key_cert_pair pair = pair_of(&c->texts);
    grpc_channel_credentials *out =
        grpc_ssl_credentials_create_ex((const char *)c->texts.ca.data, &pair, &options, NULL);
    *generation = c->generation;
    pthread_mutex_unlock(&c->lock);
    return out;
}
