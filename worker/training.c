// A thread of the ranks may still have the arrays: they leave first, then the rest is freed.
#include "worker/training.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/app/units_file.h"
#include "common/base/text.h"
#include "common/objects/address.h"
#include "kernels/blas.h"
#include "worker/backend.h"
#include "worker/data/mix.h"
#include "worker/external/socket.h"
#include "worker/rule.h"
#include "worker/train/model.h"
#include "worker/train/trainer_builtin.h"
#include "worker/train/trainer_synthetic.h"

enum {
    LEASES_AHEAD = 4, // a loop beside the worker reads its units itself
    FETCHES = 4,      // units fetched at once: more than a far disk or store serves in parallel
    // Steps that a trainer goes on while this worker is away: a restart takes seconds.
    RUN_ON = 1000,
    TRAVEL_BYTES = 64 << 20, // memory for units of other regions whose files are not in data.dir
    EVAL_TOKENS = 4096,      // the start of each held-out text
};
static const double WARM = 0.1;        // part of the region's units fetched at the start
static const double EVAL_SHARE = 0.02; // part of the time that evaluations may take
// Part of the scheduled rate while the gradient is noisy, and the part of the budget after which
// that no longer counts.
static const double NOISE_HOLD = 0.1, NOISE_CAP = 0.1;

// ---------------------------------------------------------------- data and schedule

// The plan's word about the budget counts: it is the same for all workers.
static float rate(void *arg, const struct lh_plan *plan, uint64_t tokens)
{
    const struct wk_training *t = arg;
    struct wk_schedule s = t->schedule;
    if (plan->budget_tokens) {
        s.budget_tokens = plan->budget_tokens;
        s.old_budget_tokens = plan->old_budget_tokens;
        s.changed_tokens = plan->changed_tokens;
    }
    return (float)wk_schedule_rate(&s, tokens);
}

static float density(void *arg, uint64_t tokens)
{
    (void)tokens;
    return (float)((const struct wk_training *)arg)->density;
}

static void set_rounds(void *arg, double rounds)
{
    struct wk_training *t = arg;
    t->density = wk_rule_density(rounds);
}

static LH_MUST lh_err load_units(struct wk_training *t)
{
    char path[LH_PATH_BYTES];
    lh_err err = lh_units_find(t->program->env, t->program->log, t->settings->node.data.units,
                               t->settings->node.dir, path);
    if (!err) err = lh_units_open(path, &t->units);
    if (!err && t->settings->node.run.epochs)
        err = lh_units_check_epochs(&t->units, (uint64_t)t->settings->node.run.epochs);
    return err ? lh_fail(err, "data.units: %s: %s", t->settings->node.data.units, lh_err_text(err))
               : LH_OK;
}

// The schedule ends with the run: at its budget, or with the data's last epoch.
static void set_budget(void *arg, uint32_t epochs)
{
    struct wk_training *t = arg;
    uint64_t all = 0, budget = (uint64_t)t->settings->node.run.budget_tokens;
    for (uint64_t u = 0; u < t->units.count; u++) all += t->units.unit[u].tokens;
    t->schedule.budget_tokens = budget ? budget : epochs * all;
}

// One data epoch is assumed until the coordinator says how many there are, where it does.
static void make_schedule(struct wk_training *t)
{
    t->schedule = (struct wk_schedule){
        .warmup = t->settings->trainer.warmup,
        .peak = t->settings->trainer.learning_rate,
        .min_ratio = t->settings->trainer.min_ratio,
        .decay = t->settings->trainer.decay,
    };
    set_budget(t, t->settings->node.run.epochs ? (uint32_t)t->settings->node.run.epochs : 1);
}

static uint32_t window_of(const struct wk_training *t)
{
    const struct wk_settings *s = t->settings;
    return s->data.window ? (uint32_t)s->data.window
                          : wk_mix_window(&t->units, (uint64_t)s->node.run.budget_tokens);
}

// Units read ahead of the window, now.
static uint32_t ahead_of(const struct wk_training *t)
{
    struct wk_loader_status status;
    if (!t->loader) return WK_AHEAD_MIN;
    wk_loader_status(t->loader, &status);
    return status.ahead;
}

static LH_MUST lh_err open_loader(struct wk_training *t)
{
    const struct wk_settings *s = t->settings;
    char cache[LH_PATH_BYTES];
    struct wk_source *source = NULL;
    const struct lh_objects_conf store = {.env = t->program->env, .address = s->node.data.dir};
    LH_TRY(lh_path(cache, sizeof cache, s->node.dir, "cache"));
    if (lh_objects_is(store.address)) LH_TRY(wk_source_store(&store, &source));
    const struct wk_loader_conf conf = {
        .units = &t->units,
        .dir = s->node.data.dir,
        .source = source,
        .depth = t->window + WK_AHEAD_MAX + 1,
        .fetches = FETCHES,
        .cache = s->data.cache_bytes ? cache : NULL,
        .cache_bytes = (uint64_t)s->data.cache_bytes,
        .warm = WARM,
        .region = t->program->peer.region,
    };
    return wk_loader_open(&conf, &t->loader);
}

static bool find_unit(void *arg, uint64_t unit, bool *kept)
{
    return wk_loader_find(arg, unit, kept);
}

static lh_err keep_unit(void *arg, uint64_t unit, const uint8_t *tokens, size_t n)
{
    return wk_loader_keep(arg, unit, tokens, n);
}

static void drop_unit(void *arg, uint64_t unit)
{
    wk_loader_drop(arg, unit);
}

// ---------------------------------------------------------------- the trainer

static LH_MUST lh_err open_synthetic(struct wk_training *t, const struct wk_shape *shape)
{
    const struct wk_settings *s = t->settings;
    const struct wk_synthetic_conf conf = {
        .values = t->program->manifest.values,
        .sequence = shape->context,
        .sequences = (uint32_t)(s->trainer.batch * s->trainer.accumulate),
        .seed = (uint64_t)s->node.run.seed,
        .tokens_per_s = s->trainer.tokens_per_s,
    };
    return wk_synthetic_create(&conf, &t->trainer);
}

static LH_MUST lh_err read_shape(const struct wk_training *t, struct wk_shape *out)
{
    if (!t->program->manifest.model_json)
        return lh_fail(LH_ERR_CONFIG, "%s has no \"model\" object, which the trainers need",
                       t->settings->node.model.manifest);
    return wk_shape_parse(t->program->manifest.model_json, out);
}

static struct wk_join_conf join_conf(const struct wk_training *t, const struct wk_shape *shape)
{
    return (struct wk_join_conf){
        .env = t->program->env,
        .log = t->program->log,
        .settings = t->settings,
        .manifest = &t->program->manifest,
        .self = &t->program->peer,
        .shape = *shape,
        .ended = lh_program_fatal,
        .arg = t->program,
    };
}

static LH_MUST lh_err open_evaluation(struct wk_training *t)
{
    const struct wk_settings *s = t->settings;
    if (!s->eval.every_tokens) return LH_OK;
    const struct wk_evaluation_conf conf = {.env = t->program->env,
                                            .units = &t->units,
                                            .dir = s->node.data.dir,
                                            .every_tokens = (uint64_t)s->eval.every_tokens,
                                            .tokens = EVAL_TOKENS,
                                            .share = EVAL_SHARE};
    return wk_evaluation_open(&conf, &t->evaluation);
}

static struct wk_warmup_conf warmup_of(const struct wk_training *t)
{
    const struct wk_settings *s = t->settings;
    double budget = (double)t->schedule.budget_tokens;
    return (struct wk_warmup_conf){
        .threshold = s->trainer.noise_threshold,
        .hold = NOISE_HOLD,
        .cap_tokens = (uint64_t)(NOISE_CAP * budget),
        .ramp_tokens = (uint64_t)(s->trainer.warmup * budget),
    };
}

static lh_err listen_beside(void *arg, const struct wk_external_conf *conf,
                            const struct wk_external_ops *ops, void *self, struct wk_external **out)
{
    const struct wk_training *t = arg;
    LH_TRY(wk_external_listen(conf, ops, self, t->socket, out));
    lh_logf(t->program->log, LH_INFO, "trainer.awaited",
            "%u rank%s at %s; start %s with LONGHAUL_SOCKET naming it", conf->ranks,
            lh_s(conf->ranks), t->socket, conf->ranks == 1 ? "it" : "them");
    return LH_OK;
}

static LH_MUST lh_err open_beside(struct wk_training *t)
{
    const struct wk_settings *s = t->settings;
    t->beside = (struct wk_beside_conf){
        .ranks = (uint32_t)s->ranks.count,
        .ahead = LEASES_AHEAD,
        .run_on = RUN_ON,
        .open = listen_beside,
        .close = wk_external_stop,
        .hush = wk_external_hush,
        .arg = t,
    };
    return lh_path(t->socket, sizeof t->socket, s->node.dir, "trainer.sock");
}

static lh_err try_device(struct wk_training *t, const struct wk_shape *shape)
{
    const struct wk_settings *s = t->settings;
    const struct wk_device_conf conf = {
        .plugin = "",
        .products = "",
        .rank = (uint32_t)s->ranks.rank,
        .precision = (enum wk_precision)s->trainer.precision,
        .norms = s->trainer.norms_every_rounds > 0,
        .model = {*shape, shape->context, (size_t)s->trainer.batch * shape->context, true},
    };
    if (wk_settings_gpu_ranks(s))
        return lh_fail(LH_ERR_UNSUPPORTED, "%s; the CPU trains", lh_err_text(LH_ERR_CONFIG));
    return wk_device_open(&conf, &t->device);
}

// Opens a device if trainer.backend asks for one. Without one, logs why and trains on the CPU.
static LH_MUST lh_err open_device(struct wk_training *t, const struct wk_shape *shape)
{
    enum wk_backend_kind kind = (enum wk_backend_kind)t->settings->trainer.backend;
    if (kind == WK_BACKEND_CPU || t->settings->privacy.budget[0]) return LH_OK;
    lh_err err = try_device(t, shape);
    if (!err) {
        struct wk_device_budget budget = wk_device_budget(t->device);
        char text[256];
        wk_device_budget_text(&budget, text, sizeof text);
        lh_logf(t->program->log, LH_INFO, "trainer.cuda", "trains on %s; %s",
                wk_device_name(t->device), text);
        return LH_OK;
    }
    if (err != LH_ERR_UNSUPPORTED) return err;
    snprintf(t->no_device, sizeof t->no_device, "%s", lh_err_text(err));
    lh_logf(t->program->log, kind == WK_BACKEND_CUDA ? LH_WARN : LH_INFO, "trainer.cpu", "%s",
            t->no_device);
    return LH_OK;
}

static LH_MUST lh_err open_trainer(struct wk_training *t)
{
    const struct wk_settings *s = t->settings;
    struct wk_shape shape;
    if (s->trainer.kind == WK_TRAINER_EXTERNAL) return open_beside(t);
    LH_TRY(read_shape(t, &shape));
    if (t->units.vocabulary > shape.vocab)
        return lh_fail(LH_ERR_CONFIG, "%s has token ids up to %u, the model a vocabulary of %u",
                       s->node.data.units, t->units.vocabulary, shape.vocab);
    if (s->trainer.kind == WK_TRAINER_SYNTHETIC) return open_synthetic(t, &shape);
    LH_TRY(open_loader(t));
    const struct wk_join_conf join = join_conf(t, &shape);
    LH_TRY(wk_join_lead(&join, &t->reduce));
    LH_TRY(open_evaluation(t));
    LH_TRY(open_device(t, &shape));
    struct wk_builtin_conf trainer = wk_builtin_defaults();
    trainer.manifest = &t->program->manifest;
    trainer.loader = t->loader;
    trainer.sequence = shape.context;
    trainer.batch = (uint32_t)s->trainer.batch;
    trainer.accumulate = (uint32_t)s->trainer.accumulate;
    trainer.tokens_per_s = s->trainer.tokens_per_s;
    trainer.reduce = t->reduce;
    trainer.warmup = warmup_of(t);
    trainer.evaluation = t->evaluation;
    trainer.device = t->device;
    return wk_builtin_create(&trainer, &t->trainer);
}

// ---------------------------------------------------------------- the process' parts

static LH_MUST lh_err start_rank(struct wk_training *t)
{
    struct wk_shape shape;
    LH_TRY(read_shape(t, &shape));
    LH_TRY(open_device(t, &shape));
    struct wk_join_conf conf = join_conf(t, &shape);
    conf.device = t->device;
    return wk_join(&conf, &t->rank);
}

lh_err wk_training_open(struct wk_training *t, struct lh_program *p)
{
    t->program = p;
    t->settings = p->settings;
    if (t->settings->ranks.rank) return start_rank(t);
    LH_TRY(load_units(t));
    make_schedule(t);
    t->window = window_of(t);
    return open_trainer(t);
}

uint32_t wk_training_queue(const struct wk_training *t)
{
    return t->window + ahead_of(t);
}

void wk_training_give(struct wk_training *t, struct wk_conf *conf)
{
    const struct wk_settings *s = t->settings;
    conf->units = &t->units;
    conf->epochs = (uint32_t)s->node.run.epochs;
    conf->told_epochs = set_budget;
    conf->told_epochs_arg = t;
    conf->trainer = t->trainer;
    if (s->trainer.kind == WK_TRAINER_EXTERNAL) conf->beside = &t->beside;
    conf->rate = rate;
    conf->rate_arg = t;
    t->density = (double)conf->codec.density;
    if (wk_codec_plan(s).follows) {
        conf->density = density;
        conf->told_rounds = set_rounds;
    }
    conf->density_arg = t;
    conf->queue_units = wk_training_queue(t);
    conf->window_units = t->window;
    conf->norms_rounds = (uint32_t)s->trainer.norms_every_rounds;
    t->travel = (struct wk_travel_conf){.find = find_unit,
                                        .keep = keep_unit,
                                        .drop = drop_unit,
                                        .arg = t->loader,
                                        .bytes_max = TRAVEL_BYTES};
    if (t->loader) conf->travel = &t->travel;
}

static json_t *loader_status(struct wk_loader *loader)
{
    struct wk_loader_status is;
    wk_loader_status(loader, &is);
    return json_pack("{s:f s:f s:f s:f s:i s:I s:I s:I s:I s:I}", "waited_s",
                     (double)is.waited_ns / (double)LH_SECOND, "fetch_s", is.fetch_s, "unit_s",
                     is.unit_s, "away_s", (double)is.away_ns / (double)LH_SECOND, "ahead",
                     (int)is.ahead, "warmed", (json_int_t)is.warmed, "fetched",
                     (json_int_t)is.counts.fetched, "cached", (json_int_t)is.counts.cached,
                     "arrived", (json_int_t)is.counts.arrived, "fetched_bytes",
                     (json_int_t)is.counts.bytes);
}

void wk_training_tell(const struct wk_training *t, json_t *status)
{
    if (t->settings->trainer.kind == WK_TRAINER_BUILTIN)
        json_object_set_new(status, "training",
                            json_pack("{s:s s:s s:s s:s}", "backend", t->device ? "cuda" : "cpu",
                                      "why", t->no_device, "device",
                                      t->device ? wk_device_name(t->device) : "", "blas",
                                      lk_blas_core()));
    json_t *region = wk_join_status(t->settings, t->reduce);
    if (region) json_object_set_new(status, "region_ranks", region);
    if (t->loader) json_object_set_new(status, "loader", loader_status(t->loader));
}

void wk_training_hush(struct wk_training *t)
{
    if (t->loader) wk_loader_hush(t->loader);
}

bool wk_training_leave(struct wk_training *t, bool done)
{
    bool gone = wk_joined_stop(t->rank);
    if (t->reduce) gone &= t->reduce->ops->close(t->reduce, done);
    t->rank = NULL;
    t->reduce = NULL;
    return gone;
}

void wk_training_free(struct wk_training *t)
{
    if (t->trainer) t->trainer->ops->destroy(t->trainer);
    wk_device_close(t->device);
    if (t->loader) wk_loader_close(t->loader);
    wk_evaluation_close(t->evaluation);
    lh_units_close(&t->units);
    t->trainer = NULL;
    t->device = NULL;
    t->loader = NULL;
    t->evaluation = NULL;
}
