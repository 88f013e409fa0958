// The fake world: every node of a cluster on one virtual clock and one thread.
//
// A run is a function of the seed. Each node has a file tree of its own whose writes are lost,
// partly and in any combination, when its power is cut before a sync; kill -9 loses none. A crash
// can be set to strike at the node's n-th file operation from now, in the middle of a handler: from
// then on every operation of the dead node fails and nothing it posts happens.
#ifndef LH_COMMON_ENV_FAKE_H
#define LH_COMMON_ENV_FAKE_H

#include "common/env/env.h"

struct lh_fake_world;

struct lh_fake_world *lh_fake_world_create(uint64_t seed);
void lh_fake_world_destroy(struct lh_fake_world *w); // its nodes' envs with it

// A new node. `started` is false until the first lh_fake_boot(). on_death(arg) is called from the
// world's loop after a crash that struck inside a handler.
struct lh_env *lh_fake_node(struct lh_fake_world *w, lh_fn on_death, void *arg);
void lh_fake_boot(struct lh_env *env); // alive again, on the files it has
bool lh_fake_alive(const struct lh_env *env);
// From now the node is dead: pending events of it are dropped, its files closed. With `power`, its
// unsynced writes, names and removals are each kept or lost at random, and the boot id changes.
void lh_fake_kill(struct lh_env *env, bool power);
void lh_fake_crash_at(struct lh_env *env, int64_t file_operations, bool power); // < 0: never
// The n-th file operation from now (also in the node's next lives) fails with `err`, once; a failed
// sync loses what it was to make durable, although programs go on seeing it, as Linux does. < 0:
// none. And did it fail since it was asked to?
void lh_fake_fail_at(struct lh_env *env, int64_t file_operations, lh_err err);
bool lh_fake_failed(const struct lh_env *env);
// A disk with stalls: from now what is handed to the lanes but the computing one begins up to `ns`
// late, in turn, and nothing of it is on the disk before; 0: at once again. (Without it a job is
// done when it is handed over and its end alone comes later, so that a power cut hardly ever finds
// one unfinished.)
void lh_fake_slow(struct lh_env *env, int64_t ns);
// A disk that hangs: from now and for so long nothing begins that is handed to the lanes that
// write, copy and remove files, also in the node's next lives; 0: it answers again, and what waits
// comes at once. What the loop does with files by itself goes on, see lh_fake_stall_at().
void lh_fake_hang(struct lh_env *env, int64_t ns);
bool lh_fake_hangs(const struct lh_env *env);
// From now the node stands still for so long, as under SIGSTOP: its timers fire, messages reach it
// and jobs end, but it handles nothing of that before, and then all of it at once, in the order in
// which it came due. A stall that is longer wins. Death ends it.
// It begins with the handler of the n-th file operation from now; < 0: at once.
void lh_fake_stall_at(struct lh_env *env, int64_t file_operations, int64_t ns);
bool lh_fake_stalled(const struct lh_env *env);
// How bad a disk is, beside what it does anyway; zero-initialised: no worse. The random numbers
// come from a stream of its own.
struct lh_fake_harm {
    uint64_t seed;
    // A power cut keeps or loses each sector of an unsynced write by itself: a piece in the middle
    // may be missing.
    bool torn;
    // A write that finds the disk full leaves the bytes there which there was room for.
    bool short_writes;
};
void lh_fake_harm(struct lh_env *env, const struct lh_fake_harm *harm);
// The n-th write from now (also in the node's next lives) leaves a part of its bytes and finds the
// disk full; the n-th sync fails, see lh_fake_fail_at(). Once; < 0: none.
void lh_fake_short_at(struct lh_env *env, int64_t writes);
// Did such a write find no room, since the node was booted, where the file had all of it already?
// What a program writes to take another write back may be it.
bool lh_fake_no_room_in_place(const struct lh_env *env);
void lh_fake_fail_sync_at(struct lh_env *env, int64_t syncs);
// From now each folder of the node's disk is made durable by its own sync alone, as POSIX promises:
// a power cut keeps some of the oldest changes of names since then, in each folder another number.
// (Without it a sync of any folder is one of all, as file systems with one journal do it.)
void lh_fake_folders_apart(struct lh_env *env);
// While it is looked at, file operations are the driver's: none counts for a crash or a failure.
void lh_fake_look(struct lh_env *env, bool on);
// Files: a disk of so many bytes in all, 0 unlimited; damage to stored bytes.
uint64_t lh_fake_disk_used(const struct lh_env *env); // bytes of all files
void lh_fake_disk_each(const struct lh_env *env,
                       void (*each)(void *arg, const char *path, uint64_t bytes), void *arg);
// A file's bytes as a power cut is sure to leave them; false: it may be gone after one. Borrowed
// until the next file operation of the node, dead or alive.
bool lh_fake_durable(const struct lh_env *env, const char *path, struct lh_span *out);
void lh_fake_disk_limit(struct lh_env *env, uint64_t bytes);
void lh_fake_disk_wipe(struct lh_env *env);
LH_MUST lh_err lh_fake_flip(struct lh_env *env, const char *path, uint64_t at, uint8_t mask);
LH_MUST lh_err lh_fake_unreadable(struct lh_env *env, const char *path); // each read of it fails

// Runs events until `until_ns` or until none is left; returns false when none is left.
bool lh_fake_run(struct lh_fake_world *w, int64_t until_ns);
int64_t lh_fake_now(const struct lh_fake_world *w);
uint64_t lh_fake_random(struct lh_fake_world *w);       // the world's own stream
uint64_t lh_fake_events(const struct lh_fake_world *w); // handled so far
// An event of the world itself (the driver's): not tied to a node's life.
void lh_fake_at(struct lh_fake_world *w, int64_t delay_ns, lh_fn fn, void *arg);
// An event on another node after a delay, dropped when that node dies meanwhile: `lost` is then
// called instead (may be NULL), to free `arg`.
void lh_fake_deliver(struct lh_env *to, int64_t delay_ns, lh_fn fn, lh_fn lost, void *arg);

#endif
