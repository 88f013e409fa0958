// The worker: trains on leased units, turns progress into sealed pushes, follows the log.
//
// A state machine on one loop thread; local steps run on its compute lane. Between two steps (a
// "boundary") the trainer copies its parameters for a push, and moves them to a view with the
// folded records. Training goes on while pushes are made and travel.
//
// README.md lists the files in the order in which a push meets them, and the directions of calls;
// shard.h has a shard's state. This header has the declarations that every file needs.
//
// Memory: 4 bytes a parameter each for replica, residual, two slots (16), and what the trainer
// holds (the built-in one: parameters, gradient, two moments: 16). On top comes a push, as
// frame and payload, until it is admitted and folded here; the outbox of all that lie above the
// stable point is on the disk alone (outbox.h).
#ifndef WK_WORKER_H
#define WK_WORKER_H

#include <jansson.h>

#include "common/env/log.h"
#include "common/format/histogram.h"
#include "common/format/units.h"
#include "common/net/wire_member.h"
#include "kernels/view.h"
#include "worker/external/external.h"
#include "worker/left_out.h"
#include "worker/privacy/private.h"
#include "worker/shard.h"
#include "worker/train/trainer.h"
#include "worker/units/grants.h"
#include "worker/units/travel.h"

struct wk_backend;

// Tests observe all movements of mass and credit. Each may be NULL.
struct wk_observer {
    void *arg;
    // A step is done; `in` has its training data.
    void (*stepped)(void *arg, const struct wk_step_in *in);
    // `kept`: the shard's delta[values] was taken for a push. `cut`: later, on the disk lane, that
    // cut was committed.
    void (*kept)(void *arg, uint32_t shard, struct lh_incarnation i, uint64_t step,
                 const float *delta, uint64_t values);
    void (*cut)(void *arg, uint32_t shard, struct lh_incarnation i, uint64_t step);
    void (*decided)(void *arg, uint32_t shard, struct lh_incarnation i, uint64_t step,
                    bool admitted);
    void (*lost)(void *arg, uint32_t shard, const char *what); // mass given up as lost
    void (*paused)(void *arg, bool is);                        // an answer of the coordinator
};

// Whether the shards of a worker are cut at different steps of a round. AUTO: unless rounds are
// BSP.
enum wk_stagger { WK_STAGGER_AUTO, WK_STAGGER_ON, WK_STAGGER_OFF };

// An external trainer, in processes beside this one (push/beside.c).
struct wk_beside_conf {
    uint32_t ranks;
    uint32_t ahead;  // leases queued for each rank
    uint64_t run_on; // steps that it may make without this process
    // Open and close the channel to the external trainer (wk_external_listen, wk_external_stop).
    lh_err (*open)(void *arg, const struct wk_external_conf *conf,
                   const struct wk_external_ops *ops, void *self, struct wk_external **out);
    void (*close)(struct wk_external *x);
    void (*hush)(struct wk_external *x); // stops its events; NULL: it has none
    void *arg;
};

struct lh_machine;

struct wk_conf {
    struct lh_env *env;
    struct lh_transport *transport;
    struct lh_log *log;
    struct lh_peer self;
    const char *dir, *coordinator;
    uint8_t job[LH_JOB_BYTES];
    const struct lh_manifest *manifest;
    const struct lh_units *units;
    uint32_t epochs;                     // data epochs that the run must have; 0: any number
    const struct lh_machine *machine;    // reported to the coordinator; NULL: not reported
    const struct wk_travel_conf *travel; // borrows; NULL: all units' files are local
    struct lh_keyring *keys;
    uint8_t cipher;
    uint32_t key_id;
    bool unsealed_states;                // states cross without the job key's seal (tests)
    struct wk_trainer *trainer;          // borrows; NULL: the trainer is external
    const struct wk_beside_conf *beside; // borrows; NULL: `trainer` trains
    struct lk_codec codec;
    // Density of a push as a function of the run's credited tokens; NULL: the codec's. Pushes of
    // other densities are encoded on the CPU by this process.
    float (*density)(void *arg, uint64_t tokens);
    // The coordinator expects this many rounds of the run. Called usually before the first push,
    // and after a change of a tenth or more. May be NULL.
    void (*told_rounds)(void *arg, double rounds);
    void *density_arg;          // argument of both
    struct wk_backend *backend; // borrows; NULL: the CPU encodes
    // Gives the state of a shard (worker/state); NULL: it is in host arrays.
    lh_err (*state_open)(void *arg, const struct wk_shard_state_conf *conf,
                         struct wk_shard_state **out);
    void *state_arg;
    struct wk_private_conf privacy;
    float beta,
        kappa; // error feedback: fraction of the residual that is sent, and that is trained on
    enum wk_stagger stagger;
    // Learning rate as a function of the run's credited tokens (DESIGN.md#section-6, one clock),
    // and of a change of the run's budget, which the plan declares.
    float (*rate)(void *arg, const struct lh_plan *plan, uint64_t tokens);
    void *rate_arg;
    uint32_t queue_units;     // units in progress and read ahead: minimum of leased units
    uint32_t window_units;    // units that a batch is mixed from: the queue's first
    uint32_t norms_rounds;    // rounds between two logs of the tensors' norms; 0: never
    uint64_t ranges_bytes;    // shards with this many bytes of parameters arrive in ranges
    int64_t fill_trip_ns;     // paths with so long round trips are filled (push/fill.c); 0: none
    uint32_t snapshot_rounds; // cuts between two synced residual snapshots; 0: none
    uint64_t durable_every;   // versions between two durable copies of the replica; 0: none
    int64_t lease_ns;         // time between two requests to the coordinator
    int64_t retry_base_ns, retry_max_ns; // bounds of the waits between retries
    int64_t reconnect_max_ns;            // the upper bound if no server answered
    int64_t deadline_ns;                 // time limit of a call with one answer on a short path
    int64_t deadline_max_ns;             // time limit on a long path; 0: deadline_ns
    const struct wk_observer *observer;  // NULL: none
    // The run has this many data epochs. Called before its first step and after changes. May be
    // NULL.
    void (*told_epochs)(void *arg, uint32_t epochs);
    void *told_epochs_arg;
    // Adds other modules' status, such as the loader's. May be NULL.
    void (*tell)(void *arg, json_t *status);
    void *tell_arg;
    // The process can't go on (its disk, its state) or must not (fenced, denied): stop it.
    void (*fatal)(void *arg, lh_err err, const char *text);
    void *fatal_arg;
};

// Kinds of files that may meet a full disk: the outbox and the slot, durable copies of the replica,
// residual snapshots, the model at the end.
enum wk_disk_full {
    WK_DISK_FULL_OUTBOX,
    WK_DISK_FULL_REPLICA,
    WK_DISK_FULL_SNAPSHOT,
    WK_DISK_FULL_WEIGHTS,
    WK_DISK_FULL_COUNT
};

// Events from a lower file to upper ones, without naming them; wiring.c connects the listeners
// (README.md, "Who calls whom"). On the loop.
struct wk_hooks {
    void (*changed)(struct wk_worker *w); // a condition that others wait for may have changed
    void (*room)(struct wk_shard *s);     // retry after a full disk
    // The shard has another address and no session there, or its server may be greeted now.
    void (*address)(struct wk_shard *s);
    void (*raised)(struct wk_worker *w); // a new incarnation is in use
};
extern const struct wk_hooks wk_wiring;

enum wk_state { WK_JOINING, WK_WAITING, WK_TRAINING, WK_DRAINING, WK_DONE };

struct wk_queued { // a leased unit
    uint64_t unit;
    uint64_t done, tokens; // trained tokens; all tokens
    bool announced;        // the trainer reads it ahead
    bool here;             // its tokens are here, or are fetched when read
    uint16_t arrival;      // travel.c: its place there, + 1; 0: none
};
struct wk_note {           // a unit trained by an external trainer
    uint64_t unit, before; // its tokens that were trained before
    uint64_t steps;        // the process's step count afterwards
};
// The external trainer (push/beside.c; units.c changes `handed` and `note`).
enum wk_beside_state { WK_BESIDE_AWAY, WK_BESIDE_THERE, WK_BESIDE_SETTLES };
struct wk_beside {
    enum wk_beside_state state;
    uint8_t life[WK_SLOT_LIFE_BYTES];
    bool ending;       // its loop is over
    bool over;         // its loop is over, and all its training is committed
    bool draining;     // it was told to end
    const char *exit;  // how its last life ended: left, lost; NULL: none did
    bool final;        // it was given the final parameters
    bool leases;       // it asked for units; else it has data of its own
    bool tells_loss;   // it reported a loss
    struct wk_metric { // other reported figures
        char name[WK_CHANNEL_METRIC];
        double value;
    } metric[16];
    uint32_t metrics;
    bool evaluates;  // it reported the mean of longhaul.Evaluation, shown among the others or not
    bool own_data;   // it trained without asking for units; checked at intervals
    bool own_rates;  // its rates follow its own steps, and that was logged
    uint64_t offset; // boundaries of this process when the life began
    uint64_t passed; // boundaries until now; they order units and cuts
    uint64_t steps_before;            // trained steps of earlier lives
    uint64_t life_steps, life_tokens; // the current or last life
    uint64_t tokens_before;           // tokens of earlier lives
    uint64_t tokens_known; // tokens of its life committed by an earlier process of this worker
    uint64_t lives, lost_tokens, cuts, absorbed;
    uint8_t *handed;      // one bit per unit that it holds
    struct wk_note *note; // training that is not yet in some shard's cuts
    size_t notes, note_room;
    uint64_t timer;           // the next look; 0: none is scheduled
    uint64_t seen, seen_step; // tokens and boundary at the last timed look
    bool starves;             // it waits for leases: it passed a boundary without training
    uint64_t sampled;         // tokens at the last speed measurement
    int64_t sampled_ns;       // time of that measurement
    int64_t between_before;   // count.between_ns of earlier lives
    int64_t renew_ns;         // time that this process spent on corrections
    _Atomic int64_t delta_ns; // time for deltas, on the encode lane
};
enum { WK_PIECES_MAX = 64 };

struct wk_worker {
    struct wk_conf conf;
    const struct wk_hooks *hooks;
    uint64_t id;
    struct lh_incarnation incarnation; // changed by push/commit.c alone
    bool fresh;       // the directory holds no identity: a new number must be granted
    uint64_t attempt; // names this fresh start to the coordinator
    uint32_t over;    // the granted number that this start replaces, as far as it was told; 0: none
    uint64_t contested; // A shard's row has this incarnation, above the one granted to us; 0: none.
    uint64_t confirming; // `contested` when the join under way was sent.
    char outbox_dir[LH_PATH_BYTES], replica_dir[LH_PATH_BYTES];
    struct lh_file *lock;               // held: only one process uses the directory
    bool full_said[WK_DISK_FULL_COUNT]; // disk_full.c: this kind was logged
    struct wk_shard *shard;
    uint32_t shards;
    struct wk_external *external; // the channel to an external trainer; NULL: none
    struct wk_beside beside;
    // The coordinator (member.c).
    struct lh_link *coordinator;
    struct lh_unary *join, *lease; // calls in flight; NULL: none
    uint64_t member_timer;
    uint32_t member_tries;   // failed calls in a row
    uint32_t unserved_tries; // answers in a row without an address for some shard
    bool joined;             // the coordinator knows this incarnation
    bool started;            // the run has begun
    bool began_ended; // its directory is of an ended run, and it is not confirmed yet that the run
                      // is over
    bool want_lease;  // a request is due at once
    bool telling_done, told_done; // all shards are folded to their end: being reported, reported
    bool telling_drained, told_drained; // nothing is left to train or to push: likewise
    float allowance;      // tokens that its pushes to a shard may report; 0: not named
    uint64_t step_tokens; // most tokens trained in a step of this life (path.c)
    bool leased_out;      // the last answer had no more units
    bool began;           // all logs said that the run goes on (wk_note_plans)
    bool bsp;             // more than half of the logs that have a plan say so: an owner may lie
    uint8_t phase;        // enum lh_phase of the last answer
    bool told_paused;     // the last answer said so
    uint32_t local_steps; // steps between two cuts of a shard (H)
    double rounds;        // rounds that the coordinator expects of the run; 0: not named yet
    // Units (units.c), those of the run.
    uint32_t epochs;                       // member.c: data epochs of the run; 0: not named yet
    struct wk_queued queue[LH_LEASES_MAX]; // leased, in order of arrival
    uint32_t queued;
    uint32_t window;                   // units that the coordinator allows it; 0: as configured
    uint32_t asked;                    // units that the last request wanted in total
    uint64_t returned[LH_RECALLS_MAX]; // given back, not yet confirmed by the coordinator
    uint32_t returned_count;
    // Units of the data whose copy is damaged in the external loop: none of them is leased here.
    uint64_t damaged[LH_REFUSED_MAX];
    uint32_t damaged_count;
    bool own_away; // own units: their files are in a store (data.dir) that is away
    // Training positions of units not in the queue: those of an earlier life that every shard's
    // pushes hold, and those that were begun when the worker was told to pause.
    struct wk_position resume[WK_POSITIONS_MAX];
    uint32_t resume_count;
    struct wk_private privacy; // privacy/private.c
    struct wk_grants grants;   // grants.c
    struct wk_travel *travel;  // travel.c; NULL: no unit travels
    // Steps (push/round.c). During a step the compute lane owns `in`, `out` and `piece`.
    bool stepping;
    bool stopped, failed; // no more calls are made; an error was the cause (core.c)
    bool change_posted;   // core.c: the event `changed` is posted
    struct wk_piece piece[WK_PIECES_MAX];
    struct wk_step_in in;
    struct wk_step_out out;
    lh_err step_error;
    int64_t step_started;
    struct {
        uint64_t timer; // checks whether pushes are through; 0: none is awaited
        int64_t due_ns; // time since which a view could have been made; 0: none could
    } views;
    int64_t step_ended;          // 0: the time since then is already counted
    int64_t idle_since;          // training has waited for others since then; 0: it does not wait
    struct wk_left_out left_out; // left_out.c
    struct {                     // leave.c
        bool asked;              // the process was asked to end
        bool asking;             // the lease request under way was sent since
        bool returned;           // the coordinator has back all units that are not begun
        bool cut_short;          // a step failed: nothing more is pushed
    } leave;
    struct wk_idle idle; // push/idle.c
    // push/path.c
    double tokens_per_s, tokens_spread;   // smoothed; its mean deviation
    struct lh_estimate batch_s, utilised; // time of a step; share of the time spent in steps
    int64_t busy_ns, busy_told,
        busy_since; // time in steps; the part reported; time of the last request
    struct lh_path told_path[LH_PATHS_MAX]; // memory of a lease request
    struct wk_tensor_norms *norms;          // stats.c: [tensors]; NULL: never requested
    uint64_t norms_round;                   // the round in which norms are due
    struct wk_evaluated evaluated;          // the last evaluation; languages 0: none yet
    uint64_t evaluated_credited;            // the run's credited tokens at that evaluation
    uint32_t ranks;                         // processes that share the steps' work; node.c sets it
    uint64_t told_tokens;                   // maximum returned by wk_all_tokens()
    struct {
        uint64_t tokens, steps; // an external trainer counts from the start of its life
        uint64_t cut_tokens;    // tokens in cuts of shard 0
        uint64_t rounds, admitted, damped, refused, returned, lost;
        uint64_t payload_up, plain_up, payload_down, resent, snapshots;
        int64_t stall_ns;   // time in which training waited for the network or for other workers
        int64_t between_ns; // time between steps: views, deltas, hand-over
        double loss;        // smoothed
    } count;                // this process's
    struct lh_histogram pushed_s; // seconds from a push's sending to its answer
};

// Resumes from its directory, or begins in it. Copies `conf`, borrows its pointers until stop().
// LH_ERR_BUSY: another process uses the directory. Call all functions here on the loop.
LH_MUST lh_err wk_worker_start(const struct wk_conf *conf, struct wk_worker **out);
// Ends all calls; jobs on lanes end without effect. Close the transport next, then call stop().
void wk_worker_close(struct wk_worker *w);
// Frees the worker after its transport was closed. NULL is allowed.
void wk_worker_stop(struct wk_worker *w);
enum wk_state wk_worker_state(const struct wk_worker *w);
// Appends the status to `out`, one JSON object.
LH_MUST lh_err wk_worker_status(struct wk_worker *w, struct lh_buf *out);
// An orderly end: syncs the committed state, which then survives a power cut.
LH_MUST lh_err wk_worker_settle(struct wk_worker *w);

// ---- for every file (core.c). All on the loop.
// The process can't go on: reports it to the worker's starter, once, and stops.
void wk_fatal(struct wk_worker *w, lh_err err);
// Nanoseconds until the next try: full jitter below a bound that doubles with each of *tries, which
// it counts. LH_ERR_UNAVAILABLE: the bound stays low, because an absent server has no load and a
// restarted one is found soon.
int64_t wk_backoff(struct wk_worker *w, uint32_t *tries, lh_err why);
// Deadline of a call with one answer on this link, by its round trip.
int64_t wk_deadline(const struct wk_worker *w, struct lh_link *link);
// True for the first few failures in a row, and then ever more rarely.
bool wk_worth_saying(uint32_t tries);
// Log level for an absent peer. At a start processes come up in any order, so for some ten seconds
// it is no warning.
enum lh_level wk_missing_level(bool starts, uint32_t tries);
bool wk_cutting(const struct wk_worker *w); // some shard's cut is in progress
// The worker leaves (leave.c), and cuts its training before the round is over.
bool wk_leave_cuts(const struct wk_worker *w);
// The shard's log does not say that the run goes on, or has no plan yet. Such a log bounds no push,
// so none is cut for it.
bool wk_stands_still(const struct wk_shard *s);
// True: every shard has a state that says that the run began, and how (mode, weights). From then on
// until its end it takes more than half of the logs to say that it stands still: the owner of one
// may lie.
bool wk_everything_ready(const struct wk_worker *w);
bool wk_all_ended(const struct wk_worker *w); // every shard's log has its END record
uint64_t
wk_held_steps(const struct wk_worker *w); // steps that the committed cuts of all shards hold
// The run is paused, as the coordinator said last, or a log that is newer than its last answer.
bool wk_paused(const struct wk_worker *w);
void wk_told_paused(struct wk_worker *w, bool paused); // the coordinator's answer
// A log has another plan, or a shard ended or goes on: sets `bsp` and `began`.
void wk_note_plans(struct wk_worker *w);
// The run's clock, for learning rates: credited tokens, and a plan that names the budget. Both are
// the lower median over the shards' logs, so that of three owners none moves it alone, and of two
// none moves it forward.
uint64_t wk_clock(const struct wk_worker *w);
const struct lh_plan *wk_clock_plan(const struct wk_worker *w);
// Tokens that this worker trained over all its processes, as far as it knows; never fewer than an
// earlier result.
uint64_t wk_all_tokens(struct wk_worker *w);
// Raises the event `changed` at the next turn of the loop, once for any number of calls.
void wk_changed(struct wk_worker *w);

#endif
