// Two coordinators on one store: shared by pair.c and pair_store.c. No other file includes it.
#ifndef SIM_PAIR_H
#define SIM_PAIR_H

#include "server/coordinator/store/lead.h"
#include "tests/sim/fiber.h"
#include "tests/sim/judge.h"
#include "tests/unit/server/coordinator/store/fake_etcd.h"

enum { SIM_COORDINATORS = 2 };
#define SIM_STORE "etcd://one:1,two:1,three:1/sim"
#define SIM_STORE_BASE "/sim/run"

struct sim_pair;

struct sim_side { // a coordinator, in all its lives
    struct sim_pair *pair;
    struct sim_node *node;
    uint64_t life;        // counts its processes
    bool gone;            // this process is dead: its blocking calls end
    struct ps_lead *lead; // NULL: it is down
    // Its blocking code: the lead, and the store's write on the disk lane (NULL: none).
    struct sim_fiber *leading, *writing;
    struct {
        lh_job job;
        lh_fn done;
        void *of;
        int64_t least_ns;
    } write;
    // Until these times the store does not hear it, or loses and delays its requests.
    int64_t cut_until, lossy_until;
    int64_t well_since; // since when it runs and the store answers it at once; 0: not so
};

struct sim_pair {
    struct sim *sim;
    struct sim_side side[SIM_COORDINATORS];
    struct sim_fiber *running; // the fiber that runs; NULL: the simulator
    char address[128];         // both coordinators'
    struct lh_env *host;       // the store's host, which never dies; requests arrive there
    struct fake_etcd etcd;
    int64_t down_until, slow_until; // until then it does not answer, or answers late
    int64_t down_since;             // 0: it is up
    bool refuses;                   // while down: true: its host refuses calls, false: silence
    // The judge's: the process that created the leader's key, and since when none leads.
    const struct sim_side *maker;
    uint64_t maker_life;
    int64_t held_up_ns;       // the last look at which the key's holder could not lead
    int64_t leaderless_since; // 0: one leads
    struct lh_buf file;       // the current log, as the bytes of a file
    int64_t file_revision;
};

struct sim_side *sim_side_of(const struct sim_node *n);
bool sim_side_leads(const struct sim_side *side);
// Resumes a fiber of this side.
void sim_side_go(struct sim_side *side, struct sim_fiber *f);

// ---- pair_store.c
LH_MUST lh_err sim_store_dial(void *side, struct ps_etcd_wire *out);
bool sim_store_is_well(const struct sim_side *side); // true: it answers this side at once
// Returns the value of the leader's key; empty: no key.
struct lh_span sim_store_leader(const struct sim_pair *p);

#endif
