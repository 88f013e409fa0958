// One HTTP request and its answer, by libcurl. Only transfer_curl.c uses libcurl.
//
// Redirects are not followed, certificates are checked, and the size of an answer is bounded. A
// request ends when `stop` is set, or when the peer sends less than a byte a second for
// LH_TRANSFER_SILENT_S.
#ifndef LH_COMMON_TRANSFER_H
#define LH_COMMON_TRANSFER_H

#include <stdatomic.h>

#include "common/base/buf.h"
#include "common/base/err.h"

enum {
    LH_TRANSFER_HEADERS_MAX = 12,
    LH_TRANSFER_CONNECT_S = 10,
    LH_TRANSFER_SILENT_S = 30,
    LH_TRANSFER_ANSWER_MAX = 4 << 20,
    LH_TRANSFER_ETAG_BYTES = 128,
};

struct lh_transfer;

struct lh_transfer_request {
    const char *method, *url;
    const char *header[LH_TRANSFER_HEADERS_MAX]; // "Name: value"
    unsigned headers;
    bool has_body;
    struct lh_span body;
    // Takes the body of an answer 200 or 206 piece by piece; NULL: the body goes into the reply.
    lh_err (*sink)(void *arg, long status, struct lh_span bytes);
    void *arg;
    int64_t most_ms; // the whole request may take so long; 0: no limit
};

struct lh_transfer_reply {
    long status;
    struct lh_buf body;
    char etag[LH_TRANSFER_ETAG_BYTES]; // "": the answer has none, or it is too long
};

// LH_ERR_UNSUPPORTED: this build is without libcurl.
LH_MUST lh_err lh_transfer_open(const atomic_bool *stop, const char *ca_file,
                                struct lh_transfer **out);
void lh_transfer_close(struct lh_transfer *t); // NULL is allowed
// Sends a request and waits. An answer of any status is LH_OK. LH_ERR_UNAVAILABLE: no answer, or an
// incomplete one; LH_ERR_CANCELLED; LH_ERR_TOO_LARGE; or the sink's error. The caller frees
// reply->body in any case.
LH_MUST lh_err lh_transfer_do(struct lh_transfer *t, const struct lh_transfer_request *r,
                              struct lh_transfer_reply *reply);

#endif
