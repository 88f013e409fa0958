// Sealing: keys and hashes by libsodium, both AEADs by OpenSSL, which is 2.5 times as fast (it has
// AVX-512). See seal.h for the derivation of subkeys and the layout of key files.
//
// Invariants:
//  1. Key bytes are in the ring (sodium_malloc: guard pages, no swap if the system allows it,
//     wiped) or in a local that is wiped on every exit; no text and no log shows them.
//  2. The job key keys only BLAKE2b; AEADs get only subkeys.
#include "common/security/seal.h"

#include <openssl/evp.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/security/keyfile.h"

LH_STATIC_ASSERT(LH_SEAL_KEY_BYTES == crypto_aead_xchacha20poly1305_ietf_KEYBYTES, "key");
LH_STATIC_ASSERT(LH_SEAL_KEY_BYTES == crypto_aead_aes256gcm_KEYBYTES, "key");
LH_STATIC_ASSERT(LH_SEAL_TAG_BYTES == crypto_aead_xchacha20poly1305_ietf_ABYTES, "tag");
LH_STATIC_ASSERT(LH_SEAL_TAG_BYTES == crypto_aead_aes256gcm_ABYTES, "tag");
LH_STATIC_ASSERT(LH_SEAL_NONCE_BYTES == crypto_aead_xchacha20poly1305_ietf_NPUBBYTES, "nonce");
LH_STATIC_ASSERT(LH_SEAL_NONCE_BYTES >= crypto_aead_aes256gcm_NPUBBYTES, "nonce");

static const char LABEL[] = "longhaul seal 1";
enum {
    LABEL_BYTES = 15,
    INFO_BYTES = LABEL_BYTES + 1 + 1 + 4 + 8 + 8 + 8 + 4,
    FILE_BYTES_MAX = 16 * 1024,
    HEX_DIGITS = 2 * LH_SEAL_KEY_BYTES,
};
LH_STATIC_ASSERT(sizeof LABEL - 1 == LABEL_BYTES && INFO_BYTES == 49, "as seal.h says");

// ---------------------------------------------------------------- ring

struct lh_keyring {
    uint32_t id[LH_KEYRING_MAX];
    struct lh_seal_key key[LH_KEYRING_MAX];
    size_t count;
};

lh_err lh_keyring_create(struct lh_keyring **out)
{
    *out = NULL;
    if (sodium_init() < 0) return lh_fail(LH_ERR_INTERNAL, "libsodium does not initialise");
    struct lh_keyring *ring = sodium_malloc(sizeof *ring);
    if (!ring) return LH_ERR_NO_MEMORY;
    memset(ring, 0, sizeof *ring);
    *out = ring;
    return LH_OK;
}

void lh_keyring_destroy(struct lh_keyring *ring)
{
    sodium_free(ring); // wipes
}

static const struct lh_seal_key *find_key(const struct lh_keyring *ring, uint32_t key_id)
{
    for (size_t i = 0; i < ring->count; i++)
        if (ring->id[i] == key_id) return &ring->key[i];
    return NULL;
}

lh_err lh_keyring_add(struct lh_keyring *ring, uint32_t key_id, const struct lh_seal_key *key)
{
    const struct lh_seal_key *present = find_key(ring, key_id);
    if (key_id == 0) return lh_fail(LH_ERR_INVALID, "key id 0 means no key: use 1 or more");
    if (sodium_is_zero(key->b, sizeof key->b))
        return lh_fail(LH_ERR_INVALID, "key %u is all zeros", key_id);
    if (present && sodium_memcmp(present->b, key->b, sizeof key->b) == 0) return LH_OK;
    if (present) return lh_fail(LH_ERR_EXISTS, "key id %u has another key already", key_id);
    if (ring->count == LH_KEYRING_MAX)
        return lh_fail(LH_ERR_TOO_LARGE, "a ring holds at most %d keys", LH_KEYRING_MAX);
    ring->id[ring->count] = key_id;
    ring->key[ring->count++] = *key;
    return LH_OK;
}

uint32_t lh_keyring_first(const struct lh_keyring *ring)
{
    return ring->count ? ring->id[0] : 0;
}

// ---------------------------------------------------------------- key files

// Parses a decimal below 2^32 without sign and leading zero; *n gets its length.
static bool parse_id(const char *text, size_t len, uint32_t *id, size_t *n)
{
    uint64_t value = 0;
    for (*n = 0; *n < len && text[*n] >= '0' && text[*n] <= '9'; ++*n) {
        value = value * 10 + (uint64_t)(text[*n] - '0');
        if (value == 0 || value > UINT32_MAX) return false;
    }
    *id = (uint32_t)value;
    return *n > 0;
}

// Parses one line without its end: "HEX" or "ID:HEX".
static bool parse_line(const char *line, size_t len, uint32_t *id, struct lh_seal_key *key)
{
    size_t digits = 0, decoded = 0;
    *id = 1;
    if (len != HEX_DIGITS) {
        if (!parse_id(line, len, id, &digits) || digits == len || line[digits] != ':') return false;
        line += digits + 1;
        len -= digits + 1;
    }
    return len == HEX_DIGITS &&
           sodium_hex2bin(key->b, sizeof key->b, line, len, NULL, &decoded, NULL) == 0 &&
           decoded == sizeof key->b;
}

static lh_err add_line(struct lh_keyring *ring, const char *path, int number, const char *line,
                       size_t len)
{
    struct lh_seal_key key;
    uint32_t id;
    lh_err err;
    while (len && (line[len - 1] == '\r' || line[len - 1] == ' ' || line[len - 1] == '\t')) len--;
    if (len == 0 || line[0] == '#') return LH_OK;
    if (!parse_line(line, len, &id, &key))
        err = lh_fail(LH_ERR_CONFIG, "%s:%d: want %d hexadecimal digits, or id:digits", path,
                      number, HEX_DIGITS);
    else
        err = lh_keyring_add(ring, id, &key);
    sodium_memzero(&key, sizeof key);
    return err;
}

static lh_err add_lines(struct lh_keyring *ring, const char *path, const char *text, size_t len)
{
    size_t before = ring->count;
    int number = 1;
    for (size_t at = 0; at < len; number++) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t n = end ? (size_t)(end - text) - at : len - at;
        LH_TRY(add_line(ring, path, number, text + at, n));
        at += n + 1;
    }
    if (ring->count == before && !ring->count)
        return lh_fail(LH_ERR_CONFIG, "%s holds no key", path);
    return LH_OK;
}

lh_err lh_keyring_load(struct lh_keyring *ring, const char *path)
{
    char text[FILE_BYTES_MAX];
    size_t len = 0;
    lh_err err = lh_keyfile_read(path, LH_KEYFILE_SECRET, text, sizeof text, &len);
    if (!err) err = add_lines(ring, path, text, len);
    sodium_memzero(text, sizeof text);
    return err;
}

lh_err lh_key_generate(const char *path)
{
    struct lh_seal_key key;
    char text[HEX_DIGITS + 2];
    if (sodium_init() < 0) return lh_fail(LH_ERR_INTERNAL, "libsodium does not initialise");
    randombytes_buf(key.b, sizeof key.b);
    sodium_bin2hex(text, sizeof text, key.b, sizeof key.b);
    text[HEX_DIGITS] = '\n';
    lh_err err = lh_keyfile_write(&(struct lh_keyfile){
        .path = path, .kind = LH_KEYFILE_SECRET, .bytes = lh_span(text, HEX_DIGITS + 1)});
    sodium_memzero(text, sizeof text);
    sodium_memzero(&key, sizeof key);
    return err;
}

// ---------------------------------------------------------------- sealing

static void put_number(uint8_t **at, uint64_t v, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) *(*at)++ = (uint8_t)(v >> (8 * i));
}

static void derive(const struct lh_seal_key *key, enum lh_cipher cipher, uint32_t key_id,
                   const struct lh_seal_context *context, struct lh_seal_key *subkey)
{
    uint8_t info[INFO_BYTES], *at = info;
    LH_ASSERT(context->purpose >= LH_SEAL_FRAME && context->purpose <= LH_SEAL_RESTORE);
    memcpy(at, LABEL, LABEL_BYTES);
    at += LABEL_BYTES;
    put_number(&at, context->purpose, 1);
    put_number(&at, cipher, 1);
    put_number(&at, key_id, 4);
    put_number(&at, context->worker, 8);
    put_number(&at, context->incarnation, 8);
    put_number(&at, context->incarnation_random, 8);
    put_number(&at, context->shard, 4);
    LH_ASSERT(at == info + sizeof info);
    crypto_generichash(subkey->b, sizeof subkey->b, info, sizeof info, key->b, sizeof key->b);
}

bool lh_cipher_available(enum lh_cipher cipher)
{
    return cipher == LH_CIPHER_XCHACHA20 ||
           (cipher == LH_CIPHER_AES256GCM && crypto_aead_aes256gcm_is_available());
}

// ---- Both by OpenSSL. A context holds the key's schedule; freeing it wipes that.

// The inputs of one AEAD call. XChaCha20-Poly1305 is ChaCha20-Poly1305 (RFC 8439) under HChaCha20
// of the key and the nonce's first 16 bytes; its own nonce is 4 zeros and the remaining 8 bytes
// (draft-irtf-cfrg-xchacha 2.3).
struct aead {
    const EVP_CIPHER *cipher;
    uint8_t key[LH_SEAL_KEY_BYTES], nonce[12];
};

static void aead_of(enum lh_cipher cipher, const struct lh_seal_key *key, const uint8_t *nonce,
                    struct aead *out)
{
    *out = (struct aead){.cipher = EVP_chacha20_poly1305()};
    if (cipher == LH_CIPHER_AES256GCM) {
        out->cipher = EVP_aes_256_gcm();
        memcpy(out->key, key->b, sizeof out->key);
        memcpy(out->nonce, nonce, sizeof out->nonce);
        return;
    }
    crypto_core_hchacha20(out->key, nonce, key->b, NULL);
    memcpy(out->nonce + 4, nonce + 16, 8);
}

enum { AEAD_STEP = 1 << 30 }; // bytes per call: OpenSSL's lengths are ints

static bool aead_bytes(EVP_CIPHER_CTX *c, uint8_t *out, struct lh_span in)
{
    int n;
    for (size_t at = 0; at < in.len; at += AEAD_STEP) {
        int step = in.len - at < AEAD_STEP ? (int)(in.len - at) : AEAD_STEP;
        if (EVP_CipherUpdate(c, out ? out + at : NULL, &n, in.data + at, step) != 1) return false;
    }
    return true;
}

static size_t bytes_of(const struct lh_span *part, size_t parts)
{
    size_t n = 0;
    for (size_t i = 0; i < parts; i++) n += part[i].len;
    return n;
}

// Seals or unseals. Sealing writes `tag`; unsealing checks it: LH_ERR_UNSEAL. The only other error
// is no memory for the context.
static lh_err aead(bool sealing, const struct aead *a, struct lh_span ad, const struct lh_span *in,
                   size_t parts, uint8_t *out, uint8_t *tag)
{
    uint8_t end[16];
    int n;
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    bool ok = c && EVP_CipherInit_ex(c, a->cipher, NULL, a->key, a->nonce, sealing) == 1 &&
              aead_bytes(c, NULL, ad);
    for (size_t i = 0; ok && i < parts; out += in[i++].len) ok = aead_bytes(c, out, in[i]);
    if (ok && !sealing)
        ok = EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_SET_TAG, LH_SEAL_TAG_BYTES, tag) == 1;
    bool opened = ok && EVP_CipherFinal_ex(c, end, &n) == 1;
    if (opened && sealing)
        ok = EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_GET_TAG, LH_SEAL_TAG_BYTES, tag) == 1;
    EVP_CIPHER_CTX_free(c);
    return !ok ? LH_ERR_NO_MEMORY : opened ? LH_OK : LH_ERR_UNSEAL;
}

// All checks before the first byte is processed, in the order of their errors.
static lh_err prepare(const struct lh_keyring *ring, enum lh_cipher cipher, uint32_t key_id,
                      const struct lh_seal_context *context, const uint8_t *nonce,
                      size_t plain_bytes, struct aead *out)
{
    struct lh_seal_key subkey;
    const struct lh_seal_key *key = find_key(ring, key_id);
    size_t max = cipher == LH_CIPHER_AES256GCM
                     ? crypto_aead_aes256gcm_messagebytes_max()
                     : crypto_aead_xchacha20poly1305_ietf_messagebytes_max();
    if (cipher != LH_CIPHER_XCHACHA20 && cipher != LH_CIPHER_AES256GCM)
        return lh_fail(LH_ERR_UNSUPPORTED, "no cipher %d", (int)cipher);
    if (!lh_cipher_available(cipher))
        return lh_fail(LH_ERR_UNSUPPORTED, "this processor has no AES-256-GCM; use XChaCha20");
    if (!key) return lh_fail(LH_ERR_KEY_MISSING, "no job key with id %u in the key file", key_id);
    if (plain_bytes > max)
        return lh_fail(LH_ERR_TOO_LARGE, "%zu bytes to seal: at most %zu", plain_bytes, max);
    derive(key, cipher, key_id, context, &subkey);
    aead_of(cipher, &subkey, nonce, out);
    sodium_memzero(&subkey, sizeof subkey);
    return LH_OK;
}

lh_err lh_seal_parts(const struct lh_keyring *ring, enum lh_cipher cipher, uint32_t key_id,
                     const struct lh_seal_context *context, struct lh_span ad,
                     const uint8_t nonce[LH_SEAL_NONCE_BYTES], const struct lh_span *plain,
                     size_t parts, uint8_t *out)
{
    struct aead a;
    size_t n = bytes_of(plain, parts);
    LH_TRY(prepare(ring, cipher, key_id, context, nonce, n, &a));
    lh_err err = aead(true, &a, ad, plain, parts, out, out + n);
    sodium_memzero(&a, sizeof a);
    return err;
}

lh_err lh_seal(const struct lh_keyring *ring, enum lh_cipher cipher, uint32_t key_id,
               const struct lh_seal_context *context, struct lh_span ad,
               const uint8_t nonce[LH_SEAL_NONCE_BYTES], struct lh_span plain, uint8_t *out)
{
    return lh_seal_parts(ring, cipher, key_id, context, ad, nonce, &plain, 1, out);
}

lh_err lh_unseal_parts(const struct lh_keyring *ring, enum lh_cipher cipher, uint32_t key_id,
                       const struct lh_seal_context *context, struct lh_span ad,
                       const uint8_t nonce[LH_SEAL_NONCE_BYTES], const struct lh_span *sealed,
                       size_t parts, const uint8_t tag[LH_SEAL_TAG_BYTES], uint8_t *out)
{
    struct aead a;
    uint8_t its[LH_SEAL_TAG_BYTES]; // OpenSSL's parameter is not const
    size_t n = bytes_of(sealed, parts);
    LH_TRY(prepare(ring, cipher, key_id, context, nonce, n, &a));
    memcpy(its, tag, sizeof its);
    lh_err err = aead(false, &a, ad, sealed, parts, out, its);
    sodium_memzero(&a, sizeof a);
    if (!err) return LH_OK;
    if (n) sodium_memzero(out, n); // written before the tag was checked
    if (err != LH_ERR_UNSEAL) return err;
    return lh_fail(LH_ERR_UNSEAL,
                   "%zu sealed bytes cannot be unsealed with key %u: damaged, or sealed with "
                   "another key or in another place",
                   n + sizeof its, key_id);
}

lh_err lh_unseal(const struct lh_keyring *ring, enum lh_cipher cipher, uint32_t key_id,
                 const struct lh_seal_context *context, struct lh_span ad,
                 const uint8_t nonce[LH_SEAL_NONCE_BYTES], struct lh_span sealed, uint8_t *out)
{
    if (sealed.len < LH_SEAL_TAG_BYTES)
        return lh_fail(LH_ERR_UNSEAL, "%zu sealed bytes are shorter than a tag", sealed.len);
    struct lh_span body = lh_span(sealed.data, sealed.len - LH_SEAL_TAG_BYTES);
    return lh_unseal_parts(ring, cipher, key_id, context, ad, nonce, &body, 1,
                           sealed.data + body.len, out);
}
