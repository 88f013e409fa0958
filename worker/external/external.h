// A trainer of somebody else's beside the worker: the worker's end of the boundary
// (worker/docs/0001-boundary.md). The trainer links with liblonghaul.so (worker/client).
//
// external.c is a state machine without system calls: connections and memory are behind
// wk_external_io, what the worker makes of cuts is behind wk_external_ops. socket.c puts it on a
// Unix socket and a memfd. Everything happens on the loop thread of the worker's env.
#ifndef WK_EXTERNAL_H
#define WK_EXTERNAL_H

#include "common/base/buf.h"
#include "common/env/env.h"
#include "common/env/log.h"
#include "worker/external/channel.h"

struct wk_external;

struct wk_external_conf {
    struct lh_env *env;
    struct lh_log *log; // NULL: nothing is told
    uint64_t values;
    uint32_t parts;           // the shards
    const uint64_t *first;    // [parts + 1]: their first values; the last one is `values`
    uint32_t ranks;           // trainer processes
    uint32_t leases, journal; // entries a rank; 0: 4096 and 65536
    uint64_t run_on;          // steps that a trainer goes on without this process
    struct lh_hash manifest;
};

// The parameters that a correction leads to, without progress.
struct wk_external_view {
    const float *theta;    // [values of the part]
    const float *residual; // [values of the part]; NULL: theta it is
    float kappa;           // the view is theta - kappa * residual
};

struct wk_external_cut { // a part's parameters lie in its slot
    uint32_t part;
    uint64_t number, step, steps; // steps: those of this life that trained something
    uint64_t corrections;         // those up to this number are in it
    uint64_t tokens;              // all ranks', from this life's start to this cut
    bool last;                    // every rank's loop is over, and this holds all that they trained
};

// The worker's core as this module calls it. Hooks run on the loop thread, between the calls below;
// none may destroy the module. Long work (a delta, a commit) goes to a lane and comes back.
struct wk_external_ops {
    // The trainer's parameters, of all ranks the same: `tensors` of rank 0. LH_OK, or the text of
    // the error is the trainer's.
    lh_err (*described)(void *arg, const struct wk_channel_tensor *tensor, uint32_t tensors);
    // Fills out[values of the part]: theta - kappa * E for a life that begins; `final`: the
    // parameters that the run ended with.
    void (*view)(void *arg, uint32_t part, bool final, float *out);
    // The newest cut of this life and part that is committed in the core's own state; 0: none. It
    // is asked when a trainer outlived the worker.
    uint64_t (*committed)(void *arg, const uint8_t life[WK_CHANNEL_LIFE], uint32_t part);
    // All ranks are there. resumed: the life went on without us, and so do its cuts.
    void (*came)(void *arg, const uint8_t life[WK_CHANNEL_LIFE], bool resumed);
    // A unit was trained up to here. Told before the cut that holds it, and never for what no cut
    // holds; perhaps again after a restart.
    void (*trained)(void *arg, uint32_t rank, uint64_t unit, uint64_t upto, uint64_t step);
    // A figure of the loop's own, its loss say.
    void (*reported)(void *arg, const char *name, double value);
    // A wanted cut is whole. The core takes wk_external_delta(), makes it durable under the name
    // (life, part, number), and then calls wk_external_committed().
    void (*cut)(void *arg, const struct wk_external_cut *cut);
    // A rank's loop is over: the core wants cuts of every part until one says that it is the last,
    // and ends the run when it may.
    void (*ending)(void *arg);
    // The trainer is gone. Cuts that were whole are still to be committed; `lost` tokens of all
    // ranks are in none of them.
    void (*over)(void *arg, uint64_t lost, bool orderly);
    // They are committed: nothing of that life comes any more, and another may begin.
    void (*settled)(void *arg);
    // The trainer has other tokens of a unit than the run, and won't train it.
    void (*damaged)(void *arg, uint64_t unit);
};

// ---- the world below: socket.c, or a test
struct wk_external_io;
struct wk_external_io_ops {
    // A new memory of so many zeros that can neither grow nor shrink. There is one at a time.
    lh_err (*create)(struct wk_external_io *io, uint64_t bytes, void **out);
    // The memory that came with this connection's greeting, mapped. LH_ERR_MALFORMED: none, or it
    // is not sealed.
    lh_err (*adopt)(struct wk_external_io *io, uint64_t from, void **out, uint64_t *bytes);
    void (*forget)(struct wk_external_io *io); // unmaps it; also when there is none
    // Sends a message, with the memory's file; one that can't be sent is a connection that closes.
    void (*send)(struct wk_external_io *io, uint64_t to, struct lh_span message, bool memory);
    void (*drop)(struct wk_external_io *io, uint64_t connection); // nothing more comes from it
    void (*wake)(struct wk_external_io *io, const _Atomic uint32_t *word); // futex sleepers
};
struct wk_external_io {
    const struct wk_external_io_ops *ops;
};

// ---- the module over any world
LH_MUST lh_err wk_external_create(const struct wk_external_conf *conf,
                                  const struct wk_external_ops *ops, void *arg,
                                  struct wk_external_io *io, struct wk_external **out);
void wk_external_destroy(struct wk_external *x); // the life goes on without us; NULL is allowed
struct wk_external_io *wk_external_world(struct wk_external *x); // what it was created over
// Calls of the transport below. Connections have numbers of the world's own, never used twice.
void wk_external_opened(struct wk_external *x, uint64_t connection);
void wk_external_message(struct wk_external *x, uint64_t connection, struct lh_span bytes);
// The connection closed, or its process died.
void wk_external_closed(struct wk_external *x, uint64_t connection);

// ---- what the core asks for
bool wk_external_there(const struct wk_external *x);    // a life runs
uint64_t wk_external_step(const struct wk_external *x); // the last boundary that all ranks passed
// Boundaries of this life that had trained something, by the rank that has most of them.
uint64_t wk_external_steps(const struct wk_external *x);
uint64_t wk_external_tokens(const struct wk_external *x); // trained in this life, all ranks
// Wants the part's next cut when so many steps of this life have trained something. One that is
// wanted already comes no later than that. Nothing happens where nobody is there.
void wk_external_want(struct wk_external *x, uint32_t part, uint64_t steps);
// The delta of a whole cut: out[i] = base - cut of values [from, from + n) of the part, base being
// what the parameters were without progress. Any thread; several with different ranges; between
// cut() and committed(). LH_ERR_CORRUPT: the trainer wrote where it must not.
LH_MUST lh_err wk_external_delta(struct wk_external *x, uint32_t part, uint64_t from, uint64_t n,
                                 float *out);
// The cut is committed: its slot is the new base. A life that is settled with it may be followed by
// another one in this call.
void wk_external_committed(struct wk_external *x, uint32_t part, uint64_t number);
// The part's whole cut can't be taken, or it can't be renewed, which is the trainer's fault: the
// life is over, and the part's progress since the base is dropped.
void wk_external_drop(struct wk_external *x, uint32_t part, const char *why);
// The same where the whole cut holds a value that is not finite. `why` names the parameter.
void wk_external_spoiled(struct wk_external *x, uint32_t part, const char *why);
// The trainer fails: so many of its lives in a row ended so, with no cut of that part between them.
// NULL: it does not; else the last one's `why`.
enum { WK_LIVES_SPOILED = 3 };
const char *wk_external_failing(const struct wk_external *x);
// A correction that takes the parameters to this view, as far as they made no progress. Nothing is
// written where they are there. LH_ERR_BUSY: no room before the next commit. All processors make
// it, in one pass over the part.
LH_MUST lh_err wk_external_renew(struct wk_external *x, uint32_t part,
                                 const struct wk_external_view *view);
// The newest correction, and the newest that every rank added.
uint64_t wk_external_published(const struct wk_external *x, uint32_t part);
uint64_t wk_external_renewed(const struct wk_external *x, uint32_t part);
// The committed cut that is the base; number 0: the beginning of the life.
struct wk_external_cut wk_external_base(const struct wk_external *x, uint32_t part);
// True: a cut is wanted and not whole yet.
bool wk_external_wanted(const struct wk_external *x, uint32_t part);
// LH_ERR_BUSY: so many leases wait for the rank already.
LH_MUST lh_err wk_external_lease(struct wk_external *x, uint32_t rank, uint64_t unit, uint64_t from,
                                 uint64_t tokens);
uint64_t wk_external_waiting(const struct wk_external *x, uint32_t rank); // leases not taken yet
// Leases that the rank asked for in all: more than it got, where it found none. 0: it never did.
uint64_t wk_external_wants(const struct wk_external *x, uint32_t rank);
uint64_t wk_external_leased(const struct wk_external *x,
                            uint32_t rank); // leases written in this life
// Unit of the rank's n-th lease, one of the last `leases`: what the memory says.
uint64_t wk_external_lease_unit(const struct wk_external *x, uint32_t rank, uint64_t n);
int64_t wk_external_spent_ns(const struct wk_external *x); // boundaries, cuts, renewals of rank 0
// Own steps, where one rank's rates follow those; the run's clock, where every rank's follow that.
enum wk_channel_schedule wk_external_schedule(const struct wk_external *x);
void wk_external_credited(struct wk_external *x, uint64_t tokens); // the run's clock
// A change of the run's budget, as the plan declares it; the trainer's next life hears it.
void wk_external_budget(struct wk_external *x, uint64_t budget, uint64_t old, uint64_t changed);
void wk_external_drain(struct wk_external *x); // no further steps, after those two ahead
// The run does not end yet after all: a life that drains is over, and the next one begins.
void wk_external_undrain(struct wk_external *x);
// The run is over and every wanted cut is committed: the final parameters go to the trainer.
void wk_external_end(struct wk_external *x);

// ---- socket.c: on a Unix socket at `path`, which it makes and removes. The directory's modes say
// who may connect; other users are refused.
LH_MUST lh_err wk_external_listen(const struct wk_external_conf *conf,
                                  const struct wk_external_ops *ops, void *arg, const char *path,
                                  struct wk_external **out);
// No event comes any more, but those that are posted already; the memory stays. stop() follows when
// nothing reads it.
void wk_external_hush(struct wk_external *x);
void wk_external_stop(struct wk_external *x); // ends what listen() began

#endif
