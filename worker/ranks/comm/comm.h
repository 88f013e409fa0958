// A communicator and the thread that makes all of its calls: it implements struct
// wk_region_comm_ops for a region's state machine (region.h) by calls that may block.
//
// The region's thread gives the communicator's thread one operation at a time and polls for its
// end. An abort sets `stop` and rings the bell; every wait of an implementation checks one of them
// and returns, and the thread then frees its resources. If an implementation's call never returns,
// aborted() stays false and the state machine ends the process.
//
// Implementations: comm_tcp.c (sockets), comm_nccl.c (NCCL and a device).
#ifndef WK_COMM_H
#define WK_COMM_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/env/env.h"
#include "kernels/cuda/plugin.h"
#include "worker/ranks/comm/ready.h"
#include "worker/ranks/region.h"

// Large enough for an AllReduce over NVLink to run at the links' rate: smaller ones are dominated
// by their startup.
enum { WK_COMM_BUCKET_BYTES = 128 << 20 };
enum { WK_COMM_TEXT_BYTES = 256, WK_COMM_PARTS = 4, WK_COMM_LEAVE_MS = 5000 };

struct wk_comm_part { // memory that rank 0 sends to all
    void *data;
    size_t bytes;
};
// A device with this rank's parameters and gradient. The trainer records in `ready` behind all
// queued work whenever it reports final values, and before anything is shared.
struct wk_comm_device {
    const struct lk_gpu_backend *gpu;
    int index;
    struct wk_ready *ready;
};
// The memory of the collectives. Nothing else uses it during an operation, except values of `sum`
// that are not final yet.
struct wk_comm_arrays {
    struct wk_comm_part part[WK_COMM_PARTS]; // part 0: the parameters
    uint32_t parts;
    float *sum; // summed over all ranks
    uint64_t sums;
    uint64_t behind; // values at the end of `sum`, which are summed last
    float *last;     // [behind] of them, on the host; NULL: they are at the end of `sum`
    // This device holds `sum` and the parts whose bits are set in `there`; NULL: the host holds
    // all. Requires `last`; the same on all ranks.
    const struct wk_comm_device *device;
    uint32_t there;
    uint64_t bucket_bytes; // bytes between ranks; 0: WK_COMM_BUCKET_BYTES
    enum wk_sum_type type; // wire type between ranks
};
struct wk_comm_counts {
    uint64_t buckets; // buckets whose sum was begun
    uint64_t early;   // buckets begun while this rank still computed
    uint64_t sleeps;  // milliseconds slept for calls that took more than 200 us
};

struct wk_comm;
struct wk_comm_ops {
    // On the region's thread, while no operation is in progress.
    uint32_t (*version)(struct wk_comm *c);
    lh_err (*unique_id)(struct wk_comm *c, struct wk_nccl_id *out);
    // On the communicator's thread. Each blocks until it is done here, or `stop` is set. LH_ERR_IO:
    // the device is lost until the process ends; any other error: this communicator is.
    lh_err (*init)(struct wk_comm *c, const struct wk_nccl_id *id, uint32_t ranks, uint32_t rank);
    lh_err (*share)(struct wk_comm *c, const struct wk_comm_part *part, uint32_t parts);
    // Sums a bucket. It may finish later, but the `last` one and all before it must be done on
    // return.
    lh_err (*reduce)(struct wk_comm *c, float *bucket, uint64_t values, bool last);
    lh_err (*idle)(struct wk_comm *c);  // called at intervals while it is ready; NULL: not needed
    void (*end)(struct wk_comm *c);     // frees the resources of unique_id() and init()
    void (*destroy)(struct wk_comm *c); // frees `c`; its thread has ended
    // share() of one part and reduce() of a bucket that is not the last, in device memory, behind
    // the events of `ready`. Both NULL: the communicator accepts only host memory (comm_host.h).
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

struct wk_comm { // first member of an implementation's struct
    const struct wk_comm_ops *ops;
    struct wk_comm_arrays arrays;
    struct wk_comm_device device; // copy of *arrays.device, if set
    struct wk_comm_host *host;    // NULL: not opened yet; used by the communicator's thread
    atomic_bool stop;             // set: all waits must return
    int bell;                     // an eventfd, readable while `stop` is set
    int wake;                     // an eventfd: there is an order
    int gone;                     // an eventfd: the thread has ended
    int told;                     // an eventfd of the region: rung when an operation ends; -1: none
    int leave_ms; // patience of wk_comm_destroy(), set by the implementation; 0: WK_COMM_LEAVE_MS
    pthread_t thread;
    pthread_mutex_t lock; // guards the fields below
    enum wk_comm_order order;
    bool stands; // init() succeeded, and no abort followed
    enum wk_region_progress progress;
    bool aborted;
    struct wk_nccl_id id;
    uint32_t ranks, rank;
    enum wk_region_share what;
    bool reducing;  // REDUCE was ordered and has not succeeded yet
    uint64_t final; // final values, which may be summed; UINT64_MAX: all
    struct wk_comm_counts counts;
    char why[WK_COMM_TEXT_BYTES];     // text of the last failure
    char why_out[WK_COMM_TEXT_BYTES]; // the region's thread's copy of `why`
};

// Starts the thread. The implementation has set `ops`; a failure leaves nothing to undo.
LH_MUST lh_err wk_comm_start(struct wk_comm *c);
// Sets the arrays of the operations, before the first of them.
void wk_comm_bind(struct wk_comm *c, const struct wk_comm_arrays *arrays, int told);
struct wk_comm_counts wk_comm_counts(struct wk_comm *c); // any thread
// Ends the thread in any state and frees `c`. False: the thread did not end within leave_ms,
// because an abort hangs. It may still use `c`, the memory in `c->arrays`, and `c->told`: none of
// these may be freed or closed before the process ends. NULL is allowed and gives true. If no
// operation was begun, the result is true.
bool wk_comm_destroy(struct wk_comm *c);
// The table for struct wk_region_conf; its argument is the communicator.
extern const struct wk_region_comm_ops wk_comm_region;

// ---- for implementations, on the communicator's thread
// Values per bucket.
static inline uint64_t wk_comm_bucket_values(const struct wk_comm_arrays *a)
{
    return a->bucket_bytes / wk_sum_bytes(a->type);
}
// Number of final values that a bucket beginning at value `from` needs.
static inline uint64_t wk_comm_needed(const struct wk_comm_arrays *a, uint64_t from)
{
    return a->sums - a->behind - from;
}
static inline bool wk_comm_stopped(struct wk_comm *c)
{
    return atomic_load(&c->stop);
}
void wk_comm_slept(struct wk_comm *c); // counts a sleep
// "The communicator is aborted", as an error.
LH_MUST lh_err wk_comm_leaves(void);

#endif
