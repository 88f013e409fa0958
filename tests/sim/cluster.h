// A simulated cluster: the cores of the real programs on one virtual clock, from a seed.
//
// One coordinator; two servers with one shard each, or, if the seed says so, one or two with up to
// three; perhaps a standby for each; four workers in four regions, with a synthetic trainer. Nodes
// are killed, lose power or their disk, are cut off, run out of disk space, are stopped; calls are
// lost, repeated, broken. Then the faults cease, everything heals, the run ends, and judge.c checks
// every invariant of server/docs/0000-protocol.md.
#ifndef SIM_CLUSTER_H
#define SIM_CLUSTER_H

#include "server/coordinator/balance/terms.h"
#include "server/core.h"
#include "tests/sim/setup.h"
#include "tests/sim/synthetic.h"
#include "tests/world/env_fake.h"
#include "tests/world/transport_mem.h"
#include "worker/units/travel.h"

enum {
    SIM_SHARDS_MAX = 4,
    SIM_SERVERS = 2, // a run may leave the second place empty
    SIM_WORKERS = 4,
    SIM_STEP_TOKENS = 16,
    SIM_PRIVATE_STEPS = 60,     // budget of the last worker, if its region is private
    SIM_STANDBYS = SIM_SERVERS, // places for standbys, if the faults include them
    SIM_FIRST_STANDBY = 1 + SIM_SERVERS + SIM_WORKERS,
    SIM_NODES_MAX = SIM_FIRST_STANDBY + SIM_STANDBYS + 1 // plus a second coordinator
};
enum { SIM_LIARS = 3 }; // kinds of lying partners (liars.c)
enum { SIM_UNITS = 48, SIM_UNIT_TOKENS = 64, SIM_UNIT_BYTES = 2 * SIM_UNIT_TOKENS };
enum { SIM_CUTS_MAX = 4096 };
enum { SIM_SEQUENCE = 4 }; // tokens of a sequence; a unit's sequences fit a 16-bit mask
// More refusals in a row of one worker and shard are a livelock (ten were never seen).
enum { SIM_REFUSED_MAX = 50 };

// In this range of parameters fp32 numbers are multiples of the quantum, after any addition or
// scaling. So are all deltas, and with 17 bits above the point their sums are exact.
static const float SIM_BASE = 98304, SIM_QUANTUM = 1.0f / 128;

#define SIM_JOB "simulated run 01" // LH_JOB_BYTES bytes

struct sim;
struct sim_judging; // judge.h
struct sim_pair;    // pair.h
struct sim_liar;    // liars.c

enum sim_kind { SIM_COORDINATOR, SIM_SERVER, SIM_WORKER, SIM_STANDBY };

struct sim_cut { // a push that a worker has made
    struct lh_incarnation incarnation;
    uint64_t step;
    bool committed; // false: it was in the outbox, and then the worker crashed
    bool seen;      // the judge found it in the log
    bool copy;      // as far as is known, the outbox has it
};

// The cuts of one worker and shard.
struct sim_history {
    struct sim_cut cut[SIM_CUTS_MAX];
    uint32_t cuts;
    double *raw;    // per value: the sum of all committed cuts' deltas
    double *gone;   // per value: the part of it that declared losses took, as measured (mass.c)
    double *last;   // the newest delta
    double *undone; // largest delta of the cuts found not committed, since a commit
    bool pending;   // the newest cut is in the outbox, and may be committed or not
    bool lost;      // this worker declared a loss, in some life
    bool losing;    // it declared one since its mass was last measured
    bool slot_lost; // such a loss took its slot
    uint32_t refused_in_turn;
    // Trained tokens: since the last cut, in a cut being made, in committed ones. Then the least
    // and the most that deaths took: a cut may have been committed or not.
    uint64_t uncut, cutting, lost_least, lost_most;
    uint16_t uncut_of[SIM_UNITS], cutting_of[SIM_UNITS], cut_of[SIM_UNITS]; // bit: a sequence
};

// One worker's training, in all its lives.
struct sim_training {
    uint64_t tokens; // tokens of completed steps
    uint64_t again;  // upper bound of those among them that repeat a sequence
    uint16_t seen[SIM_UNITS];
    uint64_t twice; // tokens of sequences that it trained more than once
};

struct sim_node {
    struct sim *sim;
    enum sim_kind kind;
    uint32_t index; // among its kind
    char name[LH_NAME_BYTES], dir[32], address[64];
    struct lh_peer self;
    struct lh_env *env;
    struct lh_transport *transport; // NULL: the node is down
    struct ps_coordinator *coordinator;
    struct ps_server *server;
    struct wk_worker *worker;
    struct wk_trainer *trainer;
    struct sim_device *device; // a worker's; NULL: its state is on the host
    struct wk_observer observer;
    uint32_t shard[SIM_SHARDS_MAX], shards; // a server's; none: this place is empty
    struct lh_log *log;                     // when traced
    bool failed;                            // it stopped by itself
    bool stands_by;                         // set once its shard was taken over
    bool put_back;                          // its directory was replaced by an old copy
    bool wiped;                             // it lost its directory, or had an older one
    bool emptied;                           // its error asked for a start with an empty directory
    // An operator's setting until it serves again: it gives up records that are lost for good with
    // another server (rebuild.below_stable).
    bool gives_up;
    bool lost_end;       // a fault took its log's end, and it has not served since
    bool rebuilds;       // an operator set rebuild.damaged after that, until it serves again
    bool refused;        // despite that setting the shard was another server's (operator.c)
    bool zombie;         // runs on a copy of another server's directory, without the coordinator
    uint64_t disk_bytes; // its disk's capacity; 0: unlimited
    bool cut_off;
    bool hung;         // the worker's trainer hangs for good, in all its lives
    int64_t paused_ns; // when this life of the worker heard that the run is paused; 0: not paused
    const struct sim_node *cut_from; // the worker can't reach this server until the run has ended
    uint64_t deaths;
    int64_t far_ns; // extra one-way delay of all its messages
    // Units that travel (travel.c): a server's view of its units, whether it refuses to send, and
    // the extra delay of a unit's message; then the worker's units.
    struct lh_units its;
    bool gives_nothing;
    int64_t slow_ns;
    struct wk_travel_conf travel;
    bool kept[SIM_UNITS], cached[SIM_UNITS];
    // The leader among two coordinators, as this node knows it (pair.c), and the number of the last
    // leader that it accepted in any of its lives.
    struct lh_leader leader;
    bool leader_unsaved;
    uint64_t leader_told;
};

enum { SIM_VERSIONS_MAX = 8192, SIM_POINTS_MAX = 2048, SIM_LOST_MAX = 64 };

struct sim_state {
    uint64_t epoch;
    struct lh_hash digest;
};

// Faults that take durable records. An acknowledged push that is missing from the final log must be
// excused by one of them (history.c).
enum sim_loss_kind {
    SIM_LOSS_NONE,
    SIM_LOSS_TAIL,
    SIM_LOSS_DISK,
    SIM_LOSS_DAMAGE,
    SIM_LOSS_ROLLBACK,
    SIM_LOSSES
};
extern const char *const sim_loss_name[SIM_LOSSES];

// The faults that a run may have. They are switches; a run draws when they happen.
//
// BASE(name) draw from the world's stream one after the other, so a seed's meaning depends on all
// of them. OWN(name) came later and draw from their own streams (streams.c), so a seed without them
// means what it meant before. "all" is both, "base" the first. APART(name) are in neither, because
// they change the cluster: servers acknowledge with standbys, which take over; an operator drains
// workers, regions and the run; a server's newest checkpoint is damaged, alone; an operator moves
// shards between a server and its standby (without `standby` the owner acknowledges alone); disks
// stall. OWN_APART(name) are also in neither, and have their own streams. With `far` some nodes
// have round trips of 0.6 to 3 s to all others, and silence and deadlines are bounded by the paths
// they report. `disks` loses and damages servers' disks more often, where `disk_loss` and `damage`
// are on. With `move`, `full_target` lets a move's target start anew on a full disk (targets.c).
// With `travel` workers have only their own region's files, and senders of the others fail
// (travel.c); with `links` travel has caps (links.c). With `budget` the run ends before all units
// are trained, and an operator changes the budget (budget.c).
#define SIM_FAULTS(BASE, OWN, APART, OWN_APART)                                                    \
    BASE(kill)                                                                                     \
    BASE(power)                                                                                    \
    BASE(crash)                                                                                    \
    BASE(worker_kill)                                                                              \
    BASE(worker_power)                                                                             \
    BASE(worker_lost)                                                                              \
    BASE(coordinator)                                                                              \
    BASE(partition)                                                                                \
    BASE(network)                                                                                  \
    BASE(disk_full)                                                                                \
    BASE(tail)                                                                                     \
    BASE(refuse)                                                                                   \
    BASE(io)                                                                                       \
    BASE(disk_loss)                                                                                \
    BASE(damage)                                                                                   \
    OWN(shards)                                                                                    \
    OWN(full)                                                                                      \
    OWN(short_write)                                                                               \
    OWN(sync)                                                                                      \
    OWN(stall)                                                                                     \
    OWN(torn)                                                                                      \
    OWN(folders)                                                                                   \
    OWN(rollback)                                                                                  \
    OWN(clone)                                                                                     \
    OWN(ahead)                                                                                     \
    OWN(epochs)                                                                                    \
    OWN(hang)                                                                                      \
    OWN(one_way)                                                                                   \
    OWN(disk_hang)                                                                                 \
    OWN(liar)                                                                                      \
    OWN(impostor)                                                                                  \
    OWN(flood)                                                                                     \
    OWN(records)                                                                                   \
    OWN(pause)                                                                                     \
    OWN(reported)                                                                                  \
    OWN(pair)                                                                                      \
    OWN_APART(rollback_worker)                                                                     \
    OWN_APART(rollback_store)                                                                      \
    OWN_APART(far)                                                                                 \
    OWN_APART(disks)                                                                               \
    OWN_APART(full_target)                                                                         \
    APART(drain)                                                                                   \
    APART(standby)                                                                                 \
    APART(rot)                                                                                     \
    APART(move)                                                                                    \
    APART(slow)                                                                                    \
    OWN_APART(balance)                                                                             \
    OWN_APART(travel)                                                                              \
    OWN_APART(links)                                                                               \
    OWN_APART(budget)

struct sim_faults {
#define FIELD(name) bool name;
    SIM_FAULTS(FIELD, FIELD, FIELD, FIELD)
#undef FIELD
};

enum sim_fault {
#define ID(name) SIM_FAULT_##name,
    SIM_FAULTS(ID, ID, ID, ID)
#undef ID
        SIM_FAULT_COUNT
};

struct sim_conf {
    uint64_t seed;
    struct sim_faults faults;
    enum lh_mode mode;
    enum wk_stagger stagger;
    int optimizer; // enum lh_optimizer; -1: drawn from the seed
    bool trace;
    // All deltas are multiples of SIM_QUANTUM, and the codecs keep them so: sums are exact, and
    // mass is compared bit for bit.
    bool exact;
    bool pair;        // two coordinators on one store
    bool device;      // half of the workers keep their state on an emulated device
    bool tight_disks; // see sim_tighten()
    int64_t crash_at; // the first worker crashes at this file operation; < 0: it does not
    bool crash_power; // it also loses power
};

struct sim_tally { // totals over runs, for the caller
    uint64_t events, admitted, refused, clipped;
    uint64_t outer_steps;               // steps of optimizers with a state
    uint64_t disks, damaged, rebuilt;   // lost disks; damaged ones; shards rebuilt from followers
    uint64_t taken_over;                // shards, by standbys
    uint64_t moved;                     // shards, from a running owner to its running standby
    uint64_t equal;                     // values of equal mass, bit for bit, without a loss
    uint64_t compared;                  // digest records that agreed with a device's parameters
    uint64_t full;                      // groups that found the disk full
    uint64_t struck;                    // crashes at conf.crash_at
    uint64_t happened[SIM_FAULT_COUNT]; // faults that occurred
    // The judge's: pushes acknowledged as admitted, and those among them that a named loss took;
    // worker-shards whose mass was measured, and measured losses; the coordinator's answers;
    // take-overs, and the longest silence before one.
    uint64_t acknowledged, exempt[SIM_LOSSES];
    uint64_t balanced, mass_losses;
    uint64_t answers;
    // Units that the balancer planned for another region, recalled for another worker, and let run
    // twice.
    uint64_t planned, stolen, run_twice;
    uint64_t recalls, returns; // answers that recalled leases, and answers to returns
    uint64_t silences;
    int64_t silence_ns;
    uint64_t given_up; // workers given up for silence, with `far`
    // Units that travelled, that one worker alone was refused, and that were returned after a
    // begin.
    uint64_t travelled, refused_units, begun_back;
    // Unit bytes over links with a cap, and links among these without space for another unit.
    uint64_t crossed, full_links;
    // Runs with two coordinators; leaders in them; changes that the store refused; workers' steps
    // without a leader.
    uint64_t pairs, leaders, refused_changes, leaderless_steps;
    uint64_t short_runs; // runs that a budget ended before all units were trained
    // Runs with a lying partner, admitted pushes of liars, units that liars claimed and had leased.
    uint64_t lied, lies_admitted, lies_credited;
};

// Argument of a timed fault that has its own stream.
struct sim_turn {
    struct sim *sim;
    size_t strike;
};

// The target of a move that is to be struck, or was struck (targets.c).
struct sim_ambush {
    struct sim *sim;
    struct sim_node *target;
    enum { SIM_AMBUSH_NONE, SIM_AMBUSH_WAITS, SIM_AMBUSH_DOWN, SIM_AMBUSH_FULL } stage;
    int64_t until, lasts; // the end of this stage; how long the disk stays full, ns
    bool cut, workers;    // it loses power before the disk has space; all workers die too
    bool damaged;         // it was seen to start on the damaged file
};

// Bytes over one link, from a home to a worker's region (links.c).
struct sim_crossed {
    uint64_t bytes;  // units that arrived whole and correct
    uint64_t again;  // part of it: units that had come to the same worker before
    uint64_t untold; // the most that no request had reported when the worker died
};

// A copy of a directory (copies.c).
struct sim_image;

struct sim {
    struct sim_conf conf;
    struct lh_fake_world *world;
    struct lh_fabric *fabric;
    struct sim_node node[SIM_NODES_MAX];
    uint32_t nodes;
    struct lh_manifest manifest;
    struct lh_units units;
    struct lh_keyring *keys;
    struct lk_codec codec;
    bool records;                      // the last worker's region is private, at record level
    bool reported;                     // it is private by its loop's word
    struct beside *loop;               // the worker's loop; NULL: none
    bool ending;                       // no node is started any more
    int64_t ride_out_ns;               // how far the coordinator leases ahead, in all its lives
    uint32_t epochs;                   // data epochs, of SIM_UNITS / epochs units each
    bool epochs_named;                 // the workers' settings name the epochs, else 0
    struct ps_co_balance_conf balance; // the coordinator's policy, in all its lives
    uint64_t budget_tokens;            // the coordinator's; 0: every unit
    struct {
        uint64_t most;  // the largest setting so far
        uint64_t seen;  // the coordinator's at the last look
        bool stalled;   // a worker was stalled: others got its units, and its claims may still come
        uint64_t ended; // the budget by which the run ended; 0: it has not ended
    } budget;           // tokens; a setting of 0 counts as all units
    bool caches;        // workers keep travelled units across restarts
    struct {
        struct ps_terms terms;
        struct ps_co_links_conf conf;
        double cap[SETUP_REGIONS][SETUP_REGIONS]; // bytes; < 0: none
        struct sim_crossed crossed[SETUP_REGIONS][SETUP_REGIONS];
        bool came[SIM_WORKERS][SIM_UNITS];
    } links;
    struct sim_node *struck; // the worker that hangs or is cut off for good; NULL: none
    double norm_gate;
    float *initial;
    uint32_t shards, shape[SIM_SERVERS]; // the number of all shards; of each server's
    uint64_t stream[SIM_FAULT_COUNT];    // random states of the faults that have streams
    struct sim_turn turn[SIM_FAULT_COUNT];
    struct sim_ambush ambush;
    struct sim_image
        // Copies of each node's directory: one to put back, one for a zombie.
        *copy[SIM_NODES_MAX][2];
    // The zombie: a process with a copy of a server's directory, at that server's address. Its env
    // is NULL before the first one. It is not in `node`, because only its effect on others counts.
    struct sim_node zombie;
    const struct sim_node *haunted; // the server whose address it uses; NULL: no zombie now
    struct sim_history history[SIM_WORKERS][SIM_SHARDS_MAX];
    struct sim_training training[SIM_WORKERS];
    struct sim_judging *judging;
    struct sim_pair *pair;            // NULL: one coordinator, with a store in its directory
    struct sim_liar *liar[SIM_LIARS]; // NULL: no liar of this kind
    char servers[1024];               // the coordinator's setting of servers, where one lies
    struct lh_blob *kept[SIM_SHARDS_MAX][SIM_VERSIONS_MAX]; // every durable record, by version
    uint64_t durable[SIM_SHARDS_MAX]; // the highest version of which a worker made a durable copy
    struct lh_point stable[SIM_SHARDS_MAX][SIM_POINTS_MAX]; // registered points, as they were seen
    uint32_t stables[SIM_SHARDS_MAX];
    struct lh_point lost[SIM_SHARDS_MAX][SIM_LOST_MAX]; // copies on disks that workers lost
    uint32_t lost_count[SIM_SHARDS_MAX];
    struct sim_state state[SIM_SHARDS_MAX][SIM_VERSIONS_MAX]; // a replica's digest at a version
    bool faulty;                                              // faults still happen
    uint64_t unreached[SIM_SHARDS_MAX]; // epoch of a move whose target an operator found to be gone
    uint64_t awaited[SIM_SHARDS_MAX];   // standby that an owner awaits and an operator misses
    bool undecided[SIM_SHARDS_MAX]; // operator.c: no state of the shard was confirmed at the last
                                    // look
    uint64_t last_standby[SIM_SHARDS_MAX]; // the one that an owner wanted recorded before it died
    const struct sim_node *unheard;        // this node and the coordinator can't reach each other
    int64_t faults_until;
    char bad[512]; // the first violation
    struct sim_tally met;
    uint64_t faults_done;
};

// Runs one seed. `why` gets the violation, or "". Returns false for a violation. Adds to `tally`,
// which may be NULL.
bool sim_run(const struct sim_conf *conf, char why[512], struct sim_tally *tally);

// ---- between the files
bool sim_standbys(const struct sim *s);                    // true: every server has one
struct sim_node *sim_owner(struct sim *s, uint32_t shard); // serves the shard, or did last
void sim_choose_balance(struct sim *s);                    // balance.c; after the units exist
// The private region (charges.c).
void sim_choose_charges(struct sim *s);
bool sim_is_private(const struct sim *s, uint32_t worker);
void sim_charges_coordinator(const struct sim *s, struct ps_co_conf *conf);
void sim_charges_worker(const struct sim_node *n, struct wk_conf *conf);
void sim_loop_start(struct sim *s); // after the nodes exist
void sim_loop_death(struct sim_node *n, bool power);
void sim_loop_end(struct sim *s);      // after the nodes' ends
void sim_choose_epochs(struct sim *s); // faults.c; before the units exist
void sim_balance_start(struct sim *s);
void sim_judge_stock(struct sim *s);                    // the coordinator's sums match its units
void sim_balance_count(const struct sim_node *n);       // before the coordinator ends
bool sim_absent(const struct sim_node *n);              // an empty server's place
bool sim_has(const struct sim_node *n, uint32_t shard); // true: a server or standby of this shard
void sim_fail(struct sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_trace(const struct sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_node_start(struct sim_node *n);
void sim_note_durable(struct sim *s);
void sim_look(struct sim *s);          // checks the invariants of any moment (judge.c)
void sim_look_often(struct sim *s);    // checks which nodes serve, ten times a second (owners.c)
void sim_judging_begin(struct sim *s); // when the nodes exist, before they start
void sim_judging_end(struct sim *s);
void sim_node_die(struct sim_node *n, bool power); // it restarts after a while
// Events from the cores (watch.c): of a worker in all its lives, and of a server's durable records.
void sim_watch(struct sim_node *n);
void sim_saw_start(struct sim_node *n); // its slot shows whether the newest cut was committed
void sim_saw_death(struct sim_node *n);
// Hook of a server: the record is durable.
void sim_saw_folded(void *arg, uint32_t shard, const struct lh_record *r);
// A fault takes durable records from a server's disk. Call it while the server still runs, or
// before its directory changes, because it reads the current state. `from`: the first entry that a
// damaged tail takes (at 0: the log's last one), else NULL.
void sim_saw_loss(struct sim_node *n, enum sim_loss_kind kind, const struct ps_place *from);
// The directory of a worker or of the coordinator was lost, or replaced by an older one. For a
// server, call sim_saw_loss.
void sim_saw_wipe(struct sim_node *n);
void sim_saw_trouble(struct sim_node *n); // something new keeps it from answering in time
// With conf.tight_disks: a server with two checkpoints and some log above them gets a disk with
// space for one more checkpoint but no segment, until the end. Only trimming the log frees space.
void sim_tighten(struct sim *s);
// With conf.faults.move: an operator checks whether a move's target is gone for good.
void sim_operator_start(struct sim *s);
// Resets the operator's settings of a server that serves again, for its next start.
void sim_operator_sees(struct sim_node *n);
void sim_operator_refused(struct sim_node *n); // it reports that the shard is another server's
// Its log looks like an older copy's and it stops. Returns whether an operator lets it rebuild.
bool sim_operator_rebuilds(struct sim_node *n, lh_err err, const char *text);
void sim_disk_limit(struct sim_node *n); // applies its disk's capacity
void sim_faults_start(struct sim *s);
void sim_place_far(struct sim *s); // chooses the nodes with long paths, never a coordinator
// A server may lose its disk while a running worker has a copy of the stable point: the promise
// covers the loss of one of the two.
bool sim_may_lose(struct sim_node *n);
// True: a running worker has a copy of the registered stable point. False: none, or it is not
// known.
bool sim_stable_held(struct sim *s, uint32_t shard);
// The same for all points that the coordinator may register next: those that workers reported, that
// it asked the shard's server about, and copies lost with a worker's disk, whose reports may still
// arrive.
bool sim_claims_held(struct sim *s, uint32_t shard);
void sim_note_lost_copies(struct sim_node *n); // before a worker loses its disk
bool sim_fate(void *arg, const char *from, const char *to, enum lh_rpc rpc, struct lh_fate *fate);
void sim_judge(struct sim *s);
// Streams (streams.c): a fault's own random numbers, from the seed and the fault's name; then the
// faults that use them.
void sim_streams(struct sim *s);
uint64_t sim_draw(struct sim *s, enum sim_fault fault, uint64_t n); // below n
void sim_streams_start(struct sim *s);
// True: no message passes between these nodes, because a worker is cut from a server for good.
bool sim_is_cut(const struct sim *s, const char *from, const char *to);
void sim_streams_end(struct sim *s);
// An operator pauses and resumes the run (pauses.c). The hooks: a worker hears from the
// coordinator, ends a step, or is about to lose its memory. At the end the run is resumed.
void sim_strike_pause(struct sim *s);
void sim_pauses_heard(struct sim_node *n, bool paused);
void sim_pauses_stepped(struct sim_node *n);
void sim_pauses_end(struct sim *s);
// Units that travel (travel.c): when the units exist; a server's settings; a worker's.
void sim_choose_travel(struct sim *s);
LH_MUST lh_err sim_travel_gives(struct sim_node *n, struct ps_conf *conf);
void sim_travel_worker(struct sim_node *n, struct wk_conf *conf);
void sim_travel_stepped(const struct sim_node *n, uint64_t unit);
void sim_travel_count(const struct sim_node *n); // before the worker ends
int64_t sim_travel_delay(const struct sim *s, enum lh_rpc rpc, const char *to);
void sim_strike_travel(struct sim *s);
void sim_travel_end(struct sim *s);
void sim_travel_free(struct sim_node *n);
// A budget that ends the run and changes (budget.c). To be chosen after the links.
void sim_choose_budget(struct sim *s);
void sim_strike_budget(struct sim *s);
void sim_look_at_budget(struct sim *s); // called often
void sim_judge_budget(struct sim *s);   // called at the end

// Lying partners (liars.c): after all nodes have started; before the fabric is destroyed; the
// coordinator's setting of servers, or NULL.
void sim_liars_start(struct sim *s);
void sim_liars_end(struct sim *s);
const char *sim_liars_servers(struct sim *s);

// Two coordinators on one store (pair.c, pair_store.c), or one. sim_centre: the leader's node, or
// the first coordinator's without a leader. sim_coordinator: the leader, or NULL. sim_asked: the
// leader if an operator reaches it. sim_settled: all its changes are durable. sim_some_coordinator:
// a node, drawn where there are two.
struct sim_node *sim_centre(struct sim *s);
struct ps_coordinator *sim_coordinator(struct sim *s);
struct ps_coordinator *sim_asked(struct sim *s);
bool sim_settled(struct sim *s);
struct sim_node *sim_some_coordinator(struct sim *s);
const char *sim_coordinator_address(const struct sim *s); // the address that its clients dial
uint64_t sim_coordinator_lives(const struct sim *s);      // changes when one of their lives ends
void sim_choose_pair(struct sim *s);                      // when the fabric exists
void sim_pair_nodes(struct sim *s);                       // after all other nodes
void sim_pair_free(struct sim *s);
LH_MUST lh_err sim_pair_start(struct sim_node *n);         // a coordinator's process
LH_MUST lh_err sim_pair_client(struct sim_node *n);        // any other process
void sim_pair_ends(struct sim_node *n);                    // it died; ends its blocking calls
void sim_pair_buried(struct sim_node *n);                  // its coordinator is gone
bool sim_pair_again(const struct sim_node *n, lh_err err); // true: it restarts and waits
void sim_strike_pair(struct sim *s);
void sim_pair_heal(struct sim *s);
void sim_pair_answers(const struct sim_node *n); // a coordinator sends a message
void sim_pair_stepped(struct sim *s);            // a worker completed a step
bool sim_pair_is_well(struct sim *s);            // one leads, and the store answers it at once
void sim_look_at_pair(struct sim *s);            // ten times a second
bool sim_pair_file(struct sim *s, struct lh_span *out); // the store as a file; false: empty
// Links with caps (links.c): after units, balance and travel were chosen; a unit's tokens arrived
// at a worker; a worker is about to lose its memory.
void sim_choose_links(struct sim *s);
void sim_links_arrived(struct sim_node *n, uint64_t unit, const uint8_t *tokens, size_t bytes);
void sim_links_death(struct sim_node *n);
void sim_judge_links(struct sim *s); // holds at any moment
void sim_links_count(struct sim *s); // called at the end
// Copies of directories (copies.c), put back at a later start or served by another process.
void sim_strike_rollback(struct sim *s);
void sim_owner_ends(const struct sim_node *n); // before its memory is freed
void sim_strike_rollback_worker(struct sim *s);
void sim_strike_rollback_store(struct sim *s);
void sim_strike_clone(struct sim *s);
void sim_strike_full_target(struct sim *s); // targets.c
// True: an owner, or the coordinator, relies on this standby's confirmations.
bool sim_counted_on(const struct sim_node *n);
void sim_zombie_end(struct sim *s);
// Returns the zombie's address if a call to `to` ends at it, or NULL.
const char *sim_zombie_hears(struct sim *s, const char *from, const char *to);
void sim_copies_free(struct sim *s);
// disks.c: faults of a running server, which dies of them
bool sim_may_lose_tail(struct sim_node *n); // true: followers' disks have all that it may lose
void sim_lose_tail(struct sim_node *n);
void sim_lose_disk(struct sim_node *n);
void sim_damage_disk(struct sim_node *n);
void sim_rot(struct sim_node *n); // its newest checkpoint is damaged
// Draws from the world's stream.
static inline uint64_t sim_below(struct sim *s, uint64_t n)
{
    return lh_fake_random(s->world) % n;
}
// lives.c, faults.c, disks.c
void sim_make_node(struct sim *s, uint32_t at, enum sim_kind kind, uint32_t index); // not started
LH_MUST lh_err sim_server_start(struct sim_node *n);
// Takes `store`; NULL: the one in its directory.
LH_MUST lh_err sim_coordinator_start(struct sim_node *n, struct ps_store *store,
                                     bool (*leads)(void *arg), void *arg);
void sim_on_fatal(void *node, lh_err err, const char *text);
void sim_node_bury(struct sim_node *n, bool power);
void sim_make_zombie(struct sim *s);
void sim_disk_back(void *node);
#define sim_happened(s, name) ((void)(s)->met.happened[SIM_FAULT_##name]++)

#endif
