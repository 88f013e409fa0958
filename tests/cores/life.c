// A worker's life on the rig. See life.h.
#include "tests/cores/life.h"

#include <stdlib.h>
#include <string.h>

#include "worker/push/view.h"

static const char LOG[] = "log"; // on the disk of the standby's node
enum { UNITS = 2000, CUTS = 3, STEP_MS = 50 };

static void saw_kept(void *arg, uint32_t shard, struct lh_incarnation i, uint64_t step,
                     const float *delta, uint64_t values)
{
    struct life *l = arg;
    assert_true(values <= LIFE_VALUES);
    for (uint64_t k = 0; k < values; k++) l->cutting[shard].delta[k] = (double)delta[k];
    l->cutting[shard].incarnation = i;
    l->cutting[shard].step = step;
    l->cutting[shard].open = true;
    l->cutting[shard].whole = l->worker->shard[shard].whole;
    if (l->on_kept) l->on_kept(l, shard, &l->cutting[shard].whole, delta, values);
}

static void committed(struct life *l, uint32_t shard)
{
    for (uint32_t k = 0; k < LIFE_VALUES; k++) l->raw[shard][k] += l->cutting[shard].delta[k];
    if (l->on_cut) l->on_cut(l, shard, &l->cutting[shard].whole);
    memset(&l->cutting[shard], 0, sizeof l->cutting[shard]);
}

static void saw_cut(void *arg, uint32_t shard, struct lh_incarnation i, uint64_t step)
{
    struct life *l = arg;
    assert_true(lh_incarnation_equal(i, l->cutting[shard].incarnation));
    assert_int_equal(step, l->cutting[shard].step);
    committed(l, shard);
}

static void saw_decided(void *arg, uint32_t shard, struct lh_incarnation i, uint64_t step,
                        bool admitted)
{
    struct life *l = arg;
    (void)shard;
    (void)i;
    (void)step;
    l->refused += !admitted;
}

static void saw_lost(void *arg, uint32_t shard, const char *what)
{
    struct life *l = arg;
    (void)shard;
    (void)what;
    l->lost++;
}

static lh_err heard(void *self, struct lh_call *call, enum lh_rpc rpc, const struct lh_peer *peer,
                    const struct lh_call_ops **ops, void **call_self)
{
    struct life *l = self;
    if (l->on_call && l->on_call(l, rpc, call, ops, call_self)) return LH_OK;
    return l->service.on_call(l->service.self, call, rpc, peer, ops, call_self);
}

void life_hook(struct life *l)
{
    l->service = l->rig->server->service;
    l->rig->server->service = (struct lh_service){l, heard};
}

void life_start(struct life *l)
{
    struct rig *r = l->rig;
    if (!r->w[1].transport) rig_boot_worker(r, 1);
    struct wk_conf conf = rig_life_conf(r, &l->core, STEP_MS);
    conf.codec = (struct lk_codec){LK_INDEX_RICE, LK_VALUE_FP32, 0.25f};
    conf.privacy = l->privacy;
    if (l->privacy.budget && l->beside && !l->privacy.reported)
        conf.codec = (struct lk_codec){LK_INDEX_FRAGMENT, LK_VALUE_FP32, 1};
    conf.observer = &l->observer;
    conf.log = l->log;
    conf.durable_every = 6;
    conf.beside = l->beside;
    if (l->beside) conf.trainer = NULL;
    rig_life_start(&l->core, &conf);
    l->worker = l->core.worker;
    // A cut may have been committed unseen just before the worker died.
    for (uint32_t k = 0; k < l->worker->shards; k++) {
        const struct wk_slot *slot = l->worker->shard[k].slot.committed;
        const struct wk_whole *w = &l->cutting[k].whole;
        bool same = lh_incarnation_equal(slot->incarnation, l->cutting[k].incarnation);
        bool is = w->number
                      ? w->number == slot->cut && !memcmp(w->life, slot->life, WK_SLOT_LIFE_BYTES)
                      : same && slot->next > l->cutting[k].step;
        if (l->cutting[k].open && is) committed(l, k);
        l->cutting[k].open = false;
    }
}

void life_kill(struct life *l)
{
    rig_life_end(l->rig, &l->core, false);
    l->worker = NULL;
}

struct life *life_open(uint64_t seed, uint32_t shards)
{
    struct life *l = calloc(1, sizeof *l);
    assert_non_null(l);
    l->rig = rig_new(seed);
    l->observer = (struct wk_observer){
        .arg = l, .kept = saw_kept, .cut = saw_cut, .decided = saw_decided, .lost = saw_lost};
    lh_fake_boot(l->rig->t.env);
    assert_int_equal(lh_log_open(&l->log, l->rig->t.env, "worker", LH_INFO, false, LOG), LH_OK);
    if (shards > 1) rig_two_shards(l->rig);
    lh_units_free(&l->rig->units);
    setup_units(&l->rig->units, UNITS, 64, RIG_WORKERS);
    rig_serve(l->rig, 0);
    life_hook(l);
    return l;
}

struct life *life_begin(uint64_t seed, uint32_t shards)
{
    struct life *l = life_open(seed, shards);
    rig_run(l->rig, LH_SECOND);
    life_start(l);
    life_cut(l, CUTS);
    return l;
}

void life_end(struct life *l)
{
    if (l->worker) life_kill(l);
    lh_log_close(l->log);
    rig_free(l->rig);
    free(l);
}

static struct {
    const struct lh_env_ops *ops; // the fake env's own
    struct lh_env_ops full;
    struct lh_files_ops files;
    unsigned tries;
} disk;

static lh_err no_room(struct lh_env *env, const char *path, unsigned flags, struct lh_file **out)
{
    disk.tries += (flags & LH_OPEN_WRITE) != 0;
    if (flags & LH_OPEN_WRITE) return lh_fail(LH_ERR_DISK_FULL, "%s: no space left", path);
    return disk.ops->files->open(env, path, flags, out);
}

void life_full(struct life *l, bool full)
{
    struct lh_env *env = l->rig->w[1].env;
    if (full) {
        disk.tries = 0;
        disk.ops = env->ops;
        disk.full = *disk.ops;
        disk.files = *disk.ops->files;
        disk.files.open = no_room;
        disk.full.files = &disk.files;
    }
    env->ops = full ? &disk.full : disk.ops;
}

unsigned life_tries(const struct life *l)
{
    (void)l;
    return disk.tries;
}

void life_run(struct life *l, int64_t ns)
{
    rig_run(l->rig, ns);
}

void life_cut(struct life *l, uint64_t cuts)
{
    uint64_t until[RIG_SHARDS];
    for (uint32_t k = 0; k < l->worker->shards; k++)
        until[k] = l->worker->shard[k].progress.cut_count + cuts;
    for (uint32_t k = 0; k < l->worker->shards; k++) {
        for (int i = 0; i < 20000 && l->worker->shard[k].progress.cut_count < until[k]; i++)
            life_run(l, LH_MS);
        assert_true(l->worker->shard[k].progress.cut_count >= until[k]);
    }
}

static bool at_rest(const struct life *l)
{
    for (uint32_t k = 0; k < l->worker->shards; k++) {
        const struct wk_shard *s = &l->worker->shard[k];
        if (s->cut || !s->ready || wk_outbox_undecided(&s->outbox) || !wk_own_folded(s))
            return false;
        const struct lh_ledger *here = &s->replica.ledger;
        const struct lh_ledger *there = &l->rig->server->shard[k]->replica.ledger;
        if (here->epoch != there->epoch || here->version != there->version) return false;
    }
    return true;
}

void life_rest(struct life *l)
{
    for (int i = 0; i < 60000 && !at_rest(l); i++) life_run(l, LH_MS);
    assert_true(at_rest(l));
}

void life_mass(struct life *l)
{
    for (uint32_t k = 0; k < l->worker->shards; k++) {
        const struct wk_shard *s = &l->worker->shard[k];
        const float *initial = l->rig->initial + s->layout->first;
        for (uint64_t i = 0; i < s->layout->values; i++) {
            double applied = (double)initial[i] - (double)s->replica.theta[i];
            double found = applied + (double)s->slot.residual[i];
            if (found != l->raw[k][i])
                fail_msg("shard %u, value %u: %g was cut, %g is there", k, (unsigned)i,
                         l->raw[k][i], found);
        }
    }
}

unsigned life_said(const struct life *l, const char *event)
{
    struct lh_buf text = lh_buf(1 << 24);
    unsigned n = 0;
    assert_int_equal(lh_file_load(l->rig->t.env, LOG, &text), LH_OK);
    lh_put_u8(&text, 0);
    assert_false(text.err);
    for (const char *at = (const char *)text.data; (at = strstr(at, event)); at++) n++;
    lh_buf_free(&text);
    return n;
}
