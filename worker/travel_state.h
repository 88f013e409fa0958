// State of units that travel, which travel.c and givers.c share. Nobody else includes it.
#ifndef WK_TRAVEL_STATE_H
#define WK_TRAVEL_STATE_H

#include "common/base/check.h"
#include "longhaul/v1/member.pb-c.h"
#include "worker/travel.h"
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
    bool slow;         // a call did not move; nothing has arrived since
    int64_t arrived_ns;
    // what arrives
    uint32_t calls;
    int64_t since_ns;
    uint64_t bytes;
    struct lh_estimate bytes_per_s;
    // as it is told
    Longhaul__V1__Away row;
    Longhaul__V1__Estimate rate;
    Longhaul__V1__Trip trip;
};

struct wk_travel {
    struct wk_travel_unit arrival[WK_ARRIVALS_MAX];
    struct wk_travel_home home[LH_AWAY_MAX];
    uint32_t homes, calls;
    Longhaul__V1__Away *row[LH_AWAY_MAX];
    uint64_t bytes; // kept or on their way
    uint64_t sure;  // kept, or looked for and perhaps kept
    uint64_t timer;
    struct {
        uint64_t units, bytes, wire_bytes, returned, failed;
    } count;
};

// The home's units don't reach this worker: they are given back, and asked for again later.
void wk_travel_close_home(struct wk_worker *w, struct wk_travel_home *h, const char *why);

#endif
