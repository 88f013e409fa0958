// The arms of bench/learning. See learning.h.
#include <math.h>
#include <string.h>

#include "bench/learning/learning.h"

const char *const learn_region[LEARN_REGIONS] = {"asia", "europe", "america"};
const uint32_t learn_steps[LEARN_REGIONS] = {8, 4, 2};

#define SYNC LH_MODE_BSP
#define ASYNC LH_MODE_ASYNC
// optimizer, momentum, pushes between outer steps, bound of the guard
#define SGD LH_OPT_SGD, 0, 0, 0
#define BUFFERED LH_OPT_BUFFERED, 0, 0, 0
#define NESTEROV(mu) LH_OPT_DELAYED_NESTEROV, mu, 0, 0
#define NAIVE_NESTEROV(mu) LH_OPT_DELAYED_NESTEROV, mu, 1, 0
#define GUARDED_NESTEROV(mu) LH_OPT_DELAYED_NESTEROV, mu, 0, 1.5f
const struct learn_arm learn_arms[] = {
    // every region alone with its share; one process on everything
    {"alone-asia", "asia", ASYNC, "dense-fp32", 0, 0, 1, SGD},
    {"alone-europe", "europe", ASYNC, "dense-fp32", 0, 0, 1, SGD},
    {"alone-america", "america", ASYNC, "dense-fp32", 0, 0, 1, SGD},
    {"single", "all", ASYNC, "dense-fp32", 0, 0, 1, SGD},
    // the baseline: synchronous, dense, its outer step tuned
    {"sync-sgd-0.7", NULL, SYNC, "dense-fp32", 0, 0, 0.7f, SGD},
    {"sync-sgd-1", NULL, SYNC, "dense-fp32", 0, 0, 1, SGD},
    {"sync-sgd-1.4", NULL, SYNC, "dense-fp32", 0, 0, 1.4f, SGD},
    {"sync-nesterov-0.6-0.5", NULL, SYNC, "dense-fp32", 0, 0, 0.5f, NESTEROV(0.6f)},
    {"sync-nesterov-0.6-0.7", NULL, SYNC, "dense-fp32", 0, 0, 0.7f, NESTEROV(0.6f)},
    {"sync-nesterov-0.3-0.7", NULL, SYNC, "dense-fp32", 0, 0, 0.7f, NESTEROV(0.3f)},
    {"sync-nesterov-0.3-1", NULL, SYNC, "dense-fp32", 0, 0, 1, NESTEROV(0.3f)},
    {"sync-nesterov-0.9-0.7", NULL, SYNC, "dense-fp32", 0, 0, 0.7f, NESTEROV(0.9f)},
    // dense and asynchronous, with momentum at every arrival: why not. Then delayed, then guarded
    {"async-naive-nesterov", NULL, ASYNC, "dense-fp32", 0, 0, 0.7f, NAIVE_NESTEROV(0.9f)},
    {"async-delayed-nesterov", NULL, ASYNC, "dense-fp32", 0, 0, 0.7f, NESTEROV(0.6f)},
    {"async-guarded-nesterov", NULL, ASYNC, "dense-fp32", 0, 0, 0.7f, GUARDED_NESTEROV(0.9f)},
    {"async-buffered", NULL, ASYNC, "dense-fp32", 0, 0, 1, BUFFERED},
    {"async-sgd", NULL, ASYNC, "dense-fp32", 0, 0, 1, SGD},
    // ours: asynchronous, with kappa
    {"ours", NULL, ASYNC, "topk-sign", 0, 0.5f, 0, SGD},
    {"ours-k0", NULL, ASYNC, "topk-sign", 0, 0, 0, SGD},
    {"ours-k0.25", NULL, ASYNC, "topk-sign", 0, 0.25f, 0, SGD},
    {"ours-k0.75", NULL, ASYNC, "topk-sign", 0, 0.75f, 0, SGD},
    {"ours-k1", NULL, ASYNC, "topk-sign", 0, 1, 0, SGD},
    {"ours-p64", NULL, ASYNC, "topk-sign", 1 / 64.f, 0.25f, 0, SGD},
    {"ours-p64-k0", NULL, ASYNC, "topk-sign", 1 / 64.f, 0, 0, SGD},
    {"ours-p64-k0.5", NULL, ASYNC, "topk-sign", 1 / 64.f, 0.5f, 0, SGD},
    {"ours-p6", NULL, ASYNC, "topk-sign", 1 / 6.f, 0.5f, 1, SGD},
    {"ours-dense-sign", NULL, ASYNC, "dense-sign", 0, 0, 0, SGD},
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
