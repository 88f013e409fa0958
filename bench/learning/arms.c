// The arms of bench/learning. See learning.h.
#include <math.h>
#include <string.h>

#include "bench/learning/learning.h"

const char *const learn_region[LEARN_REGIONS] = {"asia", "europe", "america"};
const uint32_t learn_steps[LEARN_REGIONS] = {8, 4, 2};

#define SYNC LH_MODE_BSP
#define ASYNC LH_MODE_ASYNC
const struct learn_arm learn_arms[] = {
    // every region alone with its share; one process on everything
    {"alone-asia", "asia", ASYNC, "dense-fp32", 0, 0, 1},
    {"alone-europe", "europe", ASYNC, "dense-fp32", 0, 0, 1},
    {"alone-america", "america", ASYNC, "dense-fp32", 0, 0, 1},
    {"single", "all", ASYNC, "dense-fp32", 0, 0, 1},
    // the baseline: synchronous, dense, its outer step tuned
    {"sync-sgd-0.7", NULL, SYNC, "dense-fp32", 0, 0, 0.7f},
    {"sync-sgd-1", NULL, SYNC, "dense-fp32", 0, 0, 1},
    {"sync-sgd-1.4", NULL, SYNC, "dense-fp32", 0, 0, 1.4f},
    // ours: asynchronous, with kappa
    {"ours", NULL, ASYNC, "topk-sign", 0, 0.5f, 0},
    {"ours-k0", NULL, ASYNC, "topk-sign", 0, 0, 0},
    {"ours-k0.25", NULL, ASYNC, "topk-sign", 0, 0.25f, 0},
    {"ours-k0.75", NULL, ASYNC, "topk-sign", 0, 0.75f, 0},
    {"ours-k1", NULL, ASYNC, "topk-sign", 0, 1, 0},
    {"ours-p64", NULL, ASYNC, "topk-sign", 1 / 64.f, 0.25f, 0},
    {"ours-p64-k0", NULL, ASYNC, "topk-sign", 1 / 64.f, 0, 0},
    {"ours-p64-k0.5", NULL, ASYNC, "topk-sign", 1 / 64.f, 0.5f, 0},
    {"ours-p6", NULL, ASYNC, "topk-sign", 1 / 6.f, 0.5f, 1},
    {"ours-dense-sign", NULL, ASYNC, "dense-sign", 0, 0, 0},
};
const size_t learn_arm_count = sizeof learn_arms / sizeof learn_arms[0];

const struct learn_arm *learn_arm_find(const char *name)
{
    for (size_t i = 0; i < learn_arm_count; i++)
        if (!strcmp(learn_arms[i].name, name)) return &learn_arms[i];
    return NULL;
}

float learn_density(const struct learn_arm *arm, uint64_t rounds)
{
    if (arm->codec[0] == 'd') return 1;
    if (arm->density > 0) return arm->density;
    double p = 30 / (double)(rounds ? rounds : 1);
    return (float)fmin(fmax(p, 1.0 / 256), 1.0 / 6);
}
