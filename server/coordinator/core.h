// Core: the coordinator's memory, and what every file of this folder stands on.
//
// Memory is of two kinds. What the store has a row of is read from there, at a start and after a
// commit that failed (ps_co_load of commit.h). All else, such as what servers and workers last said
// and when, is lost with the process, and said again. Behind each field stands the file that
// changes it.
//
// Times of members and servers (*_ns) are the listener's (ps_co_now), not the env's.
#ifndef PS_CO_CORE_H
#define PS_CO_CORE_H

#include "common/base/estimate.h"
#include "common/base/limits.h"
#include "common/env/machine.h"
#include "common/format/ledger.h"
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
struct ps_co_scale;
struct ps_co_states;

enum {
    PS_DRAINED_REGIONS_MAX = 64, // regions that operators drain at a time
    PS_CO_STANDBYS = 4,          // standbys that are remembered of a shard, the last ones
    PS_CO_GUESSES = 4 * LH_WORKERS_MAX,
    PS_CO_RIGHTS = 8,                      // servers that may own a shard or stand by for it
    PS_CO_SERVER_NAME = 2 * LH_NAME_BYTES, // REGION/NAME
};

struct ps_co_path { // a worker's way to a server, as it measured it
    uint32_t shard; // the lowest shard of that server
    struct lh_trip trip;
    struct lh_estimate push_s, up, down; // up, down: bytes a second
};

enum { CO_FREE = 0 }; // a unit that nobody holds; any other value is the holder's index + 1
enum ps_co_begun { CO_WAITS, CO_BEGUN, CO_CLAIMED, CO_BEGUN_COUNT }; // as its holder said last

struct ps_co_held { // balance/stock.c: units that are leased to a worker and not credited
    uint32_t head;  // the first of the list, + 1
    uint64_t units, tokens[CO_BEGUN_COUNT];
    uint64_t away_tokens; // the part of those that wait which is recalled for others
};
struct ps_co_wanted { // balance/stock.c: units that are recalled for a worker, or kept for it
    uint32_t head;
    uint64_t units, kept_units, kept_tokens; // kept: nobody holds them any more
    uint64_t coming_tokens;                  // tokens of those that others hold still
};

struct ps_co_measured { // balance/measure.c: all as the worker said last
    double tokens_spread;
    struct lh_estimate batch_s;
    uint64_t begun_tokens;   // tokens of begun units that are not trained; 0: not known
    double loss;             // training loss, nats a token; 0: not told
    double utilisation;      // share of the time in which a step ran; 0: not known
    struct ps_co_path *path; // LH_PATHS_MAX of them; NULL: none was ever told
    uint32_t paths;
};

struct ps_co_admitted { // balance/measure.c: of one worker, as a shard's server said last
    uint64_t pushes, tokens, charged;
    bool set_aside;
    uint64_t round; // mode bsp
};

struct ps_co_evidence {     // balance/measure.c: what was admitted while the worker trained
    int64_t since_ns;       // the last look, where it trained then; 0: it did not
    uint64_t seen;          // its admitted tokens at that look
    double tokens, seconds; // sums, in which the past fades
};

struct ps_co_away { // balance/away.c: a home whose units travel to a worker, as that one said last
    uint32_t home;  // index in c->stock.home
    bool closed;
    struct lh_estimate bytes_per_s;
    struct lh_trip trip;
};

struct ps_co_crossing {     // balance/crossed.c: what of a home's units reached a worker, in bytes
    uint32_t home;          // index in c->stock.home
    uint64_t bytes;         // sum over all its processes
    uint64_t seen, process; // the last one's part, and that one's number
};

struct ps_co_proved { // stable.c: a copy that a worker has shown to have
    struct lh_point at;
    struct lh_hash digest;
};

struct ps_co_expelled { // expel.c
    uint64_t id;        // lh_worker_id() of its certificate
    bool server;
    char region[LH_NAME_BYTES], name[LH_NAME_BYTES];
};

struct ps_co_giver { // balance/away.c: a server that gives units of its region
    uint64_t server; // the id of its certificate
    char region[LH_NAME_BYTES], address[LH_ADDRESS_BYTES];
    int64_t heard_ns;
};

// Stages of a run whose cadence has them.
enum ps_co_stage { PS_CO_EARLY, PS_CO_MIDDLE, PS_CO_LATE };

struct ps_co_pace {   // cadence.c: local steps that hold, and the base that they follow from
    uint32_t h, base; // h 0: none hold yet
    uint32_t told;    // the last event's; 0: there was none
    int64_t said_ns;  // when that was
};

// Why a worker that is heard does not count: the trainer makes no step, no push is admitted, or its
// loop ends its lives with values that are not finite.
enum ps_co_stall_why {
    PS_CO_GOES_ON,
    PS_CO_NO_STEP,
    PS_CO_NO_PUSH,
    PS_CO_HOLDS_ROUND, // mode bsp
    PS_CO_FAILING
};

struct ps_co_stall { // watch/stall.c
    // As the worker said last: time without a step that could be made, time of a step (0: not
    // known), time that a shard has waited for a push to be admitted, and that shard; its local
    // steps.
    int64_t idle_ns, step_ns, waits_ns;
    uint32_t shard, local_steps;
    bool failing;                      // it says so
    uint64_t lost_pushes, lost_tokens; // what it says that it lost, left out
    enum ps_co_stall_why why;
    int64_t since_ns, bound_ns; // when it stalled, and the bound that was over
    int64_t ended_ns, rest_ns;  // when it moved again, and how long it stays stalled at least
    uint32_t turns;             // stalls since it moved for a while
    // How long others have waited for its push of a round, as servers say, and how often that was
    // longer than the bound.
    int64_t holds_ns;
    uint32_t held, holds_shard;
};

// The state of a worker that operators and hooks are told (watch/states.c).
enum ps_co_state {
    PS_CO_NEW, // it was not looked at yet
    PS_CO_LIVE,
    PS_CO_STALLED,   // it is heard, and makes no progress: its units go to others
    PS_CO_SUSPECT,   // silent for half of its bound
    PS_CO_LOST,      // silent for its bound: its units went to others
    PS_CO_DRAINED,   // it stands still, as an operator asked
    PS_CO_DONE,      // it has all that the run ended with
    PS_CO_SET_ASIDE, // a shard refuses its pushes until an operator lets it back
    PS_CO_EXPELLED,
};

struct ps_co_worker { // member.c, where nothing else is said
    uint64_t id;
    char region[LH_NAME_BYTES], name[LH_NAME_BYTES];
    uint32_t granted;     // the number of its incarnation
    uint64_t attempt;     // the fresh join that was granted the number in force; 0: none
    uint64_t incarnation; // as last seen
    int64_t seen_ns;
    struct lh_trip trip;        // silence.c: the path's round trip, as the worker said last
    struct lh_trip stored_trip; // silence.c: the trip that the store has
    bool stored;                // the store has its row
    bool joined, drained, done;
    bool spent;             // its privacy budget is: it leaves
    bool drained_kept;      // plan.c: the store says that it has drained
    enum ps_co_state state; // watch/states.c: at the last look
    uint32_t notes;         // watch/states.c: changes of it that count against the bound
    int64_t noted_ns;       // since when they do
    bool live;              // plan.c
    bool asked;             // drain.c: an operator wants this worker drained
    bool left;       // plan.c: it was asked to drain, or its region was, and it has: not counted
    int64_t left_ns; // plan.c: since when; 0: its leases went to others
    double tokens_per_s, tokens_said; // believed (balance/measure.c); as it said
    uint64_t tokens, step_tokens;     // the most that it said; as it said last
    uint64_t tokens_kept;             // member.c: what the store has of `tokens`
    int64_t tokens_kept_ns;           // since when
    struct ps_co_measured measured;
    struct ps_co_admitted *admitted; // manifest->shards of them; NULL: nothing was said
    struct ps_co_evidence evidence;
    int64_t admitted_ns;     // when a report last told of more admitted pushes of it; 0: none did
    struct ps_co_away *away; // LH_AWAY_MAX of them; NULL: none was ever told
    uint32_t aways;
    // balance/away.c: units of the data that don't reach it, LH_REFUSED_MAX of them; NULL: none was
    // ever told.
    uint64_t *refused;
    uint32_t refused_count;
    struct ps_co_crossing *crossing; // LH_AWAY_MAX of them; NULL: nothing crossed
    uint32_t crossings;
    struct lh_machine machine; // machine.c: as it said when it joined last
    struct ps_co_pace pace;
    struct ps_co_stall stall;
    struct ps_co_held held;
    uint64_t lease_tokens; // all units that were ever leased to it; the store has the sum
    struct ps_co_wanted wanted;
    bool gives; // it gives leases back that it has not begun, where it is asked to
    bool idle;  // it asked for no unit last: its loop is away, and it trains none of what it has
    // balance/level.c: tokens of its leases that are not trained, and the ones among them that may
    // be recalled for another worker. Valid within one request alone.
    uint64_t left_tokens, spare_tokens;
    struct lh_point *final;    // manifest->shards of them, when done
    struct ps_co_claim *claim; // stable.c: as many; NULL: it said nothing yet
};

struct ps_co_standby { // owners/move.c: a standby as it last reported
    uint64_t identity;
    uint64_t server; // the id of its certificate
    uint64_t begun;  // it opens no epoch up to that one
    // The report that says so: the life that sent it, and its number among that life's reports.
    uint64_t process, number;
    char name[LH_NAME_BYTES], region[LH_NAME_BYTES];
    struct lh_trip trip;
    struct lh_point head; // it confirmed no more than that, as far as is known
    int64_t heard_ns;
};

struct ps_co_right {    // owners/rights.c: a server that may own a shard or stand by for it
    uint64_t server;    // the id of its certificate
    uint8_t may, named; // rights by the store, and by the settings
    char name[PS_CO_SERVER_NAME];
};

struct ps_co_shard {
    // Its server's last report (servers.c).
    bool reported;
    uint64_t process; // the server's life
    char address[LH_ADDRESS_BYTES];
    char name[LH_NAME_BYTES], region[LH_NAME_BYTES]; // "": the server was not heard in this life
    struct lh_point head;
    uint64_t tokens, plan;
    int64_t
        grew_ns; // when `tokens` last rose (watch/stall.c); 0: not in this life of the coordinator
    uint32_t phase;
    uint8_t *credit; // packed (common/format/credit.h)
    size_t credit_bytes;
    // Its first unit of the run that is not credited, and the one after its last that is.
    uint64_t credit_open, credit_end;
    // When its server was last heard (owners/insync.c, core.c).
    int64_t heard_ns;
    uint64_t heard_of;          // the id of that server's certificate
    uint64_t heard_after;       // our pauses up to then
    struct lh_trip trip;        // silence.c: the path's round trip, as the server said last
    struct lh_trip stored_trip; // silence.c: the trip that the store has
    // Its history (owners/epochs.c): where each epoch began, ascending, and the last one's token.
    struct lh_point *begun;
    size_t epochs;
    uint64_t token;
    uint64_t ticket; // an epoch is opened for the request that names this one (epochs.c)
    // The point that is durable outside of its server (stable.c).
    struct lh_point stable;
    struct lh_hash stable_digest; // digest of its state, as several regions said; zeros: not known
    int64_t lone_ns;              // when the first copy of one region came alone; 0: none waits
    bool single;                  // the stable point is one region's copy
    uint32_t asked_up_to; // the index of the worker whose copy the server is asked about next
    // The first bytes of the digest of the state that an operator chose (owners/choice.c).
    struct lh_hash choice;
    size_t choice_bytes; // 0: none was chosen
    // Its owner and its standby (owners/owner.c explains the row).
    uint64_t owner, standby, changes, least, server, gone;
    struct ps_co_right right[PS_CO_RIGHTS]; // owners/rights.c
    uint32_t rights;
    // The standby in sync that can't take over, since another shard of its server needs its owner;
    // 0: none. Its state is given at that address (owners/insync.c).
    uint64_t held_by;
    char held_at[LH_ADDRESS_BYTES];
    // Its move (owners/move.c).
    struct ps_co_standby standing[PS_CO_STANDBYS];
    struct lh_move move; // the last one that was reserved; target 0: it is over
    bool unwanted;       // the move's target is asked to refuse it
};

enum { PS_CO_STOCK_LEVELS = 4, PS_CO_SECONDS_MAX = 64 };

struct ps_co_pool { // balance/stock.c: units of one home that may leave it, or that may not
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
    uint32_t *slot, *at;     // [units]: a unit's slot; the unit of a slot
    uint32_t *turn;          // [units]: turns in the order of the run; NULL: as numbered
    uint64_t *bits[PS_CO_STOCK_LEVELS], words[PS_CO_STOCK_LEVELS]; // free units, by slot
    uint32_t levels;
    uint32_t *held[2], *wanted[2]; // [units]: the next one + 1, the one before + 1
    uint64_t free_units, leased_units, credited_units;
    uint64_t credited_tokens, committed_tokens; // committed: credited or leased
};
struct ps_co_second_lease { // balance/lease.c: a unit that runs twice, and who runs it so
    uint64_t unit;
    uint32_t worker, number; // its index; the number of its grant
};

struct ps_co_status {      // status.c: bytes of status.json. Empty: there are none
    struct lh_buf durable; // the newest state whose changes are durable
    struct lh_buf made;    // the next state, durable when made_change is
    uint64_t made_change;
    struct lh_buf told; // the last state that was told in slices, and its number
    uint64_t told_number;
};

struct ps_co_pause { // pause.c
    bool is;
    int64_t since_s; // wall time
    char by[LH_NAME_BYTES], why[LH_PAUSE_WHY_BYTES];
};

struct ps_co_budget {       // goes_on.c
    uint64_t tokens, units; // tokens: as declared, those of the data where no budget is set
};

struct ps_coordinator {
    struct ps_co_conf conf;
    char address[LH_ADDRESS_BYTES];
    struct ps_store *store;
    struct ps_co_worker worker[LH_WORKERS_MAX];
    uint32_t workers;
    uint32_t *guess; // core.c: where a worker was found by its id, by the id's remainder
    uint32_t epochs; // data epochs of the run
    uint64_t units;  // units of the run: of the data, for each epoch
    uint64_t leased_end, epoch_tokens; // no unit from there on is leased; tokens of one epoch
    uint32_t *order; // order.c: the units of the run as they are leased; NULL: as numbered
    // Per unit of the run (balance/lease.c): CO_FREE or the holder's index + 1; the wall time of
    // the lease, shown to people only, 0: not known; enum ps_co_begun.
    uint32_t *lease, *leased_s;
    uint8_t *begun;
    // Per unit: the index + 1 of the worker that it is recalled for, from its holder, or, where it
    // is free, kept for; 0: nobody's.
    uint32_t *wanted_by;
    struct ps_co_stock stock;
    struct ps_co_second_lease second[PS_CO_SECONDS_MAX];
    uint32_t seconds;
    struct ps_co_giver giver[LH_GIVERS_MAX];
    uint32_t givers;
    struct lh_grant_key grant_key;   // balance/grants.c
    uint32_t last_grant;             // balance/lease.c: the highest of a grant
    uint32_t *number;                // per unit: its grant's, 0: none
    bool frozen;                     // balance/override.c: units stay with their regions
    struct ps_co_balancer *balancer; // balance/assign.c
    struct ps_co_decisions *decided; // balance/decided.c
    struct ps_co_scale *scale;       // scale.c
    struct ps_co_states *states;     // watch/states.c
    struct ps_co_hook *hook;         // watch/hook.c
    enum ps_co_stage stage;          // cadence.c, like the next two
    double run_steps;                // steps of the run's fastest so far
    uint64_t run_tokens;             // credited tokens that these are of
    struct ps_co_shard *shard;
    struct lh_plan plan;        // plan.c
    struct ps_co_budget budget; // goes_on.c: what the settings said at this start
    int64_t began_ns;           // this life of the coordinator
    int64_t phase_ns;           // plan.c: when its phase began, in this life of the coordinator
    int64_t
        rest_ns; // watch/ending.c: since when what is left is for nobody who moves; 0: it is not
    struct ps_co_expelled expelled[LH_EXPELLED_MAX]; // watch/expelled.c, like the next three
    uint32_t expelled_count;
    struct lh_let_back let_back[LH_LET_BACK_MAX];
    uint32_t lets_back;
    // watch/retired.c: names that are being retired, ascending; the highest number that a retired
    // name ever had; tokens of retired workers with data of their own; and the plan that every
    // shard has to know before these names are free.
    uint64_t retiring[LH_RETIRED_MAX];
    uint32_t retiring_count, retired_up_to;
    uint64_t retired_tokens, retired_plan;
    struct lh_service service;
    struct ps_co_commit *commit;
    struct ps_co_status status;
    struct lh_account_bound bound; // status.c: of the plan's terms; sigma 0: not computed
    struct lh_listener listener;
    int64_t looked_at_rounds_ns; // watch/stall.c
    uint64_t speaker;            // the peer whose silence ends with the request at hand; 0: none
    uint64_t timer, listen_timer;
    int64_t listen_ns;                                          // the listener looks so often
    char drained_region[PS_DRAINED_REGIONS_MAX][LH_NAME_BYTES]; // drain.c
    uint32_t drained_regions;
    uint64_t refused_servers; // words of servers that may not say them (owners/rights.c)
    bool draining, ending;    // drain.c: an operator lets the whole run stand still, or end here
    struct ps_co_pause pause; // pause.c
    bool stopped;
};

void ps_co_fatal(struct ps_coordinator *c, lh_err err);
LH_MUST lh_err ps_co_check_run(const struct ps_coordinator *c, const ProtobufCBinaryData *job,
                               const ProtobufCBinaryData *manifest);

// ---- the clock
// The listener's time: what silence is measured by. Every look at it is one of the listener's.
int64_t ps_co_now(struct ps_coordinator *c);
// The answer to this peer took a while: it was not silent meanwhile.
void ps_co_kept_waiting(struct ps_coordinator *c, uint64_t peer);

// ---- look-ups
// The worker's index in c->worker; c->workers: unknown.
uint32_t ps_co_worker_index(const struct ps_coordinator *c, uint64_t id);
// The name is being retired: whoever comes under it waits.
bool ps_co_is_retiring(const struct ps_coordinator *c, uint64_t worker);
// The region's index in c->drained_region; c->drained_regions: it is not drained.
uint32_t ps_co_drained_index(const struct ps_coordinator *c, const char *region);
// The worker's mode, as the settings say.
enum lh_data ps_co_region_data(const struct ps_coordinator *c, const char *region);
enum lh_data ps_co_data(const struct ps_coordinator *c, const struct ps_co_worker *w);
// Some workers of the run train data of their own.
bool ps_co_any_own(const struct ps_coordinator *c);
// Every worker has data of its own, and has spent its budget: nobody trains any more.
bool ps_co_all_spent(const struct ps_coordinator *c);
// Was this worker asked to drain: by itself or with its region.
bool ps_co_leaving(const struct ps_coordinator *c, const struct ps_co_worker *w);
// The same, or with the whole run.
bool ps_co_draining(const struct ps_coordinator *c, const struct ps_co_worker *w);
uint64_t ps_co_epoch(const struct ps_co_shard *s); // the highest registered; 0: no history yet
// The most that the standby in sync said it holds durably; NULL: none is, or it was not heard of in
// this life.
const struct lh_point *ps_co_held(const struct ps_co_shard *s);
// The data of this unit of the run.
const struct lh_unit *ps_co_unit(const struct ps_coordinator *c, uint64_t unit);
bool ps_co_credited(const struct ps_coordinator *c, uint64_t unit);
// Whole epochs of the run: all units below `from` are credited, none from `to` on is credited or
// leased. What looks at leases and credits looks between them, so that a run of many epochs costs
// no more than those under way.
struct ps_co_span {
    uint64_t from, to;
};
struct ps_co_span ps_co_under_way(const struct ps_coordinator *c);
// Tokens of this worker's admitted pushes, on the shard that admitted the fewest.
uint64_t ps_co_admitted_tokens(const struct ps_coordinator *c, const struct ps_co_worker *w);
// Tokens of admitted pushes of the workers that train data of their own, each by the shard that
// admitted the fewest; of a shard that has not reported none are known.
uint64_t ps_co_own_tokens(const struct ps_coordinator *c);
// Tokens that the budget is compared with: of credited units, and own ones.
uint64_t ps_co_credited_tokens(const struct ps_coordinator *c);
// There is a budget, and so many tokens are credited.
bool ps_co_budget_is_credited(const struct ps_coordinator *c);

#endif
