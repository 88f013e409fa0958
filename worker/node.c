// The worker's process: what settings mean for the core, and how it comes to its end. See node.h.
//
// The end: every shard is folded to its END record, the coordinator has been told (or does not
// answer any more), and DIR/final.weights holds the model: fp32, the manifest's flat order, little
// endian. It is there whole or not at all.
#include "worker/node.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env/machine.h"
#include "kernels/blas.h"
#include "worker/backend.h"
#include "worker/data/mix.h"
#include "worker/join.h"
#include "worker/place.h"
#include "worker/push/beside.h"
#include "worker/settings.h"
#include "worker/state/states.h"
#include "worker/train/device.h"
#include "worker/train/model.h"
#include "worker/train/schedule.h"
#include "worker/train/trainer_builtin.h"
#include "worker/train/trainer_synthetic.h"
#include "worker/worker.h"

enum { UNITS_BYTES = 512 << 20, TELL_S = 10, LEASES_AHEAD = 4 };

struct wk_node {
    struct lh_program *program;
    const struct wk_settings *settings;
    struct wk_worker *worker;
    struct wk_joined *rank; // this process is a rank that only computes; then no worker
    struct wk_loader *loader;
    struct wk_trainer *trainer;
    struct wk_beside_conf beside;
    struct wk_travel_conf travel;
    char socket[LH_PATH_BYTES];
    struct wk_reduce *reduce;
    struct wk_encoders *encoders; // NULL: this process encodes pushes alone
    struct wk_evaluation *evaluation;
    struct wk_backend *backend;
    struct wk_device *device; // NULL: the CPU trains
    char no_device[512];      // why it does, where a device was asked for
    struct wk_states *states; // NULL: the state is on the host
    char no_state[2048];      // why it is not on the device, where that was asked for
    struct lh_machine machine;
    struct lh_units units;
    struct wk_schedule schedule;
    struct wk_fall fall; // how the density falls
    uint32_t window;     // units that a batch is mixed from
    int64_t done_ns;     // when everything was folded; 0: not yet
};

lh_err wk_node_create(struct wk_node **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? LH_OK : LH_ERR_NO_MEMORY;
}

void wk_node_destroy(struct wk_node *n)
{
    free(n);
}

static enum lh_role role(const void *settings)
{
    (void)settings;
    return LH_W;
}

// ---------------------------------------------------------------- settings

static float rate(void *arg, uint64_t tokens)
{
    return (float)wk_schedule_rate(arg, tokens);
}

static float density(void *arg, uint64_t tokens)
{
    const struct wk_node *n = arg;
    return (float)wk_schedule_density(&n->schedule, &n->fall, tokens);
}

static LH_MUST lh_err load_units(struct wk_node *n)
{
    struct lh_buf json;
    LH_TRY(lh_program_load(n->program, "data.units", n->settings->data.units, UNITS_BYTES, &json));
    lh_err err = lh_units_parse(&n->units, lh_buf_span(&json));
    lh_buf_free(&json);
    if (!err && n->settings->data.epochs)
        err = lh_units_check_epochs(&n->units, (uint64_t)n->settings->data.epochs);
    return err ? lh_fail(err, "%s: %s", n->settings->data.units, lh_err_text(err)) : LH_OK;
}

// The schedule ends with the run: at its budget, or with the data's last epoch.
static void set_budget(void *arg, uint32_t epochs)
{
    struct wk_node *n = arg;
    uint64_t all = 0, budget = (uint64_t)n->settings->trainer.budget_tokens;
    for (uint64_t u = 0; u < n->units.count; u++) all += n->units.unit[u].tokens;
    n->schedule.budget_tokens = budget ? budget : epochs * all;
}

// One data epoch is assumed until the coordinator says how many there are, where it does.
static void make_schedule(struct wk_node *n)
{
    n->schedule = (struct wk_schedule){
        .warmup = n->settings->trainer.warmup,
        .peak = n->settings->trainer.learning_rate,
        .min_ratio = n->settings->trainer.min_ratio,
        .decay = n->settings->trainer.decay,
    };
    set_budget(n, n->settings->data.epochs ? (uint32_t)n->settings->data.epochs : 1);
}

static uint32_t window_of(const struct wk_node *n)
{
    const struct wk_settings *s = n->settings;
    return s->data.window ? (uint32_t)s->data.window
                          : wk_mix_window(&n->units, (uint64_t)s->trainer.budget_tokens);
}

static LH_MUST lh_err open_synthetic(struct wk_node *n, const struct wk_shape *shape)
{
    const struct wk_settings *s = n->settings;
    const struct wk_synthetic_conf conf = {
        .values = n->program->manifest.values,
        .sequence = shape->context,
        .sequences = (uint32_t)(s->trainer.batch * s->trainer.accumulate),
        .seed = (uint64_t)s->trainer.seed,
        .tokens_per_s = s->trainer.tokens_per_s,
    };
    return wk_synthetic_create(&conf, &n->trainer);
}

static LH_MUST lh_err read_shape(const struct wk_node *n, struct wk_shape *out)
{
    if (!n->program->manifest.model_json)
        return lh_fail(LH_ERR_CONFIG, "%s has no \"model\" object, which the trainers need",
                       n->settings->node.manifest);
    return wk_shape_parse(n->program->manifest.model_json, out);
}

static void rank_ended(void *arg, lh_err err, const char *text)
{
    lh_program_fatal(arg, err, text);
}

static struct wk_join_conf join_conf(const struct wk_node *n, const struct wk_shape *shape)
{
    return (struct wk_join_conf){
        .env = n->program->env,
        .log = n->program->log,
        .settings = n->settings,
        .manifest = &n->program->manifest,
        .shape = *shape,
        .encoders = n->encoders,
        .ended = rank_ended,
        .arg = n->program,
    };
}

// Pushes are encoded with the ranks where ranks.compress says so.
static LH_MUST lh_err open_encoders(struct wk_node *n)
{
    const struct wk_settings *s = n->settings;
    struct wk_codec_plan plan;
    struct wk_encoders_conf conf = {.env = n->program->env,
                                    .log = n->program->log,
                                    .compress = (enum wk_compress)s->ranks.compress,
                                    .ranks = (uint32_t)s->ranks.count};
    if (!wk_ranks_compress(s)) return LH_OK;
    LH_TRY(wk_codec_plan(s, &plan));
    LH_TRY(lk_codec_parse(wk_codec_name(s), &conf.codec));
    conf.codec.density = plan.density;
    return wk_encoders_create(&conf, &n->encoders);
}

static LH_MUST lh_err open_reduce(struct wk_node *n, const struct wk_shape *shape)
{
    LH_TRY(open_encoders(n));
    const struct wk_join_conf conf = join_conf(n, shape);
    return wk_join_lead(&conf, &n->reduce);
}

static LH_MUST lh_err open_evaluation(struct wk_node *n)
{
    const struct wk_settings *s = n->settings;
    if (!s->eval.every_tokens) return LH_OK;
    const struct wk_evaluation_conf conf = {.env = n->program->env,
                                            .units = &n->units,
                                            .dir = s->data.dir,
                                            .every_tokens = (uint64_t)s->eval.every_tokens,
                                            .tokens = (uint64_t)s->eval.tokens,
                                            .share = s->eval.share};
    return wk_evaluation_open(&conf, &n->evaluation);
}

static struct wk_warmup_conf warmup_of(const struct wk_node *n)
{
    const struct wk_settings *s = n->settings;
    double budget = (double)n->schedule.budget_tokens;
    return (struct wk_warmup_conf){
        .threshold = s->trainer.noise_threshold,
        .hold = s->trainer.noise_hold,
        .cap_tokens = (uint64_t)(s->trainer.noise_cap * budget),
        .ramp_tokens = (uint64_t)(s->trainer.warmup * budget),
    };
}

// Units read ahead of the window, now.
static uint32_t ahead_of(const struct wk_node *n)
{
    struct wk_loader_status status;
    if (n->settings->data.prefetch) return (uint32_t)n->settings->data.prefetch;
    if (!n->loader) return WK_AHEAD_MIN;
    wk_loader_status(n->loader, &status);
    return status.ahead;
}

static LH_MUST lh_err open_loader(struct wk_node *n)
{
    const struct wk_settings *s = n->settings;
    char cache[LH_PATH_BYTES];
    uint32_t ahead = s->data.prefetch ? (uint32_t)s->data.prefetch : WK_AHEAD_MAX;
    LH_TRY(lh_path(cache, sizeof cache, s->node.dir, "cache"));
    const struct wk_loader_conf conf = {
        .units = &n->units,
        .dir = s->data.dir,
        .depth = n->window + ahead + 1,
        .fetches = (uint32_t)s->data.fetches,
        .cache = !s->data.cache_bytes ? NULL
                 : s->data.cache[0]   ? s->data.cache
                                      : cache,
        .cache_bytes = (uint64_t)s->data.cache_bytes,
        .warm = s->data.warmup,
        .region = s->node.region,
    };
    return wk_loader_open(&conf, &n->loader);
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

static void tell(void *arg, json_t *status)
{
    const struct wk_node *n = arg;
    struct wk_loader_status is;
    json_object_set_new(status, "backend", wk_backend_status(n->backend));
    if (n->settings->trainer.kind == WK_TRAINER_BUILTIN)
        json_object_set_new(status, "training",
                            json_pack("{s:s s:s s:s s:s}", "backend", n->device ? "cuda" : "cpu",
                                      "why", n->no_device, "device",
                                      n->device ? wk_device_name(n->device) : "", "blas",
                                      lk_blas_core()));
    json_object_set_new(status, "gpu_state", wk_states_status(n->states, n->no_state));
    json_t *region = wk_join_status(n->settings, n->reduce);
    if (region && n->encoders)
        json_object_set_new(region, "compress", wk_encoders_status(n->encoders));
    if (region) json_object_set_new(status, "region_ranks", region);
    if (!n->loader) return;
    wk_loader_status(n->loader, &is);
    json_object_set_new(
        status, "loader",
        json_pack("{s:f s:f s:f s:i s:I s:I s:I s:I s:I}", "waited_s",
                  (double)is.waited_ns / (double)LH_SECOND, "fetch_s", is.fetch_s, "unit_s",
                  is.unit_s, "ahead", (int)is.ahead, "warmed", (json_int_t)is.warmed, "fetched",
                  (json_int_t)is.counts.fetched, "cached", (json_int_t)is.counts.cached, "arrived",
                  (json_int_t)is.counts.arrived, "fetched_bytes", (json_int_t)is.counts.bytes));
}

static lh_err listen_beside(void *arg, const struct wk_external_conf *conf,
                            const struct wk_external_ops *ops, void *self, struct wk_external **out)
{
    const struct wk_node *n = arg;
    LH_TRY(wk_external_listen(conf, ops, self, n->socket, out));
    lh_logf(n->program->log, LH_INFO, "trainer.awaited",
            "%u ranks at %s; start them with LONGHAUL_SOCKET naming it", conf->ranks, n->socket);
    return LH_OK;
}

static LH_MUST lh_err open_beside(struct wk_node *n)
{
    const struct wk_settings *s = n->settings;
    n->beside = (struct wk_beside_conf){
        .ranks = (uint32_t)s->trainer.ranks,
        .ahead = s->data.prefetch ? (uint32_t)s->data.prefetch : LEASES_AHEAD,
        .run_on = (uint64_t)s->trainer.run_on,
        .open = listen_beside,
        .close = wk_external_stop,
        .hush = wk_external_hush,
        .arg = n,
    };
    return s->trainer.socket[0] ? lh_path(n->socket, sizeof n->socket, "", "%s", s->trainer.socket)
                                : lh_path(n->socket, sizeof n->socket, s->node.dir, "trainer.sock");
}

static lh_err try_device(struct wk_node *n, const struct wk_shape *shape)
{
    const struct wk_settings *s = n->settings;
    bool sharded = s->ranks.count > 1 && s->ranks.optimizer == WK_OPTIMIZER_SHARDED;
    const struct wk_device_conf conf = {
        .plugin = s->gpu.plugin,
        .products = s->gpu.products,
        .index = (int)s->gpu.device,
        .rank = (uint32_t)s->ranks.rank,
        .precision = (enum wk_precision)s->trainer.precision,
        .norms = s->trainer.norms_rounds > 0,
        .parts = sharded ? (uint32_t)s->ranks.count : 0,
        .model = {*shape, shape->context, (size_t)s->trainer.batch * shape->context, true},
    };
    if (wk_settings_gpu_ranks(s))
        return lh_fail(LH_ERR_UNSUPPORTED, "%s; the CPU trains", lh_err_text(LH_ERR_CONFIG));
    return wk_device_open(&conf, &n->device);
}

// A device where trainer.backend asks for one; whoever has none trains on the CPU, and says why.
static LH_MUST lh_err open_device(struct wk_node *n, const struct wk_shape *shape)
{
    enum wk_backend_kind kind = (enum wk_backend_kind)n->settings->trainer.backend;
    if (kind == WK_BACKEND_CPU) return LH_OK;
    lh_err err = try_device(n, shape);
    if (!err) {
        struct wk_device_budget budget = wk_device_budget(n->device);
        char text[256];
        wk_device_budget_text(&budget, text, sizeof text);
        lh_logf(n->program->log, LH_INFO, "trainer.cuda", "trains on %s; %s",
                wk_device_name(n->device), text);
        return LH_OK;
    }
    if (err != LH_ERR_UNSUPPORTED) return err;
    snprintf(n->no_device, sizeof n->no_device, "%s", lh_err_text(err));
    lh_logf(n->program->log, kind == WK_BACKEND_CUDA ? LH_WARN : LH_INFO, "trainer.cpu", "%s",
            n->no_device);
    return LH_OK;
}

static LH_MUST lh_err open_trainer(struct wk_node *n)
{
    const struct wk_settings *s = n->settings;
    const struct lh_manifest *m = &n->program->manifest;
    struct wk_shape shape;
    if (s->trainer.kind == WK_TRAINER_EXTERNAL) return open_beside(n);
    LH_TRY(read_shape(n, &shape));
    if (n->units.vocabulary > shape.vocab)
        return lh_fail(LH_ERR_CONFIG, "%s has token ids up to %u, the model a vocabulary of %u",
                       s->data.units, n->units.vocabulary, shape.vocab);
    if (s->trainer.kind == WK_TRAINER_SYNTHETIC) return open_synthetic(n, &shape);
    LH_TRY(open_loader(n));
    LH_TRY(open_reduce(n, &shape));
    LH_TRY(open_evaluation(n));
    LH_TRY(open_device(n, &shape));
    const struct wk_builtin_conf trainer = {.manifest = m,
                                            .loader = n->loader,
                                            .sequence = shape.context,
                                            .batch = (uint32_t)s->trainer.batch,
                                            .accumulate = (uint32_t)s->trainer.accumulate,
                                            .beta1 = s->trainer.beta1,
                                            .beta2 = s->trainer.beta2,
                                            .eps = s->trainer.epsilon,
                                            .weight_decay = s->trainer.weight_decay,
                                            .clip = s->trainer.clip,
                                            .tokens_per_s = s->trainer.tokens_per_s,
                                            .reduce = n->reduce,
                                            .warmup = warmup_of(n),
                                            .evaluation = n->evaluation,
                                            .device = n->device};
    return wk_builtin_create(&trainer, &n->trainer);
}

// `no_state` says why not where gpu.state asked for another place first.
static LH_MUST lh_err open_states(struct wk_node *n, const struct lk_codec *codec)
{
    const struct wk_place_conf conf = {.settings = n->settings,
                                       .env = n->program->env,
                                       .log = n->program->log,
                                       .manifest = &n->program->manifest,
                                       .codec = *codec,
                                       .device = n->device,
                                       .no_device = n->no_device};
    return wk_place_open(&conf, &n->states, n->no_state, sizeof n->no_state);
}

// A device that holds the state encodes as well.
static LH_MUST lh_err open_backend(struct wk_node *n, const struct lk_codec *codec)
{
    enum wk_backend_kind kind = (enum wk_backend_kind)n->settings->backend;
    const struct wk_backend_conf conf = {.kind = n->states ? WK_BACKEND_CPU : kind,
                                         .plugin = n->settings->gpu.plugin,
                                         .manifest = &n->program->manifest,
                                         .codec = *codec,
                                         .threads = wk_codec_threads(n->settings),
                                         .encoders = n->encoders,
                                         .log = n->program->log};
    return wk_backend_open(&conf, &n->backend);
}

static void look_at_machine(struct wk_node *n)
{
    struct lh_machine *m = &n->machine;
    json_t *backend = wk_backend_status(n->backend);
    const char *device = json_string_value(json_object_get(backend, "device"));
    lh_machine_look(m);
    if (n->states) device = wk_device_name(n->device);
    snprintf(m->gpu, sizeof m->gpu, "%s", device ? device : "");
    snprintf(m->codec, sizeof m->codec, "%s", wk_codec_name(n->settings));
    snprintf(m->cipher, sizeof m->cipher, "%s",
             lh_node_cipher(&n->settings->node) == LH_CIPHER_AES256GCM ? "aes256gcm" : "xchacha20");
    json_decref(backend);
}

static LH_MUST lh_err start_core(struct wk_node *n)
{
    struct lh_program *p = n->program;
    const struct wk_settings *s = n->settings;
    struct wk_codec_plan plan;
    LH_TRY(wk_codec_plan(s, &plan));
    struct wk_conf conf = {
        .env = p->env,
        .transport = p->transport,
        .log = p->log,
        .self = p->peer,
        .dir = s->node.dir,
        .coordinator = s->node.coordinator,
        .manifest = &p->manifest,
        .units = &n->units,
        .epochs = (uint32_t)s->data.epochs,
        .told_epochs = set_budget,
        .told_epochs_arg = n,
        .keys = p->keys,
        .cipher = (uint8_t)lh_node_cipher(&s->node),
        .key_id = (uint32_t)s->node.seal_key_id,
        .unsealed_states = !s->node.seal_snapshots,
        .trainer = n->trainer,
        .beside = s->trainer.kind == WK_TRAINER_EXTERNAL ? &n->beside : NULL,
        .beta = plan.beta,
        .kappa = plan.kappa,
        .stagger = (enum wk_stagger)s->stagger,
        .rate = rate,
        .rate_arg = &n->schedule,
        .density = s->codec.density_start > 0 ? density : NULL,
        .density_arg = n,
        .queue_units = n->window + ahead_of(n),
        .window_units = n->window,
        .norms_rounds = (uint32_t)s->trainer.norms_rounds,
        .snapshot_rounds = (uint32_t)s->snapshot_every_rounds,
        .ranges_bytes = LH_SNAPSHOT_RANGES_BYTES,
        .durable_every = (uint64_t)s->replica_every_versions,
        .lease_ns = LH_SECOND,
        .retry_base_ns = s->retry_base_ms * LH_MS,
        .retry_max_ns = s->retry_max_ms * LH_MS,
        .reconnect_max_ns = s->reconnect_max_ms * LH_MS,
        .deadline_ns = s->node.call_deadline_s * LH_SECOND,
        .deadline_max_ns = s->node.call_deadline_max_s * LH_SECOND,
        .tell = tell,
        .tell_arg = n,
        .fatal = lh_program_fatal,
        .fatal_arg = p,
    };
    n->travel = (struct wk_travel_conf){.find = find_unit,
                                        .keep = keep_unit,
                                        .drop = drop_unit,
                                        .arg = n->loader,
                                        .bytes_max = (uint64_t)s->data.travel_bytes};
    if (n->loader && s->data.travel_bytes) conf.travel = &n->travel;
    memcpy(conf.job, p->job, LH_JOB_BYTES);
    LH_TRY(lk_codec_parse(wk_codec_name(s), &conf.codec));
    conf.codec.density = plan.density;
    n->fall = (struct wk_fall){s->codec.density_start, (double)plan.density, s->codec.density_fall};
    LH_TRY(open_states(n, &conf.codec));
    if (n->states) conf.state_open = wk_states_give;
    conf.state_arg = n->states;
    LH_TRY(open_backend(n, &conf.codec));
    conf.backend = n->backend;
    look_at_machine(n);
    conf.machine = &n->machine;
    return wk_worker_start(&conf, &n->worker);
}

// ---------------------------------------------------------------- the end

static lh_err write_shards(void *self, struct lh_file *file)
{
    const struct wk_node *n = self;
    const struct lh_files_ops *files = n->program->env->ops->files;
    for (uint32_t i = 0; i < n->worker->shards; i++) {
        const struct wk_shard *s = &n->worker->shard[i];
        struct lh_span values = lh_span(s->replica.theta, s->layout->values * sizeof(float));
        LH_TRY(files->write(file, s->layout->first * sizeof(float), values));
    }
    return LH_OK;
}

static LH_MUST lh_err write_weights(struct wk_node *n)
{
    char path[LH_PATH_BYTES];
    LH_TRY(lh_path(path, sizeof path, n->settings->node.dir, "final.weights"));
    return lh_file_replace_by(n->program->env, path, write_shards, n);
}

static void tick(void *self)
{
    struct wk_node *n = self;
    if (n->rank) return;
    if (n->reduce) n->worker->ranks = n->reduce->ops->watch(n->reduce, n->program->log);
    n->worker->conf.queue_units = n->window + ahead_of(n);
    wk_backend_watch(n->backend);
    if (wk_worker_state(n->worker) != WK_DONE) return;
    int64_t now = lh_now(n->program->env);
    if (!n->done_ns) {
        n->done_ns = now;
        lh_err err = write_weights(n);
        if (err) {
            lh_logf(n->program->log, LH_ERROR, "weights.unwritten", "%s", lh_err_text(err));
            lh_program_end(n->program, err);
            return;
        }
        lh_logf(n->program->log, LH_INFO, "run.done", "%s/final.weights holds the model",
                n->settings->node.dir);
    }
    bool told = n->worker->told_done && !wk_beside_waits(n->worker);
    if (told || now - n->done_ns > TELL_S * LH_SECOND) lh_program_end(n->program, LH_OK);
}

// ---------------------------------------------------------------- the application

// False: a thread that does not end still has the trainer's arrays (reduce.h).
static bool leave_ranks(struct wk_node *n)
{
    bool gone = wk_joined_stop(n->rank);
    if (n->reduce) gone &= n->reduce->ops->close(n->reduce, n->done_ns != 0);
    n->rank = NULL;
    n->reduce = NULL;
    return gone;
}

static void free_parts(struct wk_node *n)
{
    if (n->trainer) n->trainer->ops->destroy(n->trainer);
    wk_states_close(n->states);
    wk_device_close(n->device);
    n->states = NULL;
    n->device = NULL;
    if (n->loader) wk_loader_close(n->loader);
    wk_evaluation_close(n->evaluation);
    wk_backend_close(n->backend);
    wk_encoders_destroy(n->encoders);
    n->encoders = NULL;
    n->backend = NULL;
    n->evaluation = NULL;
    n->trainer = NULL;
    n->loader = NULL;
    lh_units_free(&n->units);
}

static LH_MUST lh_err start_rank(struct wk_node *n)
{
    struct wk_shape shape;
    LH_TRY(read_shape(n, &shape));
    LH_TRY(open_device(n, &shape));
    struct wk_join_conf conf = join_conf(n, &shape);
    conf.device = n->device;
    return wk_join(&conf, &n->rank);
}

static lh_err start(void *self, struct lh_program *p)
{
    struct wk_node *n = self;
    n->program = p;
    n->settings = p->settings;
    bool worker = n->settings->ranks.rank == 0;
    lh_err err = worker ? load_units(n) : start_rank(n);
    if (!err && worker) {
        make_schedule(n);
        n->window = window_of(n);
        err = open_trainer(n);
    }
    if (!err && worker) err = start_core(n);
    if (!err) return LH_OK;
    char text[512];
    snprintf(text, sizeof text, "%s", lh_err_text(err));
    if (leave_ranks(n)) free_parts(n);
    return lh_fail(err, "%s", text);
}

static lh_err status(void *self, struct lh_buf *out)
{
    const struct wk_node *n = self;
    return n->rank ? wk_joined_status(n->rank, out) : wk_worker_status(n->worker, out);
}

static lh_err settle(void *self)
{
    const struct wk_node *n = self;
    return n->rank ? LH_OK : wk_worker_settle(n->worker);
}

static void close_core(void *self)
{
    struct wk_node *n = self;
    if (n->rank)
        wk_joined_close(n->rank);
    else
        wk_worker_close(n->worker);
    if (n->reduce) n->reduce->ops->leave(n->reduce);
}

// First of all the communicator ends. Where its abort hangs nothing is freed, and the process ends:
// the worker's states, its backend and its encoders may have memory of the device, and to free that
// waits for all that the device has under way.
static void stop(void *self)
{
    struct wk_node *n = self;
    if (!leave_ranks(n)) return;
    wk_worker_stop(n->worker);
    free_parts(n);
}

static unsigned rank_of(const void *settings)
{
    return (unsigned)((const struct wk_settings *)settings)->ranks.rank;
}

const struct lh_app wk_node_app = {
    .table = &wk_settings_table,
    .role = role,
    .part = rank_of,
    .start = start,
    .status = status,
    .tick = tick,
    .settle = settle,
    .close = close_core,
    .stop = stop,
};
