// The judge's own reading of the coordinator's store, as it is on disk.
//
// The bytes are those of server/coordinator/store.h, the rows those of member.c, coordinator.c,
// plan.c, owners/insync.c, owners/epochs.c, owners/move.c and balance/crossed.c beside it.
#ifndef SIM_STORED_H
#define SIM_STORED_H

#include "common/base/buf.h"

enum { SIM_STORED_UNITS = 64, SIM_STORED_WORKERS = 16, SIM_STORED_SHARDS = 4 };
enum { SIM_STORED_CROSSED = 64 };

struct sim_point {
    uint64_t epoch, version;
    struct lh_hash chain;
};

struct sim_stored_shard {
    uint64_t owner, standby, changes, least; // row insync/
    struct sim_point stable;
    struct sim_point replaced; // the stable point before the file was rewritten, else zero
    uint64_t token;            // row epoch/
    struct sim_point *begun;   // epochs begun, ascending
    size_t epochs;
    uint64_t move_epoch, move_target;
};

struct sim_stored {
    struct lh_buf seen;                // the file, as far as it was read
    size_t last;                       // offset of the newest commit in it
    struct lh_buf was;                 // the file before it was rewritten, until the next commit
    size_t replaced;                   // bytes of `was` before the commit that rewrote it
    uint64_t lease[SIM_STORED_UNITS];  // the worker's id; 0: free
    uint64_t second[SIM_STORED_UNITS]; // the worker that runs the unit a second time; 0: none
    struct {
        uint64_t id;
        uint32_t granted, answered; // `answered`: the highest granted number in an answered join
    } worker[SIM_STORED_WORKERS];
    uint32_t workers;
    struct { // bytes of a home's units that crossed to a worker
        uint64_t worker, home, bytes;
    } crossed[SIM_STORED_CROSSED];
    uint32_t crossings;
    struct sim_stored_shard shard[SIM_STORED_SHARDS];
    uint8_t plan[512];
    size_t plan_bytes;
    bool paused;     // a pause row exists
    bool between;    // a state within a commit that rewrote the file: a lease that is free after it
                     // may have come and gone in it
    bool unreadable; // an invalid row, or one that went back
};

// Reads the durable file: the added part, or all of it if it was rewritten.
void sim_stored_read(struct sim_stored *s, struct lh_span file);
void sim_stored_free(struct sim_stored *s);
uint32_t sim_stored_granted(const struct sim_stored *s, uint64_t worker);                // 0: none
uint64_t sim_stored_crossed(const struct sim_stored *s, uint64_t worker, uint64_t home); // bytes
uint64_t sim_stored_epoch(const struct sim_stored *s, uint32_t shard); // the newest; 0: none

// Checks an answer. It shows the state at the time of its request, and leaves at the end of the
// commit that made that state durable. So it matches a state that the newest commit left, replaced,
// or passed through row by row; an older state was replaced while nobody waited. Returns NULL if
// `check` finds nothing missing in one of these states, else what is missing in the newest.
typedef const char *sim_stored_check(const struct sim_stored *s, void *arg);
const char *sim_stored_held(const struct sim_stored *s, sim_stored_check *check, void *arg);

// Each checks one of the coordinator's messages against one state of the disk. Returns NULL, or
// what is missing there. `worker`: the receiver's id.
struct Longhaul__V1__JoinReply;
struct Longhaul__V1__LeaseReply;
struct Longhaul__V1__ReportReply;
struct Longhaul__V1__EpochReply;
struct Longhaul__V1__InSyncReply;
const char *sim_stored_join(const struct sim_stored *s, const struct Longhaul__V1__JoinReply *m);
// Notes an answered join, whose number may never go back from now on. A number that no join was
// answered with may go back, if its commit found no space and was taken back.
void sim_stored_answered(struct sim_stored *s, const struct Longhaul__V1__JoinReply *m);
const char *sim_stored_lease(const struct sim_stored *s, uint64_t worker,
                             const struct Longhaul__V1__LeaseReply *m);
const char *sim_stored_report(const struct sim_stored *s,
                              const struct Longhaul__V1__ReportReply *m);
const char *sim_stored_epochs(const struct sim_stored *s, uint32_t shard,
                              const struct Longhaul__V1__EpochReply *m);
const char *sim_stored_in_sync(const struct sim_stored *s, uint32_t shard,
                               const struct Longhaul__V1__InSyncReply *m);

#endif
