// HMAC-SHA256 (RFC 2104) under a secret of an operator's: whoever has the same secret can tell that
// a message comes from this run. For hooks, whose readers are not of the run.
//
// The secret is a file of mode 0600 with one line of 16 to 256 printable characters without blanks;
// the end of the line does not count.
#ifndef LH_COMMON_HMAC_H
#define LH_COMMON_HMAC_H

#include "common/base/buf.h"
#include "common/base/err.h"

enum { LH_HMAC_KEY_MIN = 16, LH_HMAC_KEY_MAX = 256, LH_HMAC_HEX_BYTES = 2 * 32 + 1 };

struct lh_hmac_key {
    uint8_t b[LH_HMAC_KEY_MAX + 2]; // as it was read, with the end of its line
    size_t bytes;                   // those of the secret; 0: there is none
};

// LH_ERR_NOT_FOUND; LH_ERR_DENIED where group or others could read it; LH_ERR_CONFIG.
LH_MUST lh_err lh_hmac_load(const char *path, struct lh_hmac_key *out);
void lh_hmac_wipe(struct lh_hmac_key *key);
// Any thread. The code as lower-case hexadecimal digits, with a 0 at the end.
void lh_hmac_hex(const struct lh_hmac_key *key, struct lh_span message,
                 char out[LH_HMAC_HEX_BYTES]);

#endif
