// A region of ranks that are peers: one process a GPU, each with parameters and optimizer of its
// own (DESIGN.md#section-5). Their gradients are averaged by collectives; this is the state machine
// that keeps them together: rendezvous, deadlines, aborts, rebuilds.
//
// Rank 0, the leader, is the region's worker. What it holds is the truth: it counts the steps, and
// whoever differs from it gets its state when a communicator is made. A communicator lives for one
// epoch. Whatever goes wrong in it ends it for all: everybody aborts, and the leader makes a new
// one with the ranks that are there. The step that was under way is then trained again, from its
// start.
//
//   WAIT -> INIT -> SHARE -> STANDS -> (SHARE ->) COMPUTE -> REDUCE -> STANDS ...
//   and from anywhere: ABORTS -> WAIT, or END
//
// The sum begins in COMPUTE, with what the computation says is final; REDUCE is the rest of it.
//
//  1. A step is counted when the leader has applied it, once: its hook `stepped` says so.
//  2. Nobody computes or reduces in an epoch whose abort it has seen; nobody begins another one
//     before its own abort is over and its own computation has ended.
//  3. Every phase but WAIT and STANDS has a deadline; in STANDS the leader waits for the others'
//     READY at most init_ns, and a member knows by the leader's beats that it lives. What passes
//     its deadline fails the epoch; an abort that does ends the process, to be started again.
//  4. WK_REGION_TRIES epochs in a row without a step end the leader with the last cause.
//  5. The leader's state is read from wk_region_want() until `stepped` alone: in between it belongs
//     to the worker, who may change the parameters. What it changed reaches the others before the
//     next step's computation.
//  6. A member whose parameters are not the leader's fails the epoch and takes the leader's.
//  7. Nothing of a gradient is handed to the sum before the computation says that it is final; what
//     a failure finds summed already is worth nothing: the step begins from an empty gradient.
//
// Pure: no clock, no thread, no file. Time comes with each call; channel, collectives and training
// are tables. All calls on one thread, none of which blocks.
#ifndef WK_REGION_H
#define WK_REGION_H

#include "worker/ranks/region_message.h"

enum { WK_REGION_TRIES = 8 };

// The arrays that share() carries from rank 0 to all.
enum wk_region_share { WK_REGION_SHARE_ALL, WK_REGION_SHARE_PARAMETERS };
enum wk_region_progress { WK_REGION_BUSY, WK_REGION_OK, WK_REGION_WRONG, WK_REGION_STICKY };

// Messages in order, or lost with their connection. To a rank that is not
// connected: dropped.
struct wk_region_channel_ops {
    void (*send)(void *arg, uint32_t to, struct lh_span bytes);
};

static inline bool wk_region_in(uint64_t members, uint32_t rank)
{
    return members >> rank & 1;
}
static inline uint32_t wk_region_count(uint64_t members)
{
    return (uint32_t)__builtin_popcountll(members);
}
// The place of a rank among the members.
static inline uint32_t wk_region_place(uint64_t members, uint32_t rank)
{
    return wk_region_count(members & ((UINT64_C(1) << rank) - 1));
}

// Collectives: NCCL and a device's streams behind one table. One thing is under
// way at a time.
struct wk_region_comm_ops {
    uint32_t (*version)(void *arg);
    lh_err (*unique_id)(void *arg, struct wk_nccl_id *out);
    // Each begins and returns; poll() says how it goes on. A failure is told by
    // poll() as well.
    void (*init)(void *arg, const struct wk_nccl_id *id, uint32_t ranks, uint32_t rank);
    void (*share)(void *arg, enum wk_region_share what);
    // The gradient's sum over all, in buckets (reduce.h). The first `final` values in the order in
    // which they are summed are; called again as more are, UINT64_MAX at last, for all. poll() says
    // BUSY until then, and until all are summed.
    void (*reduce)(void *arg, uint64_t final);
    // WRONG: an error of its own or a peer's. STICKY: the device is lost until
    // the process ends.
    enum wk_region_progress (*poll)(void *arg);
    // Begins, in a thread of its own, whatever state the communicator is in, one
    // that is being made too; aborted() is false until it is over. Nothing of it
    // is used after.
    void (*abort)(void *arg);
    bool (*aborted)(void *arg);
    const char *(*why)(void *arg); // the last failure's text
};

// Training, on the ranks' own lane.
struct wk_region_work_ops {
    // Begins the gradient of part `part` of `parts` of this step, from nothing.
    // What an earlier one left is worthless.
    void (*compute)(void *arg, uint64_t step, uint32_t part, uint32_t parts,
                    struct lh_span payload);
    // While it computes: how many values at the gradient's end will not change any more.
    uint64_t (*final)(void *arg);
    enum wk_region_progress (*computed)(void *arg);
    lh_err (*apply)(void *arg); // the optimizer's step by the reduced gradient
    // Steps that are applied; the digest of all state that is shared. Leader's
    // state taken: both are the leader's.
    uint64_t (*step)(void *arg);
    uint64_t (*digest)(void *arg);
    uint64_t (*parameters)(void *arg); // the digest of the parameters alone
};

struct wk_region_hooks {                                    // each may be NULL
    void (*stepped)(void *arg, uint64_t step);              // leader: applied and counted
    void (*changed)(void *arg, uint64_t members);           // an epoch stands; 0: none does
    void (*failed)(void *arg, const char *cause);           // leader: an epoch did
    void (*ended)(void *arg, lh_err err, const char *text); // once
};

struct wk_region_conf {
    uint32_t rank, ranks;               // the leader is rank 0
    uint64_t life;                      // the process has it at random, never 0
    uint64_t share_bytes, reduce_bytes; // what share() and reduce() carry
    enum wk_sum_type sum;               // As what gradients cross; all ranks must have the same.
    uint64_t bucket_bytes;              // A bucket of the sum; all ranks must have the same.
    bool cuda;                          // GPUs train; of all ranks, or of none.
    int64_t gather_ns; // how long the leader waits for ranks that are not there yet
    int64_t hello_ns;  // between two HELLOs
    int64_t beat_ns, silence_ns;
    int64_t init_ns;    // until a communicator stands on all ranks
    int64_t compute_ns; // until a rank's part is computed
    int64_t op_ns;      // a collective: this, and op_factor times its bytes over the
                        // bandwidth
    uint32_t op_factor;
    double bytes_per_s; // expected until it is measured
    int64_t abort_ns;   // then the process must end
    const struct wk_region_channel_ops *channel;
    const struct wk_region_comm_ops *comm;
    const struct wk_region_work_ops *work;
    const struct wk_region_hooks *hooks;
    void *channel_arg, *comm_arg, *work_arg, *hooks_arg;
};

enum wk_region_phase {
    WK_REGION_WAIT,
    WK_REGION_INIT,
    WK_REGION_SHARE,
    WK_REGION_STANDS, // READY above
    WK_REGION_COMPUTE,
    WK_REGION_REDUCE,
    WK_REGION_ABORTS,
    WK_REGION_END,
};

struct wk_region;
// Copies `conf`.
LH_MUST lh_err wk_region_create(const struct wk_region_conf *conf, int64_t now_ns,
                                struct wk_region **out);
void wk_region_destroy(struct wk_region *r); // nothing is under way any more; NULL is allowed

void wk_region_tick(struct wk_region *r,
                    int64_t now_ns); // often: every millisecond
// A message of a rank; one that is malformed, or of somebody else than `from`,
// is dropped and told.
LH_MUST lh_err wk_region_receive(struct wk_region *r, uint32_t from, struct lh_span bytes,
                                 int64_t now_ns);
void wk_region_lost(struct wk_region *r, uint32_t rank,
                    int64_t now_ns); // its connection is

// Leader: the next step may be trained, on this payload, which is copied. One
// at a time; it stands until `stepped`, through any number of epochs. `changed`: the parameters are
// not those that the last step left.
LH_MUST lh_err wk_region_want(struct wk_region *r, struct lh_span payload, bool changed);
// Leader: the run is over; ranks that are connected end without an error.
void wk_region_over(struct wk_region *r);

enum wk_region_phase wk_region_phase_of(const struct wk_region *r);
uint64_t wk_region_members(const struct wk_region *r); // 0: no epoch stands
// Bytes a second of a reduction, measured. The backward pass hides a part of it, so this is a lower
// bound.
double wk_region_bandwidth(const struct wk_region *r);

#endif
