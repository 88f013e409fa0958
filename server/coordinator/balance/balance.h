// The balancer's policy: chooses the pool of a region's next data unit, and gives the reason
// (DESIGN.md#section-10).
//
// Pure: no I/O, no clock, no memory of its own. The caller passes its knowledge in a ps_balance,
// all times in seconds from now; equal input gives equal output, and ties go to the lower number.
//
// A pool is the set of units of one home region that may be trained in the same regions and are not
// begun: free ones, and reservations, which can be recalled. A pool's bytes lie in its home region.
// A region receives one unit at a time, from any home.
//
// 1. Residency is hard: a region gets no unit of a pool that does not allow it.
// 2. PS_BALANCE_FINISH: a plan gives the tokens of each pool that each region trains so that all
//    end together as early as possible, by tokens/s and the arrival time of units. A region takes a
//    foreign unit while the plan assigns it some, its path is free, and the unit ends there
//    earlier, by the hysteresis, than its home would end all its remaining units. A region ends
//    when its last push is decided, exchange_s after its last step.
// 3. PS_BALANCE_BLIND: the same as if units arrived at once. PS_BALANCE_WEIGHTED: own units first,
//    then the pool with the lowest 0.6 * utilisation + 0.4 * network.
// 4. A link may have a cap of bytes, a hard limit. The language affinity is a number of seconds
//    that choices add to the transfer time.
// 5. In the last tenth of the run a region holds two units ready; in the last twentieth a unit that
//    another region has begun may run twice.
// 6. If a budget ends the run before all is trained (beyond_tokens), the plan covers only what the
//    run trains: each pool's whole_tokens, then for the rest of the budget first the regions' own
//    units, each region as far as its speed allows, then foreign ones. The last tenth and twentieth
//    are those of the budget.
// 7. A pool is in no plan while no live region with known speed may train it: the plan covers the
//    others, and all that the budget allows.
//
// Time of plan(): O((P + R) * P * R) for each of BISECTIONS tries, with P pools and R regions; 64
// regions with two pools each: under 0.1 s. next() and twice(): O(P * R). The caller only counts
// units and workers, so their number costs nothing here.
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
    struct lh_estimate tokens_per_s; // its live workers' sum
    uint32_t workers;                // live ones; 0: it takes nothing
    double held_tokens;              // leased to it, not trained, and in no pool
    double arriving_s;               // time until all units under way to it arrive
    double exchange_s;               // from its last step until its last push is decided
    uint64_t languages;              // a bit for each language of its own units
};

struct ps_balance_pool {
    uint32_t home;
    uint64_t allowed; // one bit per region; the home's is 0 if its units do not reach it
    uint64_t languages;
    double units, tokens, bytes;
    double whole_tokens; // part of `tokens` that the run trains, wherever its budget ends
};

struct ps_balance_link {            // from a home region to another
    struct lh_estimate bytes_per_s; // unknown: counts as the mean of the known ones
    double rtt_s;
    double cap_bytes; // bytes that may still cross; < 0: no cap
    bool lies_there;  // the home's units are there as well: nothing crosses
};

struct ps_balance {
    struct ps_balance_conf conf;
    uint32_t regions, pools;
    double done_tokens;   // credited or trained so far, in the whole run
    double beyond_tokens; // tokens of pools that the budget leaves untrained
    struct ps_balance_region region[PS_BALANCE_REGIONS_MAX];
    struct ps_balance_pool pool[PS_BALANCE_POOLS_MAX];
    struct ps_balance_link link[PS_BALANCE_REGIONS_MAX][PS_BALANCE_REGIONS_MAX]; // [from][to]
};

struct ps_balance_plan {
    double end_s;                            // when the last region ends
    double finish_s[PS_BALANCE_REGIONS_MAX]; // when each does
    // Tokens of each pool that each region trains.
    double tokens[PS_BALANCE_POOLS_MAX][PS_BALANCE_REGIONS_MAX];
};

enum ps_balance_reason {
    PS_BALANCE_NOTHING, // no pool has a unit for it, or none that ends earlier there
    PS_BALANCE_HOME,    // a unit of its own
    PS_BALANCE_PLANNED, // a foreign unit that the plan gives it
    PS_BALANCE_STOLEN,  // a foreign unit beyond the plan that would end earlier here
    PS_BALANCE_SCORED,  // the plain rule's choice
    PS_BALANCE_BUDGET,  // a returned unit: others end the budget before its holder
    PS_BALANCE_TWICE,   // a unit that another region has begun
};

struct ps_balance_choice {
    enum ps_balance_reason reason;
    uint32_t pool, from; // from: the region that would have trained it
    double here_s;       // when the unit would end here
    double cost_s;       // seconds for its language, which the gain must exceed
    double there_s;      // when that region would end all its remaining units
};

// A short name for events and tables.
const char *ps_balance_reason_name(enum ps_balance_reason reason);
const char *ps_balance_kind_name(enum ps_balance_kind kind);
// False: no such kind.
bool ps_balance_kind_of(const char *name, enum ps_balance_kind *out);
// Tokens still to train: in pools and held.
double ps_balance_left(const struct ps_balance *b);
// Units that a region holds ready.
uint32_t ps_balance_window(const struct ps_balance *b);
// Seconds to send this many bytes from one region to another; 0 within a region.
double ps_balance_arrival(const struct ps_balance *b, uint32_t from, uint32_t to, double bytes);
// Extra cost there of a unit of the pool: its language, in seconds.
double ps_balance_cost(const struct ps_balance *b, uint32_t pool, uint32_t region);
// The same for a unit of so many tokens, whatever the pool has left.
double ps_balance_cost_of(const struct ps_balance *b, uint32_t pool, uint32_t region,
                          double tokens);
void ps_balance_plan(const struct ps_balance *b, struct ps_balance_plan *out);
// The next unit of this region, which can take one. `plan`: of this state.
struct ps_balance_choice ps_balance_next(const struct ps_balance *b,
                                         const struct ps_balance_plan *plan, uint32_t region);
// Nothing is left to take: may this region run a second time a unit that `from` will end in
// `there_s`? `tokens`, `transfer_s` and `allowed` describe the unit. PS_BALANCE_NOTHING: no.
struct ps_balance_choice ps_balance_twice(const struct ps_balance *b, uint32_t region,
                                          uint32_t from, uint64_t allowed, double tokens,
                                          double transfer_s, double there_s);

#endif
