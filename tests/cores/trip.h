// A worker of europe without files, which gets units of asia from asia's server. For tests of units
// that travel.
#ifndef TESTS_CORES_TRIP_H
#define TESTS_CORES_TRIP_H

#include <jansson.h>

#include "tests/cores/rig.h"
#include "worker/units/travel.h"
#include "worker/worker.h"

enum { TRIP_UNITS = 40, TRIP_MANY = 400, TRIP_TOKENS = 64, TRIP_BYTES = 2 * TRIP_TOKENS };

struct trip {
    struct rig *r;
    struct rig_life l;
    struct wk_travel_conf travel;
    struct wk_observer observer;
    struct lh_log *log;
    uint32_t units;
    uint8_t tokens[TRIP_MANY * TRIP_BYTES];
    bool kept[TRIP_MANY];
    bool cached; // units are in the worker's cache
    uint32_t arrived, most_kept;
    uint64_t trained[TRIP_MANY]; // tokens trained of each unit
    int64_t free_ns;             // the slow link is busy until then
};

// Starts a run without its worker: so many units, of asia and europe in turns, and data epochs.
struct trip *trip_begin_with(uint32_t units, uint32_t epochs);
struct trip *trip_begin(void); // TRIP_UNITS of one epoch
void trip_start_worker_with(struct trip *t, uint64_t step_ms, uint32_t queue_units);
void trip_start_worker(struct trip *t);
void trip_end_worker(struct trip *t, bool power); // the worker's memory is lost
void trip_over(struct trip *t);                   // fails the test if a core ended by itself
int trip_set_up(void **state);                    // trip_begin()
int trip_tear_down(void **state);
#define TRIP_TEST(name, parameter) TEST_WITH(name, parameter, trip_set_up, trip_tear_down)
// Starts a server that gives units by this manifest; its file has all of t->tokens.
void trip_start_server(struct trip *t, const struct lh_units *units);
void trip_write_file(struct trip *t);
void trip_hash(struct rig *r, const uint8_t *tokens); // gives r->units the hashes of these
uint64_t trip_credited(const struct trip *t);
void trip_run_until_credited(struct trip *t, uint64_t units);
uint32_t trip_kept_now(const struct trip *t);
json_int_t trip_told(const struct trip *t, const char *key); // from the status "travel"
// Checks that no token was trained twice.
void trip_check_trained_once(const struct trip *t);

#endif
