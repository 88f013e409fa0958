// The leader among coordinators, as a client knows it (server/docs/0000-protocol.md#rule-38).
//
// Each answer of a coordinator says its leader's number. A client takes no answer with a lower
// number than the highest that it has heard, and takes the first one with a higher number only once
// that number is durable. Both transports use these functions, so the simulator runs the programs'
// own rule.
#ifndef LH_COMMON_LEADER_H
#define LH_COMMON_LEADER_H

#include "common/env/env.h"

struct lh_leader {
    uint64_t number; // the highest that was heard; 0: none
    // Makes a higher number durable; an error: the answer is not taken. NULL: `number` is kept in
    // memory alone.
    lh_err (*heard)(void *self, uint64_t number);
    void *self;
};

// May an answer with this number be taken (0: it names none)? LH_ERR_FENCED: it is of an earlier
// leader. Any other error is heard()'s.
LH_MUST lh_err lh_leader_hears(struct lh_leader *l, uint64_t number);

// The number in DIR/leader. LH_ERR_NOT_FOUND; LH_ERR_CORRUPT: as good as none; or a disk error.
LH_MUST lh_err lh_leader_load(struct lh_env *env, const char *dir, uint64_t *number);
LH_MUST lh_err lh_leader_save(struct lh_env *env, const char *dir, uint64_t number);

// Replaces `address` by the one that follows it in `list` ("HOST:PORT,HOST:PORT"), the first one
// after the last. False: the list has one address.
bool lh_leader_next(const char *list, char *address, size_t size);

#endif
