// One process of a region of peers: the thread that runs its state machine (region.h), its channel
// and its communicator, and a hand-over to the lane that computes.
//
// Threads. The region's thread owns channel and state machine and waits for nothing but the
// network. The compute lane asks for work and gives results; it alone waits here. Everything
// between them lies under one lock.
#ifndef WK_PEERS_H
#define WK_PEERS_H

#include "common/env/log.h"
#include "worker/ranks/comm/comm.h"
#include "worker/ranks/reduce.h"
#include "worker/stream/tls.h"

enum { WK_PEERS_NAME_BYTES = 64, WK_PEERS_TEXT_BYTES = 320 };

struct wk_peers_conf {
    struct lh_env *env; // clock and chance
    struct lh_log *log;
    char name[WK_PEERS_NAME_BYTES]; // the region's processes find each other by it
    // The address at which rank 0 listens, "host:port", and the certificates. Empty: all ranks are
    // on this host.
    const char *address;
    struct wk_tls_conf tls;
    uint32_t rank, ranks;
    enum wk_sum_type sum;  // As what gradients cross; the same for all ranks.
    uint64_t bucket_bytes; // A bucket of the sum; the same for all ranks. 0: WK_COMM_BUCKET_BYTES
    int64_t patience_ns;   // How long a rank may take for its part of a step.
    // How long a leader waits for ranks that are not there, before it goes on without them.
    int64_t gather_ns;
    struct wk_comm *comm;         // takes
    struct wk_reduce_state state; // borrows. With a device: all ranks have one.
    // Member, on the region's thread: the optimizer's step by the gradient, which is whole.
    lh_err (*apply)(void *arg);
    void *arg;
};

enum wk_peers_what {
    WK_PEERS_NOTHING, // never given to a caller that waits
    WK_PEERS_COMPUTE, // compute part `part` of `parts`, then wk_peers_computed()
    WK_PEERS_STEPPED, // leader: the gradient is whole, and the step is counted
    WK_PEERS_ENDED,   // the region is over here: `err`, `text`
};
struct wk_peers_task {
    uint32_t part, parts;
    struct lh_span payload; // until wk_peers_computed()
    lh_err err;             // LH_OK: the run is over
    char text[WK_PEERS_TEXT_BYTES];
};
struct wk_peers_status {
    uint64_t members; // A bit a rank, of the epoch that stands or stood last; 0: none did.
    uint64_t epochs, failures;
    uint64_t digest;                 // The digest of the parameters that the last step left.
    double bytes_per_s;              // A reduction's, at least; measured.
    struct wk_comm_counts counts;    // Buckets that were summed.
    char cause[WK_PEERS_TEXT_BYTES]; // why the last epoch failed
};

struct wk_peers;
LH_MUST lh_err wk_peers_start(const struct wk_peers_conf *conf, struct wk_peers **out);
// Ends the thread and frees everything. `over`: the run is, and the other ranks hear it. NULL is
// allowed. Nobody waits any more. False: the communicator's abort hangs, and the log says so
// (`region.hangs`). Its thread may still write to the arrays of `state`, and read its `params`:
// they stay as they are until the process ends, and so does what the region had for that thread. No
// memory of its device may be freed any more: that would wait for what the device has under way.
bool wk_peers_stop(struct wk_peers *p, bool over);
void wk_peers_status(struct wk_peers *p, struct wk_peers_status *out); // any thread

// ---- the compute lane
// Leader: a step is wanted, the `number`th, from 0; `changed`: the parameters are not those that
// the last one left. The arrays are the region's until STEPPED or ENDED.
void wk_peers_want(struct wk_peers *p, uint64_t number, struct lh_span payload, bool changed);
// Waits until there is something.
enum wk_peers_what wk_peers_wait(struct wk_peers *p, struct wk_peers_task *out);
void wk_peers_computed(struct wk_peers *p, bool fine);
// Between COMPUTE and wk_peers_computed(): values of the gradient from `from` on are final. They
// are the region's from here on, as all are from wk_peers_computed() on.
void wk_peers_final(struct wk_peers *p, uint64_t from);
// Whoever waits gets ENDED with LH_ERR_CANCELLED, from now on. Any thread.
void wk_peers_leave(struct wk_peers *p);

// A digest of memory, to tell what differs by accident: fast, and of no use against intent.
uint64_t wk_peers_digest(uint64_t before, const void *data, size_t bytes);
// The digest of the parameters, wherever they are; 0: their device failed. They are the caller's.
uint64_t wk_peers_digest_of(const struct wk_reduce_state *state);

#endif
