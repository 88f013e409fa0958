// A region whose loop makes its own steps private. See reported.h.
//
// Invariants: 1. a push's total is at least the steps of the record set up to its cut, even after
// crashes: a life's steps follow those of all lives before it, lost ones included; 2. no
// push's total is above the terms' steps, nor more than A above the stable point; 3. nothing is
// pushed of a life that reports no noise, or less than the terms; 4. the residual holds no step
// that is not charged, unless all of the terms' steps are.
#include "worker/privacy/reported.h"

#include <stdio.h>

#include "common/base/check.h"
#include "worker/privacy/totals.h"
#include "worker/worker.h"

// ---------------------------------------------------------------- count

// A life that outlived this process may have pushed up to the total that file and log show. Its
// steps since its oldest base are counted behind that, some of them for the second time.
void wk_reported_begin(struct wk_worker *w, bool resumed)
{
    struct wk_reported *r = &w->privacy.reported;
    uint64_t held = UINT64_MAX;
    if (!r->open) return;
    wk_records_look(w);
    for (uint32_t i = 0; i < w->shards; i++) {
        struct wk_external_cut base = wk_external_base(w->external, i);
        if (base.steps < held) held = base.steps;
    }
    if (!resumed) held = 0;
    uint64_t trained = w->privacy.records.trained;
    r->before = trained > held ? trained - held : 0;
    r->said = false;
}

uint64_t wk_reported_total(const struct wk_worker *w, uint64_t steps)
{
    return w->privacy.reported.open ? w->privacy.reported.before + steps : 0;
}

// Charges the loop's trained steps and the next local steps without waiting for a push, so that a
// process that starts after a crash can go on from the file's count.
static void charge_seen(struct wk_worker *w)
{
    const struct lh_privacy *p = wk_totals_terms(w);
    uint64_t seen = w->privacy.records.trained + p->local_steps;
    wk_totals_charge(&w->shard[0], seen < p->steps ? seen : p->steps);
}

void wk_reported_count(struct wk_worker *w, uint64_t steps)
{
    struct wk_records *r = &w->privacy.records;
    uint64_t total = wk_reported_total(w, steps);
    if (total > r->trained) r->trained = total;
    if (w->privacy.reported.open && steps) charge_seen(w);
}

bool wk_reported_may_keep(const struct wk_shard *s)
{
    uint64_t most = wk_totals_terms(s->worker)->steps, total = s->whole.charged;
    uint64_t charged = wk_totals_charged(s);
    return !s->whole.steps || charged >= (total < most ? total : most);
}

// ---------------------------------------------------------------- verdict

static bool is_as_strong(const struct wk_worker *w, const struct wk_external_noise *is, char *why,
                         size_t size)
{
    const struct lh_privacy *p = wk_totals_terms(w);
    if (is->sigma >= p->sigma && is->rate <= p->rate && is->clip <= p->clip) return true;
    snprintf(why, size,
             "the loop reports sigma %g, rate %g, clip %g, but the run's terms are %g, %g, %g: use "
             "no less noise, no higher rate and clip",
             is->sigma, is->rate, is->clip, p->sigma, p->rate, p->clip);
    return false;
}

static void say_unreported(struct wk_worker *w)
{
    struct wk_reported *r = &w->privacy.reported;
    if (r->said) return;
    r->said = true;
    lh_logf(w->conf.log, LH_WARN, "privacy.unreported",
            "the loop does not report its noise: nothing of it leaves before it does "
            "(longhaul_noise(), Client.noise())");
}

// Nothing of this region is on its way that the stable point does not hold.
static bool rests(const struct wk_worker *w)
{
    for (uint32_t i = 0; i < w->shards; i++) {
        const struct wk_shard *s = &w->shard[i];
        if (s->cut) return false;
        for (const struct wk_entry *e = s->outbox.first; e; e = e->next)
            if (!wk_totals_is_under(s, e)) return false;
    }
    return true;
}

// Another worker that has this record set may have charged since.
static void catch_up(struct wk_shard *s)
{
    uint64_t least = wk_totals_shown(s) + s->whole.steps;
    if (s->whole.charged >= least) return;
    s->worker->privacy.reported.before += least - s->whole.charged;
    s->whole.charged = least;
}

enum wk_reported_verdict wk_reported_judge(struct wk_shard *s, char *why, size_t size)
{
    struct wk_worker *w = s->worker;
    const struct lh_privacy *p = wk_totals_terms(w);
    struct wk_external_noise noise;
    wk_records_look(w);
    if (s->whole.empty && !wk_external_steps(w->external)) return WK_REPORTED_KEPT;
    if (!wk_external_noise(w->external, &noise)) {
        say_unreported(w);
        snprintf(why, size, "the loop reported no noise");
        bool may_yet = w->beside.state == WK_BESIDE_THERE && !w->beside.ending;
        return may_yet ? WK_REPORTED_WAITS : WK_REPORTED_BAD;
    }
    if (!is_as_strong(w, &noise, why, size)) return WK_REPORTED_BAD;
    if (s->ended || s->whole.empty) return WK_REPORTED_KEPT;
    catch_up(s);
    if (s->whole.charged > p->steps) return WK_REPORTED_KEPT;
    if (s->whole.steps > p->ahead) {
        snprintf(why, size,
                 "%llu steps came between two cuts, and at most %llu may be charged ahead of what "
                 "other hosts hold: the worker was away, or its pushes waited, for too long",
                 (unsigned long long)s->whole.steps, (unsigned long long)p->ahead);
        return WK_REPORTED_BAD;
    }
    struct wk_records *r = &w->privacy.records;
    uint64_t others = s->whole.charged - s->whole.steps; // lost steps, and those of earlier cuts
    if (rests(w) && others > r->stable) r->stable = others;
    return s->whole.charged <= r->stable + p->ahead ? WK_REPORTED_FITS : WK_REPORTED_WAITS;
}

// Between the worker's look and the loop's end a loop trains some steps more; these are lost where
// they are beyond the budget.
bool wk_reported_is_spent(const struct wk_worker *w)
{
    const struct wk_records *r = &w->privacy.records;
    if (!w->privacy.reported.open || !r->begun) return false;
    return r->trained + 2 * (uint64_t)wk_totals_terms(w)->local_steps >= wk_totals_terms(w)->steps;
}
