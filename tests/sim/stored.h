// The coordinator's store as its disk holds it: a reading of the judge's own.
//
// The bytes are those of server/coordinator/store.h, the rows those of member.c,
// coordinator.c, plan.c, owners/insync.c, owners/epochs.c, owners/move.c and balance/crossed.c
// beside it.
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
    uint64_t owner, standby, changes, least; // insync/
    struct sim_point stable;
    struct sim_point replaced; // the stable point before a file was written anew; else zero
    uint64_t token;            // epoch/
    struct sim_point *begun;   // its epochs, ascending
    size_t epochs;
    uint64_t move_epoch, move_target;
};

struct sim_stored {
    struct lh_buf seen;                // the file, as far as it was read
    size_t last;                       // offset in it of the newest commit
    struct lh_buf was;                 // the file before it was written anew, until the next commit
    size_t replaced;                   // bytes of it before the commit that wrote it anew
    uint64_t lease[SIM_STORED_UNITS];  // its worker's id; 0: free
    uint64_t second[SIM_STORED_UNITS]; // the worker that runs the unit a second time; 0: nobody
    struct {
        uint64_t id;
        uint32_t granted, answered; // `answered`: the highest that a join was answered with
    } worker[SIM_STORED_WORKERS];
    uint32_t workers;
    struct { // bytes of a home's units that came to a worker
        uint64_t worker, home, bytes;
    } crossed[SIM_STORED_CROSSED];
    uint32_t crossings;
    struct sim_stored_shard shard[SIM_STORED_SHARDS];
    uint8_t plan[512];
    size_t plan_bytes;
    bool paused;     // there is a row of a pause
    bool between;    // a state within a commit that wrote the file anew: a lease of a unit that is
                     // free afterwards may have come and gone in it
    bool unreadable; // a row that is none
};

// Reads the file as it is durable now: what was added, or all of it where it was written anew.
void sim_stored_read(struct sim_stored *s, struct lh_span file);
void sim_stored_free(struct sim_stored *s);
uint32_t sim_stored_granted(const struct sim_stored *s, uint64_t worker); // 0: nothing
uint64_t sim_stored_crossed(const struct sim_stored *s, uint64_t worker, uint64_t home); // bytes
uint64_t sim_stored_epoch(const struct sim_stored *s, uint32_t shard); // the last; 0: none

// An answer tells what held when its request was handled, and leaves with the end of the commit
// that made that durable. So it is of a state that the newest commit left, replaced or came by, as
// its rows follow each other; an older one was replaced while nobody waited. NULL if `check` finds
// nothing missing from one of these states; else what is missing from the newest.
typedef const char *sim_stored_check(const struct sim_stored *s, void *arg);
const char *sim_stored_held(const struct sim_stored *s, sim_stored_check *check, void *arg);

// Each message that the coordinator answers, against one state of the disk: NULL, or what is not
// there. `worker`: the id of the worker that it goes to.
struct Longhaul__V1__JoinReply;
struct Longhaul__V1__LeaseReply;
struct Longhaul__V1__ReportReply;
struct Longhaul__V1__EpochReply;
struct Longhaul__V1__InSyncReply;
const char *sim_stored_join(const struct sim_stored *s, const struct Longhaul__V1__JoinReply *m);
// The join was answered so: the number never goes back from here. One that no join was answered
// with may, where its commit found no room and was taken back.
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
