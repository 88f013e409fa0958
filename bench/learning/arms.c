// The arms of bench/learning. See learning.h.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/learning/learning.h"
#include "worker/rule.h"

const char *const learn_region[LEARN_REGIONS] = {"asia", "europe", "america"};
const uint32_t learn_steps[LEARN_REGIONS] = {8, 4, 2};

#define SYNC LH_MODE_BSP
#define ASYNC LH_MODE_ASYNC
// learning rate, its floor, beta, stagger, survives; round trips, jitter, slow and cut region;
// equal; copies, batch, damping
#define BY_RULE 0, 0, 0, WK_STAGGER_AUTO, 0, 0, 0, NULL, NULL, false, 0, 0, 0
// optimizer, momentum, pushes between outer steps, bound of the guard
#define SGD LH_OPT_SGD, 0, 0, 0, BY_RULE
#define NESTEROV(mu) LH_OPT_DELAYED_NESTEROV, mu, 0, 0, BY_RULE
#define NAIVE_NESTEROV(mu) LH_OPT_DELAYED_NESTEROV, mu, 1, 0, BY_RULE
#define GUARDED_NESTEROV(mu) LH_OPT_DELAYED_NESTEROV, mu, 0, 1.5f, BY_RULE
const struct learn_arm learn_arms[] = {
    // every region alone with its share; one process on everything
    {"alone-asia", "asia", ASYNC, "dense-fp32", 0, 0, 1, SGD},
    {"alone-europe", "europe", ASYNC, "dense-fp32", 0, 0, 1, SGD},
    {"alone-america", "america", ASYNC, "dense-fp32", 0, 0, 1, SGD},
    {"single", "all", ASYNC, "dense-fp32", 0, 0, 1, SGD},
    // the baseline: synchronous, dense, with a tuned outer step
    {"sync-sgd-0.7", NULL, SYNC, "dense-fp32", 0, 0, 0.7f, SGD},
    {"sync-sgd-1", NULL, SYNC, "dense-fp32", 0, 0, 1, SGD},
    {"sync-sgd-1.4", NULL, SYNC, "dense-fp32", 0, 0, 1.4f, SGD},
    {"sync-nesterov-0.6-0.5", NULL, SYNC, "dense-fp32", 0, 0, 0.5f, NESTEROV(0.6f)},
    {"sync-nesterov-0.6-0.7", NULL, SYNC, "dense-fp32", 0, 0, 0.7f, NESTEROV(0.6f)},
    {"sync-nesterov-0.3-0.7", NULL, SYNC, "dense-fp32", 0, 0, 0.7f, NESTEROV(0.3f)},
    {"sync-nesterov-0.3-1", NULL, SYNC, "dense-fp32", 0, 0, 1, NESTEROV(0.3f)},
    {"sync-nesterov-0.9-0.7", NULL, SYNC, "dense-fp32", 0, 0, 0.7f, NESTEROV(0.9f)},
    // dense and asynchronous, with momentum at every arrival (it fails); then delayed, then guarded
    {"async-naive-nesterov", NULL, ASYNC, "dense-fp32", 0, 0, 0.7f, NAIVE_NESTEROV(0.9f)},
    {"async-delayed-nesterov", NULL, ASYNC, "dense-fp32", 0, 0, 0.7f, NESTEROV(0.6f)},
    {"async-guarded-nesterov", NULL, ASYNC, "dense-fp32", 0, 0, 0.7f, GUARDED_NESTEROV(0.9f)},
    {"async-sgd", NULL, ASYNC, "dense-fp32", 0, 0, 1, SGD},
    // ours: asynchronous, with kappa
    {"ours", NULL, ASYNC, "topk-sign", 0, 0.25f, 0, SGD},
    {"ours-k0", NULL, ASYNC, "topk-sign", 0, 0, 0, SGD},
    {"ours-k0.5", NULL, ASYNC, "topk-sign", 0, 0.5f, 0, SGD},
    {"ours-k0.75", NULL, ASYNC, "topk-sign", 0, 0.75f, 0, SGD},
    {"ours-k1", NULL, ASYNC, "topk-sign", 0, 1, 0, SGD},
    {"ours-p64", NULL, ASYNC, "topk-sign", 1 / 64.f, 0.25f, 0, SGD},
    {"ours-p64-k0", NULL, ASYNC, "topk-sign", 1 / 64.f, 0, 0, SGD},
    {"ours-p64-k0.5", NULL, ASYNC, "topk-sign", 1 / 64.f, 0.5f, 0, SGD},
    {"ours-p6", NULL, ASYNC, "topk-sign", 1 / 6.f, 0.25f, 0, SGD},
    {"ours-dense-sign", NULL, ASYNC, "dense-sign", 0, 0, 0, SGD},
    // ours, but every round waits for all regions
    {"bsp-topk", NULL, SYNC, "topk-sign", 0, 0.25f, 0, SGD},
};
const size_t learn_arm_count = sizeof learn_arms / sizeof learn_arms[0];

// ---------------------------------------------------------------- names

enum { VARIANTS_MAX = 64, NAME_MAX_BYTES = 64 };

// Arms of the table with other settings, as requested; their names live as long.
static struct learn_arm variant[VARIANTS_MAX];
static char variant_name[VARIANTS_MAX][NAME_MAX_BYTES];
static size_t variants;

static bool set_number(struct learn_arm *arm, const char *key, const char *value)
{
    const struct {
        const char *key;
        float *to, most;
    } of[] = {{"p", &arm->density, 1},       {"k", &arm->kappa, INFINITY},
              {"eta", &arm->eta, INFINITY},  {"rate", &arm->rate, INFINITY},
              {"floor", &arm->floor, 1},     {"beta", &arm->beta, 1},
              {"s", &arm->survives, 1},      {"jitter", &arm->jitter, 1},
              {"m", &arm->momentum, 1},      {"damping", &arm->damping, 10},
              {"rtt", &arm->round_trips, 40}}; // 8 s, below the deadline of a call
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        char *end;
        if (strcmp(of[i].key, key) != 0) continue;
        *of[i].to = strtof(value, &end);
        return end != value && !*end && *of[i].to >= 0 && *of[i].to <= of[i].most;
    }
    return false;
}

static bool set_region(const char **to, const char *value)
{
    for (uint32_t r = 0; r < LEARN_REGIONS; r++)
        if (!strcmp(learn_region[r], value)) *to = learn_region[r];
    return *to && !strcmp(*to, value);
}

static bool set_count(uint32_t *to, const char *value, unsigned long most)
{
    char *end;
    unsigned long n = strtoul(value, &end, 10);
    *to = (uint32_t)n;
    return end != value && !*end && n >= 1 && n <= most;
}

// A density that the arm sets stays. `value`: a name of kernels/codec.h.
static bool set_codec(struct learn_arm *arm, const char *value)
{
    struct lk_codec codec;
    if (lk_codec_parse(value, &codec)) return false;
    arm->codec = lk_codec_name(&codec);
    return true;
}

// `word` is KEY=VALUE and is modified.
static bool set_one(struct learn_arm *arm, char *word)
{
    char *value = strchr(word, '=');
    if (!value) return false;
    *value++ = 0;
    if (!strcmp(word, "slow")) return set_region(&arm->slow, value);
    if (!strcmp(word, "cut")) return set_region(&arm->cut, value);
    if (!strcmp(word, "codec")) return set_codec(arm, value);
    if (!strcmp(word, "copies")) return set_count(&arm->copies, value, LEARN_COPIES_MAX);
    if (!strcmp(word, "batch")) return set_count(&arm->batch, value, LEARN_UNIT_TOKENS);
    if (!strcmp(word, "damping")) {
        bool is = set_number(arm, word, value);
        if (arm->damping <= 0) arm->damping = -1;
        return is;
    }
    if (!strcmp(word, "h")) {
        arm->equal = !strcmp(value, "equal");
        return arm->equal || !strcmp(value, "speed");
    }
    if (strcmp(word, "stagger") != 0) return set_number(arm, word, value);
    bool on = !strcmp(value, "on");
    arm->stagger = on ? WK_STAGGER_ON : WK_STAGGER_OFF;
    return on || !strcmp(value, "off");
}

static const struct learn_arm *table_find(const char *name, size_t length)
{
    for (size_t i = 0; i < learn_arm_count; i++)
        if (strlen(learn_arms[i].name) == length && !strncmp(learn_arms[i].name, name, length))
            return &learn_arms[i];
    return NULL;
}

const struct learn_arm *learn_arm_find(const char *name)
{
    size_t length = strcspn(name, ":");
    const struct learn_arm *base = table_find(name, length);
    if (!base || !name[length]) return base;
    for (size_t i = 0; i < variants; i++)
        if (!strcmp(variant_name[i], name)) return &variant[i];
    if (variants == VARIANTS_MAX || strlen(name) >= NAME_MAX_BYTES) return NULL;
    char copy[NAME_MAX_BYTES], *save;
    struct learn_arm *arm = &variant[variants];
    *arm = *base;
    snprintf(variant_name[variants], NAME_MAX_BYTES, "%s", name);
    snprintf(copy, sizeof copy, "%s", name + length);
    arm->name = variant_name[variants];
    for (char *w = strtok_r(copy, ":", &save); w; w = strtok_r(NULL, ":", &save))
        if (!set_one(arm, w)) return NULL;
    variants++;
    return arm;
}

// ---------------------------------------------------------------- rules

float learn_density(const struct learn_arm *arm, uint64_t rounds)
{
    if (arm->codec[0] == 'd') return 1;
    if (arm->density > 0) return arm->density;
    return (float)wk_rule_density((double)(rounds ? rounds : 1));
}

bool learn_staggered(const struct learn_arm *arm)
{
    if (arm->stagger != WK_STAGGER_AUTO) return arm->stagger == WK_STAGGER_ON;
    return arm->mode != SYNC;
}

float learn_eta(const struct learn_arm *arm, uint64_t rounds)
{
    if (arm->eta > 0) return arm->eta;
    double density = (double)learn_density(arm, rounds);
    return (float)wk_rule_eta(density, (double)rounds, LEARN_REGIONS * learn_copies(arm), false);
}

float learn_beta(const struct learn_arm *arm, uint64_t rounds)
{
    float p = learn_density(arm, rounds);
    if (arm->survives > 0) return powf(arm->survives, p);
    return arm->beta > 0 ? arm->beta : (float)wk_rule_beta((double)p);
}

float learn_rate(const struct learn_arm *arm, const struct learn_conf *conf)
{
    return arm->rate > 0 ? arm->rate : conf->rate;
}

float learn_damping(const struct learn_arm *arm)
{
    return arm->damping < 0 ? 0 : arm->damping > 0 ? arm->damping : 0.5f;
}

float learn_floor(const struct learn_arm *arm)
{
    return arm->floor > 0 ? arm->floor : 0.02f;
}

uint32_t learn_share(const struct learn_arm *arm, uint32_t region)
{
    bool slow = arm->slow && !strcmp(arm->slow, learn_region[region]) && arm->mode != SYNC;
    if (arm->equal) return learn_steps[0] + learn_steps[1] + learn_steps[2];
    return learn_steps[region] * (slow ? 1 : 3);
}

uint32_t learn_h(const struct learn_conf *conf, uint32_t region)
{
    return learn_steps[region] * conf->h / LEARN_H;
}

uint64_t learn_round_tokens(const struct learn_conf *conf)
{
    uint64_t steps = 0;
    for (uint32_t r = 0; r < LEARN_REGIONS; r++) steps += learn_h(conf, r);
    return steps * conf->step_tokens;
}

uint64_t learn_rounds(const struct learn_conf *conf)
{
    return conf->tokens / learn_round_tokens(conf);
}

uint32_t learn_copies(const struct learn_arm *arm)
{
    return arm->copies && !arm->region ? arm->copies : 1;
}

uint64_t learn_arm_rounds(const struct learn_arm *arm, const struct learn_conf *conf)
{
    return learn_rounds(conf) / learn_copies(arm);
}

double learn_warmup(uint64_t rounds)
{
    return fmin(fmax(20 / (double)(rounds ? rounds : 1), 0.05), 0.2);
}
