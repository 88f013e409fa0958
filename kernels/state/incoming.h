// A fold state that arrives in pieces, cut anywhere (lk_replica_save gives its bytes).
//
// The parameters go at once to where they will stay, everything else is gathered, so a state takes
// 4 bytes a parameter while it comes and nothing is copied twice. The ledger, which comes first,
// says where they begin; from then on pieces may come in any order, each byte once. A replica
// changes only when all of it came and was checked (lk_incoming_take).
#ifndef LK_INCOMING_H
#define LK_INCOMING_H

#include "kernels/state/replica.h"

struct lk_incoming {
    struct lh_ledger ledger; // what came says of itself; holds once `theta` is not NULL
    struct lh_buf rest;      // all but the parameters
    float *theta;            // NULL: the ledger is not complete; pieces come in order until it is
    float *reserved;         // becomes `theta`, where the caller has memory for it; else NULL
    size_t before;           // bytes of the state before the parameters
    uint64_t total, have;    // bytes of the state, and how many of them came
};

// A state of so many bytes is to come; `reserved` may be set. LH_ERR_TOO_LARGE: none for `r` has
// them.
LH_MUST lh_err lk_incoming_begin(struct lk_incoming *n, const struct lk_replica *r, uint64_t total);
// Takes the state's bytes from `at` on. LH_ERR_MALFORMED: these can't be of one for `r`, or come
// before their turn; LH_ERR_NO_MEMORY.
LH_MUST lh_err lk_incoming_put(struct lk_incoming *n, const struct lk_replica *r, uint64_t at,
                               struct lh_span bytes);
// Gives the place to write these bytes to instead, then told of with lk_incoming_placed(); NULL:
// they are not all parameters. Until then they count for nothing, whatever stands there.
uint8_t *lk_incoming_place(struct lk_incoming *n, const struct lk_replica *r, uint64_t at,
                           size_t bytes);
void lk_incoming_placed(struct lk_incoming *n, size_t bytes);
// `r` becomes what came. LH_ERR_MALFORMED: not all came, or it is no state; `r` is as it was.
LH_MUST lh_err lk_incoming_take(struct lk_incoming *n, struct lk_replica *r);
void lk_incoming_free(struct lk_incoming *n); // all zeros: nothing came

#endif
