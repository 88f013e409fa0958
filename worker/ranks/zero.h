// ZeRO-1 (Rajbhandari et al. 2020, stage 1): each rank of a region owns a part of the parameters,
// holds the optimizer's moments of it, and updates it; all ranks hold all parameters.
//
// The flat parameters are cut into buckets, and each bucket into one slice a member: place k of N
// owns the k-th. Slices are whole blocks of WK_UPDATE_BLOCK values, on a device of its pieces'
// size, but for the last of all; at a bucket's end they may be short or empty. So every bucket's
// sum goes to all owners alike, and the gradient's norm has the same bits as one rank's (update.h).
//
// Where ranks train on devices, parameters, gradient, moments and mirror are the device's
// (zero_device.h); `squares`, `packed` and `stage` are on the host always. Moments that are
// collected or dealt pass by `stage`, or by the communicator's own memory of the device where it
// works there.
//
// A step makes new parameters in the gradient's place, and new moments beside the old ones, which
// stay until the next step makes its own. wk_zero_commit() makes the new ones hold. So a step that
// was cut off is forgotten, one that the leader has counted is taken, and one that it has not is
// taken back, by which of both moments are believed: wk_zero_cut() says.
//
// Rank 0 has whole moments besides, the mirror. All owners' are collected into it after every
// WK_ZERO_COLLECT_STEPS-th step, as the next one begins, and whenever a communicator of other
// members is made, before they are dealt anew. Where its members are those of the one before, and
// none lost its moments, all keep what they hold.
// What a lost rank owned is taken from there.
//
// Threads: one at a time has it; the communicator's while an operation is under way.
#ifndef WK_ZERO_H
#define WK_ZERO_H

#include <stdatomic.h>

#include "worker/ranks/reduce.h"
#include "worker/ranks/region.h"
#include "worker/ranks/zero_device.h"

enum { WK_ZERO_COLLECT_STEPS = 32 };

// Moments of the own slices, one after the other, the first bucket's first.
struct wk_zero_moments {
    float *m, *v;
    uint64_t step; // after which they are; WK_REGION_NO_STEP: worth nothing
};

struct wk_zero {
    struct wk_reduce_state state;  // Borrows.
    struct wk_zero_device *device; // NULL: the arrays are on the host
    float *mirror_m, *mirror_v;    // The mirror, rank 0's alone. Borrows.
    uint32_t rank;
    uint64_t block, bucket; // values
    uint32_t ranks, place;  // The own moments are this place's; ranks 0: there are none.
    struct wk_zero_moments held[2];
    unsigned now;             // Which of both holds.
    struct wk_region_cut cut; // What the next share has to do.
    bool unlike;              // This rank does not hold what the leader believes.
    bool whole;               // The mirror is that of the step that holds, by a cut.
    uint64_t mirrored;        // After which step the mirror is, all of it.
    // The step under way.
    struct wk_update update;
    bool keeps;         // Its gradient's place has the values before it, afterwards.
    double *squares;    // Those of all pieces, in order.
    double *packed;     // [ranks][packed_each]: what each owner has of them
    size_t packed_each; // doubles
    bool bad;           // The norm is not finite.
    double norm;
    float *stage;             // room for what an operation has
    _Atomic uint64_t crossed; // Bytes of moments that crossed between this rank's device and host.
};

struct wk_zero_bucket { // values [from, end), `each` of them a slice
    uint64_t from, end, each;
};

// `values`: of a bucket, at least; it becomes whole blocks. LH_ERR_NO_MEMORY; LH_ERR_IO of a
// device.
LH_MUST lh_err wk_zero_create(const struct wk_reduce_state *state, uint32_t rank, uint64_t values,
                              struct wk_zero **out);
void wk_zero_destroy(struct wk_zero *z);        // NULL is allowed
uint64_t wk_zero_room(const struct wk_zero *z); // bytes of `stage`
uint64_t wk_zero_buckets(const struct wk_zero *z);
struct wk_zero_bucket wk_zero_bucket(const struct wk_zero *z, uint64_t i, uint32_t ranks);
// A place's slice: values [*from, *from + the result).
uint64_t wk_zero_slice(const struct wk_zero_bucket *b, uint32_t place, uint64_t *from);

// ---- the region's thread, nothing under way
// An epoch begins. The moments after cut->step are believed from here on, where this rank has them.
void wk_zero_cut(struct wk_zero *z, const struct wk_region_cut *cut);
void wk_zero_steps(const struct wk_zero *z, uint64_t held[2]); // after which the own moments are
// The new values and moments hold. With `keeps` value and gradient change places for it, else the
// gradient's place is worth nothing. LH_ERR_NON_FINITE, on all ranks.
LH_MUST lh_err wk_zero_commit(struct wk_zero *z);

// ---- the compute lane, before the step: what becomes of the gradient
void wk_zero_prepare(struct wk_zero *z, const struct wk_update *update, bool keeps);

// ---- the communicator's thread
// Makes room for the slices of the cut's members; what was held is gone.
LH_MUST lh_err wk_zero_deal(struct wk_zero *z);
// Moments, held ones or the mirror's, from one place to another where they are.
LH_MUST lh_err wk_zero_copy(struct wk_zero *z, float *to, const float *from, uint64_t values);
// The same to the host and from there; `crossed` counts what was a device's.
LH_MUST lh_err wk_zero_get(struct wk_zero *z, float *to, const float *moments, uint64_t values);
LH_MUST lh_err wk_zero_put(struct wk_zero *z, float *moments, const float *from, uint64_t values);
// Once the own slices' sums are there: their squares, at packed[place].
LH_MUST lh_err wk_zero_squares(struct wk_zero *z);
// Once all owners' squares are: the own slices' new values, in the gradient's place. It looks at
// `stop` before each bucket, because a large rank's update takes longer than an abort may: once it
// is raised, LH_ERR_CANCELLED, and the step is forgotten. A gradient that is not finite is told by
// wk_zero_commit().
LH_MUST lh_err wk_zero_update(struct wk_zero *z, const atomic_bool *stop);

#endif
