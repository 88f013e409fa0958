// The worker's process: turns settings into the core's conf, and ends the worker. See node.h.
//
// The end: every shard is folded to its END record, the coordinator has been told (or does not
// answer any more), and DIR/final.weights holds the model: fp32, the manifest's flat order, little
// endian. It is there whole or not at all. On a full disk the worker waits with it.
#include "worker/node.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env/machine.h"
#include "common/format/manifest_pace.h"
#include "worker/backend.h"
#include "worker/disk_full.h"
#include "worker/join.h"
#include "worker/leave.h"
#include "worker/push/fill.h"
#include "worker/settings.h"
#include "worker/state/states.h"
#include "worker/train/device.h"
#include "worker/training.h"
#include "worker/worker.h"

enum {
    TELL_S = 10,
    // Bounds of the random waits before a push is sent again. All 1,024 workers that a run may
    // have, refused by a full disk, send 400 small calls a second at the upper one. While nobody
    // answers at all it is RECONNECT_MS, so that a server that is back is found soon.
    RETRY_MS = 200,
    RETRY_MAX_MS = 5000,
    RECONNECT_MS = 1000,
    WRITE_AGAIN_S = 2,   // between two attempts to write final.weights on a full disk
    SNAPSHOT_ROUNDS = 8, // between the residual's snapshots, which limit the cost of a lost slot
};

struct wk_node {
    struct lh_program *program;
    const struct wk_settings *settings;
    struct wk_worker *worker;
    struct wk_training training;
    struct wk_backend *backend;
    struct wk_states *states; // NULL: the state is on the host
    char no_state[2048];      // why it is not on the device, where that was asked for
    struct lh_machine machine;
    int64_t done_ns;  // when everything was folded; 0: not yet
    int64_t write_ns; // when final.weights is tried next
    bool written;     // final.weights holds what the run ended with
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

// ---------------------------------------------------------------- the core

static void tell(void *arg, json_t *status)
{
    const struct wk_node *n = arg;
    json_object_set_new(status, "backend", wk_backend_status(n->backend));
    json_object_set_new(status, "gpu_state", wk_states_status(n->states, n->no_state));
    wk_training_tell(&n->training, status);
}

static void state_failed(void *arg, int err)
{
    wk_device_failed(arg, err);
}

static LH_MUST lh_err try_states(struct wk_node *n, const struct lk_codec *codec)
{
    const struct wk_training *t = &n->training;
    if (!t->device)
        return lh_fail(LH_ERR_UNSUPPORTED, "%s",
                       t->no_device[0] ? t->no_device : "nothing trains on a GPU here");
    const struct wk_states_conf conf = {.trainer = wk_device_lend(t->device),
                                        .failed = state_failed,
                                        .arg = t->device,
                                        .manifest = &n->program->manifest,
                                        .codec = *codec,
                                        .beside = wk_join_device_bytes(n->settings)};
    LH_TRY(wk_states_open(&conf, &n->states));
    struct wk_states_budget budget = wk_states_budget(n->states);
    char text[WK_STATES_TEXT];
    wk_states_budget_text(&budget, text, sizeof text);
    lh_logf(n->program->log, LH_INFO, "state.device", "base, residual and replica on %s; %s",
            wk_device_name(t->device), text);
    return LH_OK;
}

// Opens the states of the shards on the device that trains, if gpu.state allows it and they fit.
// `no_state` says why not where gpu.state asked for another place first.
static LH_MUST lh_err open_states(struct wk_node *n, const struct lk_codec *codec)
{
    int kind = n->settings->gpu.state;
    if (kind == WK_STATE_HOST) return LH_OK;
    lh_err err = try_states(n, codec);
    if (err != LH_ERR_UNSUPPORTED) return err;
    snprintf(n->no_state, sizeof n->no_state, "%s", lh_err_text(err));
    if (kind == WK_STATE_DEVICE)
        return lh_fail(LH_ERR_CONFIG, "gpu.state is device, but: %s", n->no_state);
    lh_logf(n->program->log, LH_INFO, "state.host", "%s; the host holds the state", n->no_state);
    return LH_OK;
}

// A device that holds the state encodes as well.
static LH_MUST lh_err open_backend(struct wk_node *n, const struct lk_codec *codec)
{
    enum wk_backend_kind kind = (enum wk_backend_kind)n->settings->backend;
    const struct wk_backend_conf conf = {.kind = n->states ? WK_BACKEND_CPU : kind,
                                         .plugin = "",
                                         .manifest = &n->program->manifest,
                                         .codec = *codec,
                                         .threads = wk_codec_threads(n->settings),
                                         .log = n->program->log};
    return wk_backend_open(&conf, &n->backend);
}

static void look_at_machine(struct wk_node *n)
{
    struct lh_machine *m = &n->machine;
    json_t *backend = wk_backend_status(n->backend);
    const char *device = json_string_value(json_object_get(backend, "device"));
    lh_machine_look(m);
    if (n->states) device = wk_device_name(n->training.device);
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
    const struct wk_codec_plan plan = wk_codec_plan(s);
    struct wk_conf conf = {
        .env = p->env,
        .transport = p->transport,
        .log = p->log,
        .self = p->peer,
        .dir = s->node.dir,
        .coordinator = s->node.coordinator,
        .manifest = &p->manifest,
        .keys = p->keys,
        .cipher = (uint8_t)lh_node_cipher(&s->node),
        .key_id = lh_keyring_first(p->keys),
        .privacy = {.budget = s->privacy.budget[0] ? s->privacy.budget : NULL,
                    .epsilon = s->privacy.epsilon,
                    .delta = s->privacy.delta,
                    .reported = s->privacy.reported,
                    .quiet = s->privacy.telemetry == WK_TELEMETRY_NONE},
        .beta = plan.beta,
        .kappa = plan.kappa,
        .snapshot_rounds = SNAPSHOT_ROUNDS,
        .ranges_bytes = LH_SNAPSHOT_RANGES_BYTES,
        .fill_trip_ns = WK_FILL_TRIP_NS,
        .durable_every = lh_point_every(&p->manifest),
        .lease_ns = LH_SECOND,
        .retry_base_ns = RETRY_MS * LH_MS,
        .retry_max_ns = RETRY_MAX_MS * LH_MS,
        .reconnect_max_ns = RECONNECT_MS * LH_MS,
        .deadline_ns = LH_CALL_MS * LH_MS,
        .deadline_max_ns = LH_CALL_MAX_MS * LH_MS,
        .tell = tell,
        .tell_arg = n,
        .fatal = lh_program_fatal,
        .fatal_arg = p,
    };
    memcpy(conf.job, p->job, LH_JOB_BYTES);
    LH_TRY(lk_codec_parse(wk_codec_name(s), &conf.codec));
    conf.codec.density = plan.density;
    if (wk_settings_releases(s)) conf.codec.index = LK_INDEX_FRAGMENT;
    wk_training_give(&n->training, &conf);
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

static void try_weights(struct wk_node *n, int64_t now)
{
    lh_err err = write_weights(n);
    if (err == LH_ERR_DISK_FULL) {
        char text[LH_PATH_BYTES + 160];
        snprintf(text, sizeof text,
                 "%s: the run has ended, and this worker waits for space to write the model",
                 lh_err_text(err));
        wk_disk_full_say(n->worker, WK_DISK_FULL_WEIGHTS, text);
        n->write_ns = now + WRITE_AGAIN_S * LH_SECOND;
        return;
    }
    if (err) {
        lh_logf(n->program->log, LH_ERROR, "weights.unwritten", "%s", lh_err_text(err));
        lh_program_end(n->program, err);
        return;
    }
    wk_disk_full_over(n->worker, WK_DISK_FULL_WEIGHTS);
    n->written = true;
    lh_logf(n->program->log, LH_INFO, "run.done", "%s/final.weights holds the model",
            n->settings->node.dir);
}

static void tick(void *self)
{
    struct wk_node *n = self;
    struct wk_reduce *reduce = n->training.reduce;
    if (n->training.rank) return;
    if (reduce) n->worker->ranks = reduce->ops->watch(reduce, n->program->log);
    n->worker->conf.queue_units = wk_training_queue(&n->training);
    wk_backend_watch(n->backend);
    if (wk_worker_state(n->worker) != WK_DONE) {
        n->done_ns = n->write_ns = 0; // the run may go on after its end
        n->written = false;
        return;
    }
    int64_t now = lh_now(n->program->env);
    if (!n->done_ns) n->done_ns = now;
    if (!n->written && now >= n->write_ns) try_weights(n, now);
    bool told = n->worker->told_done && !wk_beside_waits(n->worker);
    if (n->written && (told || now - n->done_ns > TELL_S * LH_SECOND))
        lh_program_end(n->program, LH_OK);
}

// ---------------------------------------------------------------- the application

static void free_parts(struct wk_node *n)
{
    wk_states_close(n->states);
    wk_backend_close(n->backend);
    n->states = NULL;
    n->backend = NULL;
    wk_training_free(&n->training);
}

static lh_err start(void *self, struct lh_program *p)
{
    struct wk_node *n = self;
    n->program = p;
    n->settings = p->settings;
    lh_err err = wk_training_open(&n->training, p);
    if (!err && !n->training.rank) err = start_core(n);
    if (!err) return LH_OK;
    char text[512];
    snprintf(text, sizeof text, "%s", lh_err_text(err));
    if (wk_training_leave(&n->training, false)) free_parts(n);
    return lh_fail(err, "%s", text);
}

static lh_err status(void *self, struct lh_buf *out)
{
    const struct wk_node *n = self;
    const struct wk_joined *rank = n->training.rank;
    return rank ? wk_joined_status(rank, out) : wk_worker_status(n->worker, out);
}

static bool leave(void *self, bool asked)
{
    struct wk_node *n = self;
    if (n->training.rank) return true;
    if (!asked) wk_leave(n->worker);
    if (!asked) wk_training_hush(&n->training);
    return wk_left(n->worker);
}

static lh_err settle(void *self)
{
    const struct wk_node *n = self;
    return n->training.rank ? LH_OK : wk_worker_settle(n->worker);
}

static void close_core(void *self)
{
    struct wk_node *n = self;
    struct wk_reduce *reduce = n->training.reduce;
    wk_training_hush(&n->training);
    if (n->training.rank)
        wk_joined_close(n->training.rank);
    else
        wk_worker_close(n->worker);
    if (reduce && reduce->ops->leave) reduce->ops->leave(reduce);
}

// First of all the communicator ends. Where its abort hangs nothing is freed, and the process ends:
// the worker's states, and its backend may have memory of the device, and to free that
// waits for all that the device has under way.
static void stop(void *self)
{
    struct wk_node *n = self;
    if (!wk_training_leave(&n->training, n->done_ns != 0)) return;
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
    .leave = leave,
    .settle = settle,
    .close = close_core,
    .stop = stop,
};
