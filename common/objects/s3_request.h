// Requests to an S3 store: signed, tried again after growing pauses with jitter, and what its
// answers mean. s3.c makes objects' operations of them.
#ifndef LH_COMMON_S3_REQUEST_H
#define LH_COMMON_S3_REQUEST_H

#include "common/objects/credentials.h"
#include "common/objects/objects.h"
#include "common/objects/transfer.h"

enum { LH_S3_URL_BYTES = 8 << 10, LH_S3_BUCKET_BYTES = 64 };

struct lh_s3 {
    struct lh_objects base;
    struct lh_env *env;
    const char *(*variable)(const char *);
    const atomic_bool *stop;
    uint64_t part_bytes;
    int64_t pause_ns;
    struct lh_transfer *transfer;
    char address[LH_PATH_BYTES]; // s3://BUCKET/PREFIX, for texts
    char origin[256];            // https://host:port
    char bucket[LH_S3_BUCKET_BYTES];
    char prefix[LH_PATH_BYTES]; // ends with its slash; "": none
    char region[32], credentials[LH_PATH_BYTES], ca_file[LH_PATH_BYTES];
};

struct lh_s3_request {
    const char *method;
    const char *key;   // below the prefix; NULL: the bucket
    const char *query; // as lh_sigv4_request wants it
    struct lh_span body;
    bool has_body, if_none_match;
    // The answer's body goes here, from *from on (what an earlier try got is not asked for again);
    // NULL: into the reply.
    lh_err (*sink)(void *arg, struct lh_span bytes);
    void *arg;
    uint64_t *from;
};

// Sends a request until it is answered by other than a passing failure, at most LH_OBJECT_ATTEMPTS
// times. LH_ERR_UNAVAILABLE, LH_ERR_CANCELLED, LH_ERR_NOT_FOUND, LH_ERR_EXISTS (a condition does
// not hold), LH_ERR_DENIED, LH_ERR_MALFORMED. Free reply->body in any case.
LH_MUST lh_err lh_s3_do(struct lh_s3 *s, const struct lh_s3_request *r,
                        struct lh_transfer_reply *reply);
// An answer 200 may say a failure in its body: LH_ERR_UNAVAILABLE.
LH_MUST lh_err lh_s3_check_body(struct lh_s3 *s, const struct lh_s3_request *r,
                                const struct lh_transfer_reply *reply);

#endif
