// Shared by the fake worker, the trainer and the judge (judge.py): a model, the amount that a step
// adds to it, and the fake worker's state as a file. All amounts are small multiples of 1/4, so
// fp32 sums are exact in any order.
#ifndef TESTS_EXTERNAL_WORLD_H
#define TESTS_EXTERNAL_WORLD_H

#include <stdint.h>

enum {
    EX_VALUES = 2000 + 1001 + 6000 + 1,
    EX_TENSORS = 4,
    EX_PARTS_MAX = 3,
    EX_LIVES_MAX = 2048,
    EX_UNITS = 4096,
    EX_UNIT_TOKENS = 512,
    EX_STEP_TOKENS = 8,
    EX_EVERY = 3, // steps between two cuts
};

static const uint64_t ex_shape[EX_TENSORS][3] = {{40, 50}, {7, 11, 13}, {60, 100}, {1}};
static const int ex_dims[EX_TENSORS] = {2, 3, 2, 0};
static const char *const ex_name[EX_TENSORS] = {"embed", "odd", "rows", "scalar"};

// The amount that step number `step` of a life adds to parameter i.
static inline float ex_progress(uint64_t i, uint64_t step)
{
    return (float)(1 + (i + step) % 4);
}

// The amount that the k-th record of another region adds to value i of a part; k begins at 1.
static inline float ex_record(uint64_t i, uint64_t k)
{
    return (i + 7 * k) % 64 == 0 ? (float)(int)(k % 5) - 1 : 0;
}

// The file has the layout of these structs in memory; little endian.
struct ex_life {
    uint8_t name[16];
    uint64_t number[EX_PARTS_MAX], step[EX_PARTS_MAX], tokens[EX_PARTS_MAX];
};
struct ex_state {
    uint64_t parts, ranks, lives, cuts, resumed, records[EX_PARTS_MAX];
    struct ex_life life[EX_LIVES_MAX];
    float theta[EX_VALUES], residual[EX_VALUES];
    uint64_t place[EX_PARTS_MAX][EX_UNITS]; // tokens trained, as of the part's last cut
};

#endif
