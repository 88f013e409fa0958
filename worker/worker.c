// The worker: start, status, end. See worker.h for the walk.
#include "worker/worker.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/format/json.h"
#include "worker/disk_full.h"
#include "worker/member.h"
#include "worker/push/beside.h"
#include "worker/push/cut/cut.h"
#include "worker/push/idle.h"
#include "worker/push/path.h"
#include "worker/push/view.h"
#include "worker/replica/durable_copy.h"
#include "worker/replica/offer.h"
#include "worker/replica/prove.h"
#include "worker/start.h"
#include "worker/train/stats.h"
#include "worker/units/units.h"

static lh_err open_shard(struct wk_worker *w, uint32_t id)
{
    struct wk_shard *s = &w->shard[id];
    const struct wk_conf *c = &w->conf;
    s->id = id;
    s->worker = w;
    LH_TRY(lk_replica_create(&s->replica, c->job, c->manifest, id, c->keys));
    s->layout = s->replica.layout;
    LH_TRY(wk_committed_open(s));
    LH_TRY(wk_view_open(s));
    s->slot.files = (struct wk_slots){c->env, c->dir, id, s->layout->values, 0, {0}, 0};
    c->env->ops->boot_id(c->env, s->slot.files.boot);
    s->outbox = (struct wk_outbox){.env = c->env, .dir = w->outbox_dir, .shard = id};
    return LH_OK;
}

static lh_err open_dir(struct wk_worker *w)
{
    const struct lh_files_ops *files = w->conf.env->ops->files;
    char path[LH_PATH_BYTES];
    LH_TRY(files->make_dir(w->conf.env, w->conf.dir));
    LH_TRY(lh_path(path, sizeof path, w->conf.dir, "lock"));
    lh_err err =
        files->open(w->conf.env, path, LH_OPEN_WRITE | LH_OPEN_CREATE | LH_OPEN_LOCK, &w->lock);
    if (err == LH_ERR_BUSY)
        return lh_fail(LH_ERR_BUSY,
                       "%s is used by another process; give each worker a directory of "
                       "its own (setting dir)",
                       w->conf.dir);
    if (err) return err;
    LH_TRY(lh_path(w->outbox_dir, sizeof w->outbox_dir, w->conf.dir, "outbox"));
    LH_TRY(lh_path(w->replica_dir, sizeof w->replica_dir, w->conf.dir, "replica"));
    return files->make_dir(w->conf.env, w->replica_dir);
}

lh_err wk_worker_start(const struct wk_conf *conf, struct wk_worker **out)
{
    struct wk_worker *w = calloc(1, sizeof *w);
    if (!w) return LH_ERR_NO_MEMORY;
    w->conf = *conf;
    w->id = lh_worker_id(&conf->self);
    w->shards = conf->manifest->shards;
    w->attempt = lh_random_u64(conf->env);
    w->ranks = 1;
    w->hooks = &wk_wiring;
    lh_err err = LH_ERR_NO_MEMORY;
    w->shard = calloc(w->shards, sizeof *w->shard);
    if (!w->shard) goto fail;
    LH_TRY_TO(fail, err, open_dir(w));
    for (uint32_t i = 0; i < w->shards; i++) LH_TRY_TO(fail, err, open_shard(w, i));
    LH_TRY_TO(fail, err, wk_stats_open(w));
    LH_TRY_TO(fail, err, wk_travel_start(w));
    LH_TRY_TO(fail, err, wk_start_resume(w));
    for (uint32_t i = 0; i < w->shards; i++)
        if (w->shard[i].ready) wk_view_start(&w->shard[i]);
    for (uint32_t i = 0; i < w->shards; i++) LH_TRY_TO(fail, err, wk_start_reserve(&w->shard[i]));
    LH_TRY_TO(fail, err,
              conf->transport->ops->dial(conf->transport, conf->coordinator, LH_C, LH_LINE_FIRST,
                                         &w->coordinator));
    wk_idle_start(w);
    wk_member_start(w);
    *out = w;
    return LH_OK;
fail:
    wk_worker_stop(w);
    return err;
}

static void free_shard(struct wk_shard *s)
{
    wk_durable_copy_free(s->copies.writing);
    wk_prove_free(s->copies.proving);
    wk_cut_free(s->cut);
    lh_record_stream_reset(&s->stream.records);
    lk_incoming_free(&s->arrival.incoming);
    free(s->arrival.reserved);
    wk_offer_free(s);
    lh_blob_release(s->session.sender.frame);
    wk_outbox_free(&s->outbox);
    lk_replica_free(&s->replica);
    wk_committed_close(s);
    wk_view_close(s);
    lh_buf_free(&s->payload_memory);
}

static void hang_up(struct lh_link **link)
{
    if (*link) (*link)->transport_ops->hangup(*link);
    *link = NULL;
}

void wk_worker_close(struct wk_worker *w)
{
    struct lh_env *env = w->conf.env;
    w->stopped = true;
    lh_cancel(env, &w->member_timer);
    lh_cancel(env, &w->views.timer);
    lh_cancel(env, &w->idle.timer);
    wk_beside_close(w);
    wk_travel_close(w);
    hang_up(&w->coordinator);
    for (uint32_t i = 0; w->shard && i < w->shards; i++) {
        lh_cancel(env, &w->shard[i].session.timer);
        lh_cancel(env, &w->shard[i].copies.timer);
        lh_cancel(env, &w->shard[i].copies.rest);
        lh_cancel(env, &w->shard[i].disk.timer);
        lh_cancel(env, &w->shard[i].stream.timer);
        hang_up(&w->shard[i].session.link);
    }
}

void wk_worker_stop(struct wk_worker *w)
{
    if (!w) return;
    wk_worker_close(w);
    wk_beside_free(w);
    wk_travel_free(w);
    wk_private_close(w);
    for (uint32_t i = 0; w->shard && i < w->shards; i++)
        if (w->shard[i].worker) free_shard(&w->shard[i]);
    if (w->lock) w->conf.env->ops->files->close(w->lock);
    wk_stats_close(w);
    free(w->grants.table);
    free(w->shard);
    free(w);
}

lh_err wk_worker_settle(struct wk_worker *w)
{
    if (w->fresh || w->failed || wk_cutting(w))
        return LH_OK; // nothing to commit, or it must not be
    for (uint32_t i = 0; i < w->shards; i++) LH_TRY(wk_committed_write(&w->shard[i], true));
    return LH_OK;
}

// ---------------------------------------------------------------- status

enum wk_state wk_worker_state(const struct wk_worker *w)
{
    if (wk_all_ended(w) && wk_totals_are_charged(w)) return WK_DONE;
    if (!w->joined) return WK_JOINING;
    if (w->phase >= LH_PHASE_DRAIN) return WK_DRAINING;
    return w->started ? WK_TRAINING : WK_WAITING;
}

static const char *state_name(const struct wk_worker *w)
{
    static const char *const name[] = {"joining", "waiting", "training", "draining", "done"};
    enum wk_state state = wk_worker_state(w);
    if (state != WK_TRAINING) return name[state];
    return wk_paused(w) ? "paused" : wk_beside_failing(w) ? "failing" : name[state];
}

static json_t *shard_status(const struct wk_shard *s)
{
    char hex[2 * LH_HASH_BYTES + 1] = "";
    if (s->ended) lh_hash_hex(&s->final_digest, hex);
    return json_pack("{s:i s:I s:I s:I s:I s:I s:I s:b s:b s:s s:I s:I}", "shard", (int)s->id,
                     "version", (json_int_t)s->replica.ledger.version, "epoch",
                     (json_int_t)s->replica.ledger.epoch, "viewed", (json_int_t)s->view.of.version,
                     "outbox", (json_int_t)s->outbox.entries, "outbox_bytes",
                     (json_int_t)s->outbox.bytes, "outbox_held_bytes",
                     (json_int_t)s->outbox.held_bytes, "session", s->session.process != 0, "ended",
                     s->ended, "digest", hex, "mismatches", (json_int_t)s->stream.digest_mismatches,
                     "step", (json_int_t)(s->slot.committed->next - 1));
}

// Pushes of this worker in the logs, as far as they are folded here. This differs from the
// decisions heard by this process: after kill -9 a decision is heard again.
static uint64_t accepted(const struct wk_worker *w)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < w->shards; i++) {
        const struct lh_row *row = lh_ledger_row(&w->shard[i].replica.ledger, w->id);
        if (row) sum += row->admitted;
    }
    return sum;
}

lh_err wk_worker_status(struct wk_worker *w, struct lh_buf *out)
{
    json_t *shards = json_array();
    for (uint32_t i = 0; i < w->shards; i++)
        json_array_append_new(shards, shard_status(&w->shard[i]));
    int64_t stall = w->count.stall_ns + (w->idle_since ? lh_now(w->conf.env) - w->idle_since : 0);
    json_t *root = json_pack(
        "{s:s s:s s:s s:s s:I s:I s:f s:i s:i s:I s:I s:I s:I s:I s:I s:I s:I s:f s:f "
        "s:I s:I s:o}",
        "role", "worker", "region", w->conf.self.region, "name", w->conf.self.name, "state",
        state_name(w), "step", (json_int_t)w->count.steps, "tokens", (json_int_t)w->count.tokens,
        "tokens_per_s", wk_idle_speed(w), "h", (int)w->local_steps, "ranks", (int)w->ranks,
        "rounds", (json_int_t)w->count.rounds, "payload_up_bytes", (json_int_t)w->count.payload_up,
        "payload_down_bytes", (json_int_t)w->count.payload_down, "accepted",
        (json_int_t)accepted(w), "damped", (json_int_t)w->count.damped, "returned",
        (json_int_t)w->count.returned, "resent", (json_int_t)w->count.resent, "lost",
        (json_int_t)w->count.lost, "stall_s", (double)stall / 1e9, "between_s",
        (double)w->count.between_ns / 1e9, "snapshots", (json_int_t)w->count.snapshots,
        "incarnation", (json_int_t)w->incarnation.number, "shards", shards);
    if (w->count.loss > 0) json_object_set_new(root, "loss", json_real(w->count.loss));
    if (w->count.steps) {
        double idle_s = (double)wk_idle_ns(w) / LH_SECOND;
        json_object_set_new(root, "last_step_s",
                            json_real((double)w->conf.env->ops->wall_s(w->conf.env) - idle_s));
    }
    enum wk_state state = wk_worker_state(w);
    json_object_set_new(root, "ready", json_boolean(state != WK_JOINING));
    json_object_set_new(root, "push_seconds", lh_histogram_status(&w->pushed_s, &lh_scale_seconds));
    json_object_set_new(root, "plain_up_bytes", json_integer((json_int_t)w->count.plain_up));
    json_object_set_new(root, "leases", wk_units_status(w));
    bool full = false;
    for (int i = 0; i < WK_DISK_FULL_COUNT; i++) full |= w->full_said[i];
    json_object_set_new(root, "disk_full", json_boolean(full));
    json_object_set_new(root, "commit_age_s", json_real(wk_disk_slow_age_s(w)));
    if (w->out.noise > 0) // while it holds the learning rate
        json_object_set_new(root, "gradient_noise", json_real(fmin(w->out.noise, 1e9)));
    json_object_set_new(root, "learning_rate", json_real(w->out.rate));
    if (w->left_out.is)
        json_object_set_new(root, "left_out",
                            json_pack("{s:I s:I}", "lost_pushes", (json_int_t)w->left_out.pushes,
                                      "lost_tokens", (json_int_t)w->left_out.tokens));
    json_t *travel = wk_travel_status(w);
    if (travel) json_object_set_new(root, "travel", travel);
    json_t *privacy = wk_private_status(w);
    if (privacy) json_object_set_new(root, "privacy", privacy);
    if (w->conf.beside) json_object_set_new(root, "trainer", wk_beside_status(w));
    if (w->conf.tell && root) w->conf.tell(w->conf.tell_arg, root);
    if (w->evaluated.languages) json_object_set_new(root, "eval", wk_stats_eval(w));
    return lh_json_give(root, out);
}
