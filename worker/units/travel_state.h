// State of units that travel, which travel.c, homes.c and givers.c share. Nobody else includes it.
#ifndef WK_TRAVEL_STATE_H
#define WK_TRAVEL_STATE_H

#include "common/base/check.h"
#include "longhaul/v1/member.pb-c.h"
#include "worker/units/travel.h"
#include "worker/worker.h"

enum {
    WK_ARRIVALS_MAX = 512,
    WK_GIVERS_OF_A_HOME = 4,
    WK_TRAVEL_TEXT_BYTES = 300,
};
LH_STATIC_ASSERT(LH_WINDOW_MAX + LH_READ_AHEAD_MAX <= WK_ARRIVALS_MAX,
                 "what is in work and read ahead has its places");

enum wk_travel_unit_state {
    WK_TRAVEL_FREE,
    WK_TRAVEL_FINDING,  // on the lane
    WK_TRAVEL_WAITING,  // a giver, room, or its next try is awaited
    WK_TRAVEL_ASKING,   // its call is open
    WK_TRAVEL_CHECKING, // on the lane
    WK_TRAVEL_HERE,
};

struct wk_travel_unit {
    struct wk_worker *w;
    enum wk_travel_unit_state state;
    uint64_t unit; // unit of the data
    uint32_t home; // index
    bool wanted;   // it is in the queue; when not, it is dropped
    bool kept;     // its tokens are kept here, and count
    // asking
    struct lh_call *call;
    uint32_t giver, tries, busy;
    int64_t try_ns, moved_ns; // no try before; when the call moved last
    bool late;                // its call was ended for silence
    bool its_own;             // a try failed for the unit itself, whoever gives it
    bool told, lz4;           // the first message came, and says so
    uint64_t sent_bytes;
    struct lh_buf got;
    lh_err broken; // what came was wrong
    // on the lane
    lh_err err;
    char text[WK_TRAVEL_TEXT_BYTES];
};

struct wk_travel_giver {
    char address[LH_ADDRESS_BYTES];
    struct lh_link *link;
};

struct wk_travel_home {
    char region[LH_NAME_BYTES];
    bool away; // a unit of it was not here
    struct wk_travel_giver giver[WK_GIVERS_OF_A_HOME];
    uint32_t givers, without; // answers in a row without one
    bool closed;
    int64_t open_ns;   // when it is tried again
    uint32_t closings; // closings without an arrival since
    uint64_t returned; // units that were given back since it closed
    uint32_t refusals; // units that were refused in a row: none has arrived since
    bool slow;         // a call did not move; nothing has arrived since
    int64_t arrived_ns;
    // what arrives
    uint32_t calls;
    int64_t since_ns;
    uint64_t bytes;
    struct lh_estimate bytes_per_s;
    uint64_t arrived_bytes; // on the wire, also of what did not count as a unit
    // as it is told
    Longhaul__V1__Away row;
    Longhaul__V1__Estimate rate;
    Longhaul__V1__Trip trip;
};

// A unit of the data that did not arrive, while others of its home may.
struct wk_travel_refused {
    uint64_t unit;
    uint32_t times;  // times that it was refused without an arrival
    bool open;       // it is asked for again
    int64_t open_ns; // when it is
};

struct wk_travel {
    struct wk_travel_unit arrival[WK_ARRIVALS_MAX];
    struct wk_travel_home home[LH_AWAY_MAX];
    uint32_t homes, calls;
    Longhaul__V1__Away *row[LH_AWAY_MAX];
    uint64_t bytes; // kept or on their way
    uint64_t sure;  // kept, or looked for and perhaps kept
    uint64_t timer;
    uint64_t process; // a random number of this life
    struct wk_travel_refused refused[LH_REFUSED_MAX];
    uint32_t refused_count;
    uint64_t told[LH_REFUSED_MAX]; // what a request says of them
    uint32_t unread;               // units found damaged in a row, for the first time each
    uint64_t unread_steps;         // steps that were made before the last of them
    struct {
        uint64_t units, bytes, wire_bytes, returned, given_up, failed, refusals;
    } count;
};

// ---- homes.c
// The home's units don't reach this worker: they are given back, and asked for again later.
void wk_travel_close_home(struct wk_worker *w, struct wk_travel_home *h, const char *why);
// A single unit of the data does not, whose place is empty by now: the same of it alone.
void wk_travel_refuse(struct wk_worker *w, struct wk_travel_home *h, uint64_t unit,
                      const char *why);
void wk_travel_arrived(struct wk_worker *w, struct wk_travel_home *h, uint64_t unit);
// Opens homes and units whose pause is over. True: others still wait for theirs.
bool wk_travel_open(struct wk_worker *w);

#endif
