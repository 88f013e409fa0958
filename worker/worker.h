// The worker: trains on leased units, turns progress into sealed pushes, follows the log.
//
// A state machine on one loop thread; local steps run on its compute lane. Between two steps (a
// "boundary") the parameters belong to the loop: that is where deltas are taken and folded records
// enter the local view. Training goes on while pushes are made and travel.
//
// A push is walked through the files in this order: round.c (steps, when to cut), cut.c (delta,
// feedback, encode, seal, outbox, slot), session.c (hello, send, decision), follow.c (records),
// snapshot.c, view.c (the local view). durable_copy.c writes durable copies, start.c resumes from
// the directory, member.c talks with the coordinator, worker.c tells.
//
// Memory: 4 bytes a parameter each for replica, residual, its spare and anchor (16), and what the
// trainer holds (the built-in one: parameters, gradient, two moments: 16). On top comes a push, as
// frame and payload, until it is admitted and folded here; the outbox of all that lie above the
// stable point is on the disk alone (outbox.h).
#ifndef WK_WORKER_H
#define WK_WORKER_H

#include <jansson.h>

#include "common/env/log.h"
#include "common/format/units.h"
#include "kernels/view.h"
#include "worker/shard.h"
#include "worker/train/trainer.h"

// Tests look on: everything that moves mass or credit. All may be NULL.
struct wk_observer {
    void *arg;
    // a step is done: what it was trained on
    void (*stepped)(void *arg, const struct wk_step_in *in);
    // a delta of the shard's `values` is taken for a push; then its cut is committed (on the disk
    // lane)
    void (*kept)(void *arg, uint32_t shard, struct lh_incarnation i, uint64_t step,
                 const float *delta, uint64_t values);
    void (*cut)(void *arg, uint32_t shard, struct lh_incarnation i, uint64_t step);
    void (*decided)(void *arg, uint32_t shard, struct lh_incarnation i, uint64_t step,
                    bool admitted);
    void (*lost)(void *arg, uint32_t shard, const char *what); // declared: counted as lost
};

struct wk_conf {
    struct lh_env *env;
    struct lh_transport *transport;
    struct lh_log *log;
    struct lh_peer self;
    const char *dir, *coordinator;
    uint8_t job[LH_JOB];
    const struct lh_manifest *manifest;
    const struct lh_units *units;
    struct lh_keyring *keys;
    uint8_t cipher;
    uint32_t key_id;
    bool unsealed_states; // given and taken without the job key's seal too (seal.snapshots: false)
    struct wk_trainer *trainer; // borrows
    struct lk_codec codec;
    float beta, kappa;
    // Learning rate as a function of the run's credited tokens (DESIGN.md#section-6, one clock).
    float (*rate)(void *arg, uint64_t tokens);
    void *rate_arg;
    uint32_t queue_units;     // units in work and read ahead: so many are leased at least
    uint32_t window_units;    // of them, how many a batch is mixed from
    uint32_t norms_rounds;    // the tensors' norms are logged every so many rounds; 0: never
    uint64_t cut_bytes;       // parameters of a shard from which on a snapshot comes in ranges
    uint32_t snapshot_rounds; // a synced residual snapshot every so many cuts
    uint64_t durable_every;   // versions between durable copies of the fold state
    int64_t lease_ns, retry_base_ns, retry_max_ns, reconnect_max_ns;
    // Of a call with one answer on a short path, and the most that a long one makes of it; the
    // latter 0: no more. wk_deadline() tells.
    int64_t deadline_ns, deadline_max_ns;
    const struct wk_observer *observer;
    // Adds to the status what others know: the loader. May be NULL.
    void (*tell)(void *arg, json_t *status);
    void *tell_arg;
    // The process can't go on (its disk, its state) or shall not (fenced, denied): stop it.
    void (*fatal)(void *arg, lh_err err, const char *text);
    void *fatal_arg;
};

// What finds no room on a full disk: the outbox and the slot, durable copies of the replica,
// residual snapshots.
enum wk_disk_full {
    WK_DISK_FULL_OUTBOX,
    WK_DISK_FULL_REPLICA,
    WK_DISK_FULL_SNAPSHOT,
    WK_DISK_FULL_COUNT
};

// Events: what a lower file tells the upper ones without naming them; wiring.c says who hears it
// (README.md, "Who calls whom"). On the loop.
struct wk_hooks {
    void (*changed)(struct wk_worker *w); // something that others wait for is as it was not before
    void (*room)(struct wk_shard *s);     // the full disk may be tried again
    void (*address)(struct wk_shard *s);  // the shard has another address, and no session there
    void (*raised)(struct wk_worker *w);  // a new incarnation is in force
};
extern const struct wk_hooks wk_wiring;

enum wk_state { WK_JOINING, WK_WAITING, WK_TRAINING, WK_DRAINING, WK_DONE };

struct wk_queued { // a leased unit
    uint64_t unit, done, tokens;
    bool announced; // to the trainer: it is read ahead
};
enum { WK_PIECES_MAX = 64 };

struct wk_worker {
    struct wk_conf conf;
    const struct wk_hooks *hooks;
    uint64_t id;
    struct lh_incarnation incarnation;
    bool fresh;       // no usable directory: a new number must be granted
    uint64_t attempt; // names this fresh start to the coordinator
    uint32_t over;    // and the number that it replaces, as far as it was told; 0: none
    char outbox_dir[LH_PATH_SIZE], replica_dir[LH_PATH_SIZE];
    struct lh_file *lock;
    bool full_said[WK_DISK_FULL_COUNT];
    struct wk_shard *shard;
    uint32_t shards;
    // coordinator
    struct lh_link *coordinator;
    struct lh_unary *join, *lease;
    uint64_t member_timer;
    uint32_t member_tries, unserved_tries;
    bool joined, started, want_lease;
    bool telling_done, told_done;       // the coordinator is being told of the end, has been
    bool telling_drained, told_drained; // the same, of having drained
    bool leased_out;                    // the last answer had nothing more
    uint8_t phase;
    uint32_t local_steps;
    // training
    struct wk_queued queue[LH_LEASES_MAX];
    uint32_t queued, asked;            // asked: units that the last lease wanted in all
    uint64_t returned[LH_RECALLS_MAX]; // given back, and the coordinator did not confirm it yet
    uint32_t returns;
    // How far units were trained that are not in the queue: what every shard's pushes hold of those
    // of an earlier life, and those that were begun when we were asked to stand still.
    struct wk_place resume[WK_PLACES_MAX];
    uint32_t resumes;
    bool stepping, stopped, failed, change_posted;
    struct wk_piece piece[WK_PIECES_MAX];
    struct wk_step_in in;
    struct wk_step_out out;
    lh_err step_error;
    int64_t step_started, step_ended; // step_ended 0: accounted for
    int64_t idle_since;               // since when training waits for others; 0: it does not
    double tokens_per_s;
    struct wk_tensor_norms *norms; // [tensors], NULL: never asked for
    uint64_t norms_round;          // when they are due
    struct wk_evaluated evaluated; // the last one; languages 0: none yet
    uint64_t evaluated_credited;
    uint32_t ranks; // processes that share its steps' work; whoever starts it says so
    struct {
        uint64_t tokens, steps, rounds, admitted, damped, refused, returned, lost;
        uint64_t payload_up, payload_down, resent, snapshots;
        int64_t stall_ns;   // waited for the network, a server, the coordinator
        int64_t between_ns; // from a step's end to what follows: views, deltas, hand-over
        double loss;        // smoothed
    } count;
};

// Resumes from its directory, or begins. LH_ERR_BUSY: another process uses the directory.
LH_MUST lh_err wk_worker_start(const struct wk_conf *conf, struct wk_worker **out);
// Makes no calls any more; what its lanes do comes back to nothing. Then the transport may go, and
// then stop().
void wk_worker_close(struct wk_worker *w);
void wk_worker_stop(struct wk_worker *w); // frees it; its transport must be gone or dead already
enum wk_state wk_worker_state(const struct wk_worker *w);
LH_MUST lh_err wk_worker_status(struct wk_worker *w, struct lh_buf *out); // JSON
// An orderly end: what is committed is made to survive a power cut too.
LH_MUST lh_err wk_worker_settle(struct wk_worker *w);

// ---- what every file needs (core.c). On the loop, all of it.
// The process can't go on: tells whoever started the worker, once, and stops.
void wk_fatal(struct wk_worker *w, lh_err err);
// Nanoseconds until the next try: full jitter below a bound that doubles with each of *tries, which
// it counts. LH_ERR_UNAVAILABLE: nobody was there to be burdened, so the bound stays low and a
// server that comes back is found soon.
int64_t wk_backoff(struct wk_worker *w, uint32_t *tries, lh_err why);
// Deadline of a call with one answer on this link, by its round trip.
int64_t wk_deadline(const struct wk_worker *w, struct lh_link *link);
// True for the first of some failures in a row, and then ever more rarely.
bool wk_worth_saying(uint32_t tries);
bool wk_cutting(const struct wk_worker *w); // some shard's cut is on its way
// Raises the event `changed` at the next turn of the loop, once for however many calls.
void wk_changed(struct wk_worker *w);

#endif
