// Requests to an S3 store: signs them, retries them with growing, jittered pauses, and maps answers
// to errors. s3.c builds the operations on objects from them.
#ifndef LH_COMMON_S3_REQUEST_H
#define LH_COMMON_S3_REQUEST_H

#include "common/objects/credentials.h"
#include "common/objects/objects.h"
#include "common/objects/transfer.h"
#include "common/objects/web_identity.h"

enum { LH_S3_URL_BYTES = 8 << 10, LH_S3_BUCKET_BYTES = 64 };

struct lh_s3 {
    struct lh_objects base;
    struct lh_env *env;
    const char *(*variable)(const char *);
    const atomic_bool *stop;
    uint64_t part_bytes;
    int64_t pause_ns;
    struct lh_transfer *transfer;
    struct lh_web_identity web;
    char address[LH_PATH_BYTES]; // s3://BUCKET/PREFIX, for messages
    char origin[256];            // https://host:port
    char bucket[LH_S3_BUCKET_BYTES];
    char prefix[LH_PATH_BYTES]; // ends with its slash; "": none
    char region[32], ca_file[LH_PATH_BYTES];
};

struct lh_s3_request {
    const char *method;
    const char *key;   // below the prefix; NULL: the bucket
    const char *query; // see lh_sigv4_request
    struct lh_span body;
    bool has_body, if_none_match;
    // Takes the answer's body from byte *from on, so that a retry requests only the rest. NULL: the
    // body goes into the reply.
    lh_err (*sink)(void *arg, struct lh_span bytes);
    void *arg;
    uint64_t *from;
    uint64_t to; // the byte behind the last one; 0: the object's end
};

// Sends a request, and retries after a transient failure, LH_OBJECT_ATTEMPTS times in all.
// LH_ERR_UNAVAILABLE, LH_ERR_CANCELLED, LH_ERR_NOT_FOUND, LH_ERR_EXISTS (a condition does not
// hold), LH_ERR_DENIED, LH_ERR_MALFORMED. Free reply->body in any case.
LH_MUST lh_err lh_s3_do(struct lh_s3 *s, const struct lh_s3_request *r,
                        struct lh_transfer_reply *reply);
// Checks the body of an answer 200, which may report a failure: LH_ERR_UNAVAILABLE.
LH_MUST lh_err lh_s3_check_body(struct lh_s3 *s, const struct lh_s3_request *r,
                                const struct lh_transfer_reply *reply);

#endif
