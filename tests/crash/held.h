// The mass in a worker's directory that is not in the log, read offline.
//
// It is what the next start goes on from: where the slot outlived the host its residual, else what
// server/docs/0000-protocol.md#rule-11 leaves of it, and in both cases the pushes of the outbox
// that nobody decided yet. Two of these, one of the directory as a killed process left it and one
// as a power cut did, differ by what that cut took.
#ifndef TESTS_CRASH_HELD_H
#define TESTS_CRASH_HELD_H

#include "kernels/state/replica.h"
#include "worker/push/outbox.h"

struct held_conf {
    struct lh_env *env;
    struct lk_replica *replica; // borrowed: opens frames
    const char *dir; // the worker's folder; DIR/boot: the host's boot id, as Linux shows it
    uint32_t shard;
    bool (*admitted)(void *arg, const struct lh_frame *f); // is this push in the log?
    void *arg;
};

struct held_found {
    // Per parameter of the shard: residual and pushes under way, less what the tokens that a later
    // push will name put in. The same before and after: nothing was lost. The caller's.
    double *mass;
    uint64_t back; // tokens of these that came back with refused pushes
    bool rebuilt;  // the slot does not count: a start declares a loss
};
// LH_ERR_INVALID, LH_ERR_NOT_FOUND: no boot id.
LH_MUST lh_err held_boot(struct lh_env *env, const char *dir, uint8_t boot[16]);
LH_MUST lh_err held_read(const struct held_conf *conf, struct held_found *out);

#endif
