// Holds the committed state in memory. See commit.h.
//
// Invariants: 1. `committed` and `residual` equal the newest slot file, or follow from it and from
// DIR/identity; while `moved`, that file alone has the committed residual. 2. Only a written change
// (wk_change_apply asserts it), a start, and the three exceptions in commit.h assign them. 3. A
// shard has one change at a time, because it has one residual in memory.
#include "worker/push/commit.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/env/numbers.h"
#include "worker/worker.h"

static const struct lh_numbers IDENTITY = {
    .magic = 0x4449484c, // "LHID"
    .version = 1,
    .count = 2,
    .remedy = "remove its directory to join anew (unpushed progress is lost)"};

// ---------------------------------------------------------------- memory

struct wk_committed { // the targets of the shard's pointers to const
    struct wk_slot slot;
    float *residual;
};

static lh_err lists_open(struct wk_slot *slot)
{
    slot->claim = calloc(WK_CLAIMS_HELD_MAX, sizeof *slot->claim);
    slot->position = calloc(WK_POSITIONS_MAX, sizeof *slot->position);
    if (slot->claim && slot->position) return LH_OK;
    wk_slot_free(slot);
    return LH_ERR_NO_MEMORY;
}

// Copies into the lists of `to`, which have capacity for any slot's entries.
static void copy_slot(struct wk_slot *to, const struct wk_slot *from)
{
    struct wk_claim *claim = to->claim;
    struct wk_position *position = to->position;
    *to = *from;
    to->claim = claim;
    to->position = position;
    if (from->claim_count) memcpy(claim, from->claim, from->claim_count * sizeof *claim);
    if (from->position_count)
        memcpy(position, from->position, from->position_count * sizeof *position);
}

lh_err wk_committed_open(struct wk_shard *s)
{
    struct wk_committed *m = calloc(1, sizeof *m);
    if (!m) return LH_ERR_NO_MEMORY;
    s->slot.writer = m;
    LH_TRY(lists_open(&m->slot));
    m->slot.next = 1;
    m->residual = lh_zeros(s->layout->values, sizeof(float));
    if (!m->residual) return LH_ERR_NO_MEMORY;
    s->slot.committed = &m->slot;
    s->slot.residual = m->residual;
    return LH_OK;
}

void wk_committed_close(struct wk_shard *s)
{
    if (s->slot.writer) {
        wk_slot_free(&s->slot.writer->slot);
        free(s->slot.writer->residual);
    }
    free(s->slot.writer);
    s->slot.writer = NULL;
}

float *wk_residual_next(struct wk_shard *s)
{
    s->slot.moved = true;
    return s->slot.writer->residual;
}

lh_err wk_residual_undo(struct wk_shard *s)
{
    if (!s->slot.moved) return LH_OK;
    LH_ASSERT(s->slot.stored);
    LH_TRY(wk_slot_residual(&s->slot.files, s->slot.writer->residual));
    s->slot.moved = false;
    return LH_OK;
}

lh_err wk_residual_store(struct wk_shard *s)
{
    return s->slot.stored ? LH_OK : wk_committed_write(s, false);
}

static void residual_moved(struct wk_shard *s)
{
    s->slot.moved = false;
    s->slot.residual_number++;
}

void wk_committed_resume(struct wk_shard *s, const struct wk_slot *slot, bool stored)
{
    copy_slot(&s->slot.writer->slot, slot);
    s->slot.stored = stored;
    residual_moved(s);
}

void wk_committed_hear(struct wk_shard *s, uint64_t step)
{
    struct wk_slot *slot = &s->slot.writer->slot;
    if (step <= slot->decided) return;
    slot->decided = step;
    slot->decided_admitted = true;
}

// ---------------------------------------------------------------- changes

lh_err wk_change_begin(struct wk_shard *s, struct wk_change *c)
{
    *c = (struct wk_change){.shard = s};
    LH_TRY(lists_open(&c->slot));
    copy_slot(&c->slot, s->slot.committed);
    c->slot.incarnation = s->worker->incarnation;
    c->slot.decided_epoch = s->history.decided_epoch;
    return LH_OK;
}

lh_err wk_change_write(struct wk_change *c)
{
    struct wk_shard *s = c->shard;
    LH_ASSERT(c->moves || !s->slot.moved || LH_BUG("base_delta"));
    LH_TRY(wk_slot_flip(&s->slot.files, &c->slot, s->slot.residual, false));
    c->written = true;
    return LH_OK;
}

void wk_change_apply(struct wk_change *c)
{
    struct wk_shard *s = c->shard;
    const struct wk_slot was = s->slot.writer->slot;
    LH_ASSERT(c->written);
    copy_slot(&s->slot.writer->slot, &c->slot);
    bool same = lh_incarnation_equal(was.incarnation, c->slot.incarnation);
    if (same && was.decided_admitted)
        wk_committed_hear(s, was.decided); // heard after the change was begun
    if (c->moves) residual_moved(s);
    c->moves = c->written = false;
}

void wk_change_free(struct wk_change *c)
{
    wk_slot_free(&c->slot);
}

lh_err wk_commit(struct wk_change *c)
{
    LH_ASSERT(!c->shard->cut || LH_BUG("base_delta")); // a cut owns slot and residual
    LH_TRY(wk_change_write(c));
    wk_change_apply(c);
    return LH_OK;
}

lh_err wk_change_snapshot(const struct wk_change *c)
{
    struct wk_shard *s = c->shard;
    struct wk_slot slot = c->slot;
    slot.claim_count = slot.position_count = 0;
    return wk_snapshot_write(&s->slot.files, &slot, s->slot.residual);
}

lh_err wk_committed_write(struct wk_shard *s, bool sync)
{
    struct wk_slot slot = *s->slot.committed; // borrows its lists
    LH_ASSERT(!s->cut);
    LH_TRY(wk_residual_undo(s));
    slot.decided_epoch = s->history.decided_epoch;
    LH_TRY(wk_slot_flip(&s->slot.files, &slot, s->slot.residual, sync));
    s->slot.stored = true;
    return LH_OK;
}

lh_err wk_committed_begin(struct wk_shard *s, struct lh_incarnation i)
{
    struct wk_slot first = *s->slot.committed; // borrows its lists
    first.incarnation = i;
    LH_TRY(wk_slot_flip(&s->slot.files, &first, NULL, true));
    s->slot.stored = true;
    return LH_OK;
}

// ---------------------------------------------------------------- the incarnation

static lh_err identity_store(const struct wk_worker *w, struct lh_incarnation i)
{
    char path[LH_PATH_BYTES];
    LH_TRY(lh_path(path, sizeof path, w->conf.dir, "identity"));
    return lh_numbers_store(w->conf.env, &IDENTITY, path, (uint64_t[]){i.number, i.random});
}

lh_err wk_incarnation_load(struct wk_worker *w)
{
    char path[LH_PATH_BYTES];
    uint64_t number[2];
    LH_TRY(lh_path(path, sizeof path, w->conf.dir, "identity"));
    lh_err err = lh_numbers_load(w->conf.env, &IDENTITY, path, number);
    w->fresh = err == LH_ERR_NOT_FOUND;
    if (!err) w->incarnation = (struct lh_incarnation){number[0], number[1]};
    return w->fresh ? LH_OK : err;
}

static void begin_anew(struct wk_shard *s, struct lh_incarnation i)
{
    struct wk_slot *slot = &s->slot.writer->slot;
    slot->incarnation = i;
    slot->next = 1;
    slot->decided = 0;
    slot->decided_admitted = false;
}

lh_err wk_incarnation_grant(struct wk_worker *w, uint32_t granted)
{
    struct lh_incarnation i = {(uint64_t)granted << 32, lh_random_u64(w->conf.env)};
    LH_TRY(identity_store(w, i));
    for (uint32_t k = 0; k < w->shards; k++) LH_TRY(wk_committed_begin(&w->shard[k], i));
    w->incarnation = i;
    w->fresh = false;
    for (uint32_t k = 0; k < w->shards; k++) begin_anew(&w->shard[k], i);
    return LH_OK;
}

lh_err wk_incarnation_raise(struct wk_worker *w, uint64_t above)
{
    uint64_t number = w->incarnation.number > above ? w->incarnation.number : above;
    struct lh_incarnation i = {number + 1, lh_random_u64(w->conf.env)};
    LH_TRY(identity_store(w, i)); // the commit: a start resumes this incarnation from here
    w->incarnation = i;
    for (uint32_t k = 0; k < w->shards; k++) begin_anew(&w->shard[k], i);
    for (uint32_t k = 0; k < w->shards; k++) {
        lh_err err = wk_committed_write(&w->shard[k], false);
        if (err && err != LH_ERR_DISK_FULL) return err;
    }
    return LH_OK;
}
