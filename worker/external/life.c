// A life of the trainer, from its start until it is settled: cuts, corrections, leases, its end.
// See external.h and worker/docs/0001-boundary.md.
//
//  1. The word `committed` moves only after the core's commit. Until then slot and corrections do
//     not change, so after a crash the next process makes the same delta again.
//  2. A cut counts once every rank wrote its number; its tokens and notes are as of that moment.
//  3. The trainer writes the numbers in the memory: each is read once, and an impossible one ends
//     the life, never this process.
//  4. An ended life keeps its memory until its whole cuts are committed; only then the next one
//     begins.
#include "worker/external/life.h"

#include <stdio.h>
#include <stdlib.h>
#include <math.h>
#include <string.h>

#include "common/base/check.h"

// ---------------------------------------------------------------- words

void wk_life_ring(struct wk_external *x)
{
    struct wk_channel_worker *w = wk_channel_worker(&x->channel);
    atomic_fetch_add(&w->bell, 1);
    x->io->ops->wake(x->io, &w->bell);
}

static uint64_t sum_tokens(const struct wk_external *x)
{
    uint64_t sum = 0;
    for (uint32_t r = 0; r < x->conf.ranks; r++)
        sum += WK_LOAD(wk_channel_rank(&x->channel, r)->tokens);
    return sum;
}

// ---------------------------------------------------------------- peers

struct wk_peer *wk_life_peer(struct wk_external *x, uint64_t connection)
{
    for (uint32_t i = 0; i < WK_PEERS_MAX; i++)
        if (x->peer[i].state && x->peer[i].connection == connection) return &x->peer[i];
    return NULL;
}

struct wk_peer *wk_life_rank(struct wk_external *x, uint32_t rank, enum wk_peer_state state)
{
    for (uint32_t i = 0; i < WK_PEERS_MAX; i++)
        if (x->peer[i].state == state && x->peer[i].hello.rank == rank) return &x->peer[i];
    return NULL;
}

void wk_life_clear(struct wk_peer *p)
{
    free(p->tensor);
    *p = (struct wk_peer){0};
}

void wk_life_send(struct wk_external *x, const struct wk_peer *p, struct wk_channel_message *m,
                  bool memory)
{
    uint8_t bytes[WK_CHANNEL_MESSAGE];
    m->abi = WK_CHANNEL_ABI;
    size_t n = wk_channel_encode(m, bytes);
    LH_ASSERT(n);
    x->io->ops->send(x->io, p->connection, lh_span(bytes, n), memory);
}

void wk_life_refuse(struct wk_external *x, struct wk_peer *p, uint32_t why, const char *text)
{
    struct wk_channel_message m = {.kind = WK_CHANNEL_REFUSED};
    m.as.refused.why = why;
    snprintf(m.as.refused.text, sizeof m.as.refused.text, "%s", text);
    if (why != WK_CHANNEL_BUSY)
        lh_logf(x->conf.log, LH_WARN, "trainer.refused", "rank %u: %s", p->hello.rank, text);
    wk_life_send(x, p, &m, false);
    x->io->ops->drop(x->io, p->connection);
    wk_life_clear(p);
}

// ---------------------------------------------------------------- the end of a life

static bool settled(const struct wk_external *x)
{
    for (uint32_t i = 0; i < x->conf.parts; i++)
        if (x->part[i].given > x->part[i].base) return false;
    return true;
}

static void forget(struct wk_external *x)
{
    wk_channel_close(&x->channel);
    x->io->ops->forget(x->io);
    x->life = WK_LIFE_NONE;
    x->ops->settled(x->arg);
    x->vacant(x);
}

static uint64_t lost_tokens(const struct wk_external *x)
{
    uint64_t held = UINT64_MAX, all = sum_tokens(x);
    for (uint32_t i = 0; i < x->conf.parts; i++)
        if (x->part[i].tokens < held) held = x->part[i].tokens;
    return all > held ? all - held : 0;
}

void wk_life_end(struct wk_external *x, bool orderly, uint32_t refusal, const char *why)
{
    if (x->life != WK_LIFE_RUNS) return;
    x->life = WK_LIFE_SETTLES;
    struct wk_channel_worker *w = wk_channel_worker(&x->channel);
    if (WK_LOAD(w->phase) != WK_CHANNEL_END) WK_STORE(w->phase, WK_CHANNEL_OVER);
    wk_life_ring(x);
    for (uint32_t i = 0; i < WK_PEERS_MAX; i++) {
        struct wk_peer *p = &x->peer[i];
        if (p->state == WK_PEER_IN) wk_life_refuse(x, p, refusal, why);
        if (p->state == WK_PEER_LEFT) wk_life_clear(p);
    }
    uint64_t lost = lost_tokens(x);
    lh_logf(x->conf.log, orderly ? LH_INFO : LH_WARN, "trainer.over", "%s; %llu tokens in no cut",
            why, (unsigned long long)lost);
    x->ops->over(x->arg, lost, orderly);
    if (settled(x)) forget(x);
}

// ---------------------------------------------------------------- cuts

static bool tell_notes(struct wk_external *x, uint32_t rank, uint64_t upto)
{
    uint64_t written = WK_LOAD(wk_channel_rank(&x->channel, rank)->noted);
    if (upto > written || (upto > x->read[rank] && upto - x->read[rank] > x->channel.shape.journal))
        return false;
    for (; x->read[rank] < upto; x->read[rank]++) {
        struct wk_channel_note n = *wk_channel_note(&x->channel, rank, x->read[rank]);
        x->ops->trained(x->arg, rank, n.unit, n.upto, n.step);
    }
    return true;
}

// Gives a whole cut to the core. NULL: accepted; otherwise the reason why not.
static const char *give(struct wk_external *x, uint32_t part)
{
    struct wk_life_part *p = &x->part[part];
    struct wk_external_cut cut = {.part = part, .number = p->wanted, .last = true};
    uint64_t included = 0, noted[WK_CHANNEL_RANKS_MAX];
    for (uint32_t r = 0; r < x->conf.ranks; r++) {
        struct wk_channel_cut of = wk_channel_done(&x->channel, part, r)->of[cut.number % 2];
        if (r && (of.included != included || of.step != cut.step)) return "its ranks disagree";
        included = of.included;
        cut.step = of.step;
        cut.tokens += of.tokens;
        if (of.steps > cut.steps) cut.steps = of.steps;
        noted[r] = of.noted;
        const struct wk_channel_rank *rank = wk_channel_rank(&x->channel, r);
        cut.last &= WK_LOAD(rank->ending) && WK_LOAD(rank->trained) == of.step;
    }
    if (included < p->retired || included > p->published)
        return "it claims corrections that were never published";
    for (uint32_t r = 0; r < x->conf.ranks; r++)
        if (!tell_notes(x, r, noted[r])) return "its journal makes no sense";
    p->given = cut.number;
    p->included = cut.corrections = included;
    p->tokens = cut.tokens;
    p->step = cut.step;
    p->steps = cut.steps;
    memcpy(p->noted, noted, sizeof noted[0] * x->conf.ranks);
    x->ops->cut(x->arg, &cut);
    return NULL;
}

// 1: every rank's share is there; 0: not yet; -1: a number that was not requested.
static int whole(const struct wk_external *x, uint32_t part)
{
    int all = 1;
    for (uint32_t r = 0; r < x->conf.ranks; r++) {
        uint64_t cut = WK_LOAD(wk_channel_done(&x->channel, part, r)->cut);
        if (cut > x->part[part].wanted) return -1;
        if (cut < x->part[part].wanted) all = 0;
    }
    return all;
}

void wk_life_look(struct wk_external *x)
{
    const char *wrong = NULL;
    for (uint32_t i = 0; !wrong && x->life == WK_LIFE_RUNS && i < x->conf.parts; i++) {
        const struct wk_life_part *p = &x->part[i];
        if (p->wanted == p->base || p->given == p->wanted) continue;
        int is = whole(x, i);
        if (is < 0) wrong = "a cut that was not wanted";
        if (is > 0) wrong = give(x, i);
    }
    if (wrong) {
        lh_logf(x->conf.log, LH_ERROR, "trainer.wrong", "%s", wrong);
        wk_life_end(x, false, WK_CHANNEL_AGAIN, wrong);
    }
    for (uint32_t r = 0; x->life == WK_LIFE_RUNS && !x->ending_told && r < x->conf.ranks; r++)
        if (WK_LOAD(wk_channel_rank(&x->channel, r)->ending)) {
            x->ending_told = true;
            x->ops->ending(x->arg);
        }
}

static void retire_notes(struct wk_external *x)
{
    for (uint32_t r = 0; r < x->conf.ranks; r++) {
        uint64_t least = UINT64_MAX;
        for (uint32_t i = 0; i < x->conf.parts; i++) {
            const struct wk_life_part *p = &x->part[i];
            uint64_t held = p->given == p->base ? p->noted[r] : 0;
            if (held < least) least = held;
        }
        struct wk_channel_worker_rank *w = wk_channel_worker_rank(&x->channel, r);
        if (least > WK_LOAD(w->retired)) WK_STORE(w->retired, least);
    }
}

void wk_external_committed(struct wk_external *x, uint32_t part, uint64_t number)
{
    struct wk_life_part *p = &x->part[part];
    LH_ASSERT(x->life != WK_LIFE_NONE && number == p->given && number == p->base + 1);
    WK_STORE(wk_channel_part(&x->channel, part)->committed, number);
    p->base = number;
    p->retired = p->included;
    x->spoiled[part] = 0;
    x->said[0] = 0;
    p->at = (struct wk_external_cut){.part = part,
                                     .number = number,
                                     .step = p->step,
                                     .steps = p->steps,
                                     .corrections = p->included,
                                     .tokens = p->tokens};
    retire_notes(x);
    wk_life_ring(x);
    if (x->life == WK_LIFE_SETTLES && settled(x)) forget(x);
}

static void drop(struct wk_external *x, uint32_t part, uint32_t refusal, const char *why)
{
    struct wk_life_part *p = &x->part[part];
    LH_ASSERT(x->life != WK_LIFE_NONE);
    if (p->given > p->base) p->tokens = p->at.tokens;
    p->given = p->wanted = p->base;
    // A loop that starts again and goes on as before is logged once.
    if (strncmp(x->said, why, sizeof x->said - 1) != 0)
        lh_logf(x->conf.log, LH_ERROR, "trainer.wrong", "part %u: %s", part, why);
    snprintf(x->said, sizeof x->said, "%s", why);
    if (x->life == WK_LIFE_RUNS)
        wk_life_end(x, false, refusal, why);
    else if (settled(x))
        forget(x);
}

void wk_external_drop(struct wk_external *x, uint32_t part, const char *why)
{
    drop(x, part, WK_CHANNEL_AGAIN, why);
}

void wk_external_spoiled(struct wk_external *x, uint32_t part, const char *why)
{
    snprintf(x->why, sizeof x->why, "%s", why);
    if (x->spoiled[part] < UINT32_MAX) x->spoiled[part]++;
    if (x->spoiled[part] == WK_LIVES_SPOILED)
        lh_logf(x->conf.log, LH_ERROR, "trainer.failing",
                "%u lives of the loop in a row ended with a value that is not finite before a cut "
                "was taken: %s. Until a cut is taken, the run goes on without this region: skip "
                "such steps in the loop (a GradScaler, clip_grad_norm_(error_if_nonfinite=True)), "
                "lower its learning rate, or begin with another state of its optimizer",
                x->spoiled[part], x->why);
    drop(x, part, WK_CHANNEL_NOT_FINITE, why);
}

const char *wk_external_failing(const struct wk_external *x)
{
    for (uint32_t i = 0; i < x->conf.parts; i++)
        if (x->spoiled[i] >= WK_LIVES_SPOILED) return x->why;
    return NULL;
}

struct wk_external_cut wk_external_base(const struct wk_external *x, uint32_t part)
{
    return x->part[part].at;
}

bool wk_external_wanted(const struct wk_external *x, uint32_t part)
{
    const struct wk_life_part *p = &x->part[part];
    return x->life == WK_LIFE_RUNS && p->wanted != p->base && p->given != p->wanted;
}

void wk_external_want(struct wk_external *x, uint32_t part, uint64_t steps)
{
    struct wk_life_part *p = &x->part[part];
    if (x->life != WK_LIFE_RUNS || x->ended) return; // a cut would overwrite the final parameters
    struct wk_channel_part *w = wk_channel_part(&x->channel, part);
    bool already = p->wanted != p->base;
    if (already && steps >= WK_LOAD(w->wanted_step)) return;
    WK_STORE(w->wanted_step, steps);
    if (!already) WK_STORE(w->wanted, ++p->wanted);
    wk_life_ring(x);
}

lh_err wk_external_delta(struct wk_external *x, uint32_t part, uint64_t from, uint64_t n,
                         float *out)
{
    const struct wk_life_part *p = &x->part[part];
    struct wk_base base = {&x->channel, part, p->base, p->retired, p->included};
    const float *cut = wk_channel_slot(&x->channel, p->given) + x->first[part];
    LH_ASSERT(p->given == p->base + 1);
    for (uint64_t end = from + n; from < end;) {
        uint64_t stop = (from / WK_CHANNEL_CHUNK + 1) * WK_CHANNEL_CHUNK;
        if (stop > end) stop = end;
        LH_TRY(wk_base_read(&base, from, stop - from, out));
        const float *restrict its = cut + from;
#pragma omp simd
        for (uint64_t i = 0; i < stop - from; i++) out[i] -= its[i];
        out += stop - from;
        from = stop;
    }
    return LH_OK;
}

// ---------------------------------------------------------------- corrections

static uint32_t live_entries(const struct wk_external *x, uint32_t part,
                             struct wk_channel_entry live[WK_CHANNEL_LIVE])
{
    const struct wk_life_part *p = &x->part[part];
    uint32_t lives = 0;
    for (uint64_t n = p->retired + 1; n <= p->published; n++)
        live[lives++] = wk_channel_part(&x->channel, part)->entry[n % WK_CHANNEL_LIVE];
    return lives;
}

lh_err wk_external_renew(struct wk_external *x, uint32_t part, const struct wk_external_view *view)
{
    struct wk_life_part *p = &x->part[part];
    if (x->life != WK_LIFE_RUNS) return LH_OK; // the next life begins with its own view
    if (p->published - p->retired >= WK_CHANNEL_LIVE) return LH_ERR_BUSY;
    struct wk_base base = {&x->channel, part, p->base, p->retired, p->published};
    struct wk_correction_plan plan;
    LH_TRY(wk_correction_plan(&base, view, &x->work, &plan));
    if (!plan.count) return LH_OK;
    struct wk_channel_entry live[WK_CHANNEL_LIVE];
    uint32_t lives = live_entries(x, part, live);
    uint64_t values = x->first[part + 1] - x->first[part];
    uint64_t room = wk_channel_ring_bytes(values);
    uint64_t at = wk_ring_place(live, lives, values, room, plan.bytes);
    if (at == UINT64_MAX) return LH_ERR_BUSY;
    if (at > room || plan.bytes > room - at || at % 64)
        return lh_fail(LH_ERR_CORRUPT, "the trainer wrote over the corrections of part %u", part);
    LH_TRY(
        wk_correction_write(&base, view, &x->work, &plan, wk_channel_ring(&x->channel, part) + at));
    struct wk_channel_part *w = wk_channel_part(&x->channel, part);
    w->entry[(p->published + 1) % WK_CHANNEL_LIVE] = (struct wk_channel_entry){
        .number = p->published + 1, .kind = plan.kind, .at = at, .count = plan.count};
    WK_STORE(w->published, ++p->published);
    wk_life_ring(x);
    return LH_OK;
}

uint64_t wk_external_published(const struct wk_external *x, uint32_t part)
{
    return x->part[part].published;
}

uint64_t wk_external_renewed(const struct wk_external *x, uint32_t part)
{
    uint64_t least = UINT64_MAX;
    if (x->life == WK_LIFE_NONE) return 0;
    for (uint32_t r = 0; r < x->conf.ranks; r++) {
        uint64_t is = WK_LOAD(wk_channel_done(&x->channel, part, r)->renewed);
        if (is < least) least = is;
    }
    return least;
}

// ---------------------------------------------------------------- leases, clock, phases

bool wk_external_there(const struct wk_external *x)
{
    return x->life == WK_LIFE_RUNS;
}

uint64_t wk_external_step(const struct wk_external *x)
{
    uint64_t least = UINT64_MAX;
    if (x->life == WK_LIFE_NONE) return 0;
    for (uint32_t r = 0; r < x->conf.ranks; r++) {
        uint64_t step = WK_LOAD(wk_channel_rank(&x->channel, r)->step);
        if (step < least) least = step;
    }
    return least;
}

uint64_t wk_external_steps(const struct wk_external *x)
{
    uint64_t most = 0;
    if (x->life == WK_LIFE_NONE) return 0;
    for (uint32_t r = 0; r < x->conf.ranks; r++) {
        uint64_t steps = WK_LOAD(wk_channel_rank(&x->channel, r)->steps);
        if (steps > most) most = steps;
    }
    return most;
}

uint64_t wk_external_tokens(const struct wk_external *x)
{
    return x->life == WK_LIFE_NONE ? 0 : sum_tokens(x);
}

uint64_t wk_external_waiting(const struct wk_external *x, uint32_t rank)
{
    if (x->life != WK_LIFE_RUNS) return 0;
    uint64_t leased = WK_LOAD(wk_channel_worker_rank(&x->channel, rank)->leased);
    uint64_t taken = WK_LOAD(wk_channel_rank(&x->channel, rank)->taken);
    return taken < leased ? leased - taken : 0;
}

lh_err wk_external_lease(struct wk_external *x, uint32_t rank, uint64_t unit, uint64_t from,
                         uint64_t tokens)
{
    if (x->life != WK_LIFE_RUNS || wk_external_waiting(x, rank) >= x->channel.shape.leases)
        return LH_ERR_BUSY;
    struct wk_channel_worker_rank *w = wk_channel_worker_rank(&x->channel, rank);
    uint64_t n = WK_LOAD(w->leased);
    *wk_channel_lease(&x->channel, rank, n) = (struct wk_channel_lease){unit, from, tokens};
    WK_STORE(w->leased, n + 1);
    wk_life_ring(x);
    return LH_OK;
}

uint64_t wk_external_wants(const struct wk_external *x, uint32_t rank)
{
    return x->life == WK_LIFE_RUNS ? WK_LOAD(wk_channel_rank(&x->channel, rank)->wants) : 0;
}

uint64_t wk_external_leased(const struct wk_external *x, uint32_t rank)
{
    if (x->life != WK_LIFE_RUNS) return 0;
    return WK_LOAD(wk_channel_worker_rank(&x->channel, rank)->leased);
}

uint64_t wk_external_lease_unit(const struct wk_external *x, uint32_t rank, uint64_t n)
{
    return wk_channel_lease(&x->channel, rank, n)->unit;
}

int64_t wk_external_spent_ns(const struct wk_external *x)
{
    if (x->life == WK_LIFE_NONE) return 0;
    return (int64_t)WK_LOAD(wk_channel_rank(&x->channel, 0)->spent_ns);
}

enum wk_channel_schedule wk_external_schedule(const struct wk_external *x)
{
    enum wk_channel_schedule all = WK_CHANNEL_RUNS_CLOCK;
    if (x->life != WK_LIFE_RUNS) return WK_CHANNEL_UNTOLD;
    for (uint32_t r = 0; r < x->conf.ranks; r++) {
        uint32_t said = WK_LOAD(wk_channel_rank(&x->channel, r)->schedule);
        if (said == WK_CHANNEL_OWN_STEPS) return WK_CHANNEL_OWN_STEPS;
        if (said != WK_CHANNEL_RUNS_CLOCK) all = WK_CHANNEL_UNTOLD;
    }
    return all;
}

static double number_of(const _Atomic uint64_t *word)
{
    uint64_t bits = WK_LOAD(*word);
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

bool wk_external_noise(const struct wk_external *x, struct wk_external_noise *out)
{
    *out = (struct wk_external_noise){.sigma = INFINITY};
    if (x->life == WK_LIFE_NONE) return false;
    for (uint32_t r = 0; r < x->conf.ranks; r++) {
        const struct wk_channel_rank *at = wk_channel_rank(&x->channel, r);
        double sigma = number_of(&at->noise[0]), rate = number_of(&at->noise[1]);
        double clip = number_of(&at->noise[2]);
        if (!(sigma > 0 && rate > 0 && clip > 0)) return false;
        out->sigma = fmin(out->sigma, sigma);
        out->rate = fmax(out->rate, rate);
        out->clip = fmax(out->clip, clip);
    }
    return isfinite(out->sigma);
}

void wk_external_credited(struct wk_external *x, uint64_t tokens)
{
    x->credited = tokens;
    if (x->life == WK_LIFE_RUNS) WK_STORE(wk_channel_worker(&x->channel)->credited, tokens);
}

void wk_external_budget(struct wk_external *x, uint64_t budget, uint64_t old, uint64_t changed)
{
    x->budget[0] = budget;
    x->budget[1] = old;
    x->budget[2] = changed;
}

void wk_external_drain(struct wk_external *x)
{
    x->draining = true;
    if (x->life != WK_LIFE_RUNS) return;
    WK_STORE(wk_channel_worker(&x->channel)->phase, WK_CHANNEL_DRAIN);
    wk_life_ring(x);
}

void wk_external_undrain(struct wk_external *x)
{
    if (!x->draining) return;
    x->draining = false;
    wk_life_end(x, true, WK_CHANNEL_AGAIN, "the run goes on");
}

void wk_external_pause(struct wk_external *x, bool paused)
{
    if (paused == (x->paused != 0)) return;
    x->paused = paused ? lh_random_u64(x->conf.env) | 1 : 0;
    if (x->life != WK_LIFE_RUNS) return;
    WK_STORE(wk_channel_worker(&x->channel)->paused, x->paused);
    wk_life_ring(x);
}

void wk_external_end(struct wk_external *x)
{
    if (x->life != WK_LIFE_RUNS) return;
    for (uint32_t i = 0; i < x->conf.parts; i++) {
        const struct wk_life_part *p = &x->part[i];
        LH_ASSERT(p->wanted == p->base);
        x->ops->view(x->arg, i, true, wk_channel_slot(&x->channel, p->base + 1) + x->first[i]);
    }
    x->ended = true;
    WK_STORE(wk_channel_worker(&x->channel)->phase, WK_CHANNEL_END);
    wk_life_ring(x);
}
