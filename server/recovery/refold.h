// Refold: a server takes its shards back, to an earlier version or to the fold without a worker's
// pushes, by an operator's order (server/docs/0000-protocol.md#rule-33).
#ifndef PS_REFOLD_H
#define PS_REFOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

struct lh_refold_order;
struct lh_refold_state;
struct ps_refold_check;
struct ps_server;

// How far the directory is with its order; the numbers stand in DIR/refold.
enum ps_refold_stage {
    PS_REFOLD_NONE,
    PS_REFOLD_TAKEN,   // a start carries it out
    PS_REFOLD_BUILT,   // the new checkpoints are whole in DIR/taken-back
    PS_REFOLD_CLEARED, // the former log and checkpoints are in DIR/before-ORDER
    PS_REFOLD_REWOUND, // the new checkpoints are the shards' history; a new epoch is owed
    PS_REFOLD_DONE,    // the new epoch is in the log
    PS_REFOLD_FAILED,  // the history is the former one
};

struct ps_refold {   // part of struct ps_server
    uint64_t number; // The order's that DIR/refold names; 0: none.
    enum ps_refold_stage stage;
    struct ps_refold_check *check; // the order that the coordinator asks about; NULL: none
    char why[256];                 // The cause of PS_REFOLD_FAILED, in the process that failed.
};

// ---- a start
// Carries out an order that the directory has taken, before anything is read from the directory. An
// order that can't be carried out is given up, and the history stays as it is. LH_ERR_IO,
// LH_ERR_DISK_FULL: the start fails, and the next one goes on from there.
LH_MUST lh_err ps_refold_start(struct ps_server *s);
// The EPOCH record of the history that an order made is durable.
LH_MUST lh_err ps_refold_done(struct ps_server *s);

// ---- with the coordinator
// Takes the order that an answer to a report names; NULL: none.
void ps_refold_told(struct ps_server *s, const struct lh_refold_order *m);
// Fills the next report's state of the order; false: there is none. `out` borrows from the server.
bool ps_refold_report(const struct ps_server *s, struct lh_refold_state *out);

void ps_refold_close(struct ps_server *s); // ends a check early
void ps_refold_free(struct ps_server *s);

#endif
