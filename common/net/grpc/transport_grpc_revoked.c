// Revoked certificates. See transport_grpc_revoked.h.
//
// A line of the file is a serial in hexadecimal, as `longhaul certs ls` and OpenSSL show it, with
// or without colons; a # starts a comment. With a list that is not empty, each call's certificate
// must be parsed.
//
// 1. `lock` guards the list, because handshakes read it on gRPC's threads.
#include "common/net/grpc/transport_grpc_revoked.h"

#include <ctype.h>
#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/limits.h"

enum { SERIAL_BYTES = 20, FILE_BYTES_MAX = 1 << 20 };

struct serial { // big-endian, zero-padded in front
    uint8_t b[SERIAL_BYTES];
};

struct lh_grpc_revoked {
    atomic_uint owners; // the transport, and objects that gRPC uses in handshakes
    struct lh_env *env;
    char path[LH_PATH_BYTES];
    pthread_mutex_t lock;
    struct serial *serial;
    size_t count;
    atomic_uint_least64_t generation;
};

// ---------------------------------------------------------------- the file

static int digit_of(uint8_t c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// Parses a line without its comment. *any: it has a serial. False: it is malformed.
static bool read_line(struct lh_span line, struct serial *out, bool *any)
{
    uint8_t nibble[2 * SERIAL_BYTES];
    size_t n = 0;
    *out = (struct serial){{0}};
    for (size_t i = 0; i < line.len && line.data[i] != '#'; i++) {
        uint8_t c = line.data[i];
        if (c == ':' || isspace(c)) continue;
        int d = digit_of(c);
        if (d < 0 || (n == sizeof nibble)) return false;
        if (n || d) nibble[n++] = (uint8_t)d; // skips leading zeros
    }
    *any = n > 0;
    for (size_t i = 0; i < n; i++) {
        size_t at = 2 * SERIAL_BYTES - n + i;
        out->b[at / 2] |= (uint8_t)(nibble[i] << (at % 2 ? 0 : 4));
    }
    return true;
}

static lh_err parse(const char *path, struct lh_span text, struct serial *out, size_t *count)
{
    unsigned number = 0;
    *count = 0;
    for (size_t at = 0; at < text.len;) {
        const uint8_t *end = memchr(text.data + at, '\n', text.len - at);
        size_t n = end ? (size_t)(end - text.data) - at : text.len - at;
        struct serial s;
        bool any = false;
        number++;
        if (!read_line(lh_span(text.data + at, n), &s, &any))
            return lh_fail(LH_ERR_MALFORMED,
                           "%s, line %u: a serial in hexadecimal is expected, as `longhaul certs "
                           "ls` shows it",
                           path, number);
        if (any && *count == LH_GRPC_REVOKED_MAX)
            return lh_fail(LH_ERR_TOO_LARGE, "%s: more than %d serials", path, LH_GRPC_REVOKED_MAX);
        if (any) out[(*count)++] = s;
        at += n + 1;
    }
    return LH_OK;
}

lh_err lh_grpc_revoked_reload(struct lh_grpc_revoked *r, bool *changed)
{
    *changed = false;
    if (!r || !r->path[0]) return LH_OK;
    struct lh_buf text = lh_buf(FILE_BYTES_MAX);
    size_t count = 0;
    struct serial *fresh = calloc(LH_GRPC_REVOKED_MAX, sizeof *fresh);
    lh_err err = fresh ? lh_file_load(r->env, r->path, &text) : LH_ERR_NO_MEMORY;
    if (!err) err = parse(r->path, lh_buf_span(&text), fresh, &count);
    lh_buf_free(&text);
    if (!err) {
        pthread_mutex_lock(&r->lock);
        *changed = count != r->count || (count && memcmp(fresh, r->serial, count * sizeof *fresh));
        struct serial *old = r->serial;
        r->serial = fresh;
        r->count = count;
        if (*changed) atomic_fetch_add(&r->generation, 1);
        pthread_mutex_unlock(&r->lock);
        fresh = old;
    }
    free(fresh);
    return err;
}

lh_err lh_grpc_revoked_open(struct lh_env *env, const char *path, struct lh_grpc_revoked **out)
{
    struct lh_grpc_revoked *r = calloc(1, sizeof *r);
    bool changed;
    if (!r) return LH_ERR_NO_MEMORY;
    pthread_mutex_init(&r->lock, NULL);
    atomic_init(&r->owners, 1);
    r->env = env;
    lh_err err = snprintf(r->path, sizeof r->path, "%s", path) < (int)sizeof r->path
                     ? lh_grpc_revoked_reload(r, &changed)
                     : lh_fail(LH_ERR_TOO_LARGE, "tls.revoked: a path that is too long");
    if (err)
        lh_grpc_revoked_close(r);
    else
        *out = r;
    return err;
}

struct lh_grpc_revoked *lh_grpc_revoked_share(struct lh_grpc_revoked *r)
{
    atomic_fetch_add(&r->owners, 1);
    return r;
}

void lh_grpc_revoked_close(struct lh_grpc_revoked *r)
{
    if (!r || atomic_fetch_sub(&r->owners, 1) != 1) return;
    pthread_mutex_destroy(&r->lock);
    free(r->serial);
    free(r);
}

// ---------------------------------------------------------------- a certificate

static bool serial_of(const char *pem, size_t len, struct serial *out)
{
    BIO *bio = BIO_new_mem_buf(pem, (int)len);
    X509 *cert = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
    BIGNUM *n = cert ? ASN1_INTEGER_to_BN(X509_get0_serialNumber(cert), NULL) : NULL;
    bool good = n && !BN_is_negative(n) && BN_bn2binpad(n, out->b, SERIAL_BYTES) == SERIAL_BYTES;
    BN_free(n);
    X509_free(cert);
    BIO_free(bio);
    ERR_clear_error();
    return good;
}

static bool is_empty(struct lh_grpc_revoked *r)
{
    pthread_mutex_lock(&r->lock);
    bool none = !r->count;
    pthread_mutex_unlock(&r->lock);
    return none;
}

static bool has(struct lh_grpc_revoked *r, const struct serial *s)
{
    bool revoked = false;
    pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->count && !revoked; i++)
        revoked = !memcmp(&r->serial[i], s, sizeof *s);
    pthread_mutex_unlock(&r->lock);
    return revoked;
}

bool lh_grpc_revoked_is(struct lh_grpc_revoked *r, const char *pem, size_t len)
{
    struct serial s;
    if (is_empty(r)) return false;
    return !serial_of(pem, len, &s) || has(r, &s);
}

bool lh_grpc_revoked_has(struct lh_grpc_revoked *r, const char *serial)
{
    struct serial s;
    bool any = false;
    if (is_empty(r)) return false;
    return !read_line(lh_span_str(serial), &s, &any) || !any || has(r, &s);
}

uint64_t lh_grpc_revoked_generation(struct lh_grpc_revoked *r)
{
    return atomic_load(&r->generation);
}
