// Possession: an answer to a challenge that only a holder of a fold state can give
// (server/docs/0000-protocol.md#rule-13).
//
// BLAKE2b-256 under the challenge of "longhaul possession 1", shard u32, epoch u64, version u64,
// chain 32, and pieces of the parameters and of the outer optimizer's arrays: PIECES times
// PIECE_VALUES values, at places that follow from the challenge (SplitMix64 of its first 8 bytes).
// A shard of no more values than that is read as a whole.
//
// A holder of all but a share x of the state succeeds with probability (1 - x)^PIECES. Each copy
// has its own challenge. A digest would prove nothing, because DIGEST records publish it.
#ifndef LK_POSSESSION_H
#define LK_POSSESSION_H

#include "kernels/state/replica.h"

enum { LK_POSSESSION_PIECES = 32, LK_POSSESSION_VALUES = 16 };

// Reads at most 2 KiB of each array.
struct lh_hash lk_possession(const struct lk_replica *r, const struct lh_hash *challenge);

#endif
