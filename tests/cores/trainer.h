// A trainer of somebody else's beside a worker, on the fake world: the real client library over
// memory of this process, a training loop of known steps, and what it knows of each cut.
//
// Trainer and worker are killed apart; the memory lives while one of them does.
#ifndef TESTS_CORES_TRAINER_H
#define TESTS_CORES_TRAINER_H

#include "common/env/env_fake.h"
#include "common/format/units.h"
#include "worker/client/longhaul.h"
#include "worker/worker.h"

enum { BESIDE_CUTS = 4, BESIDE_STEP_TOKENS = 16 };

struct beside_made { // what training did in a life, as of a cut
    double *lowered; // [values]
    uint64_t *upto;  // [units]: how far each was trained, as this life knows
};
struct beside {
    struct lh_fake_world *world;
    struct lh_env *env, *worker; // the trainer's node, and the worker's
    const struct lh_manifest *manifest;
    const struct lh_units *units;
    struct wk_beside_conf conf; // what the worker's conf takes
    uint64_t step_ms;
    // Orders for the trainer, from the next step on.
    bool idle;                             // it passes boundaries and does not train
    bool own_data, counts_nothing, spoils; // spoils: its next step makes a parameter NaN
    bool reads_ahead;                      // it asks for the next unit while it trains one
    bool damages;                          // the unit that it holds next is damaged
    uint64_t damaged;                      // the unit that was
    uint64_t stops_at;                     // its loop ends after this step of a life; 0: never
    struct longhaul_noise noise;           // what it reports of itself in a life; size 0: nothing
    uint32_t late_ms;                      // its rings take so long: the worker looks late
    // The trainer's fate so far.
    uint32_t lives, restarts;
    uint32_t refusals; // it describes another model than the run's
    bool over;         // it ended with the final parameters: `value`
    float *value;
    struct beside_made made[BESIDE_CUTS]; // as of cut n: [n % BESIDE_CUTS]
    struct beside_made now;
    uint8_t life[WK_CHANNEL_LIFE];
    uint64_t random, tokens; // tokens: of all lives
    uint64_t trained;        // steps that trained something, of all lives
    // trainer.c's own
    struct longhaul *client;
    struct beside_link *link;
    struct longhaul_unit_held {
        uint64_t unit, from, tokens;
    } held, next; // next: it was read ahead; no tokens: none was
    uint64_t step;
    bool connected, finishing;
};

struct beside *beside_new(struct lh_fake_world *world, struct lh_env *worker,
                          const struct lh_manifest *manifest, const struct lh_units *units,
                          uint64_t step_ms);
void beside_free(struct beside *b);
void beside_start(struct beside *b); // a trainer's process
void beside_kill(struct beside *b);  // -9; nothing happens where none runs
bool beside_runs(const struct beside *b);

#endif
