// An access key for a while, from a security token service (STS) that is shown a token file: as
// Kubernetes gives to a pod by its service account (IRSA), without a lasting key anywhere.
//
// AWS_WEB_IDENTITY_TOKEN_FILE names the file, which is read again for each key, and AWS_ROLE_ARN
// the role; AWS_ROLE_SESSION_NAME may name the session. The service is at AWS_ENDPOINT_URL_STS,
// AWS_ENDPOINT_URL, or Amazon's of the region. A key is used for three quarters of its time.
#ifndef LH_COMMON_WEB_IDENTITY_H
#define LH_COMMON_WEB_IDENTITY_H

#include "common/env/env.h"
#include "common/objects/sigv4.h"
#include "common/objects/transfer.h"

struct lh_web_identity {
    struct lh_env *env;
    const char *(*variable)(const char *);
    const char *region;
    struct lh_transfer *transfer; // borrows
    struct lh_sigv4_keys keys;
    int64_t until_s; // seconds since 1970; 0: no key
};

// True: the variables name a token file and a role, and no access key.
bool lh_web_identity_is(const char *(*variable)(const char *));
// Gives the key, asking for a new one where needed. LH_ERR_UNAVAILABLE: no answer, or a failure of
// the service; LH_ERR_DENIED: it refuses; LH_ERR_CONFIG, LH_ERR_MALFORMED, or the file's errors.
LH_MUST lh_err lh_web_identity_keys(struct lh_web_identity *w, struct lh_sigv4_keys *out);
// Takes the key out of an answer of the service at `url`. LH_ERR_MALFORMED: it has none that is
// valid now.
LH_MUST lh_err lh_web_identity_take(struct lh_web_identity *w, struct lh_span xml, const char *url);
void lh_web_identity_forget(struct lh_web_identity *w); // the next call asks for a new key

#endif
