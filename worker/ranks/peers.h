// One process of a region of peers: the thread that runs its state machine (region.h), its channel
// and its communicator, and a hand-over to the compute lane.
//
// Threads. The region's thread owns the channel and the state machine and waits only for the
// network. The compute lane asks for work and gives results; only it waits here. One lock guards
// the data between them.
#ifndef WK_PEERS_H
#define WK_PEERS_H

#include "common/env/log.h"
#include "worker/ranks/comm/comm.h"
#include "worker/ranks/reduce.h"
#include "worker/ranks/stream/tls.h"

enum { WK_PEERS_NAME_BYTES = 64, WK_PEERS_TEXT_BYTES = 320 };

struct wk_peers_conf {
    struct lh_env *env; // clock and chance
    struct lh_log *log;
    char name[WK_PEERS_NAME_BYTES]; // name by which the region's processes find each other
    // The address at which rank 0 listens, "host:port", and the certificates. Empty: all ranks are
    // on this host.
    const char *address;
    struct wk_tls_conf tls;
    uint32_t rank, ranks;
    enum wk_sum_type sum; // wire type of gradients; the same for all ranks
    uint64_t
        bucket_bytes;    // bucket size of the sum; the same for all ranks. 0: WK_COMM_BUCKET_BYTES
    int64_t patience_ns; // time limit for a rank's part of a step
    // How long a leader waits for absent ranks before it continues without them.
    int64_t gather_ns;
    struct wk_comm *comm;         // takes
    struct wk_reduce_state state; // borrows; all ranks have a device, or none
    // Member, on the region's thread: the optimizer's step from the complete gradient.
    lh_err (*apply)(void *arg);
    void *arg;
};

enum wk_peers_what {
    WK_PEERS_NOTHING, // internal: no work yet
    WK_PEERS_COMPUTE, // compute part `part` of `parts`, then wk_peers_computed()
    WK_PEERS_STEPPED, // leader: the gradient is complete, and the step is counted
    WK_PEERS_ENDED,   // this process left the region: `err`, `text`
};
struct wk_peers_task {
    uint32_t part, parts;
    struct lh_span payload; // valid until wk_peers_computed()
    lh_err err;             // LH_OK: the run is over
    char text[WK_PEERS_TEXT_BYTES];
};
struct wk_peers_status {
    uint64_t members; // one bit per rank, of the current or last epoch; 0: none
    uint64_t epochs, failures;
    uint64_t digest;                 // digest of the parameters after the last step
    double bytes_per_s;              // measured lower bound of a reduction's rate
    struct wk_comm_counts counts;    // buckets summed
    char cause[WK_PEERS_TEXT_BYTES]; // why the last epoch failed
};

struct wk_peers;
LH_MUST lh_err wk_peers_start(const struct wk_peers_conf *conf, struct wk_peers **out);
// Ends the thread and frees everything. `over`: the run is over, and the other ranks are told. NULL
// is allowed. No caller waits any more. False: the communicator's abort hangs, and the log says so
// (`region.hangs`). Its thread may still write to the arrays of `state` and read its `params`, so
// these and the region's memory must stay until the process ends. Device memory must not be freed
// either: that would wait for the device's pending work.
bool wk_peers_stop(struct wk_peers *p, bool over);
void wk_peers_status(struct wk_peers *p, struct wk_peers_status *out); // any thread

// ---- the compute lane
// Leader: requests step `number`, from 0; `changed`: the parameters changed since the last step.
// The region owns the arrays until STEPPED or ENDED.
void wk_peers_want(struct wk_peers *p, uint64_t number, struct lh_span payload, bool changed);
// Waits for the next task.
enum wk_peers_what wk_peers_wait(struct wk_peers *p, struct wk_peers_task *out);
void wk_peers_computed(struct wk_peers *p, bool fine);
// Between COMPUTE and wk_peers_computed(): values of the gradient from `from` on are final. The
// region owns them from here on, and all values from wk_peers_computed() on.
void wk_peers_final(struct wk_peers *p, uint64_t from);
// From now on waiting callers get ENDED with LH_ERR_CANCELLED. Any thread.
void wk_peers_leave(struct wk_peers *p);

// A digest of memory to detect accidental differences: fast, but no protection against intent.
uint64_t wk_peers_digest(uint64_t before, const void *data, size_t bytes);
// The digest of the parameters, on host or device; 0: the device failed. The caller owns them.
uint64_t wk_peers_digest_of(const struct wk_reduce_state *state);

#endif
