// A user's trainer beside a worker, on the fake env: the real client library over memory of this
// process, a training loop with known steps, and a note of what each cut should hold.
//
// Trainer and worker can be killed separately; the shared memory lives as long as one of them does.
#ifndef TESTS_CORES_TRAINER_H
#define TESTS_CORES_TRAINER_H

#include "common/format/units.h"
#include "tests/world/env_fake.h"
#include "worker/client/longhaul.h"
#include "worker/worker.h"

enum { BESIDE_CUTS = 4, BESIDE_STEP_TOKENS = 16 };

struct beside_made { // training of a life, as of a cut
    double *lowered; // [values]
    uint64_t *upto;  // [units]: tokens trained of each in this life
};
struct beside {
    struct lh_fake_world *world;
    struct lh_env *env, *worker; // the trainer's node, and the worker's
    const struct lh_manifest *manifest;
    const struct lh_units *units;
    struct wk_beside_conf conf; // the worker's conf points to it
    uint64_t step_ms;
    // Orders to the trainer, from the next step on:
    bool idle;                             // passes boundaries without training
    bool own_data, counts_nothing, spoils; // spoils: the next step makes a parameter NaN
    bool reads_ahead;                      // asks for the next unit while it trains one
    bool damages;                          // reports its next unit as damaged
    uint64_t damaged;                      // the unit that it reported so
    uint64_t stops_at;                     // ends its loop after this step of a life; 0: never
    struct longhaul_noise noise;           // its report in each life; size 0: none
    uint32_t late_ms;                      // delay of its messages: the worker looks late
    // The trainer's history so far:
    uint32_t lives, restarts;
    uint32_t refusals; // its model is not the run's
    bool over;         // it ended with the final parameters in `value`
    float *value;
    struct beside_made made[BESIDE_CUTS]; // cut n is at [n % BESIDE_CUTS]
    struct beside_made now;
    uint8_t life[WK_CHANNEL_LIFE];
    uint64_t random, tokens; // tokens: of all lives
    uint64_t trained;        // steps with tokens, of all lives
    // private to trainer.c
    struct longhaul *client;
    struct beside_link *link;
    struct longhaul_unit_held {
        uint64_t unit, from, tokens;
    } held, next; // next: read ahead, if tokens > 0
    uint64_t step;
    bool connected, finishing;
};

struct beside *beside_new(struct lh_fake_world *world, struct lh_env *worker,
                          const struct lh_manifest *manifest, const struct lh_units *units,
                          uint64_t step_ms);
void beside_free(struct beside *b);
void beside_start(struct beside *b); // starts its process
void beside_kill(struct beside *b);  // kill -9, if one runs
bool beside_runs(const struct beside *b);

#endif
