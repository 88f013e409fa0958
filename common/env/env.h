// The world, injected: clock, timers, work on other threads, randomness, files.
//
// The cores of server, worker and coordinator are state machines owned by one loop thread. They
// reach the world only through this table and a transport (transport.h). The real programs give
// them threads and disks; the simulator gives them a virtual clock and a disk that loses unsynced
// writes.
//
// Two implementations: env_real.c (a loop thread per node, POSIX files) and, for tests and benches,
// tests/world/env_fake.c (every node of a cluster on one virtual clock; a run is a function of its
// seed).
#ifndef LH_COMMON_ENV_H
#define LH_COMMON_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"

struct lh_env;
struct lh_file;

typedef void (*lh_fn)(void *arg);
// Blocking work. Returns its minimum duration in ns from its start, 0 for none: the real loop calls
// `done` no earlier, the virtual clock exactly then.
typedef int64_t (*lh_job)(void *arg);

// One thread each, jobs in order. Compute: training steps; a server's unsealing and digests.
// Encode: encoding of pushes. Disk: writes that a commit waits for. Copy: long copies. Status:
// small files that no commit waits for; a file system busy with a long copy may take seconds to
// rename one. Hook: operators' commands.
enum lh_lane {
    LH_LANE_COMPUTE,
    LH_LANE_ENCODE,
    LH_LANE_DISK,
    LH_LANE_COPY,
    LH_LANE_STATUS,
    LH_LANE_HOOK,
    LH_LANE_COUNT
};

enum lh_open {
    LH_OPEN_READ = 1,
    LH_OPEN_WRITE = 2,     // read and write
    LH_OPEN_CREATE = 4,    // create when absent
    LH_OPEN_EXCLUSIVE = 8, // fail with LH_ERR_EXISTS when present
    LH_OPEN_TRUNCATE = 16,
    LH_OPEN_LOCK = 32,    // locks the file exclusively until close; locked elsewhere: LH_ERR_BUSY
    LH_OPEN_SECRET = 128, // a created file is readable by its owner alone
    LH_OPEN_DIRECT = 64,  // large writes bypass the page cache if possible: they are not read soon
};

// All calls are made on the loop thread of this env unless said otherwise.
struct lh_env_ops {
    // -- clock: monotonic ns (any thread); seconds since 1970 for certificates, log stamps and
    // numbers of leaders
    int64_t (*now_ns)(struct lh_env *env);
    int64_t (*wall_s)(struct lh_env *env);
    // -- loop: post() calls fn(arg) soon, in the order of posting (any thread); after() calls it
    // after a delay
    void (*post)(struct lh_env *env, lh_fn fn, void *arg);
    // after() returns a timer, never 0; cancel() ignores 0 and fired timers
    uint64_t (*after)(struct lh_env *env, int64_t delay_ns, lh_fn fn, void *arg);
    void (*cancel)(struct lh_env *env, uint64_t timer);
    // -- work: job(arg) on a lane, then done(arg) on the loop. `arg` belongs to the job until
    // done(), which finds the job's last error text as its own thread's (err.h)
    void (*work)(struct lh_env *env, enum lh_lane lane, lh_job job, lh_fn done, void *arg);
    // -- randomness (any thread): cryptographic in the real env, from the seed in the fake one
    void (*random)(struct lh_env *env, void *out, size_t n);
    // The id of the machine's boot: new after a power cut, the same after kill -9.
    void (*boot_id)(struct lh_env *env, uint8_t out[16]);
    const struct lh_files_ops *files;
};

// Files. Paths are used as given (the fake env has a tree of its own for each node). Every call
// blocks and may be made on the loop or inside a job; one file is used by one thread at a time.
// A failure is LH_ERR_IO, LH_ERR_DISK_FULL, LH_ERR_NOT_FOUND, ... with its text.
struct lh_files_ops {
    lh_err (*open)(struct lh_env *env, const char *path, unsigned flags, struct lh_file **out);
    void (*close)(struct lh_file *file);
    // read() is short at the end of the file; write() does all or fails
    lh_err (*read)(struct lh_file *file, uint64_t at, void *out, size_t n, size_t *got);
    lh_err (*write)(struct lh_file *file, uint64_t at, struct lh_span bytes);
    lh_err (*size)(struct lh_file *file, uint64_t *out);
    lh_err (*resize)(struct lh_file *file, uint64_t size); // growth is zeros on disk (allocated)
    lh_err (*sync)(struct lh_file *file);                  // fdatasync; a failure is final
    lh_err (*rename)(struct lh_env *env, const char *from, const char *to);
    lh_err (*remove)(struct lh_env *env, const char *path); // absent: LH_ERR_NOT_FOUND
    // makes parents too; present: LH_OK. All their names are durable when it returns
    lh_err (*make_dir)(struct lh_env *env, const char *path);
    lh_err (*sync_dir)(struct lh_env *env, const char *path); // names in it become durable
    lh_err (*room)(struct lh_env *env, const char *path, uint64_t *bytes); // free bytes of its disk
    // Calls each(arg, name) for the plain files of a directory, sorted by name.
    lh_err (*list)(struct lh_env *env, const char *path, void (*each)(void *arg, const char *name),
                   void *arg);
};

struct lh_env {
    const struct lh_env_ops *ops;
};

// ---- short forms
static inline int64_t lh_now(struct lh_env *e)
{
    return e->ops->now_ns(e);
}
static inline void lh_post(struct lh_env *e, lh_fn fn, void *arg)
{
    e->ops->post(e, fn, arg);
}
static inline uint64_t lh_after(struct lh_env *e, int64_t ns, lh_fn fn, void *arg)
{
    return e->ops->after(e, ns, fn, arg);
}
// Cancels *timer and sets it to 0.
static inline void lh_cancel(struct lh_env *e, uint64_t *timer)
{
    if (*timer) e->ops->cancel(e, *timer);
    *timer = 0;
}
static inline void lh_random(struct lh_env *e, void *out, size_t n)
{
    e->ops->random(e, out, n);
}
uint64_t lh_random_u64(struct lh_env *e);
int64_t lh_random_below(struct lh_env *e, int64_t bound); // uniform in [0, bound), 0 if bound < 1

#define LH_MS INT64_C(1000000)
#define LH_SECOND INT64_C(1000000000)

// ---- whole files, through any env (env.c)
// Reads a file of at most out->max bytes into `out` (cleared first).
LH_MUST lh_err lh_file_load(struct lh_env *e, const char *path, struct lh_buf *out);
// LH_ERR_DISK_FULL unless a new file of `bytes` leaves `reserve` free on the directory's disk;
// reserve 0: no check.
LH_MUST lh_err lh_file_room(struct lh_env *env, const char *dir, uint64_t bytes, uint64_t reserve);
// Writes `path.tmp`, syncs it, renames it over `path`, syncs the directory: all or nothing, also
// across a power cut. On disk full it removes `path.tmp`, which would take the last free bytes.
LH_MUST lh_err lh_file_replace(struct lh_env *e, const char *path, struct lh_span bytes);
// The same for a file that only its owner may read.
LH_MUST lh_err lh_file_replace_secret(struct lh_env *e, const char *path, struct lh_span bytes);
// The same for contents that need not be in memory: write(arg, file) writes them from offset 0 on.
typedef lh_err (*lh_file_writer)(void *arg, struct lh_file *file);
LH_MUST lh_err lh_file_replace_by(struct lh_env *e, const char *path, lh_file_writer write,
                                  void *arg);
// Joins with '/', into out[size]; LH_ERR_TOO_LARGE if the path does not fit.
LH_MUST lh_err lh_path(char *out, size_t size, const char *dir, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

// ---- the real one (env_real.c). run() gives the calling thread to the loop until stop().
LH_MUST lh_err lh_env_real_create(struct lh_env **out);
void lh_env_real_run(struct lh_env *env);
// The longest time that one function blocked the loop since the last call. On the loop's thread.
int64_t lh_env_real_longest_ns(struct lh_env *env);
void lh_env_real_stop(struct lh_env *env); // any thread, signal-safe: run() returns soon
void lh_env_real_destroy(struct lh_env *env);

#endif
