// Units: the queue of leased units and their states: begun, finished and not claimed yet, kept for
// later, given back (server/docs/0000-protocol.md#rule-19).
#include "worker/units/units.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "worker/privacy/release.h"
#include "worker/units/grants.h"

static uint64_t units_of_run(const struct wk_worker *w)
{
    return w->epochs * w->conf.units->count;
}

// The unit's index in the queue, or w->queued. Searches from *at on and sets *at behind the found
// unit, because lists of units are mostly in the queue's order.
static uint32_t index_of(const struct wk_worker *w, uint64_t unit, uint32_t *at)
{
    for (uint32_t i = 0; i < w->queued; i++) {
        uint32_t k = *at + i < w->queued ? *at + i : *at + i - w->queued;
        if (w->queue[k].unit != unit) continue;
        *at = k + 1 < w->queued ? k + 1 : 0;
        return k;
    }
    return w->queued;
}

static bool in_list(const uint64_t *list, uint32_t n, uint64_t unit)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i] == unit) return true;
    return false;
}

static bool came_back(const struct wk_slot *slot, uint64_t unit)
{
    for (uint32_t i = 0; i < slot->claim_count; i++)
        if (slot->claim[i].unit == unit) return true;
    return false;
}

// Trained, and its claim is on its way: waiting in a shard, or in a frame of the outbox.
static bool claimed(const struct wk_worker *w, uint64_t unit)
{
    const struct wk_shard *s = &w->shard[unit % w->shards];
    if (in_list(s->finished.unit, s->finished.count, unit) || came_back(s->slot.committed, unit))
        return true;
    for (struct wk_entry *e = s->outbox.first; e; e = e->next)
        if (in_list(e->head.claim, e->head.claims, unit) &&
            !lh_ledger_credited(&s->replica.ledger, unit))
            return true;
    return false;
}

static struct wk_position *kept_position(struct wk_worker *w, uint64_t unit)
{
    for (uint32_t i = 0; i < w->resume_count; i++)
        if (w->resume[i].unit == unit) return &w->resume[i];
    return NULL;
}

// How far this unit was trained, in an earlier life or before we stood still; the queue knows from
// here on.
static uint64_t resumed(struct wk_worker *w, uint64_t unit)
{
    struct wk_position *kept = kept_position(w, unit);
    if (!kept) return 0;
    uint64_t tokens = kept->tokens;
    *kept = w->resume[--w->resume_count];
    return tokens;
}

static bool is_credited(const struct wk_worker *w, uint64_t unit)
{
    return lh_ledger_credited(&w->shard[unit % w->shards].replica.ledger, unit);
}

// Others may have had them credited since.
static void forget_credited(struct wk_worker *w)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < w->resume_count; i++)
        if (!is_credited(w, w->resume[i].unit)) w->resume[kept++] = w->resume[i];
    w->resume_count = kept;
}

static void keep_position(struct wk_worker *w, uint64_t unit, uint64_t tokens)
{
    if (tokens && w->resume_count < WK_POSITIONS_MAX) // too many: from its start again
        w->resume[w->resume_count++] = (struct wk_position){unit, tokens};
}

void wk_units_keep_position(struct wk_worker *w, uint64_t unit, uint64_t tokens)
{
    forget_credited(w);
    keep_position(w, unit, tokens);
}

void wk_units_park(struct wk_worker *w)
{
    forget_credited(w);
    for (uint32_t i = 0; i < w->queued; i++) keep_position(w, w->queue[i].unit, w->queue[i].done);
    w->queued = 0;
}

void wk_units_announce(struct wk_worker *w)
{
    struct wk_trainer *t = w->conf.trainer;
    bool listens = t && t->ops->announce;
    for (uint32_t i = 0; i < w->queued && i < w->conf.queue_units && listens; i++) {
        struct wk_queued *q = &w->queue[i];
        if (!q->here) continue;
        if (!q->announced) t->ops->announce(t, q->unit, true);
        q->announced = true;
    }
}

void wk_units_withdraw(struct wk_worker *w, const struct wk_queued *q)
{
    struct wk_trainer *t = w->conf.trainer;
    if (q->announced && t && t->ops->announce) t->ops->announce(t, q->unit, false);
}

// Its claim waits for a cut of its shard.
void wk_units_finished(struct wk_worker *w, uint64_t unit, uint64_t steps)
{
    struct lh_grant grant = {0};
    if (!wk_grants_find(w, unit, &grant)) {
        lh_logf(w->conf.log, LH_ERROR, "claims.ungranted",
                "unit %llu is trained, and its lease is not known to this process; it is trained "
                "again where it is leased anew",
                (unsigned long long)unit);
        return;
    }
    if (LH_BUG("epoch_unit")) unit %= w->conf.units->count; // planted: the claim of the data's unit
    for (uint32_t i = 0; i < w->shards; i++) {
        struct wk_shard *s = &w->shard[i];
        bool here = unit % w->shards == s->id || LH_BUG("credit_each");
        if (LH_BUG("credit_any")) here = (unit + w->id) % w->shards == s->id;
        if (!here) continue;
        if (s->finished.count < WK_CLAIMS_HELD_MAX) {
            s->finished.steps[s->finished.count] = steps;
            s->finished.grant[s->finished.count] = grant;
            s->finished.unit[s->finished.count++] = unit;
        } else {
            lh_logf(w->conf.log, LH_ERROR, "claims.full", "unit %llu will be trained again",
                    (unsigned long long)unit);
        }
    }
}

// Units of the worker's region are read from its folder: where they are not, that is an error.
static bool is_own(const struct wk_worker *w, uint64_t unit)
{
    return !strcmp(lh_units_at(w->conf.units, unit)->home, w->conf.self.region);
}

bool wk_units_any_here(const struct wk_worker *w)
{
    for (uint32_t i = 0; i < w->queued; i++)
        if (w->queue[i].here) return true;
    return false;
}

// Appends a unit to the queue; a begun one behind the other begun ones. Begun units stay with this
// worker, so it finishes them before it begins others.
static void enter(struct wk_worker *w, const struct wk_queued *q)
{
    uint32_t at = q->done ? 0 : w->queued;
    while (at < w->queued && w->queue[at].done) at++;
    memmove(w->queue + at + 1, w->queue + at, (w->queued - at) * sizeof *w->queue);
    w->queue[at] = *q;
    w->queued++;
}

void wk_units_take(struct wk_worker *w, size_t n, const uint64_t *units)
{
    uint32_t at = 0;
    for (size_t i = 0; i < n && w->queued < LH_LEASES_MAX; i++) {
        uint64_t u = units[i];
        if (u >= units_of_run(w) || index_of(w, u, &at) < w->queued || claimed(w, u)) continue;
        if (is_credited(w, u)) continue;
        struct wk_queued q = {.unit = u, .tokens = lh_units_at(w->conf.units, u)->tokens};
        q.here = !w->conf.travel || (is_own(w, u) && !w->own_away) || LH_BUG("here_early");
        q.done = resumed(w, u);
        if (q.done >= q.tokens) { // every shard's pushes hold it, only its claim was lost
            wk_units_finished(w, u, 0);
            continue;
        }
        enter(w, &q);
    }
    wk_units_announce(w);
}

// Drops credited units, which another worker has finished first. A unit of the current step stays
// until the step is over.
void wk_units_drop_credited(struct wk_worker *w)
{
    uint32_t kept = 0;
    if (w->conf.beside || w->stepping) return;
    for (uint32_t i = 0; i < w->queued; i++) {
        const struct wk_queued *q = &w->queue[i];
        if (is_credited(w, q->unit))
            wk_units_withdraw(w, q);
        else
            w->queue[kept++] = *q;
    }
    w->queued = kept;
}

// ---------------------------------------------------------------- recall

// True: the external trainer is gone, so others may train its begun units from their start.
static bool idle(const struct wk_worker *w)
{
    return w->conf.beside && w->beside.state == WK_BESIDE_AWAY;
}

// Is it trained in part: in a push, since the last cut, or in the step under way?
bool wk_units_begun(const struct wk_worker *w, const struct wk_queued *q)
{
    if (idle(w)) return false;
    if (q->done || wk_units_handed(w, q->unit)) return true;
    for (uint32_t i = 0; w->stepping && i < w->in.pieces; i++)
        if (w->piece[i].unit == q->unit) return true;
    return false;
}

static void take_out(struct wk_worker *w, uint32_t k)
{
    memmove(w->queue + k, w->queue + k + 1, (w->queued - k - 1) * sizeof *w->queue);
    w->queued--;
}

// Gives back recalled units except begun and credited ones: the coordinator may learn of a credit
// later than this worker, and would lease the unit again. A unit that is not here was given back
// before, by this life or an earlier one, so this is repeated.
void wk_units_give_back(struct wk_worker *w, size_t n, const uint64_t *units)
{
    uint32_t at = 0;
    w->returned_count = 0;
    for (size_t i = 0; i < n && w->returned_count < LH_RECALLS_MAX; i++) {
        uint64_t u = units[i];
        if (u >= units_of_run(w) || claimed(w, u) || is_credited(w, u)) continue;
        if (idle(w)) (void)resumed(w, u);
        if (kept_position(w, u)) continue;
        uint32_t k = index_of(w, u, &at);
        if (k < w->queued) {
            if (wk_units_begun(w, &w->queue[k])) continue;
            wk_units_withdraw(w, &w->queue[k]);
            take_out(w, k);
            at = 0;
        }
        w->returned[w->returned_count++] = u;
    }
}

// ---------------------------------------------------------------- what is told of them

json_t *wk_units_status(const struct wk_worker *w)
{
    uint64_t left = 0;
    for (uint32_t i = 0; i < w->queued; i++) left += w->queue[i].tokens - w->queue[i].done;
    return json_pack("{s:i s:f}", "units", (int)w->queued, "seconds",
                     w->tokens_per_s > 0 ? (double)left / w->tokens_per_s : 0.0);
}

bool wk_units_drained(const struct wk_worker *w)
{
    // At level reported, returned values are pushed with later steps or never, because the residual
    // may hold steps beyond the budget.
    bool returns = w->conf.beside && !w->privacy.reported.open;
    bool trains = w->beside.state != WK_BESIDE_AWAY && !w->beside.over;
    if (w->phase < LH_PHASE_DRAIN || w->queued || w->stepping || trains) return false;
    for (uint32_t i = 0; i < w->shards; i++) {
        const struct wk_shard *s = &w->shard[i];
        if (s->cut || wk_outbox_undecided(&s->outbox) || wk_release_again(s) || s->progress.steps ||
            s->progress.tokens || s->finished.count || s->slot.committed->claim_count ||
            (returns && s->slot.committed->tokens))
            return false;
    }
    return true;
}

// ---------------------------------------------------------------- a trainer beside the worker

uint32_t wk_units_wanted(const struct wk_worker *w)
{
    const struct wk_beside *b = &w->beside;
    if (w->leave.asked) return 0;
    uint32_t most = w->window && w->window < w->conf.queue_units ? w->window : w->conf.queue_units;
    if (!w->conf.beside) return w->conf.privacy.budget ? 0 : most;
    if (b->state != WK_BESIDE_THERE || !b->leases || b->ending) return 0;
    uint32_t n = w->conf.beside->ranks * w->conf.beside->ahead;
    for (uint32_t i = 0; i < w->queued; i++) n += wk_units_handed(w, w->queue[i].unit);
    return n < LH_LEASES_MAX ? n : LH_LEASES_MAX;
}

bool wk_units_handed(const struct wk_worker *w, uint64_t unit)
{
    return w->beside.handed && w->beside.handed[unit / 8] >> (unit % 8) & 1;
}

void wk_units_mark(struct wk_worker *w, uint64_t unit)
{
    if (unit < LH_UNITS_MAX) w->beside.handed[unit / 8] |= (uint8_t)(1u << unit % 8);
}

const struct wk_queued *wk_units_hand(struct wk_worker *w)
{
    for (uint32_t i = 0; i < w->queued; i++) {
        if (wk_units_handed(w, w->queue[i].unit)) continue;
        wk_units_mark(w, w->queue[i].unit);
        return &w->queue[i];
    }
    return NULL;
}

// Finds the entry that says how far the unit was trained; NULL: there is none, and no room.
static uint64_t *trained_position(struct wk_worker *w, uint64_t unit)
{
    uint32_t at = 0, k = index_of(w, unit, &at);
    struct wk_position *kept = kept_position(w, unit);
    if (k < w->queued) return &w->queue[k].done;
    if (kept) return &kept->tokens;
    if (w->resume_count == WK_POSITIONS_MAX) return NULL;
    w->resume[w->resume_count] = (struct wk_position){unit, 0};
    return &w->resume[w->resume_count++].tokens;
}

static void leave(struct wk_worker *w, uint64_t unit)
{
    uint32_t at = 0, k = index_of(w, unit, &at);
    if (k < w->queued) take_out(w, k);
    (void)resumed(w, unit);
    w->beside.handed[unit / 8] &= (uint8_t) ~(1u << unit % 8);
}

static bool note(struct wk_worker *w, uint64_t unit, uint64_t before, uint64_t steps)
{
    struct wk_beside *b = &w->beside;
    if (b->notes == b->note_room) {
        size_t room = b->note_room ? 2 * b->note_room : 64;
        struct wk_note *more = realloc(b->note, room * sizeof *more);
        if (!more) return false;
        b->note = more;
        b->note_room = room;
    }
    b->note[b->notes++] = (struct wk_note){unit, before, steps};
    return true;
}

// One that can't be noted is trained again.
void wk_units_trained(struct wk_worker *w, uint64_t unit, uint64_t upto, uint64_t steps)
{
    bool known = unit < LH_UNITS_MAX && upto <= lh_units_at(w->conf.units, unit)->tokens;
    if (!known || !wk_units_handed(w, unit)) {
        if (!known)
            lh_logf(w->conf.log, LH_ERROR, "trainer.note",
                    "the trainer says that it trained unit %llu up to token %llu, which is not "
                    "there; it does not count",
                    (unsigned long long)unit, (unsigned long long)upto);
        return;
    }
    uint64_t *at;
    if (claimed(w, unit) || is_credited(w, unit) || !(at = trained_position(w, unit)) ||
        upto <= *at || !note(w, unit, *at, steps))
        return;
    *at = upto;
    if (upto < lh_units_at(w->conf.units, unit)->tokens) return;
    leave(w, unit);
    wk_units_finished(w, unit, steps);
}

// Gives the unit back, for a region with an intact copy. This region gets none of its later epochs.
// If the list of damaged units is full, the unit may be leased here again and is given back again.
void wk_units_damaged(struct wk_worker *w, uint64_t unit)
{
    if (unit >= LH_UNITS_MAX || !wk_units_handed(w, unit)) return;
    uint64_t data_unit = unit % w->conf.units->count;
    const struct lh_unit *row = lh_units_at(w->conf.units, unit);
    if (!in_list(w->damaged, w->damaged_count, data_unit) && w->damaged_count < LH_REFUSED_MAX)
        w->damaged[w->damaged_count++] = data_unit;
    lh_logf(w->conf.log, LH_WARN, "unit.damaged",
            "unit %" PRIu64 " (%s, from token %" PRIu64 "): the loop's copy is not what units.json "
            "says (sha256); it is given back, for a region whose copy is whole",
            unit, row->file, row->from);
    leave(w, unit);
    if (w->returned_count < LH_RECALLS_MAX) w->returned[w->returned_count++] = unit;
    wk_changed(w);
}

void wk_units_as_of(const struct wk_worker *w, uint64_t steps, struct wk_position *position,
                    uint32_t *count)
{
    uint32_t kept = 0;
    for (size_t i = 0; i < w->beside.notes; i++) {
        const struct wk_note *n = &w->beside.note[i];
        for (uint32_t k = 0; k < *count && n->steps > steps; k++)
            if (position[k].unit == n->unit && n->before < position[k].tokens)
                position[k].tokens = n->before;
    }
    for (uint32_t k = 0; k < *count; k++)
        if (position[k].tokens) position[kept++] = position[k];
    *count = kept;
}

void wk_units_settled(struct wk_worker *w, uint64_t steps)
{
    size_t kept = 0;
    for (size_t i = 0; i < w->beside.notes; i++)
        if (w->beside.note[i].steps > steps) w->beside.note[kept++] = w->beside.note[i];
    w->beside.notes = kept;
}

static uint64_t trained_in(const struct wk_shard *s, uint64_t unit)
{
    for (uint32_t i = 0; i < s->slot.committed->position_count; i++)
        if (s->slot.committed->position[i].unit == unit)
            return s->slot.committed->position[i].tokens;
    return 0;
}

// Resumes each unit at the position of the shard with the oldest cut. Tokens beyond it in the other
// shards' pushes are trained twice, but no credited token is missing anywhere.
void wk_units_resume(struct wk_worker *w)
{
    const struct wk_slot *first = w->shard[0].slot.committed;
    w->resume_count = 0;
    for (uint32_t i = 0; i < first->position_count; i++) {
        struct wk_position least = first->position[i];
        for (uint32_t k = 1; k < w->shards; k++) {
            uint64_t tokens = trained_in(&w->shard[k], least.unit);
            if (tokens < least.tokens) least.tokens = tokens;
        }
        if (!least.tokens || (w->conf.beside && claimed(w, least.unit))) continue;
        w->resume[w->resume_count++] = least;
    }
}

void wk_units_restart(struct wk_worker *w, bool give_up)
{
    uint64_t held = wk_held_steps(w);
    for (uint32_t i = 0; i < w->shards; i++) {
        struct wk_finished *f = &w->shard[i].finished;
        uint32_t kept = 0;
        for (uint32_t k = 0; k < f->count; k++) {
            if (f->steps[k] > held) continue;
            f->unit[kept] = f->unit[k];
            f->grant[kept] = f->grant[k];
            f->steps[kept++] = f->steps[k];
        }
        f->count = kept;
    }
    w->queued = 0;
    w->beside.notes = 0;
    memset(w->beside.handed, 0, LH_UNITS_MAX / 8);
    if (give_up)
        w->resume_count = 0;
    else
        wk_units_resume(w);
}
