// Checkpointer: writes checkpoints of the fold state and trims the log below the older one
// (DESIGN.md#section-8).
//
// The loop copies the state in slices and folds records between them; the copy lane writes the
// copy. A record folded meanwhile is also folded into the copied part, on the copy lane: on the
// loop that would double the time of a fold. The copy lane touches the copy's memory first, because
// clearing new pages takes ten times as long as copying them. There are two kinds: the full state,
// from which a server starts, and weights only, more often, for readers; a full checkpoint serves
// readers as well. A full disk makes a full checkpoint due: it lets the log be trimmed, which frees
// space. Even then two checkpoints are kept, and the log from the older one on.
#include <stdlib.h>

#include "kernels/storage/checkpoint_read.h"
#include "server/core.h"
#include "server/push/item.h"
#include "server/push/push_memory.h"
#include "server/state/checkpointer.h"
#include "server/wal/quarantine.h"

// A few milliseconds of the loop.
enum { SLICE_BYTES = 8 << 20 };
// Time between two checkpoints that fail on a full disk.
static const int64_t ROOM_AGAIN = 30 * LH_SECOND;

// A record folded while the state is copied; the copy lane folds it into the copy. Its payload,
// with its push memory, is held until then.
struct late {
    struct late *next;
    struct ps_checkpointer *checkpointer;
    struct lk_checkpoint_late what;
    struct lh_blob *plain; // NULL: a plan has no payload
    uint64_t reserved;
};

struct ps_checkpointer {
    struct ps_shard *shard;
    struct lk_checkpoint checkpoint;
    struct late *late; // records on the lane; the ones left after a stop are freed with this
    bool touching;     // the lane is touching the copy's memory
    bool given_up;     // freed once no lane uses it
    uint64_t timer;    // timer of the next slice; 0: none
    int64_t replay_ns; // the shard's replay_ns at the start
    int64_t begun_ns;  // start time
    int64_t whole_ns;  // the shard's replay_ns when the copy was whole: the covered part
    lh_err result;
};

static lh_err prune(struct ps_server *s, uint32_t shard, bool weights, uint64_t *oldest)
{
    struct lk_checkpoint_conf conf = ps_checkpoint_conf(s);
    unsigned keep = weights ? s->conf.weights_keep : s->conf.checkpoint_keep;
    return lk_checkpoint_prune(&conf, shard, weights, keep, oldest);
}

// All slow work is here: writing the copy, freeing its memory, removing older checkpoints.
static int64_t write_job(void *arg)
{
    struct ps_checkpointer *k = arg;
    uint64_t oldest;
    LH_FAILPOINT("checkpoint.write");
    k->result = lk_checkpoint_write(&k->checkpoint);
    lk_checkpoint_free(&k->checkpoint);
    if (k->result) return 0;
    LH_FAILPOINT("checkpoint.written");
    k->result = prune(k->shard->server, k->shard->id, k->checkpoint.weights, &oldest);
    return 0;
}

// The log segments that hold only versions below every shard's older checkpoint.
static lh_err release(struct ps_server *s, struct ps_segments *out)
{
    uint64_t needed = UINT64_MAX;
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        struct ps_shard *shard = s->shard[i];
        uint64_t oldest;
        LH_TRY(prune(s, shard->id, false, &oldest));
        // the first version present: a log may begin above its oldest checkpoint (recover.c)
        const struct ps_place *place = ps_shard_place_from(shard, oldest + 1);
        shard->kept = oldest > 0;
        shard->held_from = place ? place->segment : oldest ? UINT64_MAX : 0;
        if (shard->held_from < needed) needed = shard->held_from;
    }
    if (needed > ps_wal_segment(s->wal)) needed = ps_wal_segment(s->wal);
    *out = ps_wal_release(s->wal, needed);
    for (uint32_t i = 0; i < s->conf.shard_count; i++) ps_shard_forget_before(s->shard[i], needed);
    return LH_OK;
}

lh_err ps_checkpointer_trim(struct ps_server *s)
{
    struct ps_segments gone;
    LH_TRY(release(s, &gone));
    return ps_wal_remove(s->wal, gone);
}

static int64_t remove_job(void *arg)
{
    struct ps_server *s = arg;
    s->trim.result = ps_wal_remove(s->wal, s->trim.segments);
    if (!s->trim.result) LH_FAILPOINT("checkpoint.trimmed");
    return 0;
}

static void remove_done(void *arg)
{
    struct ps_server *s = arg;
    s->trim.busy = false;
    if (s->trim.result && s->phase != PS_STOPPED) ps_fatal(s, s->trim.result);
}

static lh_err written(struct ps_server *s, const struct ps_checkpointer *k)
{
    const struct lk_checkpoint *c = &k->checkpoint;
    struct ps_shard *shard = k->shard;
    *(c->weights ? &shard->weighed : &shard->checkpointed) = c->version;
    if (!c->weights) shard->replay_ns -= k->whole_ns;
    if (!c->weights) shard->unwritten = false;
    lh_logf(s->conf.log, c->weights ? LH_DEBUG : LH_INFO,
            c->weights ? "checkpoint.weights" : "checkpoint.written", "shard %u version %llu",
            shard->id, (unsigned long long)c->version);
    shard->alone &= c->weights;
    if (!c->weights) shard->disk_retry_at_ns = 0; // space again: no wait
    if (c->weights || s->trim.busy) return LH_OK; // the next one trims as well
    LH_TRY(release(s, &s->trim.segments));
    s->trim.busy = true;
    s->conf.env->ops->work(s->conf.env, LH_LANE_COPY, remove_job, remove_done, s);
    return LH_OK;
}

// Removes all but the newest weights checkpoint: only readers need it.
static LH_MUST lh_err drop_weights(struct ps_shard *shard, bool *dropped)
{
    struct lk_checkpoint_conf conf = ps_checkpoint_conf(shard->server);
    uint64_t *version, oldest;
    size_t count;
    LH_TRY(lk_checkpoint_versions(&conf, shard->id, true, &version, &count));
    free(version);
    *dropped = count > 1;
    return *dropped ? lk_checkpoint_prune(&conf, shard->id, true, 1, &oldest) : LH_OK;
}

// Looks again even if no record is folded meanwhile.
static void on_retry(void *arg)
{
    struct ps_server *s = arg;
    s->checkpoint_timer = 0;
    for (uint32_t i = 0; i < s->conf.shard_count; i++) ps_checkpointer_start(s->shard[i]);
}

// The disk was too full for a checkpoint: makes space for the next full one.
static LH_MUST lh_err unwritten(struct ps_shard *shard, bool weights)
{
    struct ps_server *s = shard->server;
    bool dropped = false;
    lh_logf(s->conf.log, LH_ERROR, "checkpoint.disk_full",
            "shard %u: no space in %s; the log can't be trimmed until there is: free some; trying "
            "again every %lld s",
            shard->id, s->conf.dir, (long long)(ROOM_AGAIN / LH_SECOND));
    if (weights) return LH_OK;
    shard->unwritten = true;
    LH_TRY(ps_quarantine_remove(s, &dropped));
    if (!dropped) LH_TRY(drop_weights(shard, &dropped));
    shard->disk_retry_at_ns = dropped ? 0 : lh_now(s->conf.env) + ROOM_AGAIN;
    if (dropped) return LH_OK;
    lh_cancel(s->conf.env, &s->checkpoint_timer);
    s->checkpoint_timer = lh_after(s->conf.env, ROOM_AGAIN, on_retry, s);
    return LH_OK;
}

// The shards take turns, or one that is always due would keep the others waiting for ever.
static void next_in_turn(const struct ps_shard *last)
{
    struct ps_server *s = last->server;
    uint32_t at = 0;
    while (s->shard[at] != last) at++;
    for (uint32_t i = 1; i < s->conf.shard_count; i++)
        ps_checkpointer_start(s->shard[(at + i) % s->conf.shard_count]);
}

static void write_done(void *arg)
{
    struct ps_checkpointer *k = arg;
    struct ps_shard *shard = k->shard;
    struct ps_server *s = shard->server;
    shard->checkpointer = NULL;
    lh_err err = k->result;
    if (!k->checkpoint.weights) shard->meanwhile_ns = shard->replay_ns - k->replay_ns;
    if (!err && s->phase != PS_STOPPED) err = written(s, k);
    if (!err) ps_lasted(s, PS_SPAN_CHECKPOINT, k->begun_ns);
    if (err == LH_ERR_DISK_FULL && s->phase != PS_STOPPED)
        err = unwritten(shard, k->checkpoint.weights);
    if (err && s->phase != PS_STOPPED) ps_fatal(s, err);
    ps_checkpointer_free(k);
    next_in_turn(shard);
    ps_checkpointer_start(shard);
}

static void late_free(struct late *l)
{
    struct late **at = &l->checkpointer->late;
    while (*at != l) at = &(*at)->next;
    *at = l->next;
    lh_blob_release(l->plain);
    free(l);
}

void ps_checkpointer_free(struct ps_checkpointer *k)
{
    if (!k) return;
    lh_cancel(k->shard->server->conf.env, &k->timer);
    while (k->late) late_free(k->late);
    lk_checkpoint_free(&k->checkpoint);
    free(k);
}

// No memory for the copy now. The other shards have their turns; the next folded record tries
// again.
static void give_up(struct ps_shard *shard)
{
    struct ps_checkpointer *k = shard->checkpointer;
    k->given_up = true;
    lh_cancel(shard->server->conf.env, &k->timer);
    if (k->late || k->touching) return; // their completion calls this again
    shard->checkpointer = NULL;
    ps_checkpointer_free(k);
    next_in_turn(shard);
}

static void slice(void *arg)
{
    struct ps_checkpointer *k = arg;
    struct ps_shard *shard = k->shard;
    struct ps_server *s = shard->server;
    struct lk_checkpoint *c = &k->checkpoint;
    int64_t start = lh_now(s->conf.env);
    uint64_t bytes = s->conf.checkpoint_slice_bytes ? s->conf.checkpoint_slice_bytes : SLICE_BYTES;
    k->timer = 0;
    if (s->phase == PS_STOPPED) return; // freed with the shard
    if (!c->whole && ps_checkpointer_due(shard))
        c->weights = false; // a full checkpoint became due meanwhile
    if (lk_checkpoint_copy(c, &shard->replica, bytes)) {
        give_up(shard);
        return;
    }
    ps_took(s, PS_LOOP_COPY, start);
    if (!c->whole) {
        k->timer = lh_after(s->conf.env, 0, slice, k);
        return;
    }
    k->whole_ns = shard->replay_ns;
    s->conf.env->ops->work(s->conf.env, LH_LANE_COPY, write_job, write_done, k);
}

static int64_t touch_job(void *arg)
{
    lk_checkpoint_touch(&((struct ps_checkpointer *)arg)->checkpoint);
    return 0;
}

static void touch_done(void *arg)
{
    struct ps_checkpointer *k = arg;
    k->touching = false;
    if (k->given_up)
        give_up(k->shard);
    else
        slice(k);
}

static bool copying(const struct ps_shard *shard)
{
    const struct ps_checkpointer *k = shard->checkpointer;
    return k && !k->given_up && !k->checkpoint.whole;
}

static int64_t late_job(void *arg)
{
    struct late *l = arg;
    struct lh_span plain = l->plain ? lh_blob_span(l->plain) : (struct lh_span){0};
    lk_checkpoint_repeat(&l->checkpointer->checkpoint, &l->what, plain);
    return 0;
}

static void late_done(void *arg)
{
    struct late *l = arg;
    struct ps_checkpointer *k = l->checkpointer;
    struct ps_shard *shard = k->shard;
    uint64_t reserved = l->reserved;
    late_free(l);
    ps_push_memory_give_payload(shard->server, reserved);
    if (k->given_up) give_up(shard);
}

// The item's payload; for a standby's record, the payload that the fold has just unsealed.
static struct lh_blob *hold_payload(struct ps_item *i)
{
    if (i->payload) return lh_blob_share(i->payload);
    return lh_blob_copy(lh_buf_span(&i->shard->replica.plain));
}

static lh_err fold_late(struct ps_checkpointer *k, struct ps_item *i,
                        const struct lk_checkpoint_late *what)
{
    struct late *l = calloc(1, sizeof *l);
    if (!l) return LH_ERR_NO_MEMORY;
    *l = (struct late){.next = k->late, .checkpointer = k, .what = *what};
    bool pushed = i->record.kind == LH_ADMIT;
    if (pushed) l->plain = hold_payload(i);
    k->late = l;
    if (pushed && !l->plain) {
        late_free(l);
        return LH_ERR_NO_MEMORY;
    }
    l->reserved = i->payload_reserved;
    i->payload_reserved = 0;
    struct lh_env *env = i->shard->server->conf.env;
    env->ops->work(env, LH_LANE_COPY, late_job, late_done, l);
    return LH_OK;
}

void ps_checkpointer_folded(struct ps_item *i)
{
    struct ps_shard *shard = i->shard;
    struct lk_checkpoint_late what;
    bool changes = i->record.kind == LH_ADMIT || i->record.kind == LH_PLAN;
    if (!changes || !copying(shard)) return;
    lh_err err =
        lk_checkpoint_folded(&shard->checkpointer->checkpoint, &shard->replica, &i->record, &what);
    if (!err && what.below) err = fold_late(shard->checkpointer, i, &what);
    if (err) give_up(shard);
}

// A start before the new checkpoint is complete also replays the records folded meanwhile, so the
// checkpoint begins earlier by that margin: half of the limit at most, or checkpoints would follow
// each other without end. `later_ns`: replay time expected to be added.
static bool replay_due(const struct ps_shard *shard, int64_t later_ns)
{
    int64_t most = shard->server->conf.replay_ns, margin = shard->meanwhile_ns;
    if (margin > most / 2) margin = most / 2;
    return most && shard->replay_ns + later_ns >= most - margin;
}

// Would a full checkpoint become due while a weights one is made, and have to wait for it?
static bool soon_due(const struct ps_server *s)
{
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        int64_t most = s->conf.replay_ns / 4, meanwhile = s->shard[i]->meanwhile_ns;
        if (replay_due(s->shard[i], meanwhile < most ? meanwhile : most)) return true;
    }
    return false;
}

bool ps_checkpointer_due(const struct ps_shard *shard)
{
    const struct ps_conf *conf = &shard->server->conf;
    const struct lh_ledger *l = &shard->replica.ledger;
    bool newer = l->version > shard->checkpointed;
    if (shard->server->disk_full.now && (newer || shard->unwritten) && !LH_BUG("no_relief"))
        return lh_now(conf->env) >= shard->disk_retry_at_ns;
    if (shard->unwritten && lh_now(conf->env) < shard->disk_retry_at_ns) return false;
    if (!newer) return false;
    if (l->plan.phase == LH_PHASE_END || shard->alone) return true;
    if (replay_due(shard, 0)) return true;
    return conf->checkpoint_every && l->version >= shard->checkpointed + conf->checkpoint_every;
}

// Not if it would delay a full checkpoint, which serves readers as well.
bool ps_checkpointer_weights_due(const struct ps_shard *shard)
{
    uint64_t every = shard->server->conf.weights_every;
    uint64_t read = shard->weighed > shard->checkpointed ? shard->weighed : shard->checkpointed;
    if (shard->server->disk_full.now) return false; // it would take space and free none
    return every && shard->replica.ledger.version >= read + every && !soon_due(shard->server);
}

uint64_t ps_checkpointer_bytes(const struct ps_shard *shard)
{
    const struct lk_replica *r = &shard->replica;
    uint64_t values = r->layout->values * (r->outer.kind == LH_OPT_SGD ? 1 : 3);
    uint64_t bytes = values * sizeof(float) + 1024 + 256u * r->ledger.rows;
    return bytes + bytes / 256;
}

bool ps_checkpointer_busy(const struct ps_server *s)
{
    for (uint32_t i = 0; i < s->conf.shard_count; i++)
        if (s->shard[i]->checkpointer) return true;
    return false;
}

void ps_checkpointer_start(struct ps_shard *shard)
{
    struct ps_server *s = shard->server;
    bool full = ps_checkpointer_due(shard);
    if (s->phase == PS_STOPPED || !(full || ps_checkpointer_weights_due(shard))) return;
    // A standby that takes over, or takes a snapshot, waits for the one under way, not for more.
    if ((s->standby.taking || s->standby.rests) && !s->disk_full.now) return;
    if (ps_checkpointer_busy(s)) return; // one copy at a time; the others come in turn
    struct ps_checkpointer *k = calloc(1, sizeof *k);
    if (!k) return;
    k->shard = shard;
    k->replay_ns = shard->replay_ns;
    k->begun_ns = lh_now(s->conf.env);
    struct lk_checkpoint_conf conf = ps_checkpoint_conf(s);
    if (lk_checkpoint_begin(&conf, &shard->replica, &k->checkpoint)) {
        free(k);
        return;
    }
    k->checkpoint.weights = !full;
    shard->checkpointer = k;
    lh_logf(s->conf.log, LH_DEBUG, "checkpoint.begun", "shard %u version %llu, replay %lld ms",
            shard->id, (unsigned long long)shard->replica.ledger.version,
            (long long)(shard->replay_ns / LH_MS));
    lh_pool_trim(s->push_memory.pool);
    k->touching = true;
    s->conf.env->ops->work(s->conf.env, LH_LANE_COPY, touch_job, touch_done, k);
}
