// A region of ranks that are peers: one process per GPU, each with its own parameters and optimizer
// (DESIGN.md#section-5). Collectives average their gradients; this state machine keeps the ranks
// together: rendezvous, deadlines, aborts, rebuilds.
//
// Rank 0, the leader, is the region's worker. Its state is authoritative: it counts the steps, and
// a rank that differs from it gets its state when a communicator is made. A communicator lives for
// one epoch. Any failure in it ends it for all: all ranks abort, and the leader makes a new one
// with the ranks that are present. The interrupted step is then trained again from its start.
//
//   WAIT -> INIT -> SHARE -> STANDS -> (SHARE ->) COMPUTE -> REDUCE -> STANDS ...
//   and from anywhere: ABORTS -> WAIT, or END
//
// The sum begins in COMPUTE, with values that the computation reports as final; REDUCE does the
// rest.
//
//  1. A step is counted once, when the leader has applied it and its hook `stepped` has run.
//  2. No rank computes or reduces in an epoch whose abort it has seen, or begins another epoch
//     before its own abort and its own computation have ended.
//  3. Every phase except WAIT and STANDS has a deadline. In STANDS the leader waits at most init_ns
//     for the others' READY, and the leader's beats show a member that the leader is alive. A
//     missed deadline fails the epoch; a missed deadline of an abort ends the process, to be
//     restarted.
//  4. WK_REGION_TRIES epochs in a row without a step end the leader with the last cause.
//  5. The leader's state is read only from wk_region_want() until `stepped`. Otherwise it belongs
//     to the worker, which may change the parameters. Its changes reach the others before the next
//     step's computation.
//  6. A member whose parameters differ from the leader's fails the epoch and takes the leader's.
//  7. No value of a gradient enters the sum before the computation reports it as final. After a
//     failure partial sums are dropped: the step restarts from an empty gradient.
//
// Pure: no clock, no thread, no file. Each call brings the time; channel, collectives and training
// are tables. All calls are on one thread, and none blocks.
#ifndef WK_REGION_H
#define WK_REGION_H

#include "worker/ranks/region_message.h"

enum { WK_REGION_TRIES = 8 };

// The arrays that share() sends from rank 0 to all.
enum wk_region_share { WK_REGION_SHARE_ALL, WK_REGION_SHARE_PARAMETERS };
enum wk_region_progress { WK_REGION_BUSY, WK_REGION_OK, WK_REGION_WRONG, WK_REGION_STICKY };

static inline bool wk_region_in(uint64_t members, uint32_t rank)
{
    return members >> rank & 1;
}
static inline uint32_t wk_region_count(uint64_t members)
{
    return (uint32_t)__builtin_popcountll(members);
}
// The rank's index among the members.
static inline uint32_t wk_region_place(uint64_t members, uint32_t rank)
{
    return wk_region_count(members & ((UINT64_C(1) << rank) - 1));
}

// Collectives: NCCL and a device's streams behind one table. One operation at a time.
struct wk_region_comm_ops {
    uint32_t (*version)(void *arg);
    lh_err (*unique_id)(void *arg, struct wk_nccl_id *out);
    // Each begins an operation and returns; poll() reports its progress and any failure.
    void (*init)(void *arg, const struct wk_nccl_id *id, uint32_t ranks, uint32_t rank);
    void (*share)(void *arg, enum wk_region_share what);
    // The gradient's sum over all ranks, in buckets (reduce.h). The first `final` values in summing
    // order are final. Called again as more are; the last call has UINT64_MAX, for all. poll() says
    // BUSY until then, and until all are summed.
    void (*reduce)(void *arg, uint64_t final);
    // WRONG: this rank or a peer failed. STICKY: the device is lost until the process ends.
    enum wk_region_progress (*poll)(void *arg);
    // Begins an abort in its own thread, in any state of the communicator, even while it is being
    // made. aborted() is false until it has ended. The communicator is not used afterwards.
    void (*abort)(void *arg);
    bool (*aborted)(void *arg);
    const char *(*why)(void *arg); // text of the last failure
};

// The process around the state machine.
struct wk_region_ops {
    // Delivers messages in order, or loses them with their connection. Drops a message to a rank
    // that is not connected.
    void (*send)(void *arg, uint32_t to, struct lh_span bytes);
    // ---- training, on the ranks' own lane
    // Begins the gradient of part `part` of `parts` of this step, from zeros. Earlier results are
    // invalid.
    void (*compute)(void *arg, uint64_t step, uint32_t part, uint32_t parts,
                    struct lh_span payload);
    // While it computes: the number of final values at the gradient's end.
    uint64_t (*final)(void *arg);
    enum wk_region_progress (*computed)(void *arg);
    lh_err (*apply)(void *arg); // the optimizer's step from the reduced gradient
    // Steps applied; digest of all shared state. After the leader's state was taken, both equal the
    // leader's.
    uint64_t (*step)(void *arg);
    uint64_t (*digest)(void *arg);
    uint64_t (*parameters)(void *arg); // digest of only the parameters
    // ---- events
    void (*stepped)(void *arg);                             // leader: a step is applied and counted
    void (*changed)(void *arg, uint64_t members);           // an epoch is ready; 0: none is
    void (*failed)(void *arg, const char *cause);           // leader: an epoch failed
    void (*ended)(void *arg, lh_err err, const char *text); // once
};

struct wk_region_conf {
    uint32_t rank, ranks;               // the leader is rank 0
    uint64_t life;                      // random for each process, never 0
    uint64_t share_bytes, reduce_bytes; // bytes sent by share() and reduce()
    enum wk_sum_type sum;               // wire type of gradients; the same on all ranks
    uint64_t bucket_bytes;              // bucket size of the sum; the same on all ranks
    bool cuda;                          // GPUs train; the same on all ranks
    int64_t gather_ns;                  // time that the leader waits for absent ranks
    int64_t hello_ns;                   // interval between two HELLOs
    int64_t beat_ns, silence_ns;
    int64_t init_ns;    // limit until a communicator is ready on all ranks
    int64_t compute_ns; // limit for a rank's part
    int64_t op_ns;      // a collective: this plus op_factor * bytes / bandwidth
    uint32_t op_factor;
    double bytes_per_s; // initial estimate
    int64_t abort_ns;   // limit of an abort; then the process must end
    const struct wk_region_comm_ops *comm;
    void *comm_arg;
    const struct wk_region_ops *ops;
    void *arg;
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
void wk_region_destroy(struct wk_region *r); // no operation may be in progress; NULL is allowed

void wk_region_tick(struct wk_region *r,
                    int64_t now_ns); // often: every millisecond
// Takes a message of rank `from`. Drops and reports one that is malformed or from another rank.
LH_MUST lh_err wk_region_receive(struct wk_region *r, uint32_t from, struct lh_span bytes,
                                 int64_t now_ns);
void wk_region_lost(struct wk_region *r, uint32_t rank,
                    int64_t now_ns); // the rank's connection was lost

// Leader: the next step may be trained on this payload, which is copied. One at a time; it stays
// wanted until `stepped`, through any number of epochs. `changed`: the parameters changed since the
// last step.
LH_MUST lh_err wk_region_want(struct wk_region *r, struct lh_span payload, bool changed);
// Leader: the run is over; connected ranks end without an error.
void wk_region_over(struct wk_region *r);

// Measured bytes per second of a reduction: a lower bound, because the backward pass hides a part
// of it.
double wk_region_bandwidth(const struct wk_region *r);

#endif
