// The worker's end of the boundary to an external trainer (worker/docs/0001-boundary.md). The
// trainer links with liblonghaul.so (worker/client).
//
// external.c is a state machine without system calls: wk_external_io holds the connections and the
// memory, wk_external_ops the worker's reaction to cuts. socket.c implements it on a Unix socket
// and a memfd. Everything runs on the loop thread of the worker's env.
#ifndef WK_EXTERNAL_H
#define WK_EXTERNAL_H

#include "common/base/buf.h"
#include "common/env/env.h"
#include "common/env/log.h"
#include "worker/external/channel.h"

struct wk_external;

struct wk_external_conf {
    struct lh_env *env;
    struct lh_log *log; // NULL: no log
    uint64_t values;
    uint32_t parts;           // the shards
    const uint64_t *first;    // [parts + 1]: their first values; the last one is `values`
    uint32_t ranks;           // trainer processes
    uint32_t leases, journal; // entries per rank; 0: 4096 and 65536
    uint64_t run_on;          // steps that a trainer may make without this process
    struct lh_hash manifest;
};

// The parameters after a correction, without progress.
struct wk_external_view {
    const float *theta;    // [values of the part]
    const float *residual; // [values of the part]; NULL: the view is theta
    float kappa;           // the view is theta - kappa * residual
    // [(values + 63) / 64]: bit i % 64 of changed[i / 64] is value i. Values without a bit are as
    // in the view of the last correction, or of the life's start. NULL: all may have changed.
    const uint64_t *changed;
};

struct wk_external_cut { // a part's parameters, complete in its slot
    uint32_t part;
    uint64_t number, step, steps; // steps: those of this life that trained
    uint64_t corrections;         // contains the corrections up to this number
    uint64_t tokens;              // tokens of all ranks, from this life's start to this cut
    bool last;                    // every rank's loop is over, and this holds all of its training
};

// The worker's core as this module calls it. Hooks run on the loop thread, between the calls below;
// none may destroy the module. Long work (a delta, a commit) goes to a lane.
struct wk_external_ops {
    // Describes the trainer's parameters: `tensors` of rank 0, the same for all ranks. An error's
    // text goes to the trainer.
    lh_err (*described)(void *arg, const struct wk_channel_tensor *tensor, uint32_t tensors);
    // Fills out[values of the part]: theta - kappa * E for a life that begins; `final`: the run's
    // final parameters.
    void (*view)(void *arg, uint32_t part, bool final, float *out);
    // Returns the newest committed cut of this life and part in the core's own state; 0: none.
    // Called when a trainer outlived the worker.
    uint64_t (*committed)(void *arg, const uint8_t life[WK_CHANNEL_LIFE], uint32_t part);
    // All ranks are connected. resumed: the life and its cuts continued without this process.
    void (*came)(void *arg, const uint8_t life[WK_CHANNEL_LIFE], bool resumed);
    // A unit was trained up to here. Called before the cut that holds it, and only for training
    // that a cut holds; may repeat after a restart.
    void (*trained)(void *arg, uint32_t rank, uint64_t unit, uint64_t upto, uint64_t step);
    // A figure reported by the loop, such as its loss.
    void (*reported)(void *arg, const char *name, double value);
    // A wanted cut is whole. The core takes wk_external_delta(), makes it durable under the name
    // (life, part, number), and then calls wk_external_committed().
    void (*cut)(void *arg, const struct wk_external_cut *cut);
    // A rank's loop is over: the core requests cuts of every part until one is marked as the last,
    // and then ends the run when possible.
    void (*ending)(void *arg);
    // The trainer is gone. Its whole cuts are still to be committed; `lost` tokens of all ranks are
    // in none of them.
    void (*over)(void *arg, uint64_t lost, bool orderly);
    // These cuts are committed: no more hooks for that life; another may begin.
    void (*settled)(void *arg);
    // The trainer's tokens of a unit differ from the run's; it won't train the unit.
    void (*damaged)(void *arg, uint64_t unit);
};

// ---- the world below: socket.c, or a test
struct wk_external_io;
struct wk_external_io_ops {
    // Creates a zeroed memory of this size that can neither grow nor shrink. There is one at a
    // time.
    lh_err (*create)(struct wk_external_io *io, uint64_t bytes, void **out);
    // Maps the memory that came with this connection's greeting. LH_ERR_MALFORMED: none came, or it
    // is not sealed.
    lh_err (*adopt)(struct wk_external_io *io, uint64_t from, void **out, uint64_t *bytes);
    void (*forget)(struct wk_external_io *io); // unmaps it; also if there is none
    // Sends a message, with the memory's file if `memory`; a failure closes the connection.
    void (*send)(struct wk_external_io *io, uint64_t to, struct lh_span message, bool memory);
    void (*drop)(struct wk_external_io *io, uint64_t connection);          // no more events from it
    void (*wake)(struct wk_external_io *io, const _Atomic uint32_t *word); // futex sleepers
};
struct wk_external_io {
    const struct wk_external_io_ops *ops;
};

// ---- the module over any world
LH_MUST lh_err wk_external_create(const struct wk_external_conf *conf,
                                  const struct wk_external_ops *ops, void *arg,
                                  struct wk_external_io *io, struct wk_external **out);
void wk_external_destroy(struct wk_external *x); // its life goes on without it; NULL is allowed
struct wk_external_io *wk_external_world(struct wk_external *x); // the world it was created over
// Called by the transport below. The world numbers the connections and never reuses a number.
void wk_external_opened(struct wk_external *x, uint64_t connection);
void wk_external_message(struct wk_external *x, uint64_t connection, struct lh_span bytes);
// The connection closed, or its process died.
void wk_external_closed(struct wk_external *x, uint64_t connection);

// ---- called by the core
bool wk_external_there(const struct wk_external *x);    // a life is running
uint64_t wk_external_step(const struct wk_external *x); // the last boundary passed by all ranks
// Boundaries of this life that trained; the maximum over the ranks.
uint64_t wk_external_steps(const struct wk_external *x);
uint64_t wk_external_tokens(const struct wk_external *x); // trained in this life, by all ranks
// Requests the part's next cut once this many steps of this life have trained. A cut already
// requested comes no later than that. Ignored if no trainer is connected.
void wk_external_want(struct wk_external *x, uint32_t part, uint64_t steps);
// The delta of a whole cut: out[i] = base - cut of values [from, from + n) of the part; the base is
// the parameters without progress. Any thread; several with different ranges; between cut() and
// committed(). LH_ERR_CORRUPT: the trainer wrote where it must not.
LH_MUST lh_err wk_external_delta(struct wk_external *x, uint32_t part, uint64_t from, uint64_t n,
                                 float *out);
// While it is held, once for each call with `on`, no life begins: `view` has nothing to read.
void wk_external_hold(struct wk_external *x, bool on);
// The cut is committed: its slot is the new base. If that settles the life, the next one may begin
// within this call.
void wk_external_committed(struct wk_external *x, uint32_t part, uint64_t number);
// The part's whole cut can't be used, or the part can't be renewed, because of the trainer: ends
// the life and drops the part's progress since the base.
void wk_external_drop(struct wk_external *x, uint32_t part, const char *why);
// The same if the whole cut holds a value that is not finite. `why` names the parameter.
void wk_external_spoiled(struct wk_external *x, uint32_t part, const char *why);
// Why the trainer fails: this many lives in a row ended with a non-finite value, with no committed
// cut of that part between them. NULL: it does not fail; else the last life's `why`.
enum { WK_LIVES_SPOILED = 3 };
const char *wk_external_failing(const struct wk_external *x);
// Publishes a correction that moves the parameters to this view, apart from their progress. Writes
// nothing if they are equal. LH_ERR_BUSY: no space before the next commit. Runs on all processors,
// in one pass over the part, or over its changed values.
LH_MUST lh_err wk_external_renew(struct wk_external *x, uint32_t part,
                                 const struct wk_external_view *view);
// The newest correction, and the newest one that every rank added.
uint64_t wk_external_published(const struct wk_external *x, uint32_t part);
uint64_t wk_external_renewed(const struct wk_external *x, uint32_t part);
// The committed cut that is the base; number 0: the beginning of the life.
struct wk_external_cut wk_external_base(const struct wk_external *x, uint32_t part);
// True: a cut is requested and not whole yet.
bool wk_external_wanted(const struct wk_external *x, uint32_t part);
// LH_ERR_BUSY: the rank's lease queue is full.
LH_MUST lh_err wk_external_lease(struct wk_external *x, uint32_t rank, uint64_t unit, uint64_t from,
                                 uint64_t tokens);
uint64_t wk_external_waiting(const struct wk_external *x, uint32_t rank); // leases not taken yet
// Leases that the rank requested in total, including unmet requests. 0: none.
uint64_t wk_external_wants(const struct wk_external *x, uint32_t rank);
uint64_t wk_external_leased(const struct wk_external *x,
                            uint32_t rank); // leases written in this life
// Unit of the rank's n-th lease, one of the last `leases`, as read from the memory.
uint64_t wk_external_lease_unit(const struct wk_external *x, uint32_t rank, uint64_t n);
int64_t wk_external_spent_ns(const struct wk_external *x); // rank 0: boundaries, cuts, renewals
// Own steps if any rank's rates follow them; the run's clock if every rank's rates follow it.
enum wk_channel_schedule wk_external_schedule(const struct wk_external *x);
// The loop's report of its noise: the least sigma, the highest rate and clip of all ranks.
// False: a rank reported none, or numbers that are none.
struct wk_external_noise {
    double sigma, rate, clip;
};
bool wk_external_noise(const struct wk_external *x, struct wk_external_noise *out);
void wk_external_credited(struct wk_external *x, uint64_t tokens); // the run's clock
// A change of the run's budget, as the plan declares it; takes effect in the trainer's next life.
void wk_external_budget(struct wk_external *x, uint64_t budget, uint64_t old, uint64_t changed);
void wk_external_drain(struct wk_external *x); // no further steps after the two already decided
// The run continues after all: a draining life ends, and the next one begins.
void wk_external_undrain(struct wk_external *x);
// The run stands still: no further steps after the two already decided, or it goes on.
void wk_external_pause(struct wk_external *x, bool paused);
// The run is over and every requested cut is committed: gives the trainer the final parameters.
void wk_external_end(struct wk_external *x);

#endif
