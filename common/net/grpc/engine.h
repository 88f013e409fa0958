// Blocking calls to a foreign engine that speaks gRPC, such as etcd: one request, one answer. For
// threads and lanes that may wait; the loop never calls it. One thread at a time uses an engine.
//
// Our peers' identities play no role here: TLS is the engine's, with its own CA.
#ifndef LH_COMMON_ENGINE_H
#define LH_COMMON_ENGINE_H

#include "common/base/buf.h"
#include "common/base/err.h"

struct lh_engine;

struct lh_engine_conf {
    const char *address;         // HOST:PORT
    const char *ca, *cert, *key; // PEM texts. ca NULL: no TLS; cert NULL: no certificate of ours
};

// Does not connect yet: the first call does.
LH_MUST lh_err lh_engine_dial(const struct lh_engine_conf *conf, struct lh_engine **out);
void lh_engine_close(struct lh_engine *e); // NULL is allowed

// Sends the packed `request` to `path` ("/SERVICE/METHOD") and appends the answer's bytes. `token`
// goes along as metadata, unless it is empty. Ends within timeout_ns. LH_ERR_UNAVAILABLE or
// LH_ERR_DEADLINE: not answered, so the request may have been carried out; LH_ERR_BUSY;
// LH_ERR_DISK_FULL: the engine's space is used up; LH_ERR_UNAUTHENTICATED, LH_ERR_DENIED,
// LH_ERR_INVALID, LH_ERR_NOT_FOUND, LH_ERR_CONFIG: refused. The text is the engine's.
LH_MUST lh_err lh_engine_call(struct lh_engine *e, const char *path, const char *token,
                              struct lh_span request, int64_t timeout_ns, struct lh_buf *answer);
// Waits, for pauses between two calls.
void lh_engine_wait(struct lh_engine *e, int64_t ns);

#endif
