// A communicator and the thread that makes all of its calls: what the state machine of a region
// (region.h) asks for by struct wk_region_comm_ops, carried out by calls that may wait.
//
// The region's thread hands one operation at a time to the communicator's thread and looks whether
// it is over. An abort raises `stop` and rings the bell; every wait of an implementation looks at
// one of them and leaves, and the thread then frees what there was. An implementation whose call
// never returns keeps aborted() false: the state machine ends the process then.
//
// Implementations: comm_tcp.c (sockets), comm_nccl.c (NCCL and a device).
#ifndef WK_COMM_H
#define WK_COMM_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/env/env.h"
#include "kernels/cuda/plugin.h"
#include "worker/ranks/region.h"
#include "worker/ranks/comm/ready.h"

// Large enough that an AllReduce over NVLink runs at the links' rate: smaller ones pay for their
// start.
enum { WK_COMM_BUCKET_BYTES = 128 << 20 };
enum { WK_COMM_TEXT_BYTES = 256, WK_COMM_PARTS = 4, WK_COMM_LEAVE_MS = 5000 };

struct wk_comm_part { // memory that rank 0 gives to all
    void *data;
    size_t bytes;
};
// A device that has parameters and gradient of this rank. The trainer records in `ready` behind all
// that it queued, whenever it says that values are final, and before anything is shared.
struct wk_comm_device {
    const struct lk_gpu_backend *gpu;
    int index;
    struct wk_ready *ready;
};
// The memory that the collectives work on. Nobody else touches it while one is under way, but what
// of `sum` is not final yet.
struct wk_comm_arrays {
    struct wk_comm_part part[WK_COMM_PARTS]; // part 0: the parameters
    uint32_t parts;
    float *sum; // is added up over all ranks
    uint64_t sums;
    uint64_t behind; // The last of them, which are summed up last of all.
    float *last;     // [behind] of them, on the host; NULL: they are at the end of `sum`.
    // `sum` and the parts that `there` has a bit for are memory of this device's; NULL: of the
    // host, all of it. Goes with `last`, and with the same on all ranks.
    const struct wk_comm_device *device;
    uint32_t there;
    uint64_t bucket_bytes; // between ranks; 0: WK_COMM_BUCKET_BYTES
    enum wk_sum_type type; // As what they cross between ranks.
};
struct wk_comm_counts {
    uint64_t buckets; // Buckets whose sum was begun.
    uint64_t early;   // Those that were begun while this rank still computed.
    uint64_t sleeps;  // Milliseconds that were slept for calls that went on for more than 200 us.
};

struct wk_comm;
struct wk_comm_ops {
    const char *name;
    // On the region's thread, while nothing is under way.
    uint32_t (*version)(struct wk_comm *c);
    lh_err (*unique_id)(struct wk_comm *c, struct wk_nccl_id *out);
    // On the communicator's thread. Each waits until it is over here, or `stop` is raised.
    // LH_ERR_IO means a device that is lost until the process ends; any other error, this
    // communicator.
    lh_err (*init)(struct wk_comm *c, const struct wk_nccl_id *id, uint32_t ranks, uint32_t rank);
    lh_err (*share)(struct wk_comm *c, const struct wk_comm_part *part, uint32_t parts);
    // A bucket. Its sum may come later, that of the `last` one and of all before it at once.
    lh_err (*reduce)(struct wk_comm *c, float *bucket, uint64_t values, bool last);
    lh_err (*idle)(struct wk_comm *c);  // now and then while it stands; NULL: nothing to look at
    void (*end)(struct wk_comm *c);     // frees what unique_id() and init() made
    void (*destroy)(struct wk_comm *c); // frees `c`; its thread is gone
    // share() of one part and reduce() of a bucket that is not the last, in the device's memory,
    // behind the events of `ready`. NULL, both: the communicator takes the host's alone
    // (comm_host.h).
    lh_err (*share_there)(struct wk_comm *c, const struct wk_comm_part *part);
    lh_err (*reduce_there)(struct wk_comm *c, float *bucket, uint64_t values);
};

enum wk_comm_order {
    WK_COMM_NONE,
    WK_COMM_INIT,
    WK_COMM_SHARE,
    WK_COMM_REDUCE,
    WK_COMM_ABORT,
    WK_COMM_QUIT,
};

struct wk_comm { // first in an implementation's struct
    const struct wk_comm_ops *ops;
    struct wk_comm_arrays arrays;
    struct wk_comm_device device; // what arrays.device is, where there is one
    struct wk_comm_host *host;    // NULL: nothing crossed yet. The communicator's thread's.
    atomic_bool stop;             // everything shall be left
    int bell;                     // an eventfd, readable while `stop` is raised
    int wake;                     // an eventfd: there is an order
    int gone;                     // an eventfd: the thread ends
    int told;     // an eventfd of the region's: rung when an operation is over; -1: none
    int leave_ms; // Patience of wk_comm_destroy(), of the implementation; 0: WK_COMM_LEAVE_MS
    pthread_t thread;
    pthread_mutex_t lock; // guards what follows
    enum wk_comm_order order;
    bool stands; // init() succeeded, and no abort came
    enum wk_region_progress progress;
    bool aborted;
    struct wk_nccl_id id;
    uint32_t ranks, rank;
    enum wk_region_share what;
    bool reducing;  // REDUCE was ordered, and did not end well yet
    uint64_t final; // values that it may sum up; UINT64_MAX: all
    struct wk_comm_counts counts;
    char why[WK_COMM_TEXT_BYTES];     // the last failure's text
    char why_out[WK_COMM_TEXT_BYTES]; // the region's thread's copy of it
};

// Starts the thread. The implementation has set `ops`; on failure the rest is as if it never was.
LH_MUST lh_err wk_comm_start(struct wk_comm *c);
// Names the arrays that the operations work on, before the first of them.
void wk_comm_bind(struct wk_comm *c, const struct wk_comm_arrays *arrays, int told);
struct wk_comm_counts wk_comm_counts(struct wk_comm *c); // any thread
// Ends the thread, whatever it does, and frees `c`. False: the thread did not end within leave_ms,
// because an abort hangs. It may still use `c`, all that `c->arrays` names, and `c->told`: none of
// that may be freed or closed as long as the process lives. NULL is allowed, and is true. Who has
// begun nothing yet need not ask: then the thread ends at once.
bool wk_comm_destroy(struct wk_comm *c);
// The table for struct wk_region_conf; its argument is the communicator.
extern const struct wk_region_comm_ops wk_comm_region;

// ---- for implementations, on the communicator's thread
// Values of a bucket.
static inline uint64_t wk_comm_bucket_values(const struct wk_comm_arrays *a)
{
    return a->bucket_bytes / wk_sum_bytes(a->type);
}
// How many values of the sum have to be final for a bucket that begins at value `from`.
static inline uint64_t wk_comm_needed(const struct wk_comm_arrays *a, uint64_t from)
{
    return a->sums - a->behind - from;
}
static inline bool wk_comm_stopped(struct wk_comm *c)
{
    return atomic_load(&c->stop);
}
void wk_comm_slept(struct wk_comm *c); // counts it
// "The communicator is aborted", as an error.
LH_MUST lh_err wk_comm_leaves(void);

#endif
