// Cut, first stage: takes the progress since the last cut at a boundary. See cut.c.
#include <stdlib.h>
#include <string.h>

#include "worker/privacy/private.h"
#include "worker/privacy/release.h"
#include "worker/privacy/totals.h"
#include "worker/push/bounds.h"
#include "worker/push/cut/stages.h"
#include "worker/push/view.h"
#include "worker/units/units.h"

uint32_t wk_claimable(const struct wk_shard *s, uint64_t upto)
{
    const struct wk_worker *w = s->worker;
    uint64_t held = upto;
    uint32_t n = 0;
    for (uint32_t k = 0; k < w->shards; k++)
        if (k != s->id && w->shard[k].progress.held_steps < held)
            held = w->shard[k].progress.held_steps;
    while (n < s->finished.count && s->finished.steps[n] <= held) n++;
    return n;
}

// Gives the codec with the density for the current credits. The credits are those of the last
// step's learning rate, unless the trainer runs beside the worker.
static struct lk_codec codec_now(const struct wk_worker *w)
{
    struct lk_codec codec = w->conf.codec;
    bool stepped = !w->conf.beside && w->in.credited;
    uint64_t credited = stepped ? w->in.credited : wk_clock(w);
    if (w->conf.density) codec.density = w->conf.density(w->conf.density_arg, credited);
    return codec;
}

static void add_claim(struct lh_frame *f, uint64_t unit, const struct lh_grant *grant)
{
    f->claim[f->claims] = unit;
    f->grant[f->claims++] = *grant;
}

static void note_step_tokens(struct wk_worker *w, const struct wk_cut *c)
{
    uint64_t each = c->steps ? (c->tokens + c->steps - 1) / c->steps : 0;
    if (each > w->step_tokens) w->step_tokens = each;
}

static void fill_head(const struct wk_shard *s, struct wk_cut *c)
{
    const struct wk_worker *w = s->worker;
    const struct wk_view_of *base = &s->view.of, now = wk_view_now(s);
    struct lh_frame *f = &c->head;
    if (c->whole.number) base = &s->view.by[c->whole.corrections % WK_VIEWS_HELD];
    // A push without a trainer's step is based on the replica, not on a view. A trainer that is
    // away or waits gets no new view, so on the last view's base the push would stay stale for
    // ever.
    if (c->again || (w->conf.beside && !c->whole.number)) base = &now;
    *f = (struct lh_frame){.index_code = c->codec.index,
                           .value_code = c->codec.value,
                           .cipher = w->conf.cipher,
                           .density = c->codec.density,
                           .key_id = w->conf.key_id,
                           .shard = s->id,
                           .worker = w->id,
                           .incarnation = w->incarnation,
                           .step = s->slot.committed->next,
                           .base_version = base->version,
                           .base_epoch = base->epoch,
                           .base_others = base->others,
                           .tokens = c->tokens + s->slot.committed->tokens,
                           .steps = c->steps < UINT32_MAX ? (uint32_t)c->steps : UINT32_MAX,
                           .manifest = w->conf.manifest->hash};
    memcpy(f->job, w->conf.job, LH_JOB_BYTES);
    c->later = wk_bounds_apply(s, f);
    if (s->release.open) {
        c->later = 0; // the plan sets the steps and tokens of its headers
        f->steps = wk_totals_terms(w)->local_steps;
        wk_totals_head(s, c->again ? c->again->head.charged : s->release.used + 1, f);
    } else if (w->privacy.records.open) {
        c->later = 0;
        wk_totals_head(s, w->conf.beside ? c->whole.charged : w->privacy.records.trained, f);
    }
    const struct wk_slot *slot = s->slot.committed;
    for (uint32_t i = 0; i < slot->claim_count && f->claims < LH_CLAIMS_MAX; i++)
        add_claim(f, slot->claim[i].unit, &slot->claim[i].grant);
    c->returned = f->claims;
    for (uint32_t i = 0, n = wk_claimable(s, c->at); i < n && f->claims < LH_CLAIMS_MAX; i++)
        add_claim(f, s->finished.unit[i], &s->finished.grant[i]);
    lh_random(w->conf.env, f->nonce, LH_SEAL_NONCE_BYTES);
}

static void add_position(struct wk_slot *slot, uint64_t unit, uint64_t tokens)
{
    if (tokens && slot->position_count < WK_POSITIONS_MAX) // A full list restarts the unit.
        slot->position[slot->position_count++] = (struct wk_position){unit, tokens};
}

void wk_cut_fill_positions(const struct wk_shard *s, uint32_t claimed, uint64_t at,
                           struct wk_slot *slot)
{
    const struct wk_worker *w = s->worker;
    slot->position_count = 0;
    for (uint32_t i = 0; i < w->queued; i++) add_position(slot, w->queue[i].unit, w->queue[i].done);
    for (uint32_t k = 0; k < w->shards; k++)
        for (uint32_t i = k == s->id ? claimed : 0; i < w->shard[k].finished.count; i++) {
            uint64_t unit = w->shard[k].finished.unit[i];
            add_position(slot, unit, lh_units_at(w->conf.units, unit)->tokens);
        }
    for (uint32_t i = 0; i < w->resume_count; i++)
        add_position(slot, w->resume[i].unit, w->resume[i].tokens);
    wk_units_as_of(w, at, slot->position, &slot->position_count);
}

void wk_cut_name(struct wk_slot *slot, const struct wk_whole *whole)
{
    if (!whole->number) return;
    memcpy(slot->life, whole->life, sizeof slot->life);
    slot->cut = whole->number;
}

// The flip to the new step also marks the old entry as gone, so a start that finds its file removes
// it.
static void leave_again(struct wk_cut *c)
{
    const struct lh_frame *f = &c->again->head;
    struct wk_slot *slot = &c->change.slot;
    slot->gone_incarnation = f->incarnation.number;
    slot->gone_step = f->step;
    if (!lh_incarnation_equal(f->incarnation, slot->incarnation) || f->step <= slot->decided)
        return;
    slot->decided = f->step;
    slot->decided_admitted = false;
}

// Fills the next slot. Returned claims and tokens that the frame carries leave it.
static lh_err fill_slot(struct wk_shard *s, struct wk_cut *c)
{
    LH_TRY(wk_change_begin(s, &c->change));
    struct wk_slot *slot = &c->change.slot;
    slot->claim_count -= c->returned;
    memmove(slot->claim, slot->claim + c->returned, slot->claim_count * sizeof *slot->claim);
    slot->next++;
    slot->tokens = c->later;
    if (c->again) leave_again(c);
    wk_cut_fill_positions(s, c->head.claims - c->returned, c->at, slot);
    wk_cut_name(slot, &c->whole);
    c->change.moves = !c->again;
    return LH_OK;
}

static lh_err show_delta(struct wk_shard *s)
{
    const struct wk_observer *o = s->worker->conf.observer;
    uint64_t n = s->layout->values;
    if (!o || !o->kept) return LH_OK;
    float *delta = malloc(n * sizeof *delta);
    if (!delta) return LH_ERR_NO_MEMORY;
    lh_err err = wk_view_delta(s, 0, delta);
    if (!err) o->kept(o->arg, s->id, s->worker->incarnation, s->slot.committed->next, delta, n);
    free(delta);
    return err;
}

static void take_progress(const struct wk_shard *s, struct wk_cut *c)
{
    const struct wk_worker *w = s->worker;
    if (c->again) { // no new progress is taken
        c->at = s->progress.held_steps;
        return;
    }
    c->tokens = s->progress.tokens;
    c->steps = s->progress.steps;
    c->at = w->count.steps;
    if (!w->conf.beside) return;
    c->whole = s->whole;
    c->tokens = s->whole.number ? s->whole.tokens : 0;
    c->steps = s->whole.number ? s->whole.steps : 0;
    c->at = s->whole.number ? s->whole.at : s->progress.held_steps;
}

// Takes the payload of a push that was released already.
static lh_err take_again(struct wk_cut *c)
{
    struct wk_shard *s = c->shard;
    struct lh_blob *frame;
    struct lh_span plain;
    struct lk_payload_info info;
    bool opened;
    LH_TRY(wk_outbox_frame(&s->outbox, c->again, &frame));
    lh_err err = lk_replica_unseal(&s->replica, lh_blob_span(frame), &plain, &opened, &info);
    if (!err) {
        lh_put(&c->plain, plain.data, plain.len);
        err = lh_buf_err(&c->plain);
    }
    lh_blob_release(frame);
    c->head.values = c->again->head.values;
    c->head.plain_bytes = (uint32_t)c->plain.len;
    c->snapshot = false; // the residual does not change
    return err;
}

lh_err wk_cut_begin(struct wk_shard *s, struct wk_cut *c)
{
    struct wk_worker *w = s->worker;
    struct wk_trainer *t = w->conf.trainer;
    c->shard = s;
    c->again = s->release.open ? wk_release_again(s) : NULL;
    c->trainer = lh_buf((size_t)1 << 40);
    c->plain = s->payload_memory;
    c->codec = codec_now(w);
    c->plain.max = lk_payload_max(&c->codec, s->layout);
    lh_buf_clear(&c->plain);
    s->payload_memory = (struct lh_buf){0};
    take_progress(s, c);
    c->snapshot =
        w->conf.snapshot_rounds && (s->progress.cut_count + 1) % w->conf.snapshot_rounds == 0;
    if (c->snapshot && s->id == 0 && t) LH_TRY(t->ops->save(t, &c->trainer));
    if (w->conf.norms_rounds && !c->again && s->progress.cut_count % w->conf.norms_rounds == 0) {
        c->residual_square = calloc(s->layout->extents, sizeof *c->residual_square);
        if (!c->residual_square) return LH_ERR_NO_MEMORY;
    }
    note_step_tokens(w, c);
    fill_head(s, c);
    if (c->again) LH_TRY(take_again(c));
    LH_TRY(fill_slot(s, c));
    if (w->conf.beside) return LH_OK;
    wk_view_copy(s);
    LH_TRY(show_delta(s));
    if (wk_cut_is_usual(c)) wk_view_begin(s, w->conf.beta);
    return LH_OK;
}
