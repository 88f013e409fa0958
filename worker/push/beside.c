// The external trainer: when the worker wants its cuts, how they are committed, and which
// parameters it trains on (worker/docs/0001-boundary.md). Replaces round.c.
//
//  1. A shard's next cut is wanted H steps after its last one, and only while no push of the shard
//     is in flight: so its base already holds the last push.
//  2. A whole cut stays whole until it is committed, even if the trainer, the disk or the servers
//     fail. The slot stores the cut's number, so each cut counts once.
//  3. Boundaries order cuts and units. The process counts them: the boundaries of this life plus
//     those of earlier lives. H and the reported steps count only boundaries that trained. A unit
//     is claimed by a cut that holds its last step, as with the built-in trainer.
//  4. When a life is over and its whole cuts are committed, units resume at the position that the
//     committed cuts of all shards hold.
#include "worker/push/beside.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "worker/member.h"
#include "worker/privacy/release.h"
#include "worker/privacy/reported.h"
#include "worker/push/cut/cut.h"
#include "worker/push/path.h"
#include "worker/push/view.h"
#include "worker/replica/durable_copy.h"
#include "worker/units/units.h"

static const int64_t LOOK_NS = 200 * LH_MS;

// ---------------------------------------------------------------- hooks

static bool same_tensor(const struct lh_tensor *ours, const struct wk_channel_tensor *theirs)
{
    bool scalar = theirs->dims == 0 && ours->dims == 1 && ours->shape[0] == 1;
    bool same = scalar || (int)theirs->dims == ours->dims;
    for (int i = 0; same && i < ours->dims && !scalar; i++)
        same = theirs->shape[i] == ours->shape[i];
    return same && strcmp(theirs->name, ours->name) == 0;
}

static void shape_text(const uint64_t *shape, int dims, char *out, size_t size)
{
    size_t at = 0;
    out[0] = 0;
    for (int i = 0; i < dims && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%" PRIu64, i ? " x " : "", shape[i]);
}

static lh_err described(void *arg, const struct wk_channel_tensor *tensor, uint32_t tensors)
{
    const struct wk_worker *w = arg;
    const struct lh_manifest *m = w->conf.manifest;
    if (tensors != m->tensors)
        return lh_fail(LH_ERR_MANIFEST, "it describes %u parameters, but the run's manifest has %u",
                       tensors, m->tensors);
    for (uint32_t i = 0; i < tensors; i++) {
        char ours[100], theirs[200];
        if (same_tensor(&m->tensor[i], &tensor[i])) continue;
        shape_text(m->tensor[i].shape, m->tensor[i].dims, ours, sizeof ours);
        shape_text(tensor[i].shape, (int)tensor[i].dims, theirs, sizeof theirs);
        return lh_fail(LH_ERR_MANIFEST,
                       "parameter %u is %s (%s), but in the run's manifest it is %s (%s)", i,
                       tensor[i].name, theirs, m->tensor[i].name, ours);
    }
    return LH_OK;
}

static void view(void *arg, uint32_t part, bool final, float *out)
{
    struct wk_worker *w = arg;
    wk_view_give(&w->shard[part], final, out);
}

static uint64_t committed(void *arg, const uint8_t life[WK_CHANNEL_LIFE], uint32_t part)
{
    const struct wk_worker *w = arg;
    const struct wk_slot *slot = w->shard[part].slot.committed;
    return memcmp(slot->life, life, sizeof slot->life) ? 0 : slot->cut;
}

// Finds units that a trainer still holds because it outlived an earlier worker process.
static void find_handed(struct wk_worker *w)
{
    for (uint32_t r = 0; r < w->conf.beside->ranks; r++) {
        uint64_t n = wk_external_leased(w->external, r);
        for (uint64_t i = n > LH_LEASES_MAX ? n - LH_LEASES_MAX : 0; i < n; i++)
            wk_units_mark(w, wk_external_lease_unit(w->external, r, i));
    }
}

static void count(struct wk_worker *w)
{
    struct wk_beside *b = &w->beside;
    if (b->state == WK_BESIDE_AWAY) return;
    uint64_t passed = b->offset + wk_external_step(w->external);
    if (passed > b->passed) b->passed = passed;
    b->life_steps = wk_external_steps(w->external);
    b->life_tokens = wk_external_tokens(w->external);
    w->count.steps = b->steps_before + b->life_steps;
    w->count.tokens = b->tokens_before + b->life_tokens;
    w->count.between_ns = b->between_before + wk_external_spent_ns(w->external);
    wk_reported_count(w, b->life_steps);
}

static void came(void *arg, const uint8_t life[WK_CHANNEL_LIFE], bool resumed)
{
    struct wk_worker *w = arg;
    struct wk_beside *b = &w->beside;
    memcpy(b->life, life, sizeof b->life);
    b->state = WK_BESIDE_THERE;
    b->over = b->ending = b->final = b->starves = b->leases = false;
    b->offset = b->passed;
    b->lives++;
    b->seen = b->sampled = wk_external_tokens(w->external);
    b->seen_step = wk_external_step(w->external);
    b->sampled_ns = lh_now(w->conf.env);
    b->steps_before = w->count.steps;
    b->tokens_before = w->count.tokens;
    b->tokens_known += wk_external_base(w->external, 0).tokens;
    wk_reported_begin(w, resumed);
    count(w);
    for (uint32_t i = 0; i < w->shards; i++) {
        struct wk_shard *s = &w->shard[i];
        s->whole = (struct wk_whole){0};
        if (!resumed) continue;
        s->progress.held_steps = b->offset + wk_external_base(w->external, i).step;
        wk_view_resume(s);
    }
    if (resumed) find_handed(w);
    wk_changed(w);
}

static void trained(void *arg, uint32_t rank, uint64_t unit, uint64_t upto, uint64_t step)
{
    struct wk_worker *w = arg;
    (void)rank;
    wk_units_trained(w, unit, upto, w->beside.offset + step);
}

// True: the cut holds no progress. If the loop reports no tokens, its step count decides.
static bool is_empty(const struct wk_worker *w, const struct wk_external_cut *cut,
                     const struct wk_external_cut *base)
{
    bool counts = cut->tokens || w->beside.leases;
    return cut->steps <= base->steps || (counts && cut->tokens == base->tokens);
}

static void cut(void *arg, const struct wk_external_cut *c)
{
    struct wk_worker *w = arg;
    struct wk_shard *s = &w->shard[c->part];
    struct wk_external_cut base = wk_external_base(w->external, c->part);
    LH_ASSERT(!s->whole.number);
    s->whole = (struct wk_whole){.number = c->number,
                                 .corrections = c->corrections,
                                 .at = w->beside.offset + c->step,
                                 .tokens = c->tokens - base.tokens,
                                 .steps = c->steps > base.steps ? c->steps - base.steps : 0,
                                 .charged = wk_reported_total(w, c->steps),
                                 .last = c->last,
                                 .empty = is_empty(w, c, &base)};
    memcpy(s->whole.life, w->beside.life, sizeof s->whole.life);
    wk_changed(w);
}

// Smooths the loss as for the built-in trainer; shows other figures as reported.
static void reported(void *arg, const char *name, double value)
{
    struct wk_worker *w = arg;
    struct wk_beside *b = &w->beside;
    if (strcmp(name, "loss") == 0) {
        w->count.loss = b->tells_loss ? 0.95 * w->count.loss + 0.05 * value : value;
        b->tells_loss = true;
        return;
    }
    b->evaluates |= strcmp(name, "heldout") == 0;
    uint32_t i = 0;
    while (i < b->metrics && strcmp(b->metric[i].name, name) != 0) i++;
    if (i == LH_COUNT(b->metric)) return;
    if (i == b->metrics) b->metrics++;
    snprintf(b->metric[i].name, sizeof b->metric[i].name, "%s", name);
    b->metric[i].value = value;
}

static void ending(void *arg)
{
    struct wk_worker *w = arg;
    w->beside.ending = true;
    wk_changed(w);
}

static void over(void *arg, uint64_t lost, bool orderly)
{
    struct wk_worker *w = arg;
    w->beside.exit = orderly ? "left" : "lost";
    count(w);
    w->beside.between_before = w->count.between_ns;
    w->beside.state = WK_BESIDE_SETTLES;
    w->beside.lost_tokens += lost;
    wk_changed(w);
}

static void settled(void *arg)
{
    struct wk_worker *w = arg;
    w->beside.state = WK_BESIDE_AWAY;
    w->beside.leases = w->beside.starves = false;
    wk_units_restart(w, false);
    wk_changed(w);
}

static void damaged(void *arg, uint64_t unit)
{
    wk_units_damaged(arg, unit);
}

static const struct wk_external_ops hooks = {
    described, view, committed, came, trained, reported, cut, ending, over, settled, damaged};

// ---------------------------------------------------------------- open

static void look_again(void *arg);

static bool all_ended(const struct wk_worker *w)
{
    return !w->began_ended && wk_all_ended(w); // the run may resume after an earlier END record
}

static lh_err start_boundary(struct wk_worker *w, uint64_t *first)
{
    const struct wk_beside_conf *c = w->conf.beside;
    struct wk_beside *b = &w->beside;
    for (uint32_t i = 0; i < w->shards; i++) first[i] = w->shard[i].layout->first;
    first[w->shards] = w->conf.manifest->values;
    b->handed = calloc(LH_UNITS_MAX / 8, 1);
    if (!b->handed) return LH_ERR_NO_MEMORY;
    const struct wk_external_conf conf = {.env = w->conf.env,
                                          .log = w->conf.log,
                                          .values = w->conf.manifest->values,
                                          .parts = w->shards,
                                          .first = first,
                                          .ranks = c->ranks,
                                          .leases = LH_LEASES_MAX,
                                          .run_on = c->run_on,
                                          .manifest = w->conf.manifest->hash};
    LH_TRY(c->open(c->arg, &conf, &hooks, w, &w->external));
    b->timer = lh_after(w->conf.env, LOOK_NS, look_again, w);
    return LH_OK;
}

static lh_err open_boundary(struct wk_worker *w)
{
    uint64_t *first = calloc((size_t)w->shards + 1, sizeof *first);
    if (!first) return LH_ERR_NO_MEMORY;
    lh_err err = start_boundary(w, first);
    free(first);
    return err;
}

// ---------------------------------------------------------------- cuts and renewals

// Trained steps of the life after which the part's next cut is due. A life's first cuts are
// staggered over the shards, as in round.c.
static uint64_t due_steps(const struct wk_shard *s, const struct wk_external_cut *base)
{
    const struct wk_worker *w = s->worker;
    uint64_t h = w->local_steps;
    if (!base->number && s->id && w->conf.stagger != WK_STAGGER_OFF)
        h = (h * s->id + w->shards - 1) / w->shards;
    return base->steps + h;
}

static void want(struct wk_shard *s)
{
    struct wk_worker *w = s->worker;
    const struct wk_beside *b = &w->beside;
    struct wk_external_cut base = wk_external_base(w->external, s->id);
    uint64_t tokens = wk_external_tokens(w->external);
    if (b->ending && s->whole.last) return;
    if (b->ending || (b->starves && tokens != base.tokens))
        wk_external_want(w->external, s->id, 0);
    else if (!b->starves)
        wk_external_want(w->external, s->id, due_steps(s, &base));
}

// True: the shard has claims or tokens that no later progress will carry.
static bool left_over(const struct wk_shard *s)
{
    if (s->release.open || s->worker->privacy.reported.open) return false;
    const struct wk_beside *b = &s->worker->beside;
    bool alone = b->state == WK_BESIDE_AWAY || b->over;
    if (!alone && !b->starves) return false;
    return wk_claimable(s, s->progress.held_steps) || s->slot.committed->claim_count ||
           (alone && s->slot.committed->tokens);
}

// A private region's cut becomes a release; once the budget is spent, it only goes to the residual.
// Otherwise it stays whole until the stable point advances.
static lh_err take_private(struct wk_shard *s)
{
    if (s->ended || wk_release_is_spent(s)) return wk_cut_absorb(s);
    return wk_may_cut(s) && wk_release_may(s) ? wk_cut_start(s) : LH_OK;
}

// A cut of a loop that makes its own steps private becomes a push if its steps fit the budget.
static lh_err take_reported(struct wk_shard *s)
{
    struct wk_worker *w = s->worker;
    char why[200];
    switch (wk_reported_judge(s, why, sizeof why)) {
    case WK_REPORTED_WAITS: {
        bool newer = s->replica.ledger.version > s->copies.durable.version;
        return newer && !s->copies.writing ? wk_durable_copy_start(s) : LH_OK;
    }
    case WK_REPORTED_FITS: return wk_may_cut(s) ? wk_cut_start(s) : LH_OK;
    case WK_REPORTED_KEPT: return wk_reported_may_keep(s) ? wk_cut_absorb(s) : LH_OK;
    case WK_REPORTED_BAD: break;
    }
    s->whole = (struct wk_whole){0};
    wk_external_drop(w->external, s->id, why);
    return LH_OK;
}

// Sends a refused release again before any new cut. A shard that waits for a stable point writes a
// durable copy, because no other worker may push.
static lh_err attend_private(struct wk_shard *s, bool *cut)
{
    bool again = !s->ended && wk_release_again(s);
    *cut = again && wk_may_cut(s);
    if (*cut) return wk_cut_start(s);
    if (again || !wk_release_waits(s) || s->copies.writing) return LH_OK;
    bool newer = s->replica.ledger.version > s->copies.durable.version;
    return newer ? wk_durable_copy_start(s) : LH_OK;
}

static lh_err take_whole(struct wk_shard *s)
{
    if (s->release.open) return take_private(s);
    if (s->worker->privacy.reported.open) return take_reported(s);
    bool claims =
        wk_claimable(s, s->whole.at) || s->slot.committed->claim_count || s->slot.committed->tokens;
    bool gone = s->worker->beside.state == WK_BESIDE_SETTLES && !wk_may_cut(s);
    if (s->ended || gone || (s->whole.empty && !claims)) return wk_cut_absorb(s);
    return wk_may_cut(s) ? wk_cut_start(s) : LH_OK;
}

static lh_err correct(struct wk_shard *s)
{
    lh_err err = wk_view_correct(s);
    if (err != LH_ERR_CORRUPT) return err;
    char text[256];
    snprintf(text, sizeof text, "%s", lh_err_text(err));
    wk_external_drop(s->worker->external, s->id, text);
    return LH_OK;
}

static lh_err attend(struct wk_shard *s)
{
    struct wk_worker *w = s->worker;
    bool cut = false;
    if (s->cut || s->disk.timer) return LH_OK;
    if (s->release.open) LH_TRY(attend_private(s, &cut));
    if (cut) return LH_OK;
    if (s->whole.number) return take_whole(s);
    if (s->ended) {
        if (wk_external_wanted(w->external, s->id)) wk_external_want(w->external, s->id, 0);
        return LH_OK;
    }
    if (w->beside.state == WK_BESIDE_THERE) LH_TRY(correct(s));
    if (!wk_may_cut(s)) return LH_OK;
    if (left_over(s)) return wk_cut_start(s);
    if (w->beside.state == WK_BESIDE_THERE) want(s);
    return LH_OK;
}

// Drops the notes about steps that every shard's cuts already hold.
static void forget_notes(struct wk_worker *w)
{
    if (w->beside.notes) wk_units_settled(w, wk_held_steps(w));
}

// ---------------------------------------------------------------- units

static void hand_out(struct wk_worker *w)
{
    struct wk_beside *b = &w->beside;
    bool runs = w->phase == LH_PHASE_RUN && !wk_paused(w) && !w->leave.asked;
    bool may = b->state == WK_BESIDE_THERE && !b->ending && runs;
    bool short_of = false;
    for (uint32_t r = 0; may && r < w->conf.beside->ranks; r++) {
        if (!wk_external_wants(w->external, r)) continue;
        if (!b->leases) w->leased_out = false;
        b->leases = true;
        while (wk_external_waiting(w->external, r) < w->conf.beside->ahead) {
            const struct wk_queued *q = wk_units_hand(w);
            short_of |= !q;
            if (!q || wk_external_lease(w->external, r, q->unit, q->done, q->tokens)) break;
        }
    }
    if (short_of && !w->leased_out) wk_lease_soon(w);
}

// True: every rank asked for a unit and got none, and the loop passed a boundary without training
// since the last look. A long step is not a wait: it passes no boundary. A waiting loop counts as
// starving until it trains.
static bool starving(const struct wk_worker *w)
{
    const struct wk_beside *b = &w->beside;
    if (w->beside.state != WK_BESIDE_THERE || !w->leased_out) return false;
    for (uint32_t r = 0; r < w->conf.beside->ranks; r++)
        if (wk_external_wants(w->external, r) <= wk_external_leased(w->external, r)) return false;
    if (b->seen != wk_external_tokens(w->external)) return false;
    return b->starves || wk_external_step(w->external) > b->seen_step;
}

// ---------------------------------------------------------------- phases

static bool wholes_taken(const struct wk_worker *w, bool last)
{
    for (uint32_t i = 0; i < w->shards; i++) {
        const struct wk_shard *s = &w->shard[i];
        if (s->cut || s->whole.number || (last && !s->whole.last) ||
            wk_external_wanted(w->external, i))
            return false;
    }
    return true;
}

static void follow_phase(struct wk_worker *w)
{
    struct wk_beside *b = &w->beside;
    bool ends = w->phase >= LH_PHASE_DRAIN || all_ended(w) || wk_reported_is_spent(w);
    if (ends && !b->draining) wk_external_drain(w->external);
    bool was = b->draining;
    b->draining = ends;
    if (was && !ends) wk_external_undrain(w->external);
}

static void finish(struct wk_worker *w)
{
    struct wk_beside *b = &w->beside;
    if (b->state != WK_BESIDE_THERE) return;
    if (b->ending && !b->over && wholes_taken(w, true)) {
        b->over = true;
        wk_units_restart(w, true); // others now train the units that it began
        wk_lease_soon(w);
    }
    if (b->final || !all_ended(w) || !wholes_taken(w, false)) return;
    b->final = true;
    wk_external_end(w->external);
}

static lh_err refuse_bsp(const struct wk_worker *w)
{
    if (!w->bsp || all_ended(w)) return LH_OK;
    return lh_fail(LH_ERR_CONFIG, "the run's mode is bsp, whose rounds a trainer of kind external "
                                  "can't keep: use mode async, or trainer.kind builtin");
}

static lh_err look(struct wk_worker *w)
{
    bool ended = all_ended(w);
    bool may;
    if (!ended && (!w->started || !w->local_steps)) return LH_OK;
    LH_TRY(wk_private_look(w, &may));
    if (!may && !ended) return LH_OK;
    LH_TRY(refuse_bsp(w));
    if (!w->external) LH_TRY(open_boundary(w));
    count(w);
    wk_external_credited(w->external, wk_clock(w));
    const struct lh_plan *plan = wk_clock_plan(w);
    wk_external_budget(w->external, plan->budget_tokens, plan->old_budget_tokens,
                       plan->changed_tokens);
    follow_phase(w);
    wk_external_pause(w->external, wk_paused(w));
    hand_out(w);
    for (uint32_t i = 0; i < w->shards; i++) LH_TRY(attend(&w->shard[i]));
    forget_notes(w);
    finish(w);
    if (wk_units_drained(w) && !w->told_drained) wk_lease_soon(w);
    return LH_OK;
}

void wk_beside_look(struct wk_worker *w)
{
    if (w->stopped || !wk_everything_ready(w)) return;
    lh_err err = look(w);
    if (err) wk_fatal(w, err);
}

// ---------------------------------------------------------------- by time

static void measure(struct wk_worker *w)
{
    struct wk_beside *b = &w->beside;
    int64_t now = lh_now(w->conf.env), took = now - b->sampled_ns;
    uint64_t tokens = wk_external_tokens(w->external);
    if (b->state != WK_BESIDE_THERE || tokens <= b->sampled || took < LH_SECOND) return;
    double speed = (double)(tokens - b->sampled) * 1e9 / (double)took;
    wk_path_trained(w, speed, 0.3);
    b->sampled = tokens;
    b->sampled_ns = now;
}

// Warns once per life. Rates that follow the run's clock are the same in all regions at any time.
static void look_at_rates(struct wk_worker *w)
{
    struct wk_beside *b = &w->beside;
    bool own =
        b->state == WK_BESIDE_THERE && wk_external_schedule(w->external) == WK_CHANNEL_OWN_STEPS;
    if (own && !b->own_rates)
        lh_logf(w->conf.log, LH_INFO, "trainer.schedule",
                "the loop's learning rates follow its own steps and not the run's tokens: they may "
                "differ from other regions'");
    b->own_rates = own;
}

// True: the loop trained tokens and never asked for a lease.
static bool has_own_data(const struct wk_worker *w)
{
    if (w->beside.state != WK_BESIDE_THERE || !wk_external_tokens(w->external)) return false;
    for (uint32_t r = 0; r < w->conf.beside->ranks; r++)
        if (wk_external_wants(w->external, r)) return false;
    return true;
}

static void look_again(void *arg)
{
    struct wk_worker *w = arg;
    struct wk_beside *b = &w->beside;
    b->timer = 0;
    if (w->stopped) return;
    b->timer = lh_after(w->conf.env, LOOK_NS, look_again, w);
    measure(w);
    b->starves = starving(w);
    b->seen = wk_external_tokens(w->external);
    b->seen_step = wk_external_step(w->external);
    b->own_data = has_own_data(w);
    look_at_rates(w);
    wk_beside_look(w);
}

bool wk_beside_waits(const struct wk_worker *w)
{
    return w->beside.state != WK_BESIDE_AWAY && !w->beside.final;
}

const char *wk_beside_failing(const struct wk_worker *w)
{
    return w->external ? wk_external_failing(w->external) : NULL;
}

json_t *wk_beside_status(const struct wk_worker *w)
{
    static const char *const name[] = {"away", "there", "settles"};
    static const char *const schedule[] = {"unknown", "run", "local"};
    const struct wk_beside *b = &w->beside;
    enum wk_channel_schedule follows =
        w->external ? wk_external_schedule(w->external) : WK_CHANNEL_UNTOLD;
    json_t *o =
        json_pack("{s:s s:s s:s s:b s:i s:s s:b s:I s:I s:I s:I s:f s:f}", "kind", "external",
                  "state", name[b->state], "last_exit", b->exit ? b->exit : "none", "over", b->over,
                  "ranks", (int)w->conf.beside->ranks, "schedule", schedule[follows],
                  "rates_may_differ", follows == WK_CHANNEL_OWN_STEPS, "lives",
                  (json_int_t)b->lives, "lost_tokens", (json_int_t)b->lost_tokens, "cuts",
                  (json_int_t)b->cuts, "absorbed", (json_int_t)b->absorbed, "delta_s",
                  (double)b->delta_ns / 1e9, "renew_s", (double)b->renew_ns / 1e9);
    char life[2 * WK_SLOT_LIFE_BYTES + 1];
    for (size_t i = 0; i < WK_SLOT_LIFE_BYTES; i++) snprintf(life + 2 * i, 3, "%02x", b->life[i]);
    if (b->lives) json_object_set_new(o, "life", json_string(life));
    json_object_set_new(o, "life_steps", json_integer((json_int_t)b->life_steps));
    json_object_set_new(o, "life_tokens", json_integer((json_int_t)b->life_tokens));
    const char *failing = wk_beside_failing(w);
    json_object_set_new(o, "failing", json_string(failing ? failing : ""));
    json_t *metrics = json_object();
    for (uint32_t i = 0; i < b->metrics; i++)
        json_object_set_new(metrics, b->metric[i].name, json_real(b->metric[i].value));
    json_object_set_new(o, "metrics", metrics);
    return o;
}

void wk_beside_close(struct wk_worker *w)
{
    lh_cancel(w->conf.env, &w->beside.timer);
    if (w->external && w->conf.beside->hush) w->conf.beside->hush(w->external);
}

void wk_beside_free(struct wk_worker *w)
{
    if (w->external) w->conf.beside->close(w->external);
    w->external = NULL;
    free(w->beside.handed);
    free(w->beside.note);
}
