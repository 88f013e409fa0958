// Group commit: decide the queued items, append, one sync, then fold, acknowledge and publish
// (DESIGN.md#section-5 steps 9-12; server/docs/0000-protocol.md#rule-2 to #rule-5).
//
// While one group is being made durable, arriving pushes queue up and form the next one, so the
// group grows with the load. Invariant: nothing is answered or published before its group's sync.
#include <stdio.h>
#include <stdlib.h>

#include "common/net/rpc.h"
#include "server/bugs.h"
#include "server/core.h"
#include "server/push/decide.h"
#include "server/push/follow.h"
#include "server/push/group_commit.h"
#include "server/push/head.h"
#include "server/push/insync.h"
#include "server/push/readers.h"
#include "server/push/receive.h"
#include "server/push/unseal.h"
#include "server/state/checkpointer.h"
#include "server/state/digest.h"
#include "server/state/disk_full.h"
#include "server/state/fold.h"

// ---------------------------------------------------------------- due

// The server's own records (a digest, a plan, the MOVE of every shard) are due when they must be
// written now, and stay due until they are durable (head.c).

static bool due_digest(const struct ps_shard *s)
{
    uint64_t every = s->server->conf.digest_every;
    if (s->replica.ledger.plan.phase == LH_PHASE_END) return false; // END is the last record
    bool due = every && s->replica.ledger.version >= s->digested + every;
    return !ps_shard_frozen(s) && (due || ps_digest_holds(s) || ps_disk_full_needs_record(s));
}

static bool due_plan(const struct ps_shard *s)
{
    return s->plan && s->plan->number > s->head->plan.number && !ps_shard_frozen(s);
}

static bool wished(const struct ps_shard *s)
{
    bool over = s->head->plan.phase == LH_PHASE_END; // END is the last record
    return s->wish.epoch > s->head->epoch && !s->head->move.epoch && !over;
}

// All shards move to one target, or none moves. The target is nearly caught up before the last
// records are written.
static bool due_move(const struct ps_server *s)
{
    bool any = false;
    for (uint32_t i = 0; i < s->conf.shard_count && s->phase == PS_SERVING; i++) {
        const struct ps_shard *shard = s->shard[i];
        if (shard->head->move.epoch) continue;
        if (!wished(shard) || !ps_follow_near(shard, shard->wish.target)) return false;
        any = true;
    }
    return any;
}

// ---------------------------------------------------------------- decide and append

static lh_err append(struct ps_item *i, uint16_t kind, struct lh_span body)
{
    struct lh_record *r = &i->record;
    r->kind = kind;
    r->body = body;
    lh_ledger_next(i->shard->head, r);
    lh_err refused;
    LH_TRY(ps_head_append(i, &refused));
    return refused; // our own record must follow; otherwise this is our bug
}

// The ledger's row is still the one before this push.
static void warn_of_outlier(struct ps_server *s, const struct ps_item *i)
{
    const struct lh_row *row = lh_ledger_row(i->shard->head, i->worker);
    uint32_t n = row ? row->norms.outliers + 1 : 1;
    lh_log_peer_traced(
        s->conf.log, LH_WARN, i->trace, "push.clipped",
        "shard %u, worker %016llx, step %llu: a norm of %g is far above other workers'; it "
        "is scaled down (%u in a row)",
        i->shard->id, (unsigned long long)i->worker, (unsigned long long)i->head.step,
        i->decision.norm, n);
    if (n < LH_OUTLIERS_MAX) return;
    lh_logf(s->conf.log, LH_WARN, "worker.set_aside",
            "shard %u, worker %016llx: %u pushes in a row were far above other workers'. Its "
            "pushes are refused from now on. If the worker is sound, let it back: longhaul admit",
            i->shard->id, (unsigned long long)i->worker, n);
}

// Not outliers: only one other worker to compare with, or only somewhat above the others.
static void warn_of_clipped(struct ps_server *s, const struct ps_item *i)
{
    lh_log_peer_traced(
        s->conf.log, LH_WARN, i->trace, "push.clipped",
        "shard %u, worker %016llx: %u pushes in a row were above the bound of norms; each is "
        "scaled down to it. An operator may expel the worker: longhaul expel",
        i->shard->id, (unsigned long long)i->worker, LH_OUTLIERS_MAX);
}

static lh_err unseal_and_decide(struct ps_server *s, struct ps_item *i)
{
    struct ps_shard *shard = i->shard;
    if (!i->unseal_tried) ps_unseal_now(i);
    lh_err err = i->unseal_result;
    if (err) err = lh_fail(err, "%s", i->text);
    bool ours = err == LH_ERR_NO_MEMORY;
    if (err && (!i->unsealed || ours) &&
        !LH_BUG("corrupt_burn")) { // corruption in transit is not final
        i->decision.verdict = PS_NOT_FINAL;
        i->decision.error = ours ? LH_ERR_BUSY : err;
        return LH_OK;
    }
    const struct lh_ledger *head = shard->head;
    ps_shard_size(shard);
    struct ps_gate gate = {
        .norm_gate = s->conf.norm_gate,
        .mean_tokens = head->admitted ? (double)head->tokens / (double)head->admitted : 0,
        .size = shard->size.norm,
        .reach = shard->size.reach,
    };
    struct ps_decision *d = &i->decision;
    ps_decide_value(shard, &gate, &i->head, err, &i->info, d);
    i->record.scale = d->scale;
    if (d->kind == LH_ADMIT) {
        i->record.reason = lh_record_norm_bits(&d->noted);
        shard->size.reach += ps_moved(&head->plan, (double)d->scale, d->norm);
        uint32_t clipped = ps_pace_clipped(shard, i->worker, d->noted.clipped);
        if (d->noted.outlier)
            warn_of_outlier(s, i);
        else if (clipped == LH_OUTLIERS_MAX)
            warn_of_clipped(s, i);
        return append(i, LH_ADMIT, lh_blob_span(i->frame));
    }
    i->record.reason = (uint32_t)d->error;
    lh_log_peer_traced(s->conf.log, LH_INFO, i->trace, "push.refused",
                       "shard %u, worker %016llx, step %llu: %s", shard->id,
                       (unsigned long long)i->worker, (unsigned long long)i->head.step,
                       lh_err_text(i->decision.error));
    if (LH_BUG("unlogged_reject")) return LH_OK;
    lh_frame_write_stub(lh_blob_span(i->frame), &i->head, &i->body);
    LH_TRY(lh_buf_err(&i->body));
    return append(i, LH_REFUSE, lh_buf_span(&i->body));
}

static void turn_away(struct ps_item *i, lh_err err)
{
    i->decision.verdict = PS_NOT_FINAL;
    i->decision.error = err;
    snprintf(i->text, sizeof i->text, "%s", lh_err_text(err));
}

static lh_err decide_fence(struct ps_server *s, struct ps_item *i)
{
    const struct lh_row *row = lh_ledger_row(i->shard->head, i->worker);
    if (row && row->incarnation.number >= i->incarnation.number)
        return LH_OK;                                             // an earlier hello raised it
    if (i->shard->head->plan.phase == LH_PHASE_END) return LH_OK; // END is the last record
    if (ps_shard_frozen(i->shard)) {
        turn_away(i,
                  lh_fail(LH_ERR_BUSY, "shard %u is being moved to another server", i->shard->id));
        return LH_OK;
    }
    if (!row && lh_plan_retires(&i->shard->head->plan, i->incarnation.number)) {
        turn_away(i, lh_fail(LH_ERR_FENCED,
                             "shard %u does not know this worker, and numbers up to %u belong to "
                             "retired names: start it on an empty directory",
                             i->shard->id, i->shard->head->plan.retired_up_to));
        lh_log_peer(s->conf.log, LH_WARN, "hello.refused", "worker %016llx: %s",
                    (unsigned long long)i->worker, i->text);
        return LH_OK;
    }
    if (!row && i->shard->head->rows == LH_WORKERS_MAX) {
        turn_away(i, lh_fail(LH_ERR_TOO_LARGE,
                             "shard %u has rows of %d workers, the maximum: retire names that will "
                             "not come back (longhaul retire REGION/NAME)",
                             i->shard->id, LH_WORKERS_MAX));
        lh_log_peer(s->conf.log, LH_WARN, "hello.refused", "worker %016llx: %s",
                    (unsigned long long)i->worker, i->text);
        return LH_OK;
    }
    lh_fence_write(i->worker, i->incarnation, &i->body);
    LH_TRY(lh_buf_err(&i->body));
    return append(i, LH_FENCE, lh_buf_span(&i->body));
}

// Builds one of the server's own records. Its source stays unchanged until the record is durable.
static lh_err decide_own(struct ps_item *i)
{
    struct ps_shard *shard = i->shard;
    uint16_t kind = LH_DIGEST_RECORD;
    if (i->kind == PS_ITEM_PLAN) {
        kind = LH_PLAN;
        lh_plan_write(shard->plan, &i->body);
    } else if (i->kind == PS_ITEM_MOVE) {
        kind = LH_MOVE;
        lh_move_write(&shard->wish, &i->body);
        if (LH_BUG("freeze_mem")) ps_bug_freeze(shard);
    } else {
        struct lh_hash digest = ps_digest_now(shard);
        lh_put(&i->body, digest.b, LH_HASH_BYTES);
    }
    LH_TRY(lh_buf_err(&i->body));
    return append(i, kind, lh_buf_span(&i->body));
}

// Appends a record from the shard's owner. A record that does not follow ends its stream.
static lh_err append_copy(struct ps_server *s, struct ps_item *i)
{
    lh_err refused = LH_ERR_CONFLICT;
    if (s->phase == PS_STANDBY) LH_TRY(ps_head_append(i, &refused));
    if (!refused) return LH_OK;
    i->decision.error = refused;
    i->done(i, PS_CONFLICT);
    return LH_OK;
}

static lh_err decide(struct ps_server *s, struct ps_item *i)
{
    if (i->kind == PS_ITEM_COPY) return append_copy(s, i);
    if (i->kind == PS_ITEM_FENCE) return decide_fence(s, i);
    if (i->kind != PS_ITEM_PUSH) return decide_own(i);
    ps_decide_step(i->shard, &i->head, &i->digest, &i->decision);
    return i->decision.verdict == PS_DECIDED_NOW ? unseal_and_decide(s, i) : LH_OK;
}

// ---------------------------------------------------------------- the group's end

static void note_staleness(struct ps_shard *shard, uint64_t staleness)
{
    size_t bins = LH_COUNT(shard->staleness_seen);
    shard->staleness_seen[staleness < bins ? staleness : bins - 1]++;
}

// Disk full: drops the group. Its pushes must be sent again.
static void take_back(struct ps_server *s)
{
    lh_err err = ps_head_take_back(s);
    if (err) {
        ps_fatal(s, err);
        return;
    }
    for (struct ps_item *i; (i = s->group);) {
        s->group = i->next;
        if (i->done) i->done(i, PS_TAKEN_BACK);
        ps_item_free(i);
    }
    s->group_end = &s->group;
    err = ps_disk_full_met(s);
    if (err) ps_fatal(s, err);
}

static struct lh_span payload_of(const struct ps_item *i)
{
    return i->payload ? lh_blob_span(i->payload) : (struct lh_span){0};
}

// Followers that wait for this record get its frame from memory, without reading the log.
static void keep_newest(struct ps_item *i)
{
    struct ps_shard *shard = i->shard;
    lh_blob_release(shard->newest.frame);
    shard->newest.frame = lh_blob_share(i->frame);
    shard->newest.version = i->record.version;
}

// Frees the plan once its record is durable.
static void forget_plan(struct ps_shard *shard)
{
    if (!shard->plan || shard->plan->number > shard->replica.ledger.plan.number) return;
    free(shard->plan);
    shard->plan = NULL;
}

static void finish_group(struct ps_server *s)
{
    ps_disk_full_committed(s);
    s->count.groups++;
    bool planned = false;
    for (struct ps_item *i = s->group; i; i = i->next) {
        if (!i->appended) continue;
        bool ours = i->kind == PS_ITEM_PUSH && i->record.kind == LH_ADMIT;
        if (ours) note_staleness(i->shard, i->decision.staleness);
        if (i->kind == PS_ITEM_PUSH) ps_pace_decided(i->shard, i->worker);
        lh_err err = ps_fold_record(i->shard, &i->record, payload_of(i),
                                    ps_wal_committed_place(s->wal, i->place));
        if (err) {
            ps_fatal(s, err);
            return;
        }
        planned |= i->record.kind == LH_PLAN;
        i->shard->replay_ns += i->unseal_ns;
        if (i->kind == PS_ITEM_PLAN) forget_plan(i->shard);
        ps_checkpointer_folded(i);
        if (ours) keep_newest(i);
    }
    LH_FAILPOINT("group.folded");
    ps_wal_group_done(s->wal);
    ps_head_committed(s);
    for (struct ps_item *i; (i = s->group);) {
        s->group = i->next;
        ps_insync_answer(i);
    }
    s->group_end = &s->group;
    LH_FAILPOINT("group.answered");
    if (planned) {
        ps_readers_expel(s);
        ps_receive_expel(s);
    }
    ps_raise(s, PS_DURABLE);
    for (uint32_t k = 0; k < s->conf.shard_count; k++) {
        ps_follow_publish(s->shard[k]);
        lh_blob_release(s->shard[k]->newest.frame);
        s->shard[k]->newest.frame = NULL;
        ps_checkpointer_start(s->shard[k]);
    }
}

static void on_mark(void *arg)
{
    struct ps_server *s = arg;
    s->mark_timer = 0;
    // While history is settled, the loop itself writes EPOCH to the log (recover.c): the disk lane
    // must be idle. If pushes arrive, a group follows, and a frame may be written ahead.
    bool settles = s->phase <= PS_SETTLING;
    if (settles || !s->wal || s->unsealing || s->received) {
        s->mark_timer = lh_after(s->conf.env, s->conf.mark_ns, on_mark, s);
        return;
    }
    if (!s->committing && !s->queue && ps_wal_mark(s->wal)) ps_raise(s, PS_WISHED);
}

static void on_retry(void *arg)
{
    struct ps_server *s = arg;
    s->retry_timer = 0;
    ps_raise(s, PS_WISHED);
}

static int64_t commit_job(void *arg)
{
    struct ps_server *s = arg;
    s->commit_result = ps_wal_commit(s->wal);
    if (s->commit_result == LH_ERR_DISK_FULL) s->commit_result = ps_disk_full_commit(s);
    return 0;
}

static void commit_done(void *arg)
{
    struct ps_server *s = arg;
    s->committing = false;
    if (s->phase == PS_STOPPED) return;
    ps_lasted(s, PS_SPAN_SYNC, s->slow.since_ns);
    lh_slow_end(&s->slow, lh_now(s->conf.env), s->conf.log, "a group of the log");
    lh_blob_release(s->ahead);
    s->ahead = NULL;
    if (s->commit_result == LH_ERR_DISK_FULL) {
        take_back(s);
        lh_cancel(s->conf.env, &s->retry_timer);
        s->retry_timer = lh_after(s->conf.env, LH_SECOND, on_retry, s);
        return;
    }
    if (s->commit_result) {
        ps_fatal(s, s->commit_result); // a failed sync is never tried again
        return;
    }
    lh_logf(s->conf.log, LH_DEBUG, "group.synced", "%llu bytes",
            (unsigned long long)ps_wal_group_bytes(s->wal));
    finish_group(s);
    if (s->phase == PS_STOPPED) return;
    lh_logf(s->conf.log, LH_DEBUG, "group.done", "folded and answered");
    lh_cancel(s->conf.env, &s->mark_timer);
    s->mark_timer = lh_after(s->conf.env, s->conf.mark_ns, on_mark, s);
    ps_raise(s, PS_WISHED);
}

// ---------------------------------------------------------------- the group's beginning

static lh_err add_to_group(struct ps_server *s, struct ps_item *i)
{
    i->next = NULL;
    *s->group_end = i;
    s->group_end = &i->next;
    return decide(s, i);
}

// The digest comes first: it covers the durable state, which is the state that a move hands over.
static lh_err add_own(struct ps_server *s, struct ps_shard *shard, bool moves)
{
    enum ps_item_kind kind[3] = {PS_ITEM_DIGEST, PS_ITEM_PLAN, PS_ITEM_MOVE};
    bool due[3] = {moves || due_digest(shard), !moves && due_plan(shard), moves};
    if (!moves && due[0]) due[0] = ps_digest_ready(shard, true);
    if (ps_digest_holds(shard)) return LH_OK;
    for (int k = 0; k < 3; k++) {
        if (!due[k]) continue;
        struct ps_item *i = ps_item_new(kind[k], shard);
        if (!i) return LH_ERR_NO_MEMORY;
        LH_TRY(add_to_group(s, i));
    }
    return LH_OK;
}

// The first item whose shard does not wait for a digest.
static struct ps_item *take_queued(struct ps_server *s)
{
    struct ps_item **at = &s->queue;
    while (*at && ps_digest_holds((*at)->shard)) at = &(*at)->next;
    struct ps_item *i = *at;
    if (!i) return NULL;
    *at = i->next;
    if (!*at) s->queue_end = at;
    return i;
}

static lh_err build_group(struct ps_server *s)
{
    bool moves = due_move(s);
    if (moves && !ps_digest_all_ready(s)) return LH_OK; // their completion calls again
    uint64_t most = LH_GROUP_BYTES, checkpoint = 0;
    s->disk_full.small_reserve = ps_disk_full_reserve(s);
    for (uint32_t k = 0; k < s->conf.shard_count; k++)
        s->shard[k]->pace.now_ns = lh_now(s->conf.env);
    for (uint32_t k = 0; k < s->conf.shard_count && s->phase == PS_SERVING; k++) {
        bool needed = due_digest(s->shard[k]) && ps_disk_full_needs_record(s->shard[k]);
        LH_TRY(add_own(s, s->shard[k], moves && !s->shard[k]->head->move.epoch));
        if (!needed || !ps_wal_group_bytes(s->wal)) continue;
        // The disk has space for that record, and the checkpoint that it makes due, only.
        uint64_t bytes = ps_checkpointer_bytes(s->shard[k]);
        if (bytes > checkpoint) checkpoint = bytes;
        s->disk_full.small_reserve = checkpoint;
        most = 0;
    }
    for (struct ps_item *i; ps_wal_group_bytes(s->wal) < most && (i = take_queued(s));)
        LH_TRY(add_to_group(s, i));
    return LH_OK;
}

static bool due(const struct ps_server *s)
{
    bool any = s->queue || ps_wal_group_bytes(s->wal) || due_move(s);
    for (uint32_t k = 0; k < s->conf.shard_count && !any && s->phase == PS_SERVING; k++)
        any = due_digest(s->shard[k]) || due_plan(s->shard[k]);
    return any;
}

void ps_group_commit_run(struct ps_server *s)
{
    // no log yet: the disk had no space for a new one (recover.c)
    if (s->committing || s->phase == PS_STOPPED || !s->wal || !due(s)) return;
    int64_t start = lh_now(s->conf.env);
    lh_err err = build_group(s);
    ps_took(s, PS_LOOP_DECIDE, start);
    if (err) {
        ps_fatal(s, err);
        return;
    }
    if (LH_BUG("ack_before_sync")) ps_bug_answer_early(s);
    if (!ps_wal_group_bytes(s->wal)) { // nothing new: repeated pushes or hellos
        for (struct ps_item *i; (i = s->group);) {
            s->group = i->next;
            ps_insync_answer(i);
        }
        s->group_end = &s->group;
        return;
    }
    s->committing = true;
    lh_slow_begin(&s->slow, lh_now(s->conf.env));
    ps_disk_full_before_commit(s);
    lh_logf(s->conf.log, LH_DEBUG, "group.made", "%llu bytes",
            (unsigned long long)ps_wal_group_bytes(s->wal));
    s->conf.env->ops->work(s->conf.env, LH_LANE_DISK, commit_job, commit_done, s);
}

bool ps_at_rest(const struct ps_server *s)
{
    // A mark is in no list. If there is no log (disk full), queued items wait for one.
    bool rest = !s->committing && (!s->queue || !s->wal) && !s->group;
    if (s->wal) rest &= !ps_wal_group_bytes(s->wal);
    for (uint32_t i = 0; i < s->conf.shard_count; i++)
        rest &= !s->shard[i]->checkpointer && !ps_digest_busy(s->shard[i]);
    return rest;
}
