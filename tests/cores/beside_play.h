// A worker with a user's trainer beside it, and the judge of its cuts: each delta is the progress
// between two committed cuts; nothing is counted twice, and nothing that was cut is lost.
#ifndef TESTS_CORES_BESIDE_PLAY_H
#define TESTS_CORES_BESIDE_PLAY_H

#include "tests/cores/life.h"
#include "tests/cores/trainer.h"

enum { STEP_MS = 20 };

struct beside_play {
    struct life *l;
    struct beside *b;
    uint8_t life[RIG_SHARDS][WK_SLOT_LIFE_BYTES]; // life that made the last committed cut
    uint64_t cut[RIG_SHARDS];                     // its number
    uint64_t cuts;
    bool spoilt;                // a parameter was made NaN
    uint64_t *held[RIG_SHARDS]; // [units]: tokens of each in the shard's committed cuts
};

extern struct beside_play *play; // the running test's

void play_begin(uint64_t seed, uint32_t shards);
void play_end(void);
void play_start_worker(void);  // starts the next process on the directory
void play_cuts(uint64_t more); // runs until so many more cuts are committed
void play_credit(void);        // checks that every shard's pushes hold each credited unit
void play_check(void);         // waits for all decisions, then checks credits and mass
enum wk_beside_state play_state(void);
void play_until(enum wk_beside_state wanted);

#endif
