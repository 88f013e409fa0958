// A worker's life with a trainer of somebody else's beside it, and the judge of its cuts: each
// delta is what training did between two committed cuts, nothing twice, nothing that was cut is
// lost.
#ifndef TESTS_CORES_BESIDE_PLAY_H
#define TESTS_CORES_BESIDE_PLAY_H

#include "tests/cores/life.h"
#include "tests/cores/trainer.h"

enum { STEP_MS = 20 };

struct beside_play {
    struct life *l;
    struct beside *b;
    uint8_t life[RIG_SHARDS][WK_SLOT_LIFE_BYTES]; // the life of the cut that was committed last
    uint64_t cut[RIG_SHARDS];                     // its number
    uint64_t cuts;
    bool spoilt;                // a parameter is no number
    uint64_t *held[RIG_SHARDS]; // [units]: how far the shard's committed cuts hold each
};

extern struct beside_play *play; // cmocka's tests are functions alone

void play_begin(uint64_t seed, uint32_t shards);
void play_end(void);
void play_start_worker(void);  // starts the next process on the directory
void play_cuts(uint64_t more); // runs until so many more are committed
void play_credit(void);        // credited units are missing in no shard's pushes
void play_check(void);         // when all is decided, judges credits and mass
enum wk_beside_state play_state(void);
void play_until(enum wk_beside_state wanted);

#endif
