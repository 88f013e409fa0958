// State of fetched units, shared by travel.c, homes.c and givers.c; private to them.
#ifndef WK_TRAVEL_STATE_H
#define WK_TRAVEL_STATE_H

#include "common/base/check.h"
#include "worker/units/travel.h"
#include "worker/worker.h"

enum {
    WK_ARRIVALS_MAX = 512,
    WK_TRAVEL_TEXT_BYTES = 300,
};
LH_STATIC_ASSERT(LH_WINDOW_MAX + LH_READ_AHEAD_MAX <= WK_ARRIVALS_MAX,
                 "what is in work and read ahead has its places");

enum wk_travel_unit_state {
    WK_TRAVEL_FREE,
    WK_TRAVEL_FINDING,  // on the lane
    WK_TRAVEL_WAITING,  // waits for a giver, memory, or its next try
    WK_TRAVEL_ASKING,   // its call is open
    WK_TRAVEL_CHECKING, // on the lane
    WK_TRAVEL_HERE,
};

struct wk_travel_unit {
    struct wk_worker *w;
    enum wk_travel_unit_state state;
    uint64_t unit; // unit of the data
    uint32_t home; // index
    bool wanted;   // it is in the queue; otherwise it is dropped
    bool kept;     // its tokens are in memory and count in `bytes`
    // asking
    struct lh_call *call;
    uint32_t giver, tries, busy;
    int64_t try_ns, moved_ns; // earliest next try; when the call last moved
    size_t moved_bytes;       // bytes that had arrived then
    bool late;                // its call was cancelled as stalled
    bool its_own;             // the unit, not its giver, caused a failure
    bool told, lz4;           // the first message arrived; it is compressed
    uint64_t sent_bytes;
    struct lh_buf got;
    lh_err broken; // why the received data is wrong
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
    bool away;                                   // a unit of it was not local
    struct wk_travel_giver giver[LH_GIVERS_MAX]; // all that are named: some may be silent
    uint32_t givers, without;                    // `without`: answers in a row that named no giver
    uint32_t first;                              // units ask this giver first, modulo `givers`
    bool closed;
    int64_t open_ns;   // when it is tried again
    uint32_t closings; // closings since the last arrival
    uint64_t returned; // units given back since it closed
    uint32_t refusals; // units refused in a row, since the last arrival
    bool store_away;   // closed since the store (data.dir) of its units' files is away
    bool was_away;     // `away`, before that
    bool slow;         // a call stalled since the last arrival
    int64_t arrived_ns;
    // arrivals
    uint32_t calls;
    int64_t since_ns;
    uint64_t bytes;
    struct lh_estimate bytes_per_s;
    uint64_t arrived_bytes; // on the wire, including data that was discarded
};

// A unit of the data that could not be fetched, while others of its home may be.
struct wk_travel_refused {
    uint64_t unit;
    uint32_t times;  // refusals without an arrival
    bool open;       // its pause is over
    int64_t open_ns; // when its pause is over
};

struct wk_travel {
    struct wk_travel_unit arrival[WK_ARRIVALS_MAX];
    struct wk_travel_home home[LH_AWAY_MAX];
    uint32_t homes, calls;
    struct lh_away row[LH_AWAY_MAX]; // memory of a lease request
    uint64_t bytes;                  // bytes kept or in flight
    uint64_t sure;                   // bytes kept, or looked up and perhaps kept
    uint64_t timer;
    uint64_t process; // random number of this process
    struct wk_travel_refused refused[LH_REFUSED_MAX];
    uint32_t refused_count;
    uint64_t told[LH_REFUSED_MAX]; // refused units, as reported in a request
    uint32_t unread;               // units newly found damaged in a row
    uint64_t unread_steps;         // worker's steps when the last one was found
    struct {
        uint64_t units, bytes, wire_bytes, returned, given_up, failed, refusals;
    } count;
};

// ---- homes.c
// Closes a home whose units can't be fetched: gives them back and retries later.
void wk_travel_close_home(struct wk_worker *w, struct wk_travel_home *h, const char *why);
// Does the same for a single unit of the data, after its place was freed.
void wk_travel_refuse(struct wk_worker *w, struct wk_travel_home *h, uint64_t unit,
                      const char *why);
// True: the unit's file is in a store that is away, and the pause is not over.
bool wk_travel_store_away(const struct wk_worker *w, uint64_t unit);
// The home's index, added if new; LH_AWAY_MAX: the table is full.
uint32_t wk_travel_home(struct wk_travel *t, const char *region);
// Frees the place of a queued unit, unless its tokens are in memory. False: they are.
bool wk_travel_release(struct wk_worker *w, struct wk_queued *q);
void wk_travel_arrived(struct wk_worker *w, struct wk_travel_home *h, uint64_t unit);
// Opens homes and units whose pause is over. True: others still wait.
bool wk_travel_open(struct wk_worker *w);

#endif
