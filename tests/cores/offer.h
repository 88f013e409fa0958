// Followers by hand, of a server that lost its directory: what they say that they hold, and bring.
#ifndef TESTS_CORES_OFFER_H
#define TESTS_CORES_OFFER_H

#include "tests/cores/rig.h"

// The state that a follower holds of a shard.
struct offer_held {
    struct lh_hash chain, digest;
    Longhaul__V1__Point at;
    struct lh_blob *state;
};

// A server with three records and more, both workers joined; what its shard r->shard held, once its
// directory is gone and it was started again. Release h->state.
void offer_lose_directory(struct rig *r, struct offer_held *h);
// Worker w says that it holds this state; whether it is to bring it. A state of another digest than
// the one that the server had last.
bool offer_say(struct rig *r, uint32_t w, Longhaul__V1__Point *have);
bool offer_say_other(struct rig *r, uint32_t w, Longhaul__V1__Point *have,
                     const struct lh_hash *digest);
// Begins to bring it; the next bytes [at, at + bytes) of it, which may be none; all of it.
void offer_begin(struct rig *r, uint32_t w, struct rig_call *h);
void offer_part(struct rig *r, uint32_t w, Longhaul__V1__Point *of, struct lh_blob *state,
                size_t at, size_t bytes, struct rig_call *h);
LH_MUST lh_err offer_bring(struct rig *r, uint32_t w, Longhaul__V1__Point *of,
                           struct lh_blob *state);

#endif
