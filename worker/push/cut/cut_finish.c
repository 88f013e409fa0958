// Cut, last stage: the committed push, or the failed one's progress, comes back to the loop. See
// cut.c.
#include <stdlib.h>
#include <string.h>

#include "worker/disk_full.h"
#include "worker/privacy/release.h"
#include "worker/push/cut/stages.h"
#include "worker/push/outcome.h"
#include "worker/push/view.h"

static void drop_first(struct wk_finished *f, uint32_t n)
{
    f->count -= n;
    memmove(f->unit, f->unit + n, f->count * sizeof *f->unit);
    memmove(f->steps, f->steps + n, f->count * sizeof *f->steps);
    memmove(f->grant, f->grant + n, f->count * sizeof *f->grant);
}

static void committed(struct wk_shard *s, struct wk_cut *c)
{
    wk_change_apply(&c->change);
    if (!s->worker->conf.beside) wk_view_committed(s);
    drop_first(&s->finished, c->head.claims - c->returned);
    s->progress.held_steps = c->at;
    s->progress.cut_count++;
    s->worker->count.rounds += s->id == 0;
    if (s->id == 0) s->worker->count.cut_tokens += c->tokens;
    c->entry->plain = c->plain; // Folding our own push need not unseal the frame.
    c->plain = (struct lh_buf){0};
    wk_outbox_insert(&s->outbox, c->entry);
    c->entry = NULL;
    if (!c->residual_square) return;
    free(s->progress.residual_square);
    s->progress.residual_square = c->residual_square;
    c->residual_square = NULL;
}

// Puts the progress of a failed cut back: the base did not change. A trainer beside the worker has
// the progress in its memory.
static void taken_back(struct wk_shard *s, const struct wk_cut *c)
{
    if (s->worker->conf.beside) return;
    s->progress.tokens += c->tokens;
    s->progress.steps += c->steps;
    uint32_t half = s->worker->local_steps / 2;
    if (s->progress.steps > half) s->progress.steps = half; // not due at once
}

static lh_err note_snapshot(struct wk_shard *s, const struct wk_cut *c)
{
    struct wk_worker *w = s->worker;
    if (c->snapshot_result == LH_ERR_DISK_FULL) {
        wk_disk_full_say(w, WK_DISK_FULL_SNAPSHOT, c->text);
        return LH_OK; // the older snapshot still counts
    }
    if (c->snapshot_result || !c->snapshot) return c->snapshot_result;
    wk_disk_full_over(w, WK_DISK_FULL_SNAPSHOT);
    s->slot.snapshot =
        (struct wk_snapshot_mark){.present = true,
                                  .incarnation = c->head.incarnation,
                                  .step = c->head.step,
                                  .decided = c->change.slot.decided,
                                  .decided_admitted = c->change.slot.decided_admitted};
    return LH_OK;
}

// Puts the progress back for a later cut; training continues.
static void found_no_room(struct wk_shard *s, const struct wk_cut *c)
{
    char text[512];
    snprintf(text, sizeof text, "shard %u: %s; training goes on, the push waits", s->id, c->text);
    taken_back(s, c);
    wk_disk_full_hold(s, text);
}

void wk_cut_took_whole(struct wk_shard *s)
{
    struct wk_worker *w = s->worker;
    uint64_t number = s->whole.number;
    s->whole.number = 0;
    w->beside.cuts++;
    wk_external_committed(w->external, s->id, number);
}

void wk_cut_drop_whole(struct wk_shard *s, lh_err err, const char *why)
{
    struct wk_external *x = s->worker->external;
    s->whole.number = 0;
    if (err == LH_ERR_NON_FINITE)
        wk_external_spoiled(x, s->id, why);
    else
        wk_external_drop(x, s->id, why);
}

lh_err wk_cut_finish(struct wk_shard *s, struct wk_cut *c)
{
    struct wk_worker *w = s->worker;
    if (c->result == LH_ERR_DISK_FULL) {
        found_no_room(s, c);
        return LH_OK;
    }
    if (c->result && c->trainers) {
        wk_cut_drop_whole(s, c->result, c->text);
        return LH_OK;
    }
    if (c->result) return c->result;
    committed(s, c);
    if (s->release.open) wk_release_committed(s, c->head.charged);
    if (c->again) LH_TRY(wk_entry_drop(s, c->again));
    s->disk.tries = 0;
    wk_disk_full_over(w, WK_DISK_FULL_OUTBOX);
    lh_logf(w->conf.log, LH_DEBUG, "push.made", "shard %u: %llx/%llu", s->id,
            (unsigned long long)c->head.incarnation.number, (unsigned long long)c->head.step);
    LH_TRY(note_snapshot(s, c));
    if (c->whole.number) wk_cut_took_whole(s);
    return LH_OK;
}
