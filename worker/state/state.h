// A shard's state between two pushes: the base that progress is counted from, and on a device the
// residual and the replica's parameters besides. Behind one interface: arrays of the host
// (state_host.c), or of the device that trains (state_device.c).
//
// The host's memory stays the truth: replica and residual are there and on the disk whatever holds
// the state, and a state on a device is made from them again at any time.
//
// Everything is the loop's between two steps, but delta() and encode(), which run on any thread
// until the cut that they are of is over; nothing but fold() and agrees() is called meanwhile. Of
// the states of all shards one encodes at a time.
#ifndef WK_STATE_H
#define WK_STATE_H

#include "kernels/state/replica.h"
#include "worker/train/trainer.h"

// The shard's memory on the host as it is at this moment; borrowed in a call alone.
struct wk_shard_state_of {
    const struct lk_replica *replica;
    const float *residual;
    uint64_t residual_number; // rises whenever the residual is another one
};

struct wk_shard_state_conf {
    struct wk_trainer *trainer;           // borrows
    const struct lh_shard_layout *layout; // borrows
    float kappa;                          // part of the residual that training stands on
};

// A record that the host's replica took.
struct wk_shard_state_folded {
    struct lh_hash before; // the chain before it
    bool admitted;         // it is an ADMIT, so:
    struct lk_codec codec; // its payload's
    struct lh_span plain;  // the payload, which was checked
    float scale;
};

struct wk_shard_state;
struct wk_shard_state_ops {
    // The first view: base and parameters become theta - kappa * residual.
    void (*start)(struct wk_shard_state *st, const struct wk_shard_state_of *of);
    // Makes the next view while training goes on; the last one before renew() counts. NULL: renew()
    // does it, and makes the view of what is there then.
    void (*make)(struct wk_shard_state *st, const struct wk_shard_state_of *of);
    // Moves the parameters to that view under their progress (kernels/view.h), between two steps.
    void (*renew)(struct wk_shard_state *st, const struct wk_shard_state_of *of);
    // A cut: the trainer's parameters are copied, between two steps.
    void (*copy)(struct wk_shard_state *st);
    // out[values] = beta * residual + the progress of that cut; beta 0: the progress alone.
    lh_err (*delta)(struct wk_shard_state *st, const struct wk_shard_state_of *of, float beta,
                    float *out);
    // Begins what encode() will do, as far as nothing has to be waited for: so pushes of several
    // shards are encoded while the first one is fetched. After copy(), of the same `of` and beta;
    // delta() ends it. NULL: encode() does all.
    void (*begin)(struct wk_shard_state *st, const struct wk_shard_state_of *of, float beta);
    // lk_encode() of what delta() gives, with its errors; `left` [values] becomes what is left of
    // it. LH_ERR_IO: the device failed. NULL: the caller encodes.
    lh_err (*encode)(struct wk_shard_state *st, const struct wk_shard_state_of *of, float beta,
                     float *left, struct lh_buf *out, struct lk_payload_info *info);
    // That cut is committed: its copy is the base, and `of` names the residual that encode() left.
    // One that is given up needs no call: the progress is counted from the base that stayed.
    void (*committed)(struct wk_shard_state *st, const struct wk_shard_state_of *of);
    // The host's replica took that record. NULL: the state has no parameters of its own.
    void (*fold)(struct wk_shard_state *st, const struct wk_shard_state_of *of,
                 const struct wk_shard_state_folded *folded);
    // Before a DIGEST record is folded: false where the state's parameters are others than the
    // record says; they are filled from the host then. NULL: as for fold().
    bool (*agrees)(struct wk_shard_state *st, const struct wk_shard_state_of *of,
                   const struct lh_record *record);
    void (*destroy)(struct wk_shard_state *st);
};

struct wk_shard_state {
    const struct wk_shard_state_ops *ops;
    struct wk_shard_state_conf conf;
    // On the host: slot[number % 2] is the base. The other one holds the next view, or the copy of
    // the cut that is on its way. NULL on a device.
    float *slot[2];
    uint64_t number;   // renewals and committed cuts so far
    uint64_t *changed; // lines in which the next view differs from the base (kernels/view.h)
};

// A state in arrays of the host: 8 bytes a parameter. LH_ERR_NO_MEMORY.
LH_MUST lh_err wk_shard_state_host(const struct wk_shard_state_conf *conf,
                                   struct wk_shard_state **out);

#endif
