// A fold state that arrives in arbitrary pieces (the bytes of lk_replica_save()).
//
// The parameters are written directly to their final place and everything else is gathered, so the
// transfer takes 4 bytes a parameter and copies nothing twice. The ledger arrives first and gives
// the parameters' place; afterwards pieces may come in any order, each byte once. A replica changes
// only when everything has arrived and was checked (lk_incoming_take).
#ifndef LK_INCOMING_H
#define LK_INCOMING_H

#include "kernels/state/replica.h"

struct lk_incoming {
    struct lh_ledger ledger; // the state's; valid once `theta` is not NULL
    struct lh_buf rest;      // everything except the parameters
    float *theta;         // NULL: the ledger is not complete; until then pieces must come in order
    float *reserved;      // memory for `theta`, if the caller has it; else NULL
    size_t before;        // bytes of the state before the parameters
    uint64_t total, have; // bytes of the state; bytes that arrived
};

// Expects a state of `total` bytes; `reserved` may be set. LH_ERR_TOO_LARGE: no state for `r` is
// that large.
LH_MUST lh_err lk_incoming_begin(struct lk_incoming *n, const struct lk_replica *r, uint64_t total);
// Takes the state's bytes from `at` on. LH_ERR_MALFORMED: they are invalid for `r`, or out of turn;
// LH_ERR_NO_MEMORY.
LH_MUST lh_err lk_incoming_put(struct lk_incoming *n, const struct lk_replica *r, uint64_t at,
                               struct lh_span bytes);
// Gives the destination of these bytes, to be confirmed by lk_incoming_placed(); NULL: they are not
// all parameters. Until then they do not count.
uint8_t *lk_incoming_place(struct lk_incoming *n, const struct lk_replica *r, uint64_t at,
                           size_t bytes);
void lk_incoming_placed(struct lk_incoming *n, size_t bytes);
// `r` becomes the received state. LH_ERR_MALFORMED: incomplete or invalid; `r` is unchanged.
LH_MUST lh_err lk_incoming_take(struct lk_incoming *n, struct lk_replica *r);
void lk_incoming_free(struct lk_incoming *n); // all zeros: nothing arrived

#endif
