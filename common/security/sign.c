// Signatures with libsodium. See sign.h.
//
// Signs "longhaul signed 1" and BLAKE2b-256 of the message, so that a signature cannot be reused
// for another purpose of the key.
#include "common/security/sign.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/security/keyfile.h"

LH_STATIC_ASSERT(LH_SIGN_PUBLIC_BYTES == crypto_sign_PUBLICKEYBYTES, "key");
LH_STATIC_ASSERT(LH_SIGN_BYTES == crypto_sign_BYTES, "signature");

static const char LABEL[] = "longhaul signed 1", WORD[] = "ed25519 ";
enum {
    SEED_DIGITS = 2 * crypto_sign_SEEDBYTES,
    PUBLIC_DIGITS = 2 * LH_SIGN_PUBLIC_BYTES,
    WORD_BYTES = sizeof WORD - 1,
    MESSAGE_BYTES = sizeof LABEL - 1 + LH_HASH_BYTES,
    PATH_BYTES = 1024,
};

struct lh_signer {
    uint8_t secret[crypto_sign_SECRETKEYBYTES];
    struct lh_public public;
};

static lh_err start(void)
{
    return sodium_init() < 0 ? lh_fail(LH_ERR_INTERNAL, "libsodium does not initialise") : LH_OK;
}

// ---------------------------------------------------------------- keys

// Writes the public file before the secret one: a key that is there has both.
static lh_err write_both(const char *path, struct lh_span secret, const char *name,
                         const struct lh_public *key)
{
    char public_path[PATH_BYTES], line[PUBLIC_DIGITS + 256];
    int n = snprintf(public_path, sizeof public_path, "%s.pub", path);
    if (n < 0 || (size_t)n >= sizeof public_path)
        return lh_fail(LH_ERR_TOO_LARGE, "path too long: %.100s...", path);
    lh_public_hex(key, line);
    n = snprintf(line + PUBLIC_DIGITS, sizeof line - PUBLIC_DIGITS, " %.200s\n", name);
    return lh_keyfile_write_pair((const struct lh_keyfile[2]){
        {public_path, LH_KEYFILE_PUBLIC, true, lh_span(line, PUBLIC_DIGITS + (size_t)n)},
        {path, LH_KEYFILE_SECRET, false, secret}});
}

lh_err lh_sign_generate(const char *path, const char *name)
{
    uint8_t seed[crypto_sign_SEEDBYTES], secret[crypto_sign_SECRETKEYBYTES];
    char text[WORD_BYTES + SEED_DIGITS + 2];
    struct lh_public public;
    LH_TRY(start());
    randombytes_buf(seed, sizeof seed);
    crypto_sign_seed_keypair(public.b, secret, seed);
    memcpy(text, WORD, WORD_BYTES);
    sodium_bin2hex(text + WORD_BYTES, SEED_DIGITS + 1, seed, sizeof seed);
    text[WORD_BYTES + SEED_DIGITS] = '\n';
    lh_err err = write_both(path, lh_span(text, WORD_BYTES + SEED_DIGITS + 1), name, &public);
    sodium_memzero(seed, sizeof seed);
    sodium_memzero(secret, sizeof secret);
    sodium_memzero(text, sizeof text);
    return err;
}

static bool hex_to(uint8_t *out, size_t size, const char *text, size_t digits)
{
    size_t n = 0;
    return sodium_hex2bin(out, size, text, digits, NULL, &n, NULL) == 0 && n == size;
}

lh_err lh_signer_load(const char *path, struct lh_signer **out)
{
    char text[WORD_BYTES + SEED_DIGITS + 2];
    uint8_t seed[crypto_sign_SEEDBYTES];
    size_t len = 0;
    *out = NULL;
    LH_TRY(start());
    lh_err err = lh_keyfile_read(path, LH_KEYFILE_SECRET, text, sizeof text, &len);
    if (err && err != LH_ERR_TOO_LARGE) return err;
    while (!err && len && (text[len - 1] == '\n' || text[len - 1] == '\r')) len--;
    bool good = !err && len == WORD_BYTES + SEED_DIGITS && !memcmp(text, WORD, WORD_BYTES) &&
                hex_to(seed, sizeof seed, text + WORD_BYTES, SEED_DIGITS);
    err = good ? LH_OK
               : lh_fail(LH_ERR_CONFIG, "%s: want one line, ed25519 and %d hexadecimal digits",
                         path, SEED_DIGITS);
    struct lh_signer *s = err ? NULL : sodium_malloc(sizeof *s);
    if (!err && !s) err = LH_ERR_NO_MEMORY;
    if (s) crypto_sign_seed_keypair(s->public.b, s->secret, seed);
    sodium_memzero(text, sizeof text);
    sodium_memzero(seed, sizeof seed);
    *out = s;
    return err;
}

void lh_signer_destroy(struct lh_signer *s)
{
    sodium_free(s); // wipes
}

struct lh_public lh_signer_public(const struct lh_signer *s)
{
    return s->public;
}

// ---------------------------------------------------------------- signatures

static void message_of(const struct lh_span *parts, size_t count, uint8_t out[MESSAGE_BYTES])
{
    struct lh_hash h = lh_hash_of((struct lh_span){0}, parts, count);
    memcpy(out, LABEL, sizeof LABEL - 1);
    memcpy(out + sizeof LABEL - 1, h.b, LH_HASH_BYTES);
}

void lh_sign(const struct lh_signer *s, const struct lh_span *parts, size_t count,
             uint8_t out[LH_SIGN_BYTES])
{
    uint8_t message[MESSAGE_BYTES];
    message_of(parts, count, message);
    crypto_sign_detached(out, NULL, message, sizeof message, s->secret);
}

bool lh_sign_holds(const struct lh_public *key, const struct lh_span *parts, size_t count,
                   const uint8_t signature[LH_SIGN_BYTES])
{
    uint8_t message[MESSAGE_BYTES];
    message_of(parts, count, message);
    return crypto_sign_verify_detached(signature, message, sizeof message, key->b) == 0;
}

// ---------------------------------------------------------------- trust

static lh_err trust_line(struct lh_trusted *t, const char *path, int number, const char *line,
                         size_t len)
{
    while (len && (line[len - 1] == '\r' || line[len - 1] == ' ')) len--;
    if (len == 0 || line[0] == '#') return LH_OK;
    if (t->count == LH_TRUSTED_MAX)
        return lh_fail(LH_ERR_TOO_LARGE, "%s: more than %d keys", path, LH_TRUSTED_MAX);
    bool good = len >= PUBLIC_DIGITS && (len == PUBLIC_DIGITS || line[PUBLIC_DIGITS] == ' ') &&
                hex_to(t->key[t->count].b, LH_SIGN_PUBLIC_BYTES, line, PUBLIC_DIGITS);
    if (!good)
        return lh_fail(LH_ERR_CONFIG, "%s:%d: want a public key of %d hexadecimal digits, a name",
                       path, number, PUBLIC_DIGITS);
    t->count++;
    return LH_OK;
}

lh_err lh_trusted_load(const char *path, struct lh_trusted *out)
{
    char text[LH_KEYFILE_BYTES_MAX];
    size_t len = 0;
    int number = 1;
    out->count = 0;
    LH_TRY(start());
    LH_TRY(lh_keyfile_read(path, LH_KEYFILE_PUBLIC, text, sizeof text, &len));
    for (size_t at = 0; at < len; number++) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t n = end ? (size_t)(end - text) - at : len - at;
        LH_TRY(trust_line(out, path, number, text + at, n));
        at += n + 1;
    }
    return out->count ? LH_OK : lh_fail(LH_ERR_CONFIG, "%s holds no public key", path);
}

bool lh_trusts(const struct lh_trusted *t, const struct lh_public *key)
{
    for (uint32_t i = 0; i < t->count; i++)
        if (!memcmp(t->key[i].b, key->b, sizeof key->b)) return true;
    return false;
}

void lh_public_hex(const struct lh_public *key, char out[2 * LH_SIGN_PUBLIC_BYTES + 1])
{
    sodium_bin2hex(out, PUBLIC_DIGITS + 1, key->b, sizeof key->b);
}
