// HMAC-SHA256 (RFC 2104) under an operator's secret: a reader with the same secret can verify that
// a message comes from this run. For hooks, whose readers have no identity in the run.
//
// The secret is a file of mode 0600 with one line of 16 to 256 printable characters without blanks;
// the line's end is not part of it.
#ifndef LH_COMMON_HMAC_H
#define LH_COMMON_HMAC_H

#include "common/base/buf.h"
#include "common/base/err.h"

enum { LH_HMAC_KEY_MIN = 16, LH_HMAC_KEY_MAX = 256, LH_HMAC_HEX_BYTES = 2 * 32 + 1 };

struct lh_hmac_key {
    uint8_t b[LH_HMAC_KEY_MAX + 2]; // as read, with the line's end
    size_t bytes;                   // bytes of the secret; 0: none
};

// LH_ERR_NOT_FOUND; LH_ERR_DENIED if group or others can read the file; LH_ERR_CONFIG.
LH_MUST lh_err lh_hmac_load(const char *path, struct lh_hmac_key *out);
void lh_hmac_wipe(struct lh_hmac_key *key);
// Any thread. Writes the code as lower-case hexadecimal digits with a terminating zero.
void lh_hmac_hex(const struct lh_hmac_key *key, struct lh_span message,
                 char out[LH_HMAC_HEX_BYTES]);

#endif
