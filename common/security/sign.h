// Signatures prove the writer of a stored file, which the job key cannot, because every worker
// holds it.
//
// Ed25519. A signing key is a file of mode 0600 with one line, "ed25519 " and the 64 hexadecimal
// digits of its seed; beside it, FILE.pub has the public key's 64 digits and a name. A list of
// trusted keys has one such line per key; blank lines and lines that begin with # are ignored.
#ifndef LH_COMMON_SIGN_H
#define LH_COMMON_SIGN_H

#include <stdbool.h>

#include "common/base/buf.h"
#include "common/base/err.h"

enum { LH_SIGN_PUBLIC_BYTES = 32, LH_SIGN_BYTES = 64, LH_TRUSTED_MAX = 64 };

struct lh_public {
    uint8_t b[LH_SIGN_PUBLIC_BYTES];
};

struct lh_trusted {
    struct lh_public key[LH_TRUSTED_MAX];
    uint32_t count;
};

// The secret, in guarded memory that is wiped when it is destroyed.
struct lh_signer;

// Makes a key: writes `path` and `path`.pub, whose line ends with `name`. Never overwrites:
// LH_ERR_EXISTS.
LH_MUST lh_err lh_sign_generate(const char *path, const char *name);
// LH_ERR_NOT_FOUND; LH_ERR_DENIED if group or others can read the file; LH_ERR_CONFIG.
LH_MUST lh_err lh_signer_load(const char *path, struct lh_signer **out);
void lh_signer_destroy(struct lh_signer *s); // NULL is allowed
struct lh_public lh_signer_public(const struct lh_signer *s);

// Any thread. The message is the concatenated parts.
void lh_sign(const struct lh_signer *s, const struct lh_span *parts, size_t count,
             uint8_t out[LH_SIGN_BYTES]);
bool lh_sign_holds(const struct lh_public *key, const struct lh_span *parts, size_t count,
                   const uint8_t signature[LH_SIGN_BYTES]);

// LH_ERR_NOT_FOUND; LH_ERR_CONFIG with the bad line's number; LH_ERR_TOO_LARGE.
LH_MUST lh_err lh_trusted_load(const char *path, struct lh_trusted *out);
bool lh_trusts(const struct lh_trusted *t, const struct lh_public *key);
void lh_public_hex(const struct lh_public *key, char out[2 * LH_SIGN_PUBLIC_BYTES + 1]);

#endif
