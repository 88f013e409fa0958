// The steps of a region that is private at record level. See records.h.
//
// Invariants: 1. a step that was trained is in every later push's total; 2. no more than A steps
// are trained beyond those under the stable point, so a record set whose file is lost can go on
// behind all that was released.
#include "worker/privacy/records.h"

#include "worker/privacy/totals.h"
#include "worker/worker.h"

lh_err wk_records_open(struct wk_worker *w, const struct lh_privacy *p)
{
    struct wk_trainer *t = w->conf.trainer;
    const struct wk_records_conf conf = {w->conf.env, w->conf.units, w->conf.self.region, *p};
    if (!t || !t->ops->keep_private)
        return lh_fail(LH_ERR_CONFIG, "the plan's level of privacy is record, but this trainer "
                                      "draws no records: set trainer.kind to builtin");
    LH_TRY(t->ops->keep_private(t, &conf));
    w->privacy.records.open = true;
    return LH_OK;
}

// ---------------------------------------------------------------- totals

// Steps of a shard's pushes that do not lie under the stable point yet, as far as this directory
// knows.
static uint64_t steps_above(const struct wk_shard *s)
{
    uint64_t steps = 0;
    for (const struct wk_entry *e = s->outbox.first; e; e = e->next)
        if (!wk_totals_is_under(s, e)) steps += e->head.steps;
    return steps;
}

// The file may have more than was pushed: a block that a crash wasted, or A after a loss. None of
// that was released, so it is no step beyond the stable point.
static void begin(struct wk_worker *w)
{
    struct wk_records *r = &w->privacy.records;
    uint64_t shown = 0, above = 0;
    bool lived = false;
    for (uint32_t i = 0; i < w->shards; i++) {
        uint64_t total = wk_totals_shown(&w->shard[i]), steps = steps_above(&w->shard[i]);
        if (total > shown) shown = total;
        if (steps > above) above = steps;
        lived |= wk_totals_lived(&w->shard[i]);
    }
    r->begun = true;
    r->trained = wk_totals_begin(&w->shard[0], shown, lived);
    r->stable = r->trained > above ? r->trained - above : 0;
}

// Total of the shard's newest push under the stable point; *rests: that is all of the shard.
static uint64_t stable_of(const struct wk_shard *s, bool *rests)
{
    uint64_t total = 0;
    *rests &= !s->cut && !s->progress.steps;
    for (const struct wk_entry *e = s->outbox.first; e; e = e->next) {
        bool under = wk_totals_is_under(s, e);
        *rests &= under;
        if (under && e->head.charged > total) total = e->head.charged;
    }
    return total;
}

void wk_records_look(struct wk_worker *w)
{
    struct wk_records *r = &w->privacy.records;
    bool rests = !w->stepping;
    if (!r->begun) begin(w);
    for (uint32_t i = 0; i < w->shards; i++) {
        const struct wk_shard *s = &w->shard[i];
        const struct lh_row *row = lh_ledger_row(&s->replica.ledger, w->id);
        uint64_t stable = stable_of(s, &rests);
        if (stable > r->stable) r->stable = stable;
        if (row && row->charged > r->trained) r->trained = row->charged; // another one charged
    }
    for (uint32_t i = 0; i < w->shards; i++) wk_totals_cover(&w->shard[i], r->trained);
    // With an external loop there may be unpushed training, which reported.c knows.
    if (rests && !w->privacy.reported.open) r->stable = r->trained;
}

static bool is_ahead(const struct wk_worker *w)
{
    const struct wk_records *r = &w->privacy.records;
    return r->trained >= r->stable + wk_totals_terms(w)->ahead;
}

bool wk_records_may(struct wk_worker *w)
{
    if (!w->privacy.records.open) return false;
    wk_records_look(w);
    return !wk_records_stop(w);
}

bool wk_records_stop(const struct wk_worker *w)
{
    const struct wk_records *r = &w->privacy.records;
    return r->begun && (r->trained >= wk_totals_terms(w)->steps || is_ahead(w));
}

bool wk_records_wait(const struct wk_worker *w)
{
    const struct wk_records *r = &w->privacy.records;
    return r->begun && r->trained < wk_totals_terms(w)->steps && is_ahead(w);
}

bool wk_records_are_spent(const struct wk_worker *w)
{
    const struct wk_records *r = &w->privacy.records;
    if (!r->begun || w->stepping || r->trained < wk_totals_terms(w)->steps) return false;
    for (uint32_t i = 0; i < w->shards; i++) {
        const struct wk_shard *s = &w->shard[i];
        if (s->cut || s->progress.steps || wk_outbox_undecided(&s->outbox)) return false;
    }
    return true;
}
