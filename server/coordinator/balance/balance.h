// The balancer's policy: which pool of data units a region takes its next unit from, and why
// (DESIGN.md#section-10).
//
// Pure: no I/O, no clock, no memory of its own. The caller says what it knows in a ps_balance, all
// in seconds from now; equal input gives equal output, and ties go to the lower number.
//
// A pool is the units of one home region that may be trained in the same regions and that nobody
// has begun: those that nobody leases, and reservations, which can be recalled. A pool's bytes lie
// in its home region. A region receives one unit at a time, from whichever home.
//
// 1. Residency is hard: a region gets no unit of a pool that does not allow it.
// 2. PS_BALANCE_FINISH: a plan says how many tokens of each pool each region trains so that all end
//    as early as they can together, by tokens/s and by the time that units need to arrive. A region
//    takes a foreign unit while the plan gives it some, its path is not busy, and the unit ends
//    there earlier than its home would end all that is left to it, by a hysteresis.
//    A region has ended when its last push is decided: that takes exchange_s more.
// 3. PS_BALANCE_BLIND: the same as if units arrived at once. PS_BALANCE_WEIGHTED: own units first,
//    then of the pool with the lowest 0.6 * utilisation + 0.4 * network.
// 4. A link may have a cap of bytes, which is hard. The affinity of languages is seconds that
//    choices add to the time of a transfer.
// 5. In the last tenth of the run a region holds two units ready; in the last twentieth a unit that
//    another region has begun may run twice.
// 6. Where a budget ends the run before all is trained (beyond_tokens), the plan is of what the run
//    trains: of each pool its whole_tokens, and for the rest of the budget first what regions have
//    of their own, each as far as its speed takes it, then what others have. The last tenth and the
//    last twentieth are the budget's.
// 7. A pool is in no plan while no region that may train it is there with a known speed: the plan
//    is of the others, and of all that the budget leaves.
//
// Time of plan(): O((P + R) * P * R) for each of BISECTIONS tries, P pools and R regions; 64
// regions with two pools each: under 0.1 s. next() and twice(): O(P * R). Units and workers are
// only counted, by the caller: neither a million units nor a thousand workers cost anything here.
#ifndef PS_BALANCE_H
#define PS_BALANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/estimate.h"

enum { PS_BALANCE_REGIONS_MAX = 64, PS_BALANCE_POOLS_MAX = 2 * PS_BALANCE_REGIONS_MAX };

enum ps_balance_kind {
    PS_BALANCE_FINISH,
    PS_BALANCE_WEIGHTED,
    PS_BALANCE_BLIND,
};

struct ps_balance_conf {
    enum ps_balance_kind kind;
    uint32_t window;   // units that a region holds ready
    double hysteresis; // a unit moves if it ends earlier by this share
    double affinity;   // a unit in a foreign language costs this share of its training time
};

struct ps_balance_region {
    struct lh_estimate tokens_per_s; // its live workers together
    uint32_t workers;                // live ones; 0: it takes nothing
    double held_tokens;              // leased to it, not trained, and in no pool
    double arriving_s;               // what is on its way to it needs so long
    double exchange_s;               // from its last step until its last push is decided
    uint64_t languages;              // a bit for each language of its own units
};

struct ps_balance_pool {
    uint32_t home;
    uint64_t allowed; // a bit for each region; the home's is not set where they do not reach it
    uint64_t languages;
    double units, tokens, bytes;
    double whole_tokens; // part of `tokens` that the run is to train, wherever its budget ends
};

struct ps_balance_link {            // from a home region to another
    struct lh_estimate bytes_per_s; // not known: as the mean of all that are
    double rtt_s;
    double cap_bytes; // what may cross it still; < 0: no cap
    bool lies_there;  // the home's units lie there as well: nothing crosses it
};

struct ps_balance {
    struct ps_balance_conf conf;
    uint32_t regions, pools;
    double done_tokens;   // credited or trained by now, of the whole run
    double beyond_tokens; // tokens of pools that the budget leaves untrained
    struct ps_balance_region region[PS_BALANCE_REGIONS_MAX];
    struct ps_balance_pool pool[PS_BALANCE_POOLS_MAX];
    struct ps_balance_link link[PS_BALANCE_REGIONS_MAX][PS_BALANCE_REGIONS_MAX]; // [from][to]
};

struct ps_balance_plan {
    double end_s;                            // when the last region ends
    double finish_s[PS_BALANCE_REGIONS_MAX]; // when each does
    // Tokens of each pool that each region is to train.
    double tokens[PS_BALANCE_POOLS_MAX][PS_BALANCE_REGIONS_MAX];
};

enum ps_balance_reason {
    PS_BALANCE_NOTHING, // no pool has a unit for it, or none that would end earlier there
    PS_BALANCE_HOME,    // a unit of its own
    PS_BALANCE_PLANNED, // a foreign unit that the plan gives it
    PS_BALANCE_STOLEN,  // a foreign unit beyond the plan: it would end earlier here
    PS_BALANCE_SCORED,  // the plain rule's choice
    PS_BALANCE_BUDGET,  // a unit that comes back: the others end the budget before its holder
    PS_BALANCE_TWICE,   // a unit that another region has begun
};

struct ps_balance_choice {
    enum ps_balance_reason reason;
    uint32_t pool, from; // from: the region that would have trained it
    double here_s;       // when the unit would end here
    double cost_s;       // its language, as seconds that a gain has to make up for
    double there_s;      // when that region would end all that is left to it
};

// A short word for events and tables.
const char *ps_balance_reason_name(enum ps_balance_reason reason);
const char *ps_balance_kind_name(enum ps_balance_kind kind);
// False: there is no such kind.
bool ps_balance_kind_of(const char *name, enum ps_balance_kind *out);
// Tokens that the run trains still: of pools, and held.
double ps_balance_left(const struct ps_balance *b);
// Units that a region holds ready.
uint32_t ps_balance_window(const struct ps_balance *b);
// Seconds that this many bytes need from one region to another; 0 within a region.
double ps_balance_arrival(const struct ps_balance *b, uint32_t from, uint32_t to, double bytes);
// The cost there of a unit of the pool, beside its time: its language, as seconds.
double ps_balance_cost(const struct ps_balance *b, uint32_t pool, uint32_t region);
// The same of a unit of so many tokens, whatever the pool has left.
double ps_balance_cost_of(const struct ps_balance *b, uint32_t pool, uint32_t region,
                          double tokens);
void ps_balance_plan(const struct ps_balance *b, struct ps_balance_plan *out);
// The next unit of this region, which has room for one. `plan`: of this state.
struct ps_balance_choice ps_balance_next(const struct ps_balance *b,
                                         const struct ps_balance_plan *plan, uint32_t region);
// Nothing is left to take: a unit of how many tokens and bytes may this region run as a second, of
// a pool's kind, that `from` will end in `there_s`? PS_BALANCE_NOTHING: it may not.
struct ps_balance_choice ps_balance_twice(const struct ps_balance *b, uint32_t region,
                                          uint32_t from, uint64_t allowed, double tokens,
                                          double transfer_s, double there_s);

#endif
