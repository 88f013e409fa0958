// The mass in a worker's directory that is not in the log, read offline.
//
// This is the mass that the next start goes on from: the residual of the slot if it outlived the
// host, else the part that server/docs/0000-protocol.md#rule-11 keeps, and in both cases the
// undecided pushes of the outbox. The difference between two of these, one of the directory as a
// killed process left it and one as a power cut left it, is the mass that the cut took.
#ifndef TESTS_CRASH_HELD_H
#define TESTS_CRASH_HELD_H

#include "kernels/state/replica.h"
#include "worker/push/outbox.h"

struct held_conf {
    struct lh_env *env;
    struct lk_replica *replica; // borrowed: opens frames
    const char *dir; // the worker's folder; DIR/boot: the host's boot id, as Linux shows it
    uint32_t shard;
    bool (*admitted)(void *arg, const struct lh_frame *f); // whether this push is in the log
    void *arg;
};

struct held_found {
    // Per parameter of the shard: residual and undecided pushes, minus the contribution of the
    // tokens that a later push will claim. Equal before and after a cut: nothing was lost. Owned by
    // the caller.
    double *mass;
    uint64_t back; // tokens of refused pushes among these
    bool rebuilt;  // the slot is not used: a start reports a loss
};
// LH_ERR_INVALID or LH_ERR_NOT_FOUND: no boot id.
LH_MUST lh_err held_boot(struct lh_env *env, const char *dir, uint8_t boot[16]);
LH_MUST lh_err held_read(const struct held_conf *conf, struct held_found *out);

#endif
