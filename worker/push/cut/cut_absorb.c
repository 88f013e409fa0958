// Adds an external trainer's progress to the residual without a push. See cut.h.
#include <math.h>
#include <stdio.h>

#include "worker/disk_full.h"
#include "worker/push/cut/stages.h"

static lh_err absorb(struct wk_shard *s, struct wk_change *change)
{
    struct wk_slot *slot = &change->slot;
    if (!s->release.open) slot->tokens += s->whole.tokens;
    slot->position_count = 0;
    wk_cut_fill_positions(s, 0, s->whole.at, slot);
    wk_cut_name(slot, &s->whole);
    change->moves = true;
    return wk_commit(change);
}

// A residual must be finite, because later cuts begin with it.
static lh_err check_finite(const struct wk_shard *s, const float *values)
{
    for (uint64_t i = 0; i < s->layout->values; i++)
        if (!isfinite(values[i])) return wk_cut_name_spoiled(s, values);
    return LH_OK;
}

lh_err wk_cut_absorb(struct wk_shard *s)
{
    struct wk_worker *w = s->worker;
    const struct wk_observer *o = w->conf.observer;
    struct wk_change change;
    bool wrong;
    lh_err err = wk_residual_store(s);
    if (err == LH_ERR_DISK_FULL) {
        wk_disk_full_hold(s, lh_err_text(err));
        return LH_OK;
    }
    if (err) return err;
    err = wk_cut_read_delta(s, &s->whole, 1, &wrong);
    if (!err) err = check_finite(s, s->slot.residual);
    if (err) {
        char why[256];
        snprintf(why, sizeof why, "%s", lh_err_text(err));
        LH_TRY(wk_residual_undo(s));
        wk_cut_drop_whole(s, err, why);
        return LH_OK;
    }
    LH_TRY(wk_change_begin(s, &change));
    err = absorb(s, &change);
    wk_change_free(&change);
    if (err == LH_ERR_DISK_FULL) {
        wk_disk_full_hold(s, lh_err_text(err));
        return wk_residual_undo(s);
    }
    if (err) return err;
    if (o && o->cut) o->cut(o->arg, s->id, w->incarnation, s->slot.committed->next);
    s->progress.held_steps = s->whole.at;
    if (s->id == 0) w->count.cut_tokens += s->whole.tokens;
    w->beside.absorbed++;
    wk_cut_took_whole(s);
    return LH_OK;
}
