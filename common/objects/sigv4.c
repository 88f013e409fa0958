// AWS Signature Version 4 with libsodium. See sigv4.h.
#include "common/objects/sigv4.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/check.h"

enum { REQUEST_BYTES = 32 << 10, DATE_BYTES = 8, HMAC_BYTES = crypto_auth_hmacsha256_BYTES };
LH_STATIC_ASSERT(LH_SIGV4_SHA256_BYTES == 2 * crypto_hash_sha256_BYTES + 1, "a hash in digits");
LH_STATIC_ASSERT(HMAC_BYTES == crypto_hash_sha256_BYTES, "each code is the next one's key");

void lh_sigv4_sha256(struct lh_span body, char out[LH_SIGV4_SHA256_BYTES])
{
    uint8_t hash[crypto_hash_sha256_BYTES];
    (void)crypto_hash_sha256(hash, body.data, body.len); // never fails
    sodium_bin2hex(out, LH_SIGV4_SHA256_BYTES, hash, sizeof hash);
}

void lh_sigv4_time(int64_t seconds, char out[LH_SIGV4_TIME_BYTES])
{
    struct tm utc;
    time_t t = (time_t)seconds;
    if (!gmtime_r(&t, &utc) || !strftime(out, LH_SIGV4_TIME_BYTES, "%Y%m%dT%H%M%SZ", &utc))
        snprintf(out, LH_SIGV4_TIME_BYTES, "19700101T000000Z");
}

void lh_sigv4_encode(struct lh_buf *out, const char *text, bool slash)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    for (; *text; text++) {
        char code[4];
        bool as_is = strchr(plain, *text) || (slash && *text == '/');
        int n = snprintf(code, sizeof code, as_is ? "%c" : "%%%02X", (unsigned char)*text);
        lh_put(out, code, (size_t)n);
    }
}

static void put(struct lh_buf *out, const char *text)
{
    lh_put(out, text, strlen(text));
}

static void put_names(struct lh_buf *out, const struct lh_sigv4_request *r)
{
    for (unsigned i = 0; i < r->headers; i++) {
        if (i) put(out, ";");
        put(out, r->header[i].name);
    }
}

static void put_canonical(struct lh_buf *out, const struct lh_sigv4_request *r)
{
    const char *const lines[] = {r->method, r->path, r->query};
    for (size_t i = 0; i < LH_COUNT(lines); i++) {
        put(out, lines[i]);
        put(out, "\n");
    }
    for (unsigned i = 0; i < r->headers; i++) {
        put(out, r->header[i].name);
        put(out, ":");
        put(out, r->header[i].value);
        put(out, "\n");
    }
    put(out, "\n");
    put_names(out, r);
    put(out, "\n");
    put(out, r->sha256);
}

static void hmac(const void *key, size_t key_bytes, struct lh_span text, uint8_t out[HMAC_BYTES])
{
    crypto_auth_hmacsha256_state state;
    (void)crypto_auth_hmacsha256_init(&state, key, key_bytes); // None of these three calls fails.
    (void)crypto_auth_hmacsha256_update(&state, text.data, text.len);
    (void)crypto_auth_hmacsha256_final(&state, out);
    sodium_memzero(&state, sizeof state);
}

// Derives the signing key for a day, a region and a service.
static void derive(const struct lh_sigv4_request *r, const char *secret, uint8_t key[HMAC_BYTES])
{
    char first[4 + LH_SIGV4_SECRET_BYTES];
    int n = snprintf(first, sizeof first, "AWS4%s", secret);
    hmac(first, (size_t)n, lh_span(r->time, DATE_BYTES), key);
    hmac(key, HMAC_BYTES, lh_span_str(r->region), key);
    hmac(key, HMAC_BYTES, lh_span_str(r->service), key);
    hmac(key, HMAC_BYTES, lh_span_str("aws4_request"), key);
    sodium_memzero(first, sizeof first);
}

lh_err lh_sigv4_sign(const struct lh_sigv4_request *r, const struct lh_sigv4_keys *keys,
                     char out[LH_SIGV4_AUTHORIZATION_BYTES])
{
    char scope[160], hash[LH_SIGV4_SHA256_BYTES], hex[LH_SIGV4_SHA256_BYTES];
    uint8_t key[HMAC_BYTES], code[HMAC_BYTES];
    struct lh_buf text = lh_buf(REQUEST_BYTES), names = lh_buf(REQUEST_BYTES);
    LH_ASSERT(r->headers <= LH_SIGV4_HEADERS_MAX);
    int n = snprintf(scope, sizeof scope, "%.*s/%s/%s/aws4_request", DATE_BYTES, r->time, r->region,
                     r->service);
    put_canonical(&text, r);
    put_names(&names, r);
    lh_put_u8(&names, 0);
    lh_err err = lh_buf_err(&text) ? lh_buf_err(&text) : lh_buf_err(&names);
    if (!err && (size_t)n >= sizeof scope) err = LH_ERR_TOO_LARGE;
    if (!err) {
        lh_sigv4_sha256(lh_buf_span(&text), hash);
        lh_buf_clear(&text);
        const char *const lines[] = {"AWS4-HMAC-SHA256\n", r->time, "\n", scope, "\n", hash};
        for (size_t i = 0; i < LH_COUNT(lines); i++) put(&text, lines[i]);
        derive(r, keys->secret, key);
        hmac(key, sizeof key, lh_buf_span(&text), code);
        sodium_bin2hex(hex, sizeof hex, code, sizeof code);
        n = snprintf(out, LH_SIGV4_AUTHORIZATION_BYTES,
                     "AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s", keys->id,
                     scope, (const char *)names.data, hex);
        if (n >= LH_SIGV4_AUTHORIZATION_BYTES) err = LH_ERR_TOO_LARGE;
        sodium_memzero(key, sizeof key);
    }
    lh_buf_free(&text);
    lh_buf_free(&names);
    return err == LH_ERR_TOO_LARGE ? lh_fail(err, "a request that is too long to sign") : err;
}
