// The fake world: every node of a cluster on one virtual clock and one thread.
//
// A run is a function of the seed. Each node has its own file tree. A power cut loses unsynced
// writes, partly and in any combination; kill -9 loses none. A crash can be set for the node's n-th
// file operation from now, in the middle of a handler: from then on every operation of the dead
// node fails and its posts are dropped.
#ifndef LH_COMMON_ENV_FAKE_H
#define LH_COMMON_ENV_FAKE_H

#include "common/env/env.h"

struct lh_fake_world;

struct lh_fake_world *lh_fake_world_create(uint64_t seed);
void lh_fake_world_destroy(struct lh_fake_world *w); // its nodes' envs with it

// A new node, not alive until lh_fake_boot(). The world's loop calls on_death(arg) after a crash
// inside a handler.
struct lh_env *lh_fake_node(struct lh_fake_world *w, lh_fn on_death, void *arg);
void lh_fake_boot(struct lh_env *env); // alive again, with its current files
bool lh_fake_alive(const struct lh_env *env);
// Kills the node: drops its pending events and closes its files. With `power`, each unsynced write,
// name and removal is kept or lost at random, and the boot id changes.
void lh_fake_kill(struct lh_env *env, bool power);
void lh_fake_crash_at(struct lh_env *env, int64_t file_operations, bool power); // < 0: never
// The n-th file operation from now (also in the node's next lives) fails with `err`, once; < 0:
// none. A failed sync loses the unsynced bytes, although programs still read them, as on Linux.
// lh_fake_failed(): whether it has failed since the call.
void lh_fake_fail_at(struct lh_env *env, int64_t file_operations, lh_err err);
bool lh_fake_failed(const struct lh_env *env);
// A slow disk: from now on, jobs on all lanes but compute begin up to `ns` late, in order, and
// write nothing before; 0: at once again. (Without it a job runs when it is handed over and only
// its `done` comes later, so that a power cut rarely interrupts one.)
void lh_fake_slow(struct lh_env *env, int64_t ns);
// A hanging disk: for `ns` no job begins on the disk, copy and status lanes, also in the node's
// next lives; 0: ends the hang, and the waiting jobs run at once. File calls on the loop itself go
// on, see lh_fake_stall_at().
void lh_fake_hang(struct lh_env *env, int64_t ns);
bool lh_fake_hangs(const struct lh_env *env);
// Stalls the node for `ns`, as under SIGSTOP: timers fire, messages arrive and jobs end, but the
// node handles them only afterwards, all at once, in the order in which they came due. The longer
// of two stalls wins. Death ends a stall. It begins within the handler of the n-th file operation
// from now; < 0: at once.
void lh_fake_stall_at(struct lh_env *env, int64_t file_operations, int64_t ns);
bool lh_fake_stalled(const struct lh_env *env);
// Further disk faults; zero-initialised: none. Their random numbers come from a separate stream.
struct lh_fake_harm {
    uint64_t seed;
    // A power cut keeps or loses each sector of an unsynced write on its own: a middle part may be
    // missing.
    bool torn;
    // A write that finds the disk full writes the bytes that fit.
    bool short_writes;
};
void lh_fake_harm(struct lh_env *env, const struct lh_fake_harm *harm);
// The n-th write from now (also in the node's next lives) writes a part of its bytes and finds the
// disk full; the n-th sync fails as in lh_fake_fail_at(). Once; < 0: none.
void lh_fake_short_at(struct lh_env *env, int64_t writes);
// Whether, since the node's boot, such a write found the disk full inside the file's size. A
// program's write that undoes another may be one.
bool lh_fake_no_room_in_place(const struct lh_env *env);
void lh_fake_fail_sync_at(struct lh_env *env, int64_t syncs);
// From now on only its own sync makes a folder durable, as POSIX promises: a power cut keeps some
// of the oldest unsynced changes of names, in each folder another number. (Without it a sync of any
// folder syncs all, as in file systems with one journal.)
void lh_fake_folders_apart(struct lh_env *env);
// Jobs that block on what only comes with virtual time: each job of this node goes to take_job(),
// which runs it elsewhere and then calls `done` on the node's loop; false: it is not for it, and
// runs here as any other.
typedef bool (*lh_fake_job_fn)(void *arg, enum lh_lane lane, lh_job job, lh_fn done, void *of);
void lh_fake_jobs(struct lh_env *env, lh_fake_job_fn take_job, void *arg);
// While `on`, file operations are the test driver's: none counts for a crash or a failure.
void lh_fake_look(struct lh_env *env, bool on);
// Disk size (lh_fake_disk_limit(): bytes in all, 0 unlimited) and damage to stored bytes.
uint64_t lh_fake_disk_used(const struct lh_env *env); // bytes of all files
void lh_fake_disk_each(const struct lh_env *env,
                       void (*each)(void *arg, const char *path, uint64_t bytes), void *arg);
// A file's bytes that are certain to survive a power cut; false: the file may be lost. Borrowed
// until the node's next file operation, dead or alive.
bool lh_fake_durable(const struct lh_env *env, const char *path, struct lh_span *out);
void lh_fake_disk_limit(struct lh_env *env, uint64_t bytes);
void lh_fake_disk_wipe(struct lh_env *env);
LH_MUST lh_err lh_fake_flip(struct lh_env *env, const char *path, uint64_t at, uint8_t mask);
LH_MUST lh_err lh_fake_unreadable(struct lh_env *env, const char *path); // every read of it fails

// Runs events until `until_ns` or until none is left; returns false when none is left.
bool lh_fake_run(struct lh_fake_world *w, int64_t until_ns);
int64_t lh_fake_now(const struct lh_fake_world *w);
uint64_t lh_fake_random(struct lh_fake_world *w);       // the world's own stream
uint64_t lh_fake_events(const struct lh_fake_world *w); // handled so far
// An event of the world (the test driver's), not tied to a node's life.
void lh_fake_at(struct lh_fake_world *w, int64_t delay_ns, lh_fn fn, void *arg);
// An event on another node after a delay. If that node dies meanwhile, `lost` (may be NULL) is
// called instead, to free `arg`.
void lh_fake_deliver(struct lh_env *to, int64_t delay_ns, lh_fn fn, lh_fn lost, void *arg);

#endif
