// The outer optimizer: how the admitted pushes of a shard move its parameters
// (DESIGN.md#section-6).
//
// A part of the fold: its state is a pure function of the log, so every replica has the same bytes.
// The records hold all results of time or chance: the scale of each push, the plan's constants.
// fp32, one rounding per operation, each element by itself; the guard's sums in fp64 in index
// order.
//
// g = scale * q of one push, scale = eta / live * weight, so `live` pushes make one whole step.
// - sgd: theta -= g. No state, O(k) a push. The default: error feedback plays momentum's part.
// - delayed-nesterov (Async Local-SGD, arXiv 2401.09135): theta -= g at once; u += g; after every
//   N-th push m = mu*m + u, theta -= mu*m, u = 0. In BSP with N = live it is DiLoCo's synchronous
//   Nesterov; with N = 1 naive Nesterov under asynchrony, which diverges. 8 bytes a parameter.
//
// The guard: if the direction lasts, momentum multiplies a step by 1 / (1 - mu*rho), where rho is
// the cosine of successive merged updates. If eta / (1 - mu*rho) exceeds the plan's bound, mu is
// lowered to (1 - eta/bound) / rho for that step. rho is a moving mean (0.9) of the cosine of u and
// m, the discounted sum of the updates before u: it is at least as large when the direction lasts,
// and needs no further array.
#ifndef LK_OUTER_H
#define LK_OUTER_H

#include "common/format/plan.h"
#include "kernels/codec.h"

struct lk_outer {
    uint8_t kind;            // enum lh_optimizer
    uint32_t pending;        // admitted pushes since the last outer step
    uint64_t steps, cosines; // outer steps; the number that gave rho a cosine
    double rho;
    float momentum;  // momentum of the last step, after the guard
    uint64_t values; // values of the shard
    float *u, *m;    // [values]; NULL if the kind has none
};

// "sgd", "delayed-nesterov"; "unknown" for an invalid kind.
const char *lk_outer_name(uint8_t kind);
// Bytes of state per parameter, in addition to theta.
unsigned lk_outer_bytes_per_value(uint8_t kind);

// Reserves memory for the plan's kind, before anything changes. LH_ERR_NO_MEMORY.
LH_MUST lh_err lk_outer_reserve(struct lk_outer *o, const struct lh_plan *plan, uint64_t values);
// A plan takes effect: a change of kind resets the state, as does the phase CLOSE, after which no
// push comes. Needs lk_outer_reserve().
void lk_outer_plan(struct lk_outer *o, const struct lh_plan *plan);
// One admitted push. The payload must have passed lk_payload_check().
LH_MUST lh_err lk_outer_fold(struct lk_outer *o, const struct lh_plan *plan,
                             const struct lk_codec *codec, const struct lh_shard_layout *layout,
                             struct lh_span payload, float scale, float *theta);
void lk_outer_free(struct lk_outer *o);

// The effect of one record, to be repeated on the first values of a copy (checkpoint.h). Values are
// independent, except for the momentum of a step, which depends on all of them.
struct lk_outer_late {
    uint8_t kind, next; // the kinds before the record and after it: a plan may change it
    bool plan;          // the record is a plan; false: an admitted push
    bool stepped;       // the push was followed by an outer step
    bool flushed;       // the plan reset `u`
    float momentum;     // momentum of the step
};
// The effect of the record that turned `before` into `after`; their arrays are not read. `plan` is
// in force after it.
struct lk_outer_late lk_outer_what(const struct lk_outer *before, const struct lk_outer *after,
                                   const struct lh_plan *plan, bool is_plan);
bool lk_outer_changes(const struct lk_outer_late *late); // true: it changes some value
// Applies it to the values before `below` of theta and of the kinds' arrays; the payload is that of
// the push and was already folded.
void lk_outer_repeat(const struct lk_outer_late *late, const struct lk_codec *codec,
                     const struct lh_shard_layout *layout, struct lh_span payload, float scale,
                     uint64_t below, const struct lk_outer *arrays, float *theta);
// Memory for a kind's arrays, uninitialised. LH_ERR_NO_MEMORY.
LH_MUST lh_err lk_outer_allocate(struct lk_outer *o, uint8_t kind, uint64_t values);

// State as bytes, nothing for sgd: kind u8, pending u32, steps u64, cosines u64, rho f64, momentum
// f32, then u and m if the kind has them. read() needs memory by lk_outer_reserve() and consumes
// the rest of `c`; if it fails, discard `o`: LH_ERR_MALFORMED.
void lk_outer_write_head(const struct lk_outer *o, struct lh_buf *out); // without the arrays
void lk_outer_write(const struct lk_outer *o, struct lh_buf *out);
void lk_outer_parts(const struct lk_outer *o, struct lh_span part[2]); // its arrays
LH_MUST lh_err lk_outer_read(struct lk_outer *o, struct lh_cursor *c);

#endif
