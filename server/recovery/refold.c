// Refold: see refold.h.
//
// An order comes in two steps. First the coordinator asks every server whether it could: the copy
// lane folds the log as the order wants it, and drops the result. Only when all have said yes does
// the order go. Then the server writes it to its directory and starts again in place
// (ps_conf.again); that start folds the log, replaces the history and begins a new epoch:
//
// 1. DIR/refold-<shard 4 hex> and DIR/refold are written; from here on no kill stops the order.
// 2. The new checkpoints are written to DIR/taken-back, and the epoch files go above all epochs
//    that were seen.
// 3. The former log and checkpoints go to DIR/before-<order 16 hex>, file by file, oldest first.
// 4. The new checkpoints go to DIR/checkpoints.
// 5. A new epoch is registered and begun (rebuild.c, recover.c).
//
// Each step may be repeated after a crash in it; DIR/refold names the last one that is whole. Files
// of numbers (common/env/numbers.h): DIR/refold "LHRF": order, stage. DIR/refold-<shard> "LHRS":
// order, version to go back to (~0: the head), worker, first version of its pushes to leave out.
#include "server/recovery/refold.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/env/numbers.h"
#include "common/net/wire_member.h"
#include "server/core.h"
#include "server/recovery/epoch.h"
#include "server/recovery/replay.h"
#include "server/wal/quarantine.h"

static const struct lh_numbers STAGE = {.magic = 0x4652484c, // "LHRF"
                                        .version = 1,
                                        .count = 2,
                                        .remedy =
                                            "give DIR/log and DIR/checkpoints the files of the "
                                            "newest DIR/before-*, if there is one, and remove it"};
static const struct lh_numbers SHARD = {.magic = 0x5352484c, // "LHRS"
                                        .version = 1,
                                        .count = 4,
                                        .remedy = "remove DIR/refold, and give the order again"};

struct ps_refold_check { // A start carries out one, too.
    struct ps_server *server;
    uint64_t number, without, from;
    uint64_t *to;      // Each shard's version, in the order of conf.shards.
    uint64_t left_out; // pushes of `without`
    atomic_bool stop;
    bool busy;
    lh_err err;
    char why[256];
};

// ---------------------------------------------------------------- the fold

// A shard can't go on from a state that takes no push any more.
static LH_MUST lh_err check_state(const struct ps_replayed *s)
{
    const struct lh_ledger *l = &s->replica.ledger;
    if (l->plan.phase >= LH_PHASE_CLOSE)
        return lh_fail(LH_ERR_INVALID,
                       "shard %" PRIu32 ": at version %" PRIu64 " the run was %s, and takes no "
                       "push any more: choose an earlier version",
                       l->shard, l->version, lh_phase_name(l->plan.phase));
    if (l->move.epoch)
        return lh_fail(LH_ERR_INVALID,
                       "shard %" PRIu32 ": version %" PRIu64 " ends the log of the server that "
                       "had the shard before a move: choose another version",
                       l->shard, l->version);
    if (l->version) return LH_OK;
    return lh_fail(LH_ERR_INVALID, "shard %" PRIu32 ": version 0 is no history yet", l->shard);
}

// Folds shard i as the order wants it. After success, the caller frees `out`.
static LH_MUST lh_err fold_shard(struct ps_server *s, const struct ps_refold_check *o, uint32_t i,
                                 struct ps_replay *out)
{
    uint32_t shard = s->conf.shards[i];
    *out = (struct ps_replay){.checkpoints = ps_checkpoint_conf(s),
                              .job = s->conf.job,
                              .manifest = s->conf.manifest,
                              .initial = s->conf.initial,
                              .arg = s->conf.initial_arg,
                              .stop = &o->stop,
                              .oldest = o->without != 0,
                              .has_initial = true,
                              .to = o->to[i],
                              .only = shard + UINT64_C(1),
                              .without = o->without,
                              .without_from = o->from};
    LH_TRY(ps_replay_create(out));
    lh_err err = ps_replay_dir(out, s->conf.dir, s->wal_dir, s->checkpoint_dir);
    if (!err && !out->shard[shard].here)
        err = lh_fail(LH_ERR_NOT_FOUND, "%s holds nothing of shard %" PRIu32, s->conf.dir, shard);
    if (!err) err = check_state(&out->shard[shard]);
    if (err) ps_replay_free(out);
    return err;
}

static void free_order(struct ps_refold_check *o)
{
    if (!o) return;
    free(o->to);
    free(o);
}

static struct ps_refold_check *new_order(struct ps_server *s)
{
    struct ps_refold_check *o = calloc(1, sizeof *o);
    if (!o) return NULL;
    o->server = s;
    o->to = calloc(s->conf.shard_count, sizeof *o->to);
    if (o->to) return o;
    free(o);
    return NULL;
}

// ---------------------------------------------------------------- can it be done?

static int64_t check_job(void *arg)
{
    struct ps_refold_check *o = arg;
    struct ps_server *s = o->server;
    struct ps_replay fold;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < s->conf.shard_count && !o->err; i++) {
        o->err = fold_shard(s, o, i, &fold);
        if (o->err) break;
        o->left_out += fold.shard[s->conf.shards[i]].left_out;
        bytes += lk_replica_bytes_max(fold.shard[s->conf.shards[i]].replica.layout);
        ps_replay_free(&fold);
    }
    if (!o->err) // the former checkpoints stay beside the new ones
        o->err = lh_file_room(s->conf.env, s->conf.dir, bytes, ps_disk_full_reserve(s));
    if (o->err) snprintf(o->why, sizeof o->why, "%s", lh_err_text(o->err));
    return 0;
}

static void check_done(void *arg)
{
    struct ps_refold_check *o = arg;
    struct ps_server *s = o->server;
    o->busy = false;
    if (s->phase == PS_STOPPED) return;
    if (o->err)
        lh_logf(s->conf.log, LH_WARN, "refold.refused", "%s", o->why);
    else
        lh_logf(s->conf.log, LH_INFO, "refold.possible",
                "the shards can be taken back; %" PRIu64 " pushes are left out", o->left_out);
}

static void begin_check(struct ps_server *s, const struct lh_refold_order *m)
{
    struct ps_refold_check *o = new_order(s);
    if (!o) return; // the next answer asks again
    o->number = m->number;
    o->without = m->without;
    o->from = m->from;
    for (uint32_t i = 0; i < s->conf.shard_count; i++)
        o->to[i] =
            s->conf.shards[i] < m->n_to ? m->to[s->conf.shards[i]] : (uint64_t)PS_REPLAY_HEAD;
    o->busy = true;
    s->refold.check = o;
    s->conf.env->ops->work(s->conf.env, LH_LANE_COPY, check_job, check_done, o);
}

// ---------------------------------------------------------------- it goes

static LH_MUST lh_err store_stage(struct ps_server *s, uint64_t number, enum ps_refold_stage stage)
{
    char path[LH_PATH_BYTES];
    LH_TRY(lh_path(path, sizeof path, s->conf.dir, "refold"));
    LH_TRY(lh_numbers_store(s->conf.env, &STAGE, path, (uint64_t[]){number, stage}));
    s->refold.number = number;
    s->refold.stage = stage;
    return LH_OK;
}

static LH_MUST lh_err shard_path(const struct ps_server *s, uint32_t shard, char out[LH_PATH_BYTES])
{
    return lh_path(out, LH_PATH_BYTES, s->conf.dir, "refold-%04x", shard);
}

static LH_MUST lh_err store_order(struct ps_server *s, const struct ps_refold_check *o)
{
    char path[LH_PATH_BYTES];
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        const uint64_t order[] = {o->number, o->to[i], o->without, o->from};
        LH_TRY(shard_path(s, s->conf.shards[i], path));
        LH_TRY(lh_numbers_store(s->conf.env, &SHARD, path, order));
    }
    return store_stage(s, o->number, PS_REFOLD_TAKEN);
}

static void take(struct ps_server *s, const struct ps_refold_check *o)
{
    lh_err err = store_order(s, o);
    if (err == LH_ERR_DISK_FULL) return; // tried again with the next answer
    if (err) {
        ps_fatal(s, err);
        return;
    }
    lh_logf(s->conf.log, LH_WARN, "refold.taken",
            "an operator takes the shards back: the server starts again in place");
    if (!s->conf.again) {
        ps_fatal(s, lh_fail(LH_ERR_UNAVAILABLE, "start this server again: its start takes the "
                                                "shards back"));
        return;
    }
    ps_become(s, PS_STOPPED);
    s->conf.again(s->conf.fatal_arg);
}

void ps_refold_told(struct ps_server *s, const struct lh_refold_order *m)
{
    struct ps_refold *r = &s->refold;
    if (!m || !m->number || s->phase != PS_SERVING || m->number == r->number) return;
    if (r->check && r->check->number != m->number) {
        atomic_store(&r->check->stop, true);
        if (r->check->busy) return;
        free_order(r->check);
        r->check = NULL;
    }
    if (!r->check) begin_check(s, m);
    if (r->check && !r->check->busy && !r->check->err && m->goes) take(s, r->check);
}

bool ps_refold_report(const struct ps_server *s, struct lh_refold_state *out)
{
    const struct ps_refold *r = &s->refold;
    const struct ps_refold_check *o = r->check;
    *out = (struct lh_refold_state){0};
    if (o && o->busy) return false;
    bool over = r->stage == PS_REFOLD_DONE || r->stage == PS_REFOLD_FAILED;
    if (!o && !over) return false;
    bool refused = o ? o->err != LH_OK : r->stage == PS_REFOLD_FAILED;
    const char *why = o ? o->why : r->why[0] ? r->why : "its log says why (refold.failed)";
    out->number = o ? o->number : r->number;
    out->done = !o && !refused;
    out->refused = refused;
    out->gone = o && o->err == LH_ERR_NOT_FOUND;
    if (refused) out->why = why;
    out->left_out = o ? o->left_out : 0;
    return true;
}

void ps_refold_close(struct ps_server *s)
{
    if (s->refold.check) atomic_store(&s->refold.check->stop, true);
}

void ps_refold_free(struct ps_server *s)
{
    free_order(s->refold.check);
    s->refold.check = NULL;
}

// ---------------------------------------------------------------- a start: the new history

static LH_MUST lh_err load_order(struct ps_server *s, struct ps_refold_check **out)
{
    struct ps_refold_check *o = new_order(s);
    if (!o) return LH_ERR_NO_MEMORY;
    lh_err err = LH_OK;
    for (uint32_t i = 0; i < s->conf.shard_count && !err; i++) {
        char path[LH_PATH_BYTES];
        uint64_t order[4] = {0};
        err = shard_path(s, s->conf.shards[i], path);
        if (!err) err = lh_numbers_load(s->conf.env, &SHARD, path, order);
        if (!err && order[0] != s->refold.number)
            err = lh_fail(LH_ERR_NOT_FOUND, "%s is of another order", path);
        o->to[i] = order[1];
        o->without = order[2];
        o->from = order[3];
    }
    if (err) free_order(o);
    if (!err) *out = o;
    return err;
}

static LH_MUST lh_err new_path(const struct ps_server *s, char out[LH_PATH_BYTES])
{
    return lh_path(out, LH_PATH_BYTES, s->conf.dir, "taken-back");
}

// Writes a checkpoint of the folded state. *epoch: the highest one that was seen of the shard.
static LH_MUST lh_err build_shard(struct ps_server *s, const struct ps_refold_check *o, uint32_t i,
                                  const char *dir, uint64_t *epoch)
{
    uint32_t shard = s->conf.shards[i];
    struct lk_checkpoint_conf conf = ps_checkpoint_conf(s);
    struct lk_checkpoint c;
    struct ps_replay fold;
    uint64_t begun = 0, token;
    conf.dir = dir;
    LH_TRY(fold_shard(s, o, i, &fold));
    *epoch = fold.shard[shard].epoch;
    lh_err err = lk_checkpoint_take(&conf, &fold.shard[shard].replica, &c);
    if (!err) {
        err = lk_checkpoint_write(&c);
        lk_checkpoint_free(&c);
    }
    ps_replay_free(&fold);
    if (err) return err;
    err = ps_epoch_read(s->conf.env, s->conf.dir, shard, &begun, &token);
    if (begun > *epoch) *epoch = begun;
    return err == LH_ERR_NOT_FOUND ? LH_OK : err;
}

static LH_MUST lh_err build_all(struct ps_server *s, const struct ps_refold_check *o,
                                const char *dir, uint64_t *epoch)
{
    for (uint32_t i = 0; i < s->conf.shard_count; i++) LH_TRY(build_shard(s, o, i, dir, &epoch[i]));
    for (uint32_t i = 0; i < s->conf.shard_count; i++)
        LH_TRY(ps_epoch_write(s->conf.env, s->conf.dir, s->conf.shards[i], epoch[i] + 1, 0));
    return LH_OK;
}

static LH_MUST lh_err build(struct ps_server *s)
{
    const struct lh_files_ops *files = s->conf.env->ops->files;
    char dir[LH_PATH_BYTES];
    struct ps_refold_check *o;
    LH_TRY(new_path(s, dir));
    LH_TRY(files->make_dir(s->conf.env, dir));
    LH_TRY(ps_quarantine_empty(s, dir)); // a start that was killed in here left them
    LH_TRY(load_order(s, &o));
    uint64_t *epoch = calloc(s->conf.shard_count, sizeof *epoch);
    lh_err err = epoch ? build_all(s, o, dir, epoch) : LH_ERR_NO_MEMORY;
    free(epoch);
    free_order(o);
    return err;
}

// Nothing of the order is in force: the history stays, and the server says why.
static LH_MUST lh_err give_up(struct ps_server *s, lh_err err)
{
    char dir[LH_PATH_BYTES];
    snprintf(s->refold.why, sizeof s->refold.why, "%s", lh_err_text(err));
    lh_logf(s->conf.log, LH_ERROR, "refold.failed",
            "%s; the shards are not taken back, and keep their present history", s->refold.why);
    LH_TRY(new_path(s, dir));
    LH_TRY(ps_quarantine_empty(s, dir));
    return store_stage(s, s->refold.number, PS_REFOLD_FAILED);
}

static LH_MUST lh_err make_and_move(struct ps_server *s, const char *sub, const char *from)
{
    const struct lh_files_ops *files = s->conf.env->ops->files;
    char to[LH_PATH_BYTES];
    LH_TRY(lh_path(to, sizeof to, s->conf.dir, "before-%016" PRIx64 "/%s", s->refold.number, sub));
    LH_TRY(files->make_dir(s->conf.env, to));
    return ps_quarantine_move(s, from, to);
}

static LH_MUST lh_err clear(struct ps_server *s)
{
    LH_TRY(make_and_move(s, "log", s->wal_dir));
    LH_TRY(make_and_move(s, "checkpoints", s->checkpoint_dir));
    return store_stage(s, s->refold.number, PS_REFOLD_CLEARED);
}

static LH_MUST lh_err move_in(struct ps_server *s)
{
    char dir[LH_PATH_BYTES];
    LH_TRY(new_path(s, dir));
    LH_TRY(ps_quarantine_move(s, dir, s->checkpoint_dir));
    LH_TRY(store_stage(s, s->refold.number, PS_REFOLD_REWOUND));
    lh_logf(s->conf.log, LH_WARN, "refold.taken_back",
            "the shards have the history that an operator chose; the former one is kept in "
            "%s/before-%016" PRIx64,
            s->conf.dir, s->refold.number);
    return LH_OK;
}

static LH_MUST lh_err load_stage(struct ps_server *s)
{
    char path[LH_PATH_BYTES];
    uint64_t number[2];
    LH_TRY(lh_path(path, sizeof path, s->conf.dir, "refold"));
    lh_err err = lh_numbers_load(s->conf.env, &STAGE, path, number);
    if (err == LH_ERR_NOT_FOUND) return LH_OK;
    if (err == LH_ERR_CORRUPT) return lh_fail(LH_ERR_CONFIG, "%s", lh_err_text(err));
    if (err) return err;
    s->refold.number = number[0];
    s->refold.stage =
        number[1] <= PS_REFOLD_FAILED ? (enum ps_refold_stage)number[1] : PS_REFOLD_FAILED;
    return LH_OK;
}

lh_err ps_refold_start(struct ps_server *s)
{
    struct ps_refold *r = &s->refold;
    LH_TRY(load_stage(s));
    if (r->stage == PS_REFOLD_TAKEN) {
        lh_err err = build(s);
        if (err == LH_ERR_KILLED) return err;
        LH_TRY(err ? give_up(s, err) : store_stage(s, r->number, PS_REFOLD_BUILT));
    }
    if (r->stage == PS_REFOLD_BUILT) LH_TRY(clear(s));
    if (r->stage == PS_REFOLD_CLEARED) LH_TRY(move_in(s));
    s->log.rewound = r->stage == PS_REFOLD_REWOUND;
    return LH_OK;
}

lh_err ps_refold_done(struct ps_server *s)
{
    if (!s->log.rewound) return LH_OK;
    LH_TRY(store_stage(s, s->refold.number, PS_REFOLD_DONE));
    s->log.rewound = false;
    return LH_OK;
}
