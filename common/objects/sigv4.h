// AWS Signature Version 4: a request's Authorization header.
//
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html. The
// signer is ours because libcurl before 8.9 signs queries without values wrongly. Every body's
// hash is signed, never UNSIGNED-PAYLOAD, so a store detects bytes that changed in transit.
#ifndef LH_COMMON_SIGV4_H
#define LH_COMMON_SIGV4_H

#include "common/base/buf.h"
#include "common/base/err.h"

enum {
    LH_SIGV4_HEADERS_MAX = 8,
    LH_SIGV4_SHA256_BYTES = 64 + 1,    // hexadecimal digits and a 0
    LH_SIGV4_TIME_BYTES = 16 + 1,      // 20150830T123600Z and a 0
    LH_SIGV4_ID_BYTES = 128 + 1,       // an access key's id
    LH_SIGV4_SECRET_BYTES = 256 + 1,   // an access key's secret
    LH_SIGV4_TOKEN_BYTES = 4096 + 1,   // a session's token
    LH_SIGV4_AUTHORIZATION_BYTES = 768 // the header's value
};

struct lh_sigv4_keys {
    char id[LH_SIGV4_ID_BYTES], secret[LH_SIGV4_SECRET_BYTES];
    char token[LH_SIGV4_TOKEN_BYTES]; // "": the keys belong to no session
};

struct lh_sigv4_header {
    const char *name, *value; // the name in lower case, the value without blanks around it
};

struct lh_sigv4_request {
    const char *method;
    const char *path;  // encoded, with its leading slash
    const char *query; // encoded and sorted, each name with its `=`; "": none
    struct lh_sigv4_header header[LH_SIGV4_HEADERS_MAX]; // sorted by name
    unsigned headers;
    const char *sha256; // hash of the body, from lh_sigv4_sha256()
    const char *region, *service;
    const char *time; // from lh_sigv4_time()
};

void lh_sigv4_sha256(struct lh_span body, char out[LH_SIGV4_SHA256_BYTES]);
void lh_sigv4_time(int64_t seconds, char out[LH_SIGV4_TIME_BYTES]); // seconds since 1970
// Appends `text` with all bytes but letters, digits and -._~ (and /, where `slash`) as %XX.
void lh_sigv4_encode(struct lh_buf *out, const char *text, bool slash);
// Writes the value of the header Authorization. LH_ERR_TOO_LARGE, LH_ERR_NO_MEMORY.
LH_MUST lh_err lh_sigv4_sign(const struct lh_sigv4_request *r, const struct lh_sigv4_keys *keys,
                             char out[LH_SIGV4_AUTHORIZATION_BYTES]);

#endif
