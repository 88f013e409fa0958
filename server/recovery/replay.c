// Replay: shards at any version. See replay.h.
#include "server/recovery/replay.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/format/frame.h"
#include "kernels/storage/checkpoint_read.h"
#include "server/wal/wal.h"

static const uint64_t HEAD = (uint64_t)PS_REPLAY_HEAD;

lh_err ps_replay_create(struct ps_replay *r)
{
    r->shard = calloc(r->manifest->shards, sizeof *r->shard);
    return r->shard ? LH_OK : lh_fail(LH_ERR_NO_MEMORY, "no memory for the shards");
}

void ps_replay_free(struct ps_replay *r)
{
    for (uint32_t i = 0; r->shard && i < r->manifest->shards; i++)
        if (r->shard[i].here) lk_replica_free(&r->shard[i].replica);
    free(r->shard);
    r->shard = NULL;
}

// ---------------------------------------------------------------- what a directory has

struct reading {
    struct ps_replay *r;
    const char *dir, *log;
    struct lk_checkpoint_conf checkpoints;
    lh_err err;
};

lh_err ps_replay_meet(struct ps_replay *r, const char *dir, uint32_t shard,
                      struct ps_replayed **out)
{
    *out = NULL;
    if (shard >= r->manifest->shards)
        return lh_fail(LH_ERR_MANIFEST, "%s holds shard %" PRIu32 ", the model has %" PRIu32, dir,
                       shard, r->manifest->shards);
    if (r->only && shard + UINT64_C(1) != r->only) return LH_OK;
    struct ps_replayed *s = &r->shard[shard];
    if (s->here && s->dir != dir)
        return lh_fail(LH_ERR_INVALID, "shard %" PRIu32 " is in %s and in %s: give one of them",
                       shard, s->dir, dir);
    if (!s->here) {
        LH_TRY(lk_replica_create(&s->replica, r->job, r->manifest, shard, r->checkpoints.keys));
        if (!s->asked) s->to = r->to;
        s->dir = dir;
        s->here = true;
    }
    *out = s;
    return LH_OK;
}

static lh_err meet_entry(void *arg, const struct ps_wal_entry *e)
{
    struct reading *q = arg;
    struct ps_replayed *s = NULL;
    if (!e->record) return LH_OK;
    LH_TRY(ps_replay_meet(q->r, q->dir, e->shard, &s));
    if (!s) return LH_OK;
    if (!s->first) s->first = e->record->version;
    s->last = e->record->version;
    if (e->record->epoch > s->epoch) s->epoch = e->record->epoch;
    return LH_OK;
}

static void meet_checkpoint(void *arg, const char *file)
{
    struct reading *q = arg;
    struct lk_checkpoint_name name;
    struct lk_checkpoint_info info;
    struct ps_replayed *s = NULL;
    char path[LH_PATH_BYTES];
    if (q->err || !lk_checkpoint_name_parse(file, &name) || name.weights) return;
    q->err = ps_replay_meet(q->r, q->dir, name.shard, &s);
    if (q->err || !s || lh_path(path, sizeof path, q->checkpoints.dir, "%s", file)) return;
    if (!lk_checkpoint_peek(q->checkpoints.env, path, &info) && info.epoch > s->epoch)
        s->epoch = info.epoch;
}

// ---------------------------------------------------------------- where to start

static LH_MUST lh_err from_initial(struct ps_replay *r, struct ps_replayed *s)
{
    const struct lh_shard_layout *at = s->replica.layout;
    return r->initial(r->arg, at->first, at->values, s->replica.theta);
}

static bool ends_search(lh_err err)
{
    return err == LH_ERR_CONFIG || err == LH_ERR_MANIFEST || err == LH_ERR_KEY_MISSING;
}

// Takes the newest checkpoint at or below the version wanted (the oldest with `oldest`) from which
// the log goes on; passes over bad ones. LH_ERR_NOT_FOUND: none.
static LH_MUST lh_err from_checkpoint(struct reading *q, struct ps_replayed *s)
{
    const struct ps_replay *r = q->r;
    uint32_t shard = s->replica.ledger.shard;
    uint64_t *version;
    size_t count;
    lh_err err = LH_ERR_NOT_FOUND;
    LH_TRY(lk_checkpoint_versions(&q->checkpoints, shard, false, &version, &count));
    for (size_t i = 0; i < count && err; i++) {
        char path[LH_PATH_BYTES];
        uint64_t v = version[r->oldest ? i : count - 1 - i];
        bool below = s->first && v + 1 < s->first && v != s->to; // the log does not reach it
        if (v > s->to || below) continue;
        const struct lk_checkpoint_name name = {shard, v, false};
        err = lk_checkpoint_path(q->checkpoints.dir, &name, path);
        if (!err) err = lk_checkpoint_read(&q->checkpoints, path, &s->replica);
        if (!err) s->base = v;
        if (ends_search(err)) break;
        if (err && r->skipped) r->skipped(r->arg, lh_err_text(err));
    }
    free(version);
    return err;
}

// The first version that a checkpoint or the log still reaches; 0: none.
static uint64_t first_possible(struct reading *q, const struct ps_replayed *s)
{
    uint64_t *version, first = 0;
    size_t count;
    if (lk_checkpoint_versions(&q->checkpoints, s->replica.ledger.shard, false, &version, &count))
        return 0;
    for (size_t i = 0; i < count && !first; i++)
        if (!s->first || version[i] + 1 >= s->first) first = version[i];
    free(version);
    return first;
}

static LH_MUST lh_err choose_base(struct reading *q, struct ps_replayed *s)
{
    bool whole = s->first == 1 || (!s->first && s->to == 0);
    if (q->r->oldest && whole && q->r->has_initial && !from_initial(q->r, s)) return LH_OK;
    lh_err err = from_checkpoint(q, s);
    if (!err || ends_search(err)) return err;
    if (whole) return from_initial(q->r, s);
    uint64_t possible = first_possible(q, s);
    char text[64] = "none is";
    if (possible) snprintf(text, sizeof text, "the first possible one is %" PRIu64, possible);
    return lh_fail(LH_ERR_NOT_FOUND,
                   "shard %" PRIu32 ": version %" PRIu64
                   " is not available any more: no checkpoint at or below it in %s, and the log "
                   "begins at version %" PRIu64 "; %s",
                   s->replica.ledger.shard, s->to == HEAD ? s->last : s->to, q->checkpoints.dir,
                   s->first, text);
}

// Pushes already in the oldest state can't be taken out.
static LH_MUST lh_err check_without(const struct ps_replay *r, const struct ps_replayed *s)
{
    const struct lh_ledger *l = &s->replica.ledger;
    const struct lh_row *row = r->without ? lh_ledger_row(l, r->without) : NULL;
    if (!row || !row->admitted || r->without_from > l->version) return LH_OK;
    return lh_fail(LH_ERR_NOT_FOUND,
                   "shard %" PRIu32 ": %" PRIu64 " pushes of that worker are in the oldest state "
                   "that is kept, of version %" PRIu64 ", and can't be taken out; --from %" PRIu64
                   " takes out the later ones",
                   l->shard, row->admitted, l->version, l->version + 1);
}

// ---------------------------------------------------------------- folding

// Folds a left-out push as if it had been refused: its claims are free, its norm says nothing. What
// follows is chained to that, so it is another history, and the run's digests are of other states.
static LH_MUST lh_err fold_without(const struct ps_replay *r, struct ps_replayed *s,
                                   const struct lh_record *record)
{
    struct lk_replica *replica = &s->replica;
    struct lh_record mine = *record;
    struct lh_frame f;
    bool admitted = record->kind == LH_ADMIT && record->version >= r->without_from;
    if (admitted) LH_TRY(lh_frame_parse_head(record->body, &f));
    if (!admitted || f.worker != r->without) {
        lh_ledger_next(&replica->ledger, &mine);
        return record->kind == LH_DIGEST_RECORD ? lh_ledger_apply(&replica->ledger, &mine)
                                                : lk_replica_apply(replica, &mine);
    }
    struct lh_buf stub = lh_buf(LH_SMALL_BYTES);
    lh_frame_write_stub(record->body, &f, &stub);
    lh_err err = lh_buf_err(&stub);
    mine = (struct lh_record){.version = record->version,
                              .epoch = record->epoch,
                              .kind = LH_REFUSE,
                              .reason = LH_ERR_EXPELLED,
                              .body = lh_buf_span(&stub)};
    lh_ledger_next(&replica->ledger, &mine);
    if (!err) err = lh_ledger_apply(&replica->ledger, &mine);
    if (!err) s->left_out++;
    lh_buf_free(&stub);
    return err;
}

static lh_err fold_entry(void *arg, const struct ps_wal_entry *e)
{
    struct reading *q = arg;
    const struct ps_replay *r = q->r;
    if (!e->record || (r->only && e->shard + UINT64_C(1) != r->only)) return LH_OK;
    if (r->stop && atomic_load(r->stop))
        return lh_fail(LH_ERR_UNAVAILABLE, "the process ends while the log is folded");
    struct ps_replayed *s = &r->shard[e->shard];
    uint64_t version = s->replica.ledger.version;
    if (e->record->version <= version || e->record->version > s->to) return LH_OK;
    if (e->record->version != version + 1)
        return lh_fail(LH_ERR_CORRUPT,
                       "%s: shard %" PRIu32 " goes on at version %" PRIu64 " where %" PRIu64
                       " is expected: part of its log or its newer checkpoints are missing",
                       q->log, e->shard, e->record->version, version + 1);
    return r->without ? fold_without(r, s, e->record) : lk_replica_apply(&s->replica, e->record);
}

static LH_MUST lh_err check_reached(const struct ps_replayed *s)
{
    uint64_t version = s->replica.ledger.version;
    if (s->to == HEAD || version == s->to) return LH_OK;
    return lh_fail(LH_ERR_NOT_FOUND,
                   "shard %" PRIu32 ": there is no version %" PRIu64 " in %s, it ends at %" PRIu64,
                   s->replica.ledger.shard, s->to, s->dir, version);
}

// ---------------------------------------------------------------- a directory

lh_err ps_replay_dir(struct ps_replay *r, const char *dir, const char *log, const char *checkpoints)
{
    struct reading q = {.r = r, .dir = dir, .log = log, .checkpoints = r->checkpoints};
    struct lh_env *env = r->checkpoints.env;
    struct ps_wal_found found;
    q.checkpoints.dir = checkpoints;
    LH_TRY(env->ops->files->list(env, checkpoints, meet_checkpoint, &q));
    LH_TRY(q.err);
    LH_TRY(ps_wal_look(env, log, r->job, meet_entry, &q, &found));
    bool any = false;
    for (uint32_t i = 0; i < r->manifest->shards; i++) {
        if (!r->shard[i].here || r->shard[i].dir != dir) continue;
        LH_TRY(choose_base(&q, &r->shard[i]));
        LH_TRY(check_without(r, &r->shard[i]));
        r->shard[i].torn = found.torn;
        any = true;
    }
    if (!any) return lh_fail(LH_ERR_NOT_FOUND, "%s: neither records nor checkpoints", dir);
    LH_TRY(ps_wal_look(env, log, r->job, fold_entry, &q, &found));
    for (uint32_t i = 0; i < r->manifest->shards; i++)
        if (r->shard[i].here && r->shard[i].dir == dir) LH_TRY(check_reached(&r->shard[i]));
    return LH_OK;
}
