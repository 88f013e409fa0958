// A shard's state between two pushes: the base that progress is counted from, and on a device also
// the residual and the replica's parameters. One interface for arrays of the host (state_host.c)
// and of the device that trains (state_device.c).
//
// Host memory is authoritative: replica and residual are always there and on the disk, and a state
// on a device can be rebuilt from them at any time.
//
// The loop makes all calls, between two steps, except delta(), delta_at() and encode(): they run on
// any thread until their cut is over, and meanwhile only fold() and agrees() may be called. Of the
// states of all shards only one encodes at a time.
#ifndef WK_STATE_H
#define WK_STATE_H

#include "kernels/state/replica.h"
#include "worker/train/trainer.h"

// The shard's current memory on the host; borrowed during a call.
struct wk_shard_state_of {
    const struct lk_replica *replica;
    const float *residual;
    uint64_t residual_number; // rises with each new residual
};

struct wk_shard_state_conf {
    struct wk_trainer *trainer;           // borrows
    const struct lh_shard_layout *layout; // borrows
    float kappa;                          // factor of the residual in the view that training uses
};

// A record that the host's replica folded.
struct wk_shard_state_folded {
    struct lh_hash before; // the chain before the record
    bool admitted;         // it is an ADMIT with the fields below
    struct lk_codec codec; // codec of its payload
    struct lh_span plain;  // the checked payload
    float scale;
};

struct wk_shard_state;
struct wk_shard_state_ops {
    // The first view: base and parameters become theta - kappa * residual.
    void (*start)(struct wk_shard_state *st, const struct wk_shard_state_of *of);
    // Makes the next view during training; the last one before renew() counts. NULL: renew() makes
    // the view from the state at that time.
    void (*make)(struct wk_shard_state *st, const struct wk_shard_state_of *of);
    // Moves the parameters to that view and keeps their progress (kernels/view.h), between two
    // steps.
    void (*renew)(struct wk_shard_state *st, const struct wk_shard_state_of *of);
    // Copies the trainer's parameters for a cut, between two steps.
    void (*copy)(struct wk_shard_state *st);
    // out[values] = beta * residual + the cut's progress; beta 0: only the progress. `out` may be
    // the residual's own memory.
    lh_err (*delta)(struct wk_shard_state *st, const struct wk_shard_state_of *of, float beta,
                    float *out);
    // The same for values [from, from + n), into out[n]. Several threads with different ranges.
    // NULL: only delta().
    void (*delta_at)(struct wk_shard_state *st, const struct wk_shard_state_of *of, float beta,
                     uint64_t from, uint64_t n, float *out);
    // Begins the part of encode() that need not wait, so pushes of several shards are encoded while
    // the first is fetched. Called after copy(), with the same `of` and beta; delta() ends it.
    // NULL: encode() does all.
    void (*begin)(struct wk_shard_state *st, const struct wk_shard_state_of *of, float beta);
    // lk_encode() of the result of delta(), with its errors; `left` [values] becomes the remainder;
    // it may be the residual's own memory. LH_ERR_IO: the device failed. NULL: the caller encodes.
    lh_err (*encode)(struct wk_shard_state *st, const struct wk_shard_state_of *of, float beta,
                     float *left, struct lh_buf *out, struct lk_payload_info *info);
    // The cut is committed: its copy becomes the base, and `of` names the residual that encode()
    // left. A dropped cut needs no call: progress still counts from the old base.
    void (*committed)(struct wk_shard_state *st, const struct wk_shard_state_of *of);
    // The host's replica folded this record. NULL: the state has no own parameters.
    void (*fold)(struct wk_shard_state *st, const struct wk_shard_state_of *of,
                 const struct wk_shard_state_folded *folded);
    // Before a DIGEST record is folded: false if the state's parameters differ from the record or
    // from the host's replica; they are then refilled from the host. NULL: as for fold().
    bool (*agrees)(struct wk_shard_state *st, const struct wk_shard_state_of *of,
                   const struct lh_record *record);
    void (*destroy)(struct wk_shard_state *st);
};

struct wk_shard_state {
    const struct wk_shard_state_ops *ops;
    struct wk_shard_state_conf conf;
    // On the host: slot[number % 2] is the base. The other slot holds the next view, or the copy of
    // the current cut. NULL on a device.
    float *slot[2];
    uint64_t number;   // renewals and committed cuts so far
    uint64_t *changed; // lines of the next view that differ from the base (kernels/view.h)
};

// A state in arrays of the host: 8 bytes a parameter. LH_ERR_NO_MEMORY.
LH_MUST lh_err wk_shard_state_host(const struct wk_shard_state_conf *conf,
                                   struct wk_shard_state **out);

#endif
