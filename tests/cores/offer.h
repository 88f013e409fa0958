// Followers by hand, of a server that lost its directory: a test offers and sends the states they
// hold.
#ifndef TESTS_CORES_OFFER_H
#define TESTS_CORES_OFFER_H

#include "tests/cores/rig.h"

// The state that a follower holds of a shard.
struct offer_held {
    struct lh_hash chain, digest;
    Longhaul__V1__Point at;
    struct lh_blob *state;
};

// Starts a server, lets both workers join, and gives r->shard at least three records. Fills *h with
// the shard's state, wipes the server's directory and starts it again. Release h->state.
void offer_lose_directory(struct rig *r, struct offer_held *h);
// Worker w offers this state; returns whether the server wants it. offer_say() gives the digest
// that the server's state had, offer_say_other() another one.
bool offer_say(struct rig *r, uint32_t w, Longhaul__V1__Point *have);
bool offer_say_other(struct rig *r, uint32_t w, Longhaul__V1__Point *have,
                     const struct lh_hash *digest);
// Opens the call; sends bytes [at, at + bytes), which may be none; sends the whole state.
void offer_begin(struct rig *r, uint32_t w, struct rig_call *h);
void offer_part(struct rig *r, uint32_t w, Longhaul__V1__Point *of, struct lh_blob *state,
                size_t at, size_t bytes, struct rig_call *h);
LH_MUST lh_err offer_bring(struct rig *r, uint32_t w, Longhaul__V1__Point *of,
                           struct lh_blob *state);

#endif
