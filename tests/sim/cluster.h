// A simulated cluster: the cores of the real programs on one virtual clock, from a seed.
//
// One coordinator, two servers with a shard each (or, drawn from the seed, one or two with up to
// three), perhaps a standby of each, four workers in four regions with a synthetic trainer. Nodes
// are killed, lose power or their disk, are cut off, run out of disk, stand still; calls are lost,
// repeated, broken. Then faults cease, everything heals, the run comes to its end, and judge.c
// looks whether every invariant of server/docs/0000-protocol.md holds.
#ifndef SIM_CLUSTER_H
#define SIM_CLUSTER_H

#include "common/env/env_fake.h"
#include "common/net/mem/transport_mem.h"
#include "server/coordinator/balance/terms.h"
#include "server/core.h"
#include "tests/sim/setup.h"
#include "tests/sim/synthetic.h"
#include "worker/units/travel.h"

enum {
    SIM_SHARDS_MAX = 4,
    SIM_SERVERS = 2, // places for them: a run may leave the second one empty
    SIM_WORKERS = 4,
    SIM_STEP_TOKENS = 16,
    SIM_PRIVATE_STEPS = 60,     // Budget of the last worker, where its region is private.
    SIM_STANDBYS = SIM_SERVERS, // places for standbys, if the seed's faults have them
    SIM_FIRST_STANDBY = 1 + SIM_SERVERS + SIM_WORKERS,
    SIM_NODES_MAX = SIM_FIRST_STANDBY + SIM_STANDBYS + 1 // plus a second coordinator
};
enum { SIM_LIARS = 3 }; // partners that lie (liars.c)
enum { SIM_UNITS = 48, SIM_UNIT_TOKENS = 64, SIM_UNIT_BYTES = 2 * SIM_UNIT_TOKENS };
enum { SIM_CUTS_MAX = 4096 };
enum { SIM_SEQUENCE = 4 }; // tokens of one, as the trainer has them; a unit's fit a mask of 16 bits
// Refusals in turn of one worker and shard: more are a livelock (ten are never seen).
enum { SIM_REFUSED_MAX = 50 };

// With parameters of this size an fp32 number is a multiple of the quantum, whatever was added to
// it or scaled: so is every delta, and with 17 bits above the point their sums are exact.
static const float SIM_BASE = 98304, SIM_QUANTUM = 1.0f / 128;

#define SIM_JOB "simulated run 01" // LH_JOB_BYTES bytes

struct sim;
struct sim_judging; // judge.h
struct sim_pair;    // pair.h
struct sim_liar;    // liars.c

enum sim_kind { SIM_COORDINATOR, SIM_SERVER, SIM_WORKER, SIM_STANDBY };

struct sim_cut { // a push that a worker committed
    struct lh_incarnation incarnation;
    uint64_t step;
    bool committed; // false: it was kept in the outbox, and then a crash came
    bool seen;      // the judge saw it in the log
    bool copy;      // the outbox has it, as far as is known
};

// Cuts of one worker and shard.
struct sim_history {
    struct sim_cut cut[SIM_CUTS_MAX];
    uint32_t cuts;
    double *raw;    // per value: sum of the deltas of all committed cuts
    double *gone;   // part of it that declared losses took, as each was measured (mass.c)
    double *last;   // the newest delta
    double *undone; // the largest of deltas whose cut a start found not committed, since a commit
    bool pending;   // kept, and whether it is committed is not known yet: the newest cut
    bool lost;      // it declared a loss, in some life
    bool losing;    // it declared one since its mass was last measured
    bool slot_lost; // such a loss took its slot
    uint32_t refused_in_turn;
    // Tokens that were trained, by where they are: since the last cut, in one that is being made,
    // in committed ones. Tokens that a death took for certain, and at most (a cut may have been
    // committed or not).
    uint64_t uncut, cutting, lost_least, lost_most;
    uint16_t uncut_of[SIM_UNITS], cutting_of[SIM_UNITS], cut_of[SIM_UNITS]; // a bit: a sequence
};

// Training of one worker, in all its lives.
struct sim_training {
    uint64_t tokens; // tokens of steps that were done
    uint64_t again;  // tokens of these that may be of sequences it had trained before, at most
    uint16_t seen[SIM_UNITS];
    uint64_t twice; // tokens of sequences that it had trained before
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
    bool stands_by;                         // its settings say so: the shard was taken over from it
    bool put_back;                          // it has an old copy of its directory
    bool wiped;                             // it lost its directory, or had an older one
    bool emptied;                           // it is to start without a copy: its words said so
    // Its settings give up what a server held that is gone for good (rebuild.below_stable): an
    // operator's word, until it serves again.
    bool gives_up;
    bool lost_end; // a fault took its log's end, and it has not served since
    bool rebuilds; // an operator's word after that (rebuild.damaged), until it serves again
    bool refused;  // it stopped for that is not its shard, with the operator's word (operator.c)
    bool zombie;   // it has another one's directory, and does not reach the coordinator
    uint64_t disk_bytes; // bytes that its disk holds; 0: no bound
    bool cut_off;
    bool hung;         // a worker's trainer hangs for good, in all its lives
    int64_t paused_ns; // when this life of the worker heard that the run is paused; 0: it is not
    const struct sim_node *cut_from; // a worker does not reach this server until the run has ended
    uint64_t deaths;
    int64_t far_ns; // what every message from or to it takes longer, one way
    // Units that travel (travel.c): what a server believes of them, and how much later a message of
    // one comes; what a worker has.
    struct lh_units its;
    bool gives_nothing;
    int64_t slow_ns;
    struct wk_travel_conf travel;
    bool kept[SIM_UNITS], cached[SIM_UNITS];
    // The leader among two coordinators as it knows it (pair.c); the number of the last one whose
    // word it took, in all its lives.
    struct lh_leader leader;
    bool leader_unsaved;
    uint64_t leader_told;
};

enum { SIM_VERSIONS_MAX = 8192, SIM_POINTS_MAX = 2048, SIM_LOST_MAX = 64 };

struct sim_state {
    uint64_t epoch;
    struct lh_hash digest;
};

// Faults that take records which were durable. What a push that was acknowledged, and is in no log
// in the end, has to name (history.c).
enum sim_loss_kind {
    SIM_LOSS_NONE,
    SIM_LOSS_TAIL,
    SIM_LOSS_DISK,
    SIM_LOSS_DAMAGE,
    SIM_LOSS_ROLLBACK,
    SIM_LOSSES
};
extern const char *const sim_loss_name[SIM_LOSSES];

// The faults that a run may have; counts are upper bounds, a run picks at random.
//
// BASE(name) are drawn from the world's stream, one after the other: what a seed means depends on
// all of them. OWN(name) came later and draw from streams of their own (streams.c), so that a seed
// without them means what it meant before. "all" is both, "base" the first. APART(name) are in
// neither, for they change what the cluster is: its servers acknowledge with standbys, which take
// over; an operator lets workers, regions, the run stand still and go on; a server's newest
// checkpoint is damaged, alone; an operator moves shards between a server and its standby (without
// `standby` pushes are acknowledged by their owner alone); disks stall. OWN_APART(name) are like
// them, with streams of their own; with `far` some nodes have round trips of 0.6 to 3 s to all
// others, and silence and deadlines are bounded by what each reports of its path; `disks` loses and
// damages servers' disks more often, where `disk_loss` and `damage` are on; `full_target` lets the
// target of a move begin anew on a full disk (targets.c), where `move` is on; with `travel` workers
// have their own region's files alone, and givers of the others' fail (travel.c); with `links`
// there are caps on what may travel (links.c); with `budget` the run ends before all units are
// trained, and an operator changes where (budget.c).
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
    // Every delta a multiple of SIM_QUANTUM, codecs that keep them so: sums are exact, and mass is
    // compared in bits.
    bool exact;
    bool pair;        // two coordinators on one store
    bool device;      // half of the workers keep their state on a made-up device
    bool tight_disks; // see sim_tighten()
    int64_t crash_at; // the first worker crashes at this operation of its files; < 0: it does not
    bool crash_power; // it loses its power too
};

struct sim_tally { // what runs met, summed up by the caller
    uint64_t events, admitted, refused, clipped;
    uint64_t outer_steps;             // steps of optimizers that keep state
    uint64_t disks, damaged, rebuilt; // lost and damaged disks; shards back from a follower's state
    uint64_t taken_over;              // shards, by standbys
    uint64_t moved;                   // shards, from owner to standby, both alive
    uint64_t equal;                   // values whose mass was the same in bits, nothing being lost
    uint64_t compared;                // digest records that a device's parameters agreed with
    uint64_t full;                    // groups that found no room
    uint64_t struck;                  // crashes that were asked for by crash_at
    uint64_t happened[SIM_FAULT_COUNT]; // faults that did come about
    // The judge's: pushes that were acknowledged as admitted, and of them those that a named loss
    // took; worker-shards whose mass was measured, and measured losses; what the coordinator
    // answered; take-overs, and the longest silence before one.
    uint64_t acknowledged, exempt[SIM_LOSSES];
    uint64_t balanced, mass_losses;
    uint64_t answers;
    // Units that the balancer gave to another region by its plan, that it recalled for another
    // worker, and that it let run twice.
    uint64_t planned, stolen, run_twice;
    uint64_t recalls, returns; // answers that recalled leases, and answers that took some back
    uint64_t silences;
    int64_t silence_ns;
    uint64_t given_up; // workers, for their silence, where bounds follow from paths
    // Units that travelled, that were refused to a worker alone, and begun ones that it gave back.
    uint64_t travelled, refused_units, begun_back;
    // Bytes of units over links with a cap, and how many of these had no room for another one.
    uint64_t crossed, full_links;
    // Runs with two coordinators; leaders in them; changes that the store refused; steps of workers
    // while nobody led.
    uint64_t pairs, leaders, refused_changes, leaderless_steps;
    uint64_t short_runs; // runs that a budget ended before all was trained
    // Runs in which a partner lied, pushes of liars that were admitted, units that they claimed and
    // had leases of.
    uint64_t lied, lies_admitted, lies_credited;
};

// Turn of a fault with a stream of its own.
struct sim_turn {
    struct sim *sim;
    size_t strike;
};

// The target of a move that is to be struck, or was (targets.c).
struct sim_ambush {
    struct sim *sim;
    struct sim_node *target;
    enum { SIM_AMBUSH_NONE, SIM_AMBUSH_WAITS, SIM_AMBUSH_DOWN, SIM_AMBUSH_FULL } stage;
    int64_t until, lasts; // the end of this stage; how long its disk is full, ns
    bool cut, workers;    // it loses its power before there is room; all workers die, too
    bool damaged;         // it was seen to start on the damaged file
};

// Bytes that crossed one link, from a home to a worker's region (links.c).
struct sim_crossed {
    uint64_t bytes;  // Those of units that came, whole and right.
    uint64_t again;  // Part of them: units that had come to the same worker before.
    uint64_t untold; // the most that no request had told of when the worker died
};

// Image of a directory (copies.c).
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
    bool reported;                     // it is so by its loop's word
    struct beside *loop;               // The loop; NULL: none.
    bool ending;                       // nothing is started any more
    int64_t ride_out_ns;               // leased ahead by the coordinator, in all its lives
    uint32_t epochs;                   // data epochs, of SIM_UNITS / epochs units each
    bool epochs_named;                 // the workers' settings say so many, and not 0
    struct ps_co_balance_conf balance; // the coordinator's rule, in all its lives
    uint64_t budget_tokens;            // the coordinator's; 0: every unit
    struct {
        uint64_t most;  // the largest that any setting had
        uint64_t seen;  // the coordinator's, at the last look
        bool stalled;   // a worker was: its units went to others, and its claims may come still
        uint64_t ended; // the one that the run ended by; 0: it has not
    } budget;           // tokens; a setting of 0 is all of them
    bool caches;        // workers keep what travelled over their lives
    struct {
        struct ps_terms terms;
        struct ps_co_links_conf conf;
        double cap[SETUP_REGIONS][SETUP_REGIONS]; // bytes; < 0: none
        struct sim_crossed crossed[SETUP_REGIONS][SETUP_REGIONS];
        bool came[SIM_WORKERS][SIM_UNITS];
    } links;
    struct sim_node *struck; // the worker that hangs or is cut for good; NULL: none
    double norm_gate;
    float *initial;
    uint32_t shards, shape[SIM_SERVERS]; // all of them; each server's
    uint64_t stream[SIM_FAULT_COUNT];    // random states of the faults that have streams
    struct sim_turn turn[SIM_FAULT_COUNT];
    struct sim_ambush ambush;
    struct sim_image
        // Images of each node's directory: one to be put back, one to be served.
        *copy[SIM_NODES_MAX][2];
    // A process with a copy of a server's directory that answers at that server's address; its env
    // is NULL before the first one. Not in `node`: what it does counts only by what others do then.
    struct sim_node zombie;
    const struct sim_node *haunted; // whose address it is; NULL: there is none now
    struct sim_history history[SIM_WORKERS][SIM_SHARDS_MAX];
    struct sim_training training[SIM_WORKERS];
    struct sim_judging *judging;
    struct sim_pair *pair;            // NULL: one coordinator, with a store in its folder
    struct sim_liar *liar[SIM_LIARS]; // NULL: this kind is not there
    char servers[1024];               // whom the coordinator's settings name, where one lies
    struct lh_blob *kept[SIM_SHARDS_MAX][SIM_VERSIONS_MAX]; // every durable record, by version
    uint64_t durable[SIM_SHARDS_MAX]; // highest version that a worker made a durable copy of
    struct lh_point stable[SIM_SHARDS_MAX][SIM_POINTS_MAX]; // registered, as they were seen
    uint32_t stables[SIM_SHARDS_MAX];
    struct lh_point lost[SIM_SHARDS_MAX][SIM_LOST_MAX]; // copies on disks that workers lost
    uint32_t lost_count[SIM_SHARDS_MAX];
    struct sim_state state[SIM_SHARDS_MAX][SIM_VERSIONS_MAX]; // what a replica held at a version
    bool faulty;                                              // faults are on
    uint64_t unreached[SIM_SHARDS_MAX]; // epoch of a move whose target an operator found to be gone
    uint64_t awaited[SIM_SHARDS_MAX];   // a standby that an owner waits for and an operator misses
    bool undecided[SIM_SHARDS_MAX]; // operator.c: no state of the shard was confirmed at the last
                                    // look
    uint64_t last_standby[SIM_SHARDS_MAX]; // the one that an owner wanted noted before it died
    const struct sim_node *unheard;        // this one and the coordinator don't reach each other
    int64_t faults_until;
    char bad[512]; // the first violation
    struct sim_tally met;
    uint64_t faults_done;
};

// Runs one seed; `why` gets the violation, empty: none. Returns false when there is one. Adds to
// `tally`, which may be NULL.
bool sim_run(const struct sim_conf *conf, char why[512], struct sim_tally *tally);

// ---- between the files
bool sim_standbys(const struct sim *s);                    // does every server have one?
struct sim_node *sim_owner(struct sim *s, uint32_t shard); // the node that serves it, or did last
void sim_choose_balance(struct sim *s);                    // balance.c; when there are units
// The private region (charges.c).
void sim_choose_charges(struct sim *s);
bool sim_is_private(const struct sim *s, uint32_t worker);
void sim_charges_coordinator(const struct sim *s, struct ps_co_conf *conf);
void sim_charges_worker(const struct sim_node *n, struct wk_conf *conf);
void sim_loop_start(struct sim *s); // when there are nodes
void sim_loop_death(struct sim_node *n, bool power);
void sim_loop_end(struct sim *s);      // after the nodes' ends
void sim_choose_epochs(struct sim *s); // faults.c; before there are units
void sim_balance_start(struct sim *s);
void sim_judge_stock(struct sim *s);              // the coordinator's sums are those of its units
void sim_balance_count(const struct sim_node *n); // before the coordinator ends
bool sim_absent(const struct sim_node *n);        // a server's place that is left empty
bool sim_has(const struct sim_node *n, uint32_t shard); // is it a server of this shard?
void sim_fail(struct sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_trace(const struct sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_node_start(struct sim_node *n);
void sim_note_durable(struct sim *s);
void sim_look(struct sim *s);          // checks what must hold at any moment (judge.c)
void sim_look_often(struct sim *s);    // checks which nodes serve, ten times a second (owners.c)
void sim_judging_begin(struct sim *s); // when there are nodes, before they start
void sim_judging_end(struct sim *s);
void sim_node_die(struct sim_node *n, bool power); // it comes back after a while
// The cores' words (watch.c): a worker in all its lives, a server of each durable record.
void sim_watch(struct sim_node *n);
void sim_saw_start(struct sim_node *n); // its slot tells whether the newest cut was committed
void sim_saw_death(struct sim_node *n);
// A node's hook; the record is durable.
void sim_saw_folded(void *arg, uint32_t shard, const struct lh_record *r);
// A fault takes durable records of the servers' disks. To be called while the server still runs, or
// before its directory is touched: it looks at what is there. `from`: the first entry that a
// damaged tail takes (at 0: its last one); else NULL.
void sim_saw_loss(struct sim_node *n, enum sim_loss_kind kind, const struct ps_place *from);
// The whole directory of a worker, or of the coordinator, is gone or an older one. A server's is a
// loss.
void sim_saw_wipe(struct sim_node *n);
void sim_saw_trouble(struct sim_node *n); // what keeps it from answering in time, so far unseen
// With conf.tight_disks: a server that has two checkpoints and some log above them gets a disk that
// holds another one, but no other segment, to the end of the run; only a cut of the log makes room.
void sim_tighten(struct sim *s);
// With conf.faults.move: an operator looks whether the target of a move is gone for good.
void sim_operator_start(struct sim *s);
// A former owner that goes on: its setting is what it was before, for the next start.
void sim_operator_sees(struct sim_node *n);
void sim_operator_refused(struct sim_node *n); // the shard is another server's, it says
// It stops because its log looks like an older copy's: does an operator let it rebuild its shards?
bool sim_operator_rebuilds(struct sim_node *n, lh_err err, const char *text);
void sim_disk_limit(struct sim_node *n); // its disk's bytes hold from here on
void sim_faults_start(struct sim *s);
void sim_place_far(struct sim *s); // chooses the nodes with long paths, the coordinator never
// A server's disk may be lost while a worker's is there that has a copy of the stable point: the
// promise is about one or the other.
bool sim_may_lose(struct sim_node *n);
// Does a worker that runs hold a copy of the point that is registered as stable? False: not known.
bool sim_stable_held(struct sim *s, uint32_t shard);
// The same of all points that the coordinator may register next: what workers said, what it asked
// the shard's server about, and copies that were lost with a worker's disk: their word may still
// come.
bool sim_claims_held(struct sim *s, uint32_t shard);
void sim_note_lost_copies(struct sim_node *n); // before a worker loses its disk
bool sim_fate(void *arg, const char *from, const char *to, enum lh_rpc rpc, struct lh_fate *fate);
void sim_judge(struct sim *s);
// Streams (streams.c): a fault's own random numbers, from the seed and its name; then the faults
// that use them.
void sim_streams(struct sim *s);
uint64_t sim_draw(struct sim *s, enum sim_fault fault, uint64_t n); // below n
void sim_streams_start(struct sim *s);
// Messages between these nodes do not arrive: a worker is cut from a server for good.
bool sim_is_cut(const struct sim *s, const char *from, const char *to);
void sim_streams_end(struct sim *s);
// An operator pauses and resumes the run (pauses.c). A worker heard the coordinator's word, ends a
// step, or is about to lose its memory. In the end the run goes on.
void sim_strike_pause(struct sim *s);
void sim_pauses_heard(struct sim_node *n, bool paused);
void sim_pauses_stepped(struct sim_node *n);
void sim_pauses_end(struct sim *s);
// Units that travel (travel.c): when there are units; a server's settings; a worker's.
void sim_choose_travel(struct sim *s);
LH_MUST lh_err sim_travel_gives(struct sim_node *n, struct ps_conf *conf);
void sim_travel_worker(struct sim_node *n, struct wk_conf *conf);
void sim_travel_stepped(const struct sim_node *n, uint64_t unit);
void sim_travel_count(const struct sim_node *n); // before the worker ends
int64_t sim_travel_delay(const struct sim *s, enum lh_rpc rpc, const char *to);
void sim_strike_travel(struct sim *s);
void sim_travel_end(struct sim *s);
void sim_travel_free(struct sim_node *n);
// A budget that ends the run, and changes (budget.c): after links were chosen.
void sim_choose_budget(struct sim *s);
void sim_strike_budget(struct sim *s);
void sim_look_at_budget(struct sim *s); // Called often.
void sim_judge_budget(struct sim *s);   // Called in the end.

// Partners that lie (liars.c): when all nodes have started; before the fabric goes; whom the
// coordinator's settings name as servers, NULL: nobody.
void sim_liars_start(struct sim *s);
void sim_liars_end(struct sim *s);
const char *sim_liars_servers(struct sim *s);

// Two coordinators on one store (pair.c, pair_store.c), or one. The node of the one that leads;
// where none does, of the first one. The one that leads, or NULL; the same where an operator
// reaches it. Is all that it changed durable? One of them, drawn where there are two.
struct sim_node *sim_centre(struct sim *s);
struct ps_coordinator *sim_coordinator(struct sim *s);
struct ps_coordinator *sim_asked(struct sim *s);
bool sim_settled(struct sim *s);
struct sim_node *sim_some_coordinator(struct sim *s);
const char *sim_coordinator_address(const struct sim *s); // what its clients dial
uint64_t sim_coordinator_lives(const struct sim *s);      // changes with each life that is over
void sim_choose_pair(struct sim *s);                      // when there is a fabric
void sim_pair_nodes(struct sim *s);                       // when there are all others
void sim_pair_free(struct sim *s);
LH_MUST lh_err sim_pair_start(struct sim_node *n);         // a coordinator's process
LH_MUST lh_err sim_pair_client(struct sim_node *n);        // anybody else's
void sim_pair_ends(struct sim_node *n);                    // it is dead; what it waits for ends
void sim_pair_buried(struct sim_node *n);                  // its coordinator is gone
bool sim_pair_again(const struct sim_node *n, lh_err err); // starts again, stands by
void sim_strike_pair(struct sim *s);
void sim_pair_heal(struct sim *s);
void sim_pair_answers(const struct sim_node *n); // a coordinator sends something
void sim_pair_stepped(struct sim *s);            // a worker made a step
bool sim_pair_is_well(struct sim *s);            // one leads, and its store answers it at once
void sim_look_at_pair(struct sim *s);            // ten times a second
bool sim_pair_file(struct sim *s, struct lh_span *out); // the store as a file; false: empty
// Links with caps (links.c): after units, balance and travel were chosen; a unit's
// tokens arrived at a worker; a worker is about to lose its memory.
void sim_choose_links(struct sim *s);
void sim_links_arrived(struct sim_node *n, uint64_t unit, const uint8_t *tokens, size_t bytes);
void sim_links_death(struct sim_node *n);
void sim_judge_links(struct sim *s); // Holds at any moment.
void sim_links_count(struct sim *s); // Called in the end.
// Copies of directories (copies.c): put back at a later start, or served by another process.
void sim_strike_rollback(struct sim *s);
void sim_owner_ends(const struct sim_node *n); // before its memory goes
void sim_strike_rollback_worker(struct sim *s);
void sim_strike_rollback_store(struct sim *s);
void sim_strike_clone(struct sim *s);
void sim_strike_full_target(struct sim *s); // targets.c
// Does anybody, or the coordinator's note, count on what this standby confirmed?
bool sim_counted_on(const struct sim_node *n);
void sim_zombie_end(struct sim *s);
// Names the zombie with the address of `to`, with which a call ends up; NULL: there is none.
const char *sim_zombie_hears(struct sim *s, const char *from, const char *to);
void sim_copies_free(struct sim *s);
// disks.c: of a server that runs, and dies of it
bool sim_may_lose_tail(struct sim_node *n); // does it hold nothing that followers' disks have?
void sim_lose_tail(struct sim_node *n);
void sim_lose_disk(struct sim_node *n);
void sim_damage_disk(struct sim_node *n);
void sim_rot(struct sim_node *n); // its newest checkpoint
// A number from the world's stream.
static inline uint64_t sim_below(struct sim *s, uint64_t n)
{
    return lh_fake_random(s->world) % n;
}
// (lives.c, faults.c, disks.c)
void sim_make_node(struct sim *s, uint32_t at, enum sim_kind kind, uint32_t index); // not started
LH_MUST lh_err sim_server_start(struct sim_node *n);
// `store` is taken; NULL: the one in its folder.
LH_MUST lh_err sim_coordinator_start(struct sim_node *n, struct ps_store *store,
                                     bool (*leads)(void *arg), void *arg);
void sim_on_fatal(void *node, lh_err err, const char *text);
void sim_node_bury(struct sim_node *n, bool power);
void sim_make_zombie(struct sim *s);
void sim_disk_back(void *node);
#define sim_happened(s, name) ((void)(s)->met.happened[SIM_FAULT_##name]++)

#endif
