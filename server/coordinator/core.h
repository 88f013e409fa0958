// Core: the coordinator's memory, and the functions that every file of this folder uses.
//
// Memory is of two kinds. State with a row in the store is read from there at a start and after a
// failed commit (ps_co_load of commit.h). All other state, such as the last reports of servers and
// workers, is lost with the process, and reported again. The comment of a field names the file that
// changes it.
//
// Times of members and servers (*_ns) are the listener's time (ps_co_now), not the env's.
#ifndef PS_CO_CORE_H
#define PS_CO_CORE_H

#include "common/base/estimate.h"
#include "common/base/limits.h"
#include "common/env/machine.h"
#include "common/format/ledger.h"
#include "common/format/manifest.h"
#include "common/format/plan.h"
#include "common/format/point.h"
#include "common/format/units.h"
#include "common/net/listener.h"
#include "common/net/trip.h"
#include "common/privacy/account.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/store.h"

struct ps_co_balancer;
struct ps_co_claim;
struct ps_co_commit;
struct ps_co_decisions;
struct ps_co_hook;
struct ps_co_rules;
struct ps_co_scale;
struct ps_co_states;

enum {
    PS_DRAINED_REGIONS_MAX = 64, // upper bound on regions that operators drain at a time
    PS_CO_STANDBYS = 4,          // the last standbys of a shard that are remembered
    PS_CO_GUESSES = 4 * LH_WORKERS_MAX,
    PS_CO_RIGHTS = 8,                      // servers that may own a shard or stand by for it
    PS_CO_SERVER_NAME = 2 * LH_NAME_BYTES, // REGION/NAME
};

struct ps_co_path { // a worker's path to a server, as the worker measured it
    uint32_t shard; // the lowest shard of that server
    struct lh_trip trip;
    struct lh_estimate push_s, up, down; // up, down: bytes a second
};

enum { CO_FREE = 0 }; // a free unit; any other value is the holder's index + 1
enum ps_co_begun { CO_WAITS, CO_BEGUN, CO_CLAIMED, CO_BEGUN_COUNT }; // as its holder reports

struct ps_co_held { // balance/stock.c: a worker's leased units that are not credited
    uint32_t head;  // first unit of the list, + 1
    uint64_t units, tokens[CO_BEGUN_COUNT];
    uint64_t away_tokens; // tokens of waiting units that are recalled for other workers
};
struct ps_co_wanted { // balance/stock.c: units recalled for a worker or kept for it
    uint32_t head;
    uint64_t units, kept_units, kept_tokens; // kept: returned by their holders
    uint64_t coming_tokens;                  // tokens of units that others still hold
};

struct ps_co_measured { // balance/measure.c: as last reported by the worker
    double tokens_spread;
    struct lh_estimate batch_s;
    uint64_t begun_tokens;   // untrained tokens of begun units; 0: not known
    double loss;             // training loss, nats per token; 0: not reported
    double utilisation;      // share of the time in which a step ran; 0: not known
    struct ps_co_path *path; // LH_PATHS_MAX of them; NULL: none was ever reported
    uint32_t paths;
};

struct ps_co_admitted { // balance/measure.c: one worker's pushes, as last reported by a shard's
                        // server
    uint64_t pushes, tokens, charged;
    bool set_aside;
    uint64_t round; // mode bsp
};

struct ps_co_evidence {     // balance/measure.c: tokens admitted while the worker trained
    int64_t since_ns;       // time of the last look; 0: the worker did not train then
    uint64_t seen;          // admitted tokens at that look
    double tokens, seconds; // decaying sums
};

struct ps_co_away { // balance/away.c: a home whose units travel to a worker, as last reported by it
    uint32_t home;  // index in c->stock.home
    bool closed;
    struct lh_estimate bytes_per_s;
    struct lh_trip trip;
};

struct ps_co_crossing {     // balance/crossed.c: bytes of a home's units that reached a worker
    uint32_t home;          // index in c->stock.home
    uint64_t bytes;         // sum over all processes of the worker
    uint64_t seen, process; // part of the last process, and its number
};

struct ps_co_proved { // stable.c: a copy that a worker has proved
    struct lh_point at;
    struct lh_hash digest;
};

struct ps_co_expelled { // expel.c
    uint64_t id;        // lh_worker_id() of its certificate
    bool server;
    char region[LH_NAME_BYTES], name[LH_NAME_BYTES];
};

struct ps_co_giver { // balance/away.c: a server that gives the units of its region
    uint64_t server; // the id of its certificate
    char region[LH_NAME_BYTES], address[LH_ADDRESS_BYTES];
    int64_t heard_ns;
};

// Stages of a run, for cadences that differ by stage.
enum ps_co_stage { PS_CO_EARLY, PS_CO_MIDDLE, PS_CO_LATE };

struct ps_co_pace {   // cadence.c: the local steps in force, and the base that they follow from
    uint32_t h, base; // h 0: none yet
    uint32_t told;    // H of the last event; 0: no event yet
    int64_t said_ns;  // time of that event
};

// Reasons why a worker that is heard counts as stalled: its trainer makes no step, no push is
// admitted, others wait for its push of a round, or its loop fails with values that are not finite.
enum ps_co_stall_why {
    PS_CO_GOES_ON,
    PS_CO_NO_STEP,
    PS_CO_NO_PUSH,
    PS_CO_HOLDS_ROUND, // mode bsp
    PS_CO_FAILING
};

struct ps_co_hold { // one shard's round, by its server's reports
    int64_t ns;     // time for which others have waited for the worker's push of it
    uint64_t round;
    bool counted; // Stalls of this round are part of `held`.
};

struct ps_co_stall { // watch/stall.c
    // As last reported by the worker: time without a possible step, time of a step (0: not known),
    // longest time that a shard has admitted no push of it, that shard, and local steps.
    int64_t idle_ns, step_ns, waits_ns;
    uint32_t shard, local_steps;
    bool failing;                      // the worker reports a failing loop
    uint64_t lost_pushes, lost_tokens; // losses that it reported after it was left out
    enum ps_co_stall_why why;
    int64_t since_ns, bound_ns; // when it stalled, and the bound that it exceeded
    int64_t ended_ns, rest_ns;  // when it moved again, and the least time that it stays stalled
    uint32_t turns;             // stalls in quick succession
    // Mode bsp: manifest->shards of them, NULL: it held no round yet; the longest, and its shard.
    struct ps_co_hold *hold;
    int64_t holds_ns;
    uint32_t holds_shard;
    uint32_t held; // how often that exceeded the bound, and the bound then
    int64_t hold_bound_ns;
    int64_t out_until_ns; // until then nobody waits for it; 0: others do
};

// A worker's state as operators and hooks see it (watch/states.c).
enum ps_co_state {
    PS_CO_NEW, // not looked at yet
    PS_CO_LIVE,
    PS_CO_STALLED,   // heard, but without progress: its units go to others
    PS_CO_SUSPECT,   // silent for half of its bound
    PS_CO_LOST,      // silent for its bound: its units went to others
    PS_CO_DRAINED,   // stands still, as an operator asked
    PS_CO_DONE,      // has folded the run's end
    PS_CO_SET_ASIDE, // a shard refuses its pushes until an operator lets it back
    PS_CO_EXPELLED,
};

struct ps_co_worker { // changed by member.c, unless a field names another file
    uint64_t id;
    char region[LH_NAME_BYTES], name[LH_NAME_BYTES];
    uint32_t granted;     // granted number of its incarnation
    uint64_t attempt;     // the fresh join that was granted the number in force; 0: none
    uint64_t incarnation; // as last seen
    int64_t seen_ns;
    struct lh_trip trip;        // silence.c: round trip of the path, as last reported by the worker
    struct lh_trip stored_trip; // silence.c: the round trip in the store
    bool stored;                // the store has a row of the worker
    bool joined, drained, done;
    bool spent;             // its privacy budget is spent: it leaves
    bool drained_kept;      // plan.c: `drained` as the store has it
    enum ps_co_state state; // watch/states.c: at the last look
    uint32_t notes;         // watch/states.c: changes of `state` that count against the bound
    int64_t noted_ns;       // when they began to count
    bool live;              // plan.c
    bool asked;             // drain.c: an operator wants this worker drained
    bool left;              // plan.c: it has drained, as it or its region was asked to: not counted
    int64_t left_ns;        // plan.c: when it had drained; 0: its leases went to others
    double tokens_per_s, tokens_said; // believed (balance/measure.c); reported
    uint64_t tokens, step_tokens;     // the most that it reported; as last reported
    uint64_t rest_tokens;             // watch/ending.c: admitted ones at the run's last credit
    uint64_t tokens_kept;             // member.c: `tokens` as the store has it
    int64_t tokens_kept_ns;           // when the store got it
    struct ps_co_measured measured;
    struct ps_co_admitted *admitted; // manifest->shards of them; NULL: nothing was reported
    struct ps_co_evidence evidence;
    int64_t admitted_ns;     // when a report last had more admitted pushes; 0: never
    struct ps_co_away *away; // LH_AWAY_MAX of them; NULL: none was ever reported
    uint32_t aways;
    // balance/away.c: units of the data that don't reach it, LH_REFUSED_MAX of them; NULL: none was
    // ever reported.
    uint64_t *refused;
    uint32_t refused_count;
    struct ps_co_crossing *crossing; // LH_AWAY_MAX of them; NULL: nothing crossed
    uint32_t crossings;
    uint64_t *fetches; // balance/crossed.c: units over capped links that it may be fetching
    size_t fetch_count;
    struct lh_machine machine; // machine.c: as reported with the last join
    struct ps_co_pace pace;
    struct ps_co_stall stall;
    struct ps_co_held held;
    uint64_t lease_tokens; // tokens of all units that were ever leased to it; stored
    struct ps_co_wanted wanted;
    bool gives;      // it returns recalled units
    bool idle;       // it asked for no unit last: its loop is away and trains nothing
    bool evaluates;  // it has evaluated the model on held-out texts
    int64_t away_ns; // when it first said that its loop is away; 0: the loop is there
    // balance/level.c: untrained tokens of its leases, and the part that may be recalled for
    // another worker. Valid within one request only.
    uint64_t left_tokens, spare_tokens;
    struct lh_point *final;    // manifest->shards of them, when done
    struct ps_co_claim *claim; // stable.c: manifest->shards of them; NULL: nothing was claimed yet
};

struct ps_co_standby { // owners/move.c: a standby's last report
    uint64_t identity;
    uint64_t server; // the id of its certificate
    uint64_t begun;  // the standby opens no epoch up to this one
    // The report with `begun`: the process that sent it, and its number in that process.
    uint64_t process, number;
    char name[LH_NAME_BYTES], region[LH_NAME_BYTES];
    struct lh_trip trip;
    struct lh_point head; // the most that it is known to have confirmed
    int64_t heard_ns;
};

struct ps_co_right {    // owners/rights.c: a server that may own a shard or stand by for it
    uint64_t server;    // the id of its certificate
    uint8_t may, named; // rights from the store; rights from the settings
    char name[PS_CO_SERVER_NAME];
};

struct ps_co_shard {
    // The last report of the shard's server (servers.c).
    bool reported;
    uint64_t process; // the server's process
    char address[LH_ADDRESS_BYTES];
    char name[LH_NAME_BYTES], region[LH_NAME_BYTES]; // "": not heard by this process
    struct lh_point head;
    uint64_t tokens, plan;
    int64_t grew_ns; // when `tokens` last rose (watch/stall.c); 0: not in this process
    uint32_t phase;
    uint8_t *credit; // packed (common/format/credit.h)
    size_t credit_bytes;
    // The shard's first uncredited unit of the run, and the unit after its last credited one.
    uint64_t credit_open, credit_end;
    // When the shard's server was last heard (owners/insync.c, core.c).
    int64_t heard_ns;
    int64_t back_ns;            // when it was heard after a silence; 0: there was none
    uint64_t heard_of;          // the id of that server's certificate
    uint64_t heard_after;       // the coordinator's pauses up to then
    struct lh_trip trip;        // silence.c: round trip of the path, as last reported by the server
    struct lh_trip stored_trip; // silence.c: the trip that the store has
    // The shard's history (owners/epochs.c): where each epoch began, ascending, and the last one's
    // token.
    struct lh_point *begun;
    size_t epochs;
    uint64_t token;
    uint64_t ticket; // only a request with this ticket opens an epoch (epochs.c)
    // The point that is durable outside of the shard's server (stable.c).
    struct lh_point stable;
    struct lh_hash stable_digest; // digest of its state, by several regions; zeros: not known
    int64_t lone_ns;      // when a copy of one region began to wait for a second; 0: none waits
    bool single;          // the stable point is one region's copy
    uint32_t asked_up_to; // index of the worker whose copy the server is asked about next
    // First bytes of the digest of the state that an operator chose (owners/choice.c).
    struct lh_hash choice;
    size_t choice_bytes; // 0: none was chosen
    // The shard's owner and its standby (owners/owner.c explains the row).
    uint64_t owner, standby, changes, least, server, gone;
    struct ps_co_right right[PS_CO_RIGHTS]; // owners/rights.c
    uint32_t rights;
    // The standby in sync that can't take over, because another shard of its server needs its
    // owner; 0: none. `held_at` is the address that gives the standby's state (owners/insync.c).
    uint64_t held_by;
    char held_at[LH_ADDRESS_BYTES];
    // The shard's move (owners/move.c).
    struct ps_co_standby standing[PS_CO_STANDBYS];
    struct lh_move move; // the last reserved move; target 0: it is over
    bool unwanted;       // the move's target is asked to refuse it
};

enum { PS_CO_STOCK_LEVELS = 4, PS_CO_SECONDS_MAX = 64 };

struct ps_co_pool { // balance/stock.c: the units of one home that may leave it, or those that may
                    // not
    uint32_t home;
    bool leaves;
    uint64_t first, end; // slots
    uint64_t free_units, free_tokens;
    uint64_t leased_units[CO_BEGUN_COUNT], leased_tokens[CO_BEGUN_COUNT]; // not credited
};
struct ps_co_stock {   // balance/stock.c
    const char **home; // regions that are the home of units
    uint32_t homes, pools;
    struct ps_co_pool *pool; // 2 * home, + 1: those that may leave
    uint32_t *pool_of;       // [units of the data]
    uint32_t *slot, *at;     // [units]: slot of a unit; unit of a slot
    uint32_t *turn; // [units]: position in the order of the run; NULL: in order of their numbers
    uint64_t *bits[PS_CO_STOCK_LEVELS], words[PS_CO_STOCK_LEVELS]; // free units, by slot
    uint32_t levels;
    uint32_t *held[2], *wanted[2]; // [units]: next unit + 1; previous unit + 1
    uint64_t free_units, leased_units, credited_units;
    uint64_t credited_tokens, committed_tokens; // committed: credited or leased
};
struct ps_co_rest {               // watch/ending.c: units that no progressing worker may train
    bool counts;                  // nobody trains them now
    bool given_up;                // the run drains without them
    int64_t credited_ns, seen_ns; // the last credit; the last look
    int64_t waited_ns;            // time for which nobody did, since the last credit
    uint64_t credited_units;      // units, as of the last look
    bool silent;                  // a server was, at the last look
    uint8_t phase;                // the plan's at the last look
    int64_t silences;             // times that a server fell silent in this phase
};
struct ps_co_second_lease { // balance/lease.c: a unit that runs twice, and its second worker
    uint64_t unit;
    uint32_t worker, number; // index of the worker; number of its grant
};

struct ps_co_told { // status.c: a state that an operator reads in slices
    struct lh_buf text;
    uint64_t number; // 0: nobody reads it
    uint64_t reader; // id of the certificate
    int64_t read_ns; // when its last slice was read
};

enum { PS_CO_READERS_MAX = 8, PS_CO_TEXTS_OF_A_READER = 2 };
struct ps_co_status {      // status.c: bytes of status.json; empty: none
    struct lh_buf durable; // newest state whose changes are durable
    struct lh_buf made;    // next state; durable once change made_change is
    uint64_t made_change;
    struct ps_co_told told[PS_CO_READERS_MAX];
};

struct ps_co_pause { // pause.c
    bool is;
    int64_t since_s; // wall time
    char by[LH_NAME_BYTES], why[LH_PAUSE_WHY_BYTES];
};

enum ps_co_refold_stage {
    PS_CO_NO_REFOLD,
    PS_CO_REFOLD_ASKED, // every server is asked whether it can
    PS_CO_REFOLD_REFUSED,
    PS_CO_REFOLD_GOES,
    PS_CO_REFOLD_OVER
};
enum ps_co_refold_state { // The state of one shard.
    PS_CO_SHARD_ASKED,
    PS_CO_SHARD_POSSIBLE,
    PS_CO_SHARD_DONE,
    PS_CO_SHARD_KEPT // its server could not do it after all
};
struct ps_co_refold_shard {
    uint64_t to; // UINT64_MAX: it stays at its head
    enum ps_co_refold_state state;
    uint64_t left_out; // pushes, of all shards of its server, with the first one of these
};
struct ps_co_refold { // owners/refold.c: the last order to take the shards back
    enum ps_co_refold_stage stage;
    uint64_t number, without, from;
    char whom[PS_CO_SERVER_NAME];
    struct ps_co_refold_shard *shard; // manifest->shards of them
    bool gone;                        // refused, since a version is not kept, or not there yet
    char why[400];
    char waits[PS_CO_SERVER_NAME + 24]; // the first server that it waits for
    int64_t asked_ns;                   // when an operator last asked
};

struct ps_co_budget {       // goes_on.c
    uint64_t tokens, units; // tokens: the declared budget, or those of the data if there is none
};

struct ps_coordinator {
    struct ps_co_conf conf;
    char address[LH_ADDRESS_BYTES];
    struct ps_store *store;
    struct ps_co_worker worker[LH_WORKERS_MAX];
    uint32_t workers;
    uint32_t *guess;                   // core.c: index of a worker, by the remainder of its id
    uint32_t epochs;                   // data epochs of the run
    uint64_t units;                    // units of the run: those of the data, once for each epoch
    uint64_t leased_end, epoch_tokens; // end of the units that are leased; tokens of one epoch
    uint32_t *order; // order.c: units of the run in leasing order; NULL: by number
    // Per unit of the run (balance/lease.c): CO_FREE or the holder's index + 1 (two bytes: there
    // may be four million units); wall time of the lease, for display only, 0: not known; enum
    // ps_co_begun.
    uint16_t *lease;
    uint32_t *leased_s;
    uint8_t *begun;
    // Per unit: index + 1 of the worker that a held unit is recalled for, or a free one is kept
    // for; 0: none.
    uint16_t *wanted_by;
    struct ps_co_stock stock;
    struct ps_co_second_lease second[PS_CO_SECONDS_MAX];
    uint32_t seconds;
    struct ps_co_giver giver[LH_GIVERS_MAX];
    uint32_t givers;
    struct lh_grant_key grant_key;   // balance/grants.c
    uint32_t last_grant;             // balance/lease.c: highest number of a grant
    uint32_t *number;                // per unit: number of its grant; 0: none
    bool frozen;                     // balance/override.c: units stay with their regions
    bool frozen_said;                // ending.c: that units wait for it was said
    struct ps_co_balancer *balancer; // balance/assign.c
    struct ps_co_decisions *decided; // balance/decided.c
    struct ps_co_scale *scale;       // scale.c
    struct ps_co_states *states;     // watch/states.c
    uint64_t evaluator;              // watch/evaluators.c: the one seen last; 0: none yet
    bool nobody_evaluates;           // eval.stopped was logged, and no worker evaluates since
    struct ps_co_hook *hook;         // watch/hook.c
    struct ps_co_rules *rules;       // watch/rules.c
    enum ps_co_stage stage;          // cadence.c, like the next two
    double run_steps;                // steps of the run's fastest worker so far
    uint64_t run_tokens;             // credited tokens at that many steps
    struct ps_co_shard *shard;
    struct lh_plan plan;        // plan.c
    struct ps_co_budget budget; // goes_on.c: by the settings at this start
    int64_t began_ns;           // start of this process
    int64_t phase_ns;           // plan.c: when the plan's phase began in this process
    int64_t raised_ns;          // plan.c: when its number last followed the logs'; 0: never
    struct ps_co_rest rest;     // watch/ending.c
    struct ps_co_expelled expelled[LH_EXPELLED_MAX]; // watch/expelled.c, also for the next three
    uint32_t expelled_count;
    struct lh_let_back let_back[LH_LET_BACK_MAX];
    uint32_t lets_back;
    // watch/retired.c: names that are being retired, ascending; highest number that a retired name
    // ever had; tokens of retired workers with own data; the plan that every shard must have before
    // these names are free.
    uint64_t retiring[LH_RETIRED_MAX];
    uint32_t retiring_count, retired_up_to;
    uint64_t retired_tokens, retired_plan;
    struct lh_service service;
    struct ps_co_commit *commit;
    struct ps_co_status status;
    struct lh_account_bound bound; // status.c: bound for the plan's terms; sigma 0: not computed
    struct lh_listener listener;
    int64_t looked_at_rounds_ns; // watch/stall.c
    uint64_t speaker;            // peer of the current request, which ends its silence; 0: none
    uint64_t timer, listen_timer;
    int64_t listen_ns;                                          // interval of the listener's looks
    char drained_region[PS_DRAINED_REGIONS_MAX][LH_NAME_BYTES]; // drain.c
    uint32_t drained_regions;
    struct ps_co_refold refold;
    uint64_t refused_servers; // requests of servers without the right (owners/rights.c)
    bool draining, ending;    // drain.c: an operator lets the whole run stand still, or end here
    struct ps_co_pause pause; // pause.c
    bool stopped;
};

void ps_co_fatal(struct ps_coordinator *c, lh_err err);
// Is a caller of this run, and has it a version of the wire that this process has?
LH_MUST lh_err ps_co_check_run(const struct ps_coordinator *c, struct lh_versions wire,
                               const struct lh_run *run);

// ---- the clock
// Gives the listener's time, which measures silence. Each call is a look of the listener.
int64_t ps_co_now(struct ps_coordinator *c);
// Counts the peer as heard now: it waited for our answer and was not silent.
void ps_co_kept_waiting(struct ps_coordinator *c, uint64_t peer);

// ---- lists of numbers
void ps_co_sort(uint64_t *list, size_t count); // ascending
bool ps_co_sorted_has(const uint64_t *list, size_t count, uint64_t number);

// ---- look-ups
void ps_co_free_worker(struct ps_co_worker *w); // all that the worker has; it is zeros then
// Gives the worker's index in c->worker; c->workers: unknown.
uint32_t ps_co_worker_index(const struct ps_coordinator *c, uint64_t id);
// The name is being retired: joins under it wait.
bool ps_co_is_retiring(const struct ps_coordinator *c, uint64_t worker);
// Gives the region's index in c->drained_region; c->drained_regions: it is not drained.
uint32_t ps_co_drained_index(const struct ps_coordinator *c, const char *region);
// Gives the mode of the region's workers, from the settings.
enum lh_data ps_co_region_data(const struct ps_coordinator *c, const char *region);
enum lh_data ps_co_data(const struct ps_coordinator *c, const struct ps_co_worker *w);
// Do some workers of the run train data of their own?
bool ps_co_any_own(const struct ps_coordinator *c);
// Has every worker spent its privacy budget? Then no worker trains any more.
bool ps_co_all_spent(const struct ps_coordinator *c);
// Was this worker asked to drain, alone or with its region?
bool ps_co_leaving(const struct ps_coordinator *c, const struct ps_co_worker *w);
// The same, or with the whole run?
bool ps_co_draining(const struct ps_coordinator *c, const struct ps_co_worker *w);
uint64_t ps_co_epoch(const struct ps_co_shard *s); // the highest registered; 0: no history yet
// Gives the newest point that the standby in sync reported as durable. NULL: no standby is in sync,
// or this process has not heard it.
const struct lh_point *ps_co_held(const struct ps_co_shard *s);
// Gives the data of this unit of the run.
const struct lh_unit *ps_co_unit(const struct ps_coordinator *c, uint64_t unit);
bool ps_co_credited(const struct ps_coordinator *c, uint64_t unit);
// Whole epochs of the run: all units below `from` are credited, and none from `to` on is credited
// or leased. Loops over leases and credits stay between them, so that the cost of a run with many
// epochs is that of the epochs under way.
struct ps_co_span {
    uint64_t from, to;
};
struct ps_co_span ps_co_under_way(const struct ps_coordinator *c);
// Gives the tokens of this worker's admitted pushes on the shard that admitted the fewest.
uint64_t ps_co_admitted_tokens(const struct ps_coordinator *c, const struct ps_co_worker *w);
// Gives the tokens of admitted pushes of all workers with own data, each by the shard that admitted
// the fewest. A shard that has not reported counts as 0.
uint64_t ps_co_own_tokens(const struct ps_coordinator *c);
// Gives the tokens that count against the budget: of credited units and of own data.
uint64_t ps_co_credited_tokens(const struct ps_coordinator *c);
// Is there a budget, and are its tokens credited?
bool ps_co_budget_is_credited(const struct ps_coordinator *c);

#endif
