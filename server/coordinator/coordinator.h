// The coordinator: membership of the run, leases of data, and the plan (DESIGN.md#section-10).
//
// It is off the data path: pushes and follows continue while it is down. Its grants are durable
// before it answers: incarnation numbers, leases, plans, stable points (commit.c). The ledger of
// credited units is a view of the shards' logs, from their servers' reports, never the
// coordinator's own claim (server/docs/0000-protocol.md#rule-20).
//
// This header is for the rest of the tree: start, stop and query the coordinator. The files of this
// folder have their own headers and share its memory, core.h; README.md lists them.
#ifndef PS_COORDINATOR_H
#define PS_COORDINATOR_H

#include <stdatomic.h>

#include "common/base/buf.h"
#include "common/base/limits.h"
#include "common/env/log.h"
#include "common/format/plan.h"
#include "common/format/units.h"
#include "common/net/rpc.h"
#include "server/coordinator/balance/balance.h"

struct lh_manifest;
struct ps_coordinator;
struct ps_rules;
struct ps_schedule;
struct ps_store;
struct ps_terms;

struct ps_co_scale_wish {       // passed to the supplier of machines
    char region[LH_NAME_BYTES]; // "": the whole run
    uint32_t wanted, present;   // workers
};
enum { PS_CO_NOTICE_BYTES = 2048 };
struct ps_co_notice {                                // a member's change of state, or an alarm's
    char name[LH_NAME_BYTES], region[LH_NAME_BYTES]; // the member's; the rule and its region
    const char *from, *to;                           // names of its states; static strings
    char body[PS_CO_NOTICE_BYTES];                   // JSON (watch/hook.c), ends with 0
    size_t bytes;                                    // the length of `body` without the 0
};
struct ps_co_call_end { // result of an operator's command
    bool ok;
    char says[400];
};

struct json_t;

struct ps_co_conf {
    struct lh_env *env;
    struct lh_transport *transport;
    struct lh_log *log;
    struct lh_log *audit; // ../audit.h; NULL: none
    struct lh_peer self;
    const char *dir, *listen; // listen "": the caller accepts calls (ps_coordinator_at)
    struct ps_store *store;   // taken, on failure too; NULL: the file in `dir`
    // May this process still answer? It may not if another coordinator may lead. NULL: always.
    bool (*leads)(void *arg);
    void *leads_arg;
    uint8_t job[16];
    const struct lh_manifest *manifest;
    const struct lh_units *units; // borrowed
    const char *servers;          // coordinator.servers (owners/rights.c); NULL: no names
    uint32_t workers;             // expected workers; training starts when all have joined
    int64_t worker_timeout_ns, tick_ns;
    int64_t stall_floor_ns; // a worker without progress for longer is stalled; 0: never
    double stall_rounds;    // the same, in rounds of its own; the longer of the two counts
                            // (watch/stall.c)
    int64_t retire_ns;      // unused names are retired after this time; 0: only by an operator
    int64_t drain_floor_ns; // an undrained worker is left out after this time; 0: never
    double drain_rounds;    // the same, in rounds of the slowest worker
    int64_t take_over_ns;   // a server silent this long is replaced by its standby; 0: never
    // Maximum of the two timeouts above on long paths (silence.h). 0: paths add nothing.
    int64_t worker_timeout_max_ns, take_over_max_ns;
    int64_t ride_out_ns;    // training time leased ahead to each worker; 0: none (grant.h)
    uint64_t budget_tokens; // 0: every unit of every epoch
    uint32_t epochs;        // data epochs (order.h); 0: one
    uint64_t seed;          // seed for the order of units in later epochs
    struct ps_co_balance_conf {
        bool follows;              // leases follow the balancer's policy; false: balance/level.c
        enum ps_balance_kind kind; // the policy
    } balance;
    struct ps_co_links_conf {         // used if `balance` follows the policy
        const struct ps_terms *terms; // borrowed; NULL: no link has a cap
        double affinity; // a unit in a foreign language costs this share of its training time
    } links;
    struct ps_co_scale_conf {
        const struct ps_schedule *schedule; // borrowed; NULL or no entries: no number is wanted
        // Calls the supplier of machines: blocks, on the hook lane, for a bounded time; *stop ends
        // it early. Returns a job's result (lh_job). NULL: no supplier.
        int64_t (*call)(void *arg, const struct ps_co_scale_wish *wish, const atomic_bool *stop,
                        struct ps_co_call_end *end);
        void *arg;
        int64_t every_ns; // interval between two calls for the same wish
    } scale;
    struct ps_co_hook_conf {
        // Notifies the operator of a change: blocks, on the hook lane, for a bounded time; *stop
        // ends it early. Returns a job's result (lh_job). NULL: no notices.
        int64_t (*call)(void *arg, const struct ps_co_notice *notice, const atomic_bool *stop,
                        struct ps_co_call_end *end);
        void *arg;
        const char *run; // the run's name, borrowed
    } hook;
    const struct ps_rules *rules; // borrowed; NULL: none
    // This machine's free bytes of disk, and the time until its certificate ends, for rules. False:
    // not known yet. May be NULL.
    bool (*machine)(void *arg, double *disk_free_bytes, double *certificate_s);
    void *machine_arg;
    // Adds the process's facts to the status. May be NULL.
    void (*tell)(void *arg, struct json_t *status);
    void *tell_arg;
    enum lh_data data; // default data mode of the run's workers
    // Data mode of a region's workers; returns false if the settings do not name the region. May be
    // NULL.
    bool (*region_data)(void *arg, const char *region, enum lh_data *out);
    void *region_data_arg;
    uint64_t step_tokens; // most tokens of a step, to bound pushes; 0: from the workers' reports
    uint32_t h_base;
    bool dylu;
    bool by_link, staged;                               // cadence.h
    uint32_t (*fixed_h)(void *arg, const char *region); // 0: not fixed; may be NULL
    void *fixed_h_arg;
    struct lh_plan plan; // eta, damping, bound, mode, weighting of the first plan
    void (*fatal)(void *arg, lh_err err, const char *text);
    void *fatal_arg;
};

LH_MUST lh_err ps_coordinator_start(const struct ps_co_conf *conf, struct ps_coordinator **out);
void ps_coordinator_close(struct ps_coordinator *c); // refuses further calls
void ps_coordinator_stop(struct ps_coordinator *c);
LH_MUST lh_err ps_coordinator_on_call(void *self, struct lh_call *call, enum lh_rpc rpc,
                                      const struct lh_peer *peer, const struct lh_call_ops **ops,
                                      void **call_self);
// The listening address. ps_coordinator_at() sets it if the caller accepts the calls.
const char *ps_coordinator_address(const struct ps_coordinator *c);
void ps_coordinator_at(struct ps_coordinator *c, const char *address);

// ---- status.c
bool ps_coordinator_over(const struct ps_coordinator *c); // the run's end is durable
enum { PS_CO_STATUS_BYTES = 16 << 20 };                   // maximum bytes of a status
// The state in memory, as JSON, durable or not.
LH_MUST lh_err ps_coordinator_status(struct ps_coordinator *c, struct lh_buf *out);
// The newest known durable state, from this call or an earlier one: for status.json. It lags by one
// call while the disk is busy, and as long as the disk is full.
LH_MUST lh_err ps_coordinator_durable_status(struct ps_coordinator *c, struct lh_buf *out);

#endif
