// HMAC-SHA256 with libsodium. See hmac.h.
#include "common/security/hmac.h"

#include <sodium.h>

#include "common/base/check.h"
#include "common/security/keyfile.h"

LH_STATIC_ASSERT(LH_HMAC_HEX_BYTES == 2 * crypto_auth_hmacsha256_BYTES + 1, "code");

lh_err lh_hmac_load(const char *path, struct lh_hmac_key *out)
{
    size_t len = 0;
    *out = (struct lh_hmac_key){.bytes = 0};
    lh_err err = lh_keyfile_read(path, LH_KEYFILE_SECRET, out->b, sizeof out->b, &len);
    if (err && err != LH_ERR_TOO_LARGE) return err;
    while (!err && len && (out->b[len - 1] == '\n' || out->b[len - 1] == '\r')) len--;
    bool good = !err && len >= LH_HMAC_KEY_MIN && len <= LH_HMAC_KEY_MAX;
    for (size_t i = 0; good && i < len; i++) good = out->b[i] > ' ' && out->b[i] < 127;
    if (good) {
        out->bytes = len;
        return LH_OK;
    }
    lh_hmac_wipe(out);
    return lh_fail(LH_ERR_CONFIG,
                   "%s: want one line of %d to %d printable characters without blanks, such as "
                   "openssl rand -hex 32 prints",
                   path, LH_HMAC_KEY_MIN, LH_HMAC_KEY_MAX);
}

void lh_hmac_wipe(struct lh_hmac_key *key)
{
    sodium_memzero(key, sizeof *key);
}

void lh_hmac_hex(const struct lh_hmac_key *key, struct lh_span message, char out[LH_HMAC_HEX_BYTES])
{
    crypto_auth_hmacsha256_state state;
    uint8_t code[crypto_auth_hmacsha256_BYTES];
    (void)crypto_auth_hmacsha256_init(&state, key->b, key->bytes); // these calls never fail
    (void)crypto_auth_hmacsha256_update(&state, message.data, message.len);
    (void)crypto_auth_hmacsha256_final(&state, code);
    sodium_bin2hex(out, LH_HMAC_HEX_BYTES, code, sizeof code);
    sodium_memzero(&state, sizeof state);
}
