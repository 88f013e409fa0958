// Planted bugs of a worker's pushes; see worker/bugs.h. The conditions that trigger them are in
// worker/, one line each.
#include <math.h>
#include <stdint.h>

#include "worker/bugs.h"
#include "worker/push/outcome.h"

// Allows a second push while one is in flight.
bool wk_bug_may_cut(const struct wk_shard *s)
{
    size_t undecided = 0;
    for (struct wk_entry *e = s->outbox.first; e; e = e->next)
        undecided += e->status == WK_UNDECIDED;
    return undecided < 2;
}

// Changes steps as if they had been committed, but not on the disk.
void wk_bug_commit(struct wk_shard *s, uint64_t next, uint64_t decided)
{
    struct wk_slot *slot = (struct wk_slot *)(uintptr_t)s->slot.committed;
    slot->next = next;
    slot->decided = decided;
}

// After history was lost, sends everything above the row again byte for byte, even refused pushes
// whose deltas went back to the residual. Returns whether there was anything to send.
bool wk_bug_send_above(struct wk_shard *s, uint64_t incarnation, uint64_t step)
{
    const struct wk_worker *w = s->worker;
    uint64_t last = incarnation == w->incarnation.number ? step : 0;
    if (last >= s->slot.committed->decided) return false;
    wk_bug_commit(s, s->slot.committed->next, last);
    for (struct wk_entry *e = s->outbox.first; e; e = e->next)
        if (lh_incarnation_equal(e->head.incarnation, w->incarnation) && e->head.step > last)
            e->status = WK_UNDECIDED;
    return true;
}

// Treats a busy server as one that refused.
lh_err wk_bug_return_undecided(struct wk_shard *s)
{
    struct wk_entry *e = wk_outbox_undecided(&s->outbox);
    if (!e) return LH_OK;
    wk_bug_commit(s, e->head.step, s->slot.committed->decided);
    return wk_entry_return(s, e);
}

// Takes undecided pushes back without waiting for an answer.
lh_err wk_bug_return_all(struct wk_worker *w)
{
    for (uint32_t i = 0; i < w->shards; i++) {
        struct wk_entry *e = wk_outbox_undecided(&w->shard[i].outbox);
        if (e) LH_TRY(wk_entry_return(&w->shard[i], e));
    }
    return LH_OK;
}

// After a power cut, reuses steps that the slot had given out, under the same incarnation.
lh_err wk_bug_keep_steps(struct wk_shard *s, struct wk_slot *slot)
{
    slot->next = s->slot.snapshot.step + 1;
    for (struct wk_entry *e = s->outbox.first, *next; e; e = next) {
        next = e->next;
        if (e->head.step >= slot->next) LH_TRY(wk_outbox_drop(&s->outbox, e));
    }
    return LH_OK;
}

// Rounds the mass that comes back, as a coarser format would.
void wk_bug_round(struct wk_shard *s)
{
    float *residual = wk_residual_next(s);
    for (uint64_t i = 0; i < s->layout->values; i++) residual[i] = rintf(64 * residual[i]) / 64;
}
