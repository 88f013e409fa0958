// The table of worker.yaml, and what its rows must satisfy together. See settings.h.
#include "worker/settings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/parallel.h"
#include "common/objects/address.h"
#include "kernels/codec.h"
#include "worker/backend.h"
#include "worker/ranks/stream/address.h"
#include "worker/rule.h"
#include "worker/train/device.h"

// The words of codec.name, in the order of lk_codec_word().
#define CODECS "topk-sign|topk-q4|topk-fp16|topk-fp32|dense-sign|dense-q4|dense-fp32"

static const struct lh_config_row rows[] = {
#define LH_SETTING(type, who, path, field, ...)                                                    \
    LH_CONFIG_ROW_##type(struct wk_settings, who, #path, node.path, __VA_ARGS__),
#define LH_SETTINGS_GROUP(name)
#define LH_SETTINGS_END(name)
#include "common/app/node.def"
#define LH_SETTING(type, who, path, field, ...)                                                    \
    LH_CONFIG_ROW_##type(struct wk_settings, who, #path, path, __VA_ARGS__),
#define LH_SETTINGS_GROUP(name)
#define LH_SETTINGS_END(name)
#include "worker/settings.def"
};

const char *wk_codec_name(const struct wk_settings *s)
{
    return lk_codec_word((size_t)s->codec.name);
}

const char *wk_reduce_word(int kind)
{
    static const char *const word[] = {"shm", "tcp", "nccl"};
    return word[kind];
}

bool wk_settings_releases(const struct wk_settings *s)
{
    return s->privacy.budget[0] && s->trainer.kind == WK_TRAINER_EXTERNAL && !s->privacy.reported;
}

struct wk_codec_plan wk_codec_plan(const struct wk_settings *s)
{
    bool dense = wk_codec_is_dense(s), follows = !dense && s->codec.density == 0;
    // A private worker's dense pushes are fragments of this density.
    bool part = dense && wk_settings_releases(s) && s->codec.density > 0;
    double p = dense && !part ? 1 : follows ? wk_rule_density(INFINITY) : s->codec.density;
    return (struct wk_codec_plan){
        .follows = follows,
        .density = (float)p,
        .beta = (float)wk_rule_beta(p),
        .kappa = dense ? 0 : 0.25f,
    };
}

uint32_t wk_codec_threads(const struct wk_settings *s)
{
    int64_t most = (int64_t)lh_processors(), ranks = s->ranks.count;
    return (uint32_t)(ranks < most ? ranks : most);
}

lh_err wk_settings_gpu_ranks(const struct wk_settings *s)
{
    static const char shm[] = "ranks.reduce is shm, which keeps the parameters in host memory: for "
                              "ranks on GPUs use tcp or nccl";
    bool one = s->ranks.count == 1 || s->ranks.reduce != WK_REDUCE_SHM;
    return one ? LH_OK : lh_fail(LH_ERR_CONFIG, "%s", shm);
}

// Refuses settings that would be taken and then do nothing.
static lh_err check_trainer(const struct wk_settings *s)
{
    const struct {
        const char *name;
        bool set;
    } builtin_only[] = {{"trainer.noise_threshold", s->trainer.noise_threshold > 0},
                        {"trainer.norms_every_rounds", s->trainer.norms_every_rounds > 0},
                        {"eval.every_tokens", s->eval.every_tokens > 0}};
    bool builtin = s->trainer.kind == WK_TRAINER_BUILTIN;
    if (s->ranks.count > 1 && s->trainer.kind == WK_TRAINER_SYNTHETIC)
        return lh_fail(LH_ERR_CONFIG,
                       "ranks.count is %lld, but trainer.kind is synthetic, which has no ranks",
                       (long long)s->ranks.count);
    if (s->ranks.rank && !builtin)
        return lh_fail(LH_ERR_CONFIG,
                       "ranks.rank is %lld, but trainer.kind is external: the trainer starts its "
                       "ranks itself",
                       (long long)s->ranks.rank);
    for (size_t i = 0; i < LH_COUNT(builtin_only); i++)
        if (builtin_only[i].set && !builtin)
            return lh_fail(LH_ERR_CONFIG,
                           "%s is set, but trainer.kind %s computes no gradient and no loss here: "
                           "use builtin, or leave it out",
                           builtin_only[i].name,
                           s->trainer.kind == WK_TRAINER_SYNTHETIC ? "synthetic" : "external");
    if (s->trainer.precision == WK_PRECISION_BF16 && s->trainer.backend == WK_BACKEND_CPU)
        return lh_fail(LH_ERR_CONFIG,
                       "trainer.precision is bf16, but trainer.backend is cpu, which trains in "
                       "fp32: set trainer.backend, or leave trainer.precision out");
    if (s->trainer.backend == WK_BACKEND_CUDA && !builtin)
        return lh_fail(LH_ERR_CONFIG, "trainer.backend is cuda, but only trainer.kind builtin "
                                      "trains here: leave it out, or use auto");
    if (s->trainer.backend == WK_BACKEND_CUDA) LH_TRY(wk_settings_gpu_ranks(s));
    if (builtin) LH_TRY(lh_setting_needed("data.dir", s->node.data.dir, "trainer.kind builtin"));
    if (s->trainer.noise_threshold > 0 && s->trainer.batch * s->trainer.accumulate < 2)
        return lh_fail(
            LH_ERR_CONFIG,
            "trainer.noise_threshold is set, but a step has one sequence, whose gradient shows no "
            "noise: trainer.batch times trainer.accumulate must be 2 or more");
    return LH_OK;
}

// Token files in an object store (source_store.c).
static lh_err check_store(const struct wk_settings *s)
{
    bool units = lh_objects_is(s->node.data.units), files = lh_objects_is(s->node.data.dir);
    if ((units || files) && s->privacy.budget[0])
        return lh_fail(LH_ERR_CONFIG,
                       "%s is in a store, but this worker is private (privacy.budget): its records "
                       "stay in a folder of its own",
                       units ? "data.units" : "data.dir");
    if (!files) return LH_OK;
    lh_err err = lh_objects_check(s->node.data.dir);
    if (err) return lh_fail(err, "data.dir: %s", lh_err_text(err));
    if (s->trainer.kind == WK_TRAINER_EXTERNAL)
        return lh_fail(
            LH_ERR_CONFIG,
            "data.dir is a store, but the loop beside this worker (trainer.kind external) "
            "reads its own files: leave it out, and fetch them for the loop with "
            "`longhaul store pull`");
    if (s->eval.every_tokens)
        return lh_fail(LH_ERR_CONFIG, "eval.every_tokens is set, but data.dir is a store: held-out "
                                      "texts are read from a folder; leave it off");
    return LH_OK;
}

// Refuses what a private worker can't do, each with the nearest sound setting. With a loop beside
// it each push has noise, else each step's gradient.
static lh_err check_privacy(const struct wk_settings *s)
{
    bool push = wk_settings_releases(s), builtin = s->trainer.kind != WK_TRAINER_EXTERNAL;
    bool step = !push && builtin;
    if (!s->privacy.budget[0] && s->privacy.reported)
        return lh_fail(
            LH_ERR_CONFIG,
            "privacy.reported is set, but privacy.budget names no file to charge steps to: set it");
    if (!s->privacy.budget[0]) return LH_OK;
    const struct {
        bool bad;
        const char *key, *why;
    } row[] = {
        {builtin && s->privacy.reported, "privacy.reported: off",
         "the built-in trainer clips and adds noise under the worker's eyes"},
        {s->trainer.kind == WK_TRAINER_SYNTHETIC, "trainer.kind: builtin",
         "trainer.kind synthetic trains on no records"},
        {step && s->ranks.count > 1, "ranks.count: 1",
         "records are drawn and clipped by one process"},
        {step && s->trainer.backend == WK_BACKEND_CUDA, "trainer.backend: cpu",
         "gradients are clipped record by record on the CPU"},
        {step && s->gpu.state == WK_STATE_DEVICE, "gpu.state: host",
         "the state lies where training is, on the CPU"},
        {step && s->trainer.noise_threshold > 0, "trainer.noise_threshold: off",
         "the rate would follow from gradients without noise"},
        {step && s->eval.every_tokens, "eval.every_tokens: off",
         "a loss on texts of its own is a release without noise"},
        {push && strcmp(wk_codec_name(s), "dense-fp32") != 0, "codec.name: dense-fp32",
         "a payload has to be noise on all values: coordinates, centroids and scales that follow "
         "from a region's own values tell of them"},
        {s->privacy.telemetry == WK_TELEMETRY_NONE && s->node.http.listen[0], "http.listen: \"\"",
         "what it serves over HTTP tells of losses and speeds"},
    };
    for (size_t i = 0; i < LH_COUNT(row); i++)
        if (row[i].bad)
            return lh_fail(LH_ERR_CONFIG, "privacy.budget is set, and %s: set %s", row[i].why,
                           row[i].key);
    return LH_OK;
}

// A state that a GPU works on needs this of the settings.
static lh_err check_state(const struct wk_settings *s)
{
    const char *why = NULL;
    if (s->gpu.state != WK_STATE_DEVICE) return LH_OK;
    if (s->trainer.kind != WK_TRAINER_BUILTIN)
        why = "only trainer.kind builtin trains here";
    else if (s->ranks.count > 1 && s->ranks.reduce == WK_REDUCE_SHM)
        why = "ranks of ranks.reduce shm train on the CPU";
    else if (s->trainer.backend == WK_BACKEND_CPU)
        why = "trainer.backend is cpu, and the state lies where training is";
    if (!why) return LH_OK;
    return lh_fail(LH_ERR_CONFIG, "gpu.state is device, but %s: leave it out, or use auto", why);
}

static lh_err check_one_host(const struct wk_settings *s)
{
    const struct {
        const char *name, *value;
    } hosts[] = {{"ranks.leader", s->ranks.leader}, {"ranks.address", s->ranks.address}};
    bool shm = s->ranks.reduce == WK_REDUCE_SHM, one = s->ranks.count == 1;
    for (size_t i = 0; i < LH_COUNT(hosts); i++)
        if (hosts[i].value[0] && (shm || one))
            return lh_fail(LH_ERR_CONFIG, "%s is set, but %s", hosts[i].name,
                           one ? "ranks.count is 1: there are no other ranks"
                               : "ranks.reduce shm is memory of one host: use tcp or nccl");
    return LH_OK;
}

// Ranks on several hosts.
static lh_err check_hosts(const struct wk_settings *s)
{
    bool tcp = s->ranks.reduce == WK_REDUCE_TCP;
    const char *at = s->ranks.leader;
    struct wk_address numeric;
    LH_TRY(check_one_host(s));
    if (!at[0] && s->ranks.address[0])
        return lh_fail(
            LH_ERR_CONFIG,
            "ranks.address is set, but ranks.leader is not: with ranks on one host leave both out");
    if (!at[0]) return LH_OK;
    LH_TRY(lh_address_check("ranks.leader", at, false));
    if (!tcp && s->ranks.address[0])
        return lh_fail(LH_ERR_CONFIG, "ranks.address is for ranks.reduce tcp; NCCL's own "
                                      "connections use the interface in $NCCL_SOCKET_IFNAME");
    if (!tcp) return LH_OK;
    LH_TRY(lh_setting_needed("ranks.address", s->ranks.address, "ranks.leader"));
    lh_err err = wk_address_numeric(s->ranks.address, &numeric);
    return err ? lh_fail(err, "ranks.address: %s", lh_err_text(err)) : LH_OK;
}

static lh_err check(const void *settings)
{
    const struct wk_settings *s = settings;
    LH_TRY(lh_node_check(&s->node));
    LH_TRY(lh_setting_needed("coordinator", s->node.coordinator, "a worker"));
    LH_TRY(lh_setting_needed("seal.keys", s->node.seal.keys, "a worker"));
    LH_TRY(lh_setting_needed("data.units", s->node.data.units, "a worker"));
    if (wk_codec_is_dense(s) && !wk_settings_releases(s) && s->codec.density > 0 &&
        s->codec.density < 1)
        return lh_fail(LH_ERR_CONFIG, "codec.density is %g, but %s sends every value: leave it out",
                       s->codec.density, wk_codec_name(s));
    if (s->ranks.rank >= s->ranks.count)
        return lh_fail(
            LH_ERR_CONFIG, "ranks.rank is %lld, but with ranks.count %lld they are 0 to %lld",
            (long long)s->ranks.rank, (long long)s->ranks.count, (long long)s->ranks.count - 1);
    LH_TRY(check_hosts(s));
    LH_TRY(check_privacy(s));
    LH_TRY(check_trainer(s));
    LH_TRY(check_store(s));
    LH_TRY(check_state(s));
    return LH_OK;
}

const struct lh_config_table wk_settings_table = {
    .kind = "worker",
    .row = rows,
    .rows = sizeof rows / sizeof rows[0],
    .settings_bytes = sizeof(struct wk_settings),
    .check = check,
};
