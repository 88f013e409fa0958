// Does the due work between two steps. See longhaul.h and worker/docs/0001-boundary.md.
//
//  1. Rank 0 turns the worker's wishes into acts: which corrections are added, and which cut is
//     taken, at which step. With several ranks that step is two ahead, and no rank passes a
//     boundary before rank 0 has published all acts up to it. So all ranks act at the same step.
//  2. A cut's number is stored after its bytes, a renewal's after its additions.
//  3. A cut holds the tokens and units of its boundary: later ones belong to the next cut, even if
//     the copy is made later.
//  4. A cut of device memory is stored once its copies have ended (landed()). No thread waits for
//     that, so every call of a boundary, of longhaul_wait() and of longhaul_finish() checks.
//  5. The library does not see steps. If the next step did not wait for a cut's copies, the cut may
//     mix old and new values, and is never stored.
#include <string.h>
#include <unistd.h>

#include "worker/client/handle.h"

static const int64_t MS = 1000000, LOOK_NS = 100 * INT64_C(1000000);
enum { PATIENCE_MS = 600000, AHEAD = 2 };

#define LOAD(word) atomic_load_explicit(&(word), memory_order_acquire)
#define STORE(word, v) atomic_store_explicit(&(word), (v), memory_order_release)

static int begun(struct longhaul *c)
{
    if (!c) return LONGHAUL_E_INVALID;
    if (!wk_client_mine(c))
        return wk_client_fail(c, LONGHAUL_E_FORKED, "a forked process may not use this handle");
    if (c->link == WK_LINK_NONE || !c->started)
        return wk_client_fail(c, LONGHAUL_E_STATE,
                              "call longhaul_connect() and longhaul_start() first");
    if (c->torn)
        return wk_client_fail(
            c, LONGHAUL_E_STATE,
            "longhaul_before_step() was not called between a cut of CUDA memory and the next "
            "boundary: parameters may have changed during the copy, so the worker does not get "
            "that cut; call longhaul_connect() and longhaul_start() to begin another life");
    return LONGHAUL_OK;
}

static uint32_t phase(const struct longhaul *c)
{
    return LOAD(wk_channel_worker(&c->channel)->phase);
}

static int alive(struct longhaul *c)
{
    if (c->link != WK_LINK_OVER && phase(c) != WK_CHANNEL_OVER) return LONGHAUL_OK;
    if (c->link != WK_LINK_OVER) wk_link_hear_end(c);
    c->link = WK_LINK_OVER;
    return wk_client_fail(c, LONGHAUL_E_RESTART,
                          "this life is over: %s; longhaul_connect() and longhaul_start() begin "
                          "another",
                          c->over[0] ? c->over : "the worker lost its state");
}

// ---------------------------------------------------------------- acts

static bool act_done(const struct longhaul *c, uint32_t part, const struct wk_channel_act *a)
{
    uint64_t renew = LOAD(a->renew), cut = LOAD(a->cut);
    for (uint32_t r = 0; r < c->ranks; r++) {
        struct wk_channel_done *d = wk_channel_done(&c->channel, part, r);
        if (LOAD(d->renewed) < renew || LOAD(d->cut) < cut) return false;
    }
    return true;
}

// Trained steps of this life; the maximum over the ranks. Boundaries of a waiting loop or of
// longhaul_finish() do not count.
static uint64_t trained_steps(const struct longhaul *c)
{
    uint64_t most = c->mark.steps;
    for (uint32_t r = 0; r < c->ranks; r++) {
        uint64_t steps = LOAD(wk_channel_rank(&c->channel, r)->steps);
        if (steps > most) most = steps;
    }
    return most;
}

// The cut that is wanted after `trained` steps, or `acted` if there is no new one. Remembers a
// later one.
static uint64_t cut_wanted(struct longhaul *c, const struct wk_channel_part *p, uint64_t acted,
                           uint64_t trained)
{
    uint64_t wanted = LOAD(p->wanted);
    if (wanted != LOAD(p->committed) + 1 || wanted <= acted) return acted;
    uint64_t from = LOAD(p->wanted_step);
    if (from <= trained) return wanted;
    if (from < c->later) c->later = from;
    return acted;
}

static void decide_part(struct longhaul *c, uint32_t part, uint64_t step, uint64_t trained)
{
    const struct wk_channel_part *p = wk_channel_part(&c->channel, part);
    struct wk_channel_act *a = wk_channel_act(&c->channel, part);
    if (!act_done(c, part, a)) {
        c->acts_open = true;
        return;
    }
    uint64_t renew = LOAD(p->published), cut = cut_wanted(c, p, LOAD(a->cut), trained);
    if (renew <= LOAD(a->renew) && cut == LOAD(a->cut)) return;
    STORE(a->renew, renew > LOAD(a->renew) ? renew : LOAD(a->renew));
    STORE(a->cut, cut);
    STORE(a->step, step);
    c->acts_open = true;
}

// Gives all ranks the clock that rank 0 read when it decided about the step: with different rates
// they would train different replicas. A host may run ahead of its device: a rank that has not
// taken the clock of rank 0's last boundary may still need any entry, so none changes. Later steps
// then use an earlier time, the same on every rank.
static void tell_clock(struct longhaul *c, struct wk_channel_rank *me, uint64_t at)
{
    uint64_t now = LOAD(wk_channel_worker(&c->channel)->credited), before = LOAD(me->decided);
    uint64_t last = LOAD(me->clock_taken);
    for (uint32_t r = 1; r < c->ranks; r++)
        if (LOAD(wk_channel_rank(&c->channel, r)->clock_taken) < last) return;
    for (uint64_t k = 0; k < WK_CHANNEL_CLOCKS && (!before || at - k > before); k++)
        STORE(me->clock[(at - k) % WK_CHANNEL_CLOCKS], now);
}

static void take_clock(struct longhaul *c, uint64_t step)
{
    c->clock = LOAD(wk_channel_rank(&c->channel, 0)->clock[step % WK_CHANNEL_CLOCKS]);
    STORE(wk_channel_rank(&c->channel, c->rank)->clock_taken, step);
}

static void decide(struct longhaul *c, uint64_t step)
{
    struct wk_channel_rank *me = wk_channel_rank(&c->channel, 0);
    uint64_t ahead = c->ranks > 1 ? AHEAD : 0, at = step + ahead;
    uint64_t trained = trained_steps(c) + ahead; // if those steps train
    uint32_t bell = LOAD(wk_channel_worker(&c->channel)->bell);
    if (bell != c->bell || c->acts_open || trained >= c->later) {
        c->bell = bell;
        c->acts_open = false;
        c->later = UINT64_MAX;
        for (uint32_t i = 0; i < c->channel.shape.parts; i++) decide_part(c, i, at, trained);
    }
    if (phase(c) >= WK_CHANNEL_DRAIN && !LOAD(me->last)) STORE(me->last, at);
    uint64_t paused = LOAD(wk_channel_worker(&c->channel)->paused);
    if (paused && paused != LOAD(me->hold_for)) {
        STORE(me->hold, at);
        STORE(me->hold_for, paused);
    }
    if (c->ranks > 1) tell_clock(c, me, at);
    STORE(me->decided, at);
    if (c->ranks == 1) return;
    atomic_fetch_add(&me->decided_bell, 1);
    wk_link_wake(&me->decided_bell);
}

// Waits until rank 0 has decided about this step; the trainer's own communication keeps it close.
static int await_decision(struct longhaul *c, uint64_t step)
{
    struct wk_channel_rank *first = wk_channel_rank(&c->channel, 0);
    int64_t until = wk_link_now() + PATIENCE_MS * MS;
    for (;;) {
        uint32_t bell = LOAD(first->decided_bell);
        if (LOAD(first->decided) >= step || phase(c) == WK_CHANNEL_END) return LONGHAUL_OK;
        int err = alive(c);
        if (err) return err;
        if (wk_link_now() >= until)
            return wk_client_fail(c, LONGHAUL_E_TIMEOUT, "rank 0 is more than %d steps behind",
                                  AHEAD);
        wk_link_sleep(&first->decided_bell, bell, LOOK_NS);
        wk_link_look(c, step);
    }
}

static void gather_due(struct longhaul *c, uint64_t step)
{
    c->due_set = 0;
    for (uint32_t i = 0; i < c->channel.shape.parts; i++) {
        const struct wk_channel_act *a = wk_channel_act(&c->channel, i);
        const struct wk_channel_done *d = wk_channel_done(&c->channel, i, c->rank);
        c->due[i] = (struct wk_due){.flies = c->due[i].flies};
        if (LOAD(a->step) > step) continue;
        uint64_t renew = LOAD(a->renew), cut = LOAD(a->cut);
        if (renew > LOAD(d->renewed)) c->due[i].renew = renew, c->due_set |= LONGHAUL_RENEW;
        if (cut > LOAD(d->cut) && cut != c->due[i].flies)
            c->due[i].cut = cut, c->due_set |= LONGHAUL_CUT;
    }
}

static bool worker_missed(const struct longhaul *c, uint64_t step)
{
    if (c->link != WK_LINK_AWAY && c->link != WK_LINK_CALLING) return false;
    uint64_t most = LOAD(wk_channel_worker(&c->channel)->run_on);
    return step - c->away_from >= most;
}

// The run is paused, and this rank stands at the step at which all do. A loop that drains goes on.
static bool held(const struct longhaul *c)
{
    const struct wk_channel_rank *first = wk_channel_rank(&c->channel, 0);
    uint64_t paused = LOAD(wk_channel_worker(&c->channel)->paused);
    return paused && phase(c) == WK_CHANNEL_RUN && LOAD(first->hold_for) == paused &&
           c->step >= LOAD(first->hold);
}

static void store_cut(struct longhaul *c, uint32_t part, uint64_t number)
{
    STORE(wk_channel_done(&c->channel, part, c->rank)->cut, number);
    c->cuts++;
}

// Stores the cuts whose copies have ended, once longhaul_before_step() was called for them. `wait`:
// waits for all copies.
static int landed(struct longhaul *c, bool wait)
{
    bool all = true;
    if (!c->flies || wk_device_unheld(c)) return LONGHAUL_OK;
    int err = wk_device_landed(c, wait, &all);
    if (err || !all) return err;
    for (uint32_t p = 0; p < c->channel.shape.parts; p++) {
        if (!c->due[p].flies) continue;
        wk_pieces_landed(c, p, c->due[p].flies);
        store_cut(c, p, c->due[p].flies);
        c->due[p].flies = 0;
    }
    c->flies = false;
    wk_link_ring(c);
    return LONGHAUL_OK;
}

static int pass(struct longhaul *c, uint64_t step, unsigned *due)
{
    struct wk_channel_rank *me = wk_channel_rank(&c->channel, c->rank);
    wk_link_look(c, step);
    int err = alive(c);
    if (!err) err = landed(c, false);
    if (err) return err;
    c->step = step;
    STORE(me->tokens, c->tokens);
    STORE(me->trained, c->mark.step);
    STORE(me->steps, (uint32_t)c->mark.steps);
    STORE(me->step, step);
    if (c->rank == 0)
        decide(c, step);
    else
        err = await_decision(c, step);
    if (err) return err;
    if (c->ranks > 1) take_clock(c, step);
    if (c->rank || c->acts_open) gather_due(c, step);
    *due = c->due_set;
    uint64_t last = LOAD(wk_channel_rank(&c->channel, 0)->last);
    if (last && step >= last) *due |= LONGHAUL_DRAIN;
    if (worker_missed(c, step)) *due |= LONGHAUL_WAIT;
    c->stands = held(c);
    if (c->stands) *due |= LONGHAUL_PAUSE;
    return LONGHAUL_OK;
}

// Reports to the worker the time that boundaries delayed training.
static void spent(struct longhaul *c, int64_t since)
{
    struct wk_channel_rank *me = wk_channel_rank(&c->channel, c->rank);
    STORE(me->spent_ns, LOAD(me->spent_ns) + (uint64_t)(wk_link_now() - since));
}

// True: a boundary without new tokens trained nothing, because the loop takes units or reported
// tokens before. Otherwise each boundary counts as training.
static bool counts_tokens(const struct longhaul *c)
{
    return c->tokens || LOAD(wk_channel_rank(&c->channel, c->rank)->wants);
}

int longhaul_boundary(struct longhaul *c, uint64_t step, uint64_t tokens, unsigned *due)
{
    int64_t since = wk_link_now();
    int err = begun(c);
    if (err) return err;
    if (!due || step <= c->step)
        return wk_client_fail(c, LONGHAUL_E_INVALID, "steps rise; the last one was %llu",
                              (unsigned long long)c->step);
    if (tokens > WK_CHANNEL_TOKENS_MAX)
        return wk_client_fail(c, LONGHAUL_E_INVALID, "%llu tokens of one step are no such count",
                              (unsigned long long)tokens);
    if (c->ranks > 1 && c->due_set)
        return wk_client_fail(c, LONGHAUL_E_STATE,
                              "the work due at step %llu was not done here, but other ranks did it",
                              (unsigned long long)c->step);
    c->torn = wk_device_unheld(c);
    if (c->torn) return begun(c);
    bool trains = tokens || !counts_tokens(c);
    uint64_t steps = c->private_steps ? c->private_steps : trains;
    c->private_steps = 0;
    c->tokens += tokens;
    c->mark = (struct wk_channel_cut){
        .step = step, .tokens = c->tokens, .noted = c->noted, .steps = c->mark.steps + steps};
    err = pass(c, step, due);
    spent(c, since);
    return err;
}

// ---------------------------------------------------------------- renewal

static int piece_of(const struct longhaul *c, uint32_t i, uint32_t pieces)
{
    if (!c || i >= pieces) return LONGHAUL_E_INVALID;
    if (!wk_client_mine(c)) return LONGHAUL_E_FORKED;
    return c->started ? LONGHAUL_OK : LONGHAUL_E_STATE;
}

int longhaul_renew_piece(struct longhaul *c, uint32_t i, uint32_t pieces)
{
    int err = piece_of(c, i, pieces);
    for (uint32_t p = 0; !err && p < c->channel.shape.parts; p++) {
        if (!c->due[p].renew) continue;
        uint64_t after = LOAD(wk_channel_done(&c->channel, p, c->rank)->renewed);
        err = wk_pieces_renew(c, p, after, c->due[p].renew, i, pieces);
    }
    // Even after an error: no deferred addition may reach the parameters of another life.
    int ended = piece_of(c, i, pieces) == LONGHAUL_OK && c->due_set & LONGHAUL_RENEW
                    ? wk_pieces_renewed(c)
                    : LONGHAUL_OK;
    return err ? err : ended;
}

int longhaul_renew_done(struct longhaul *c)
{
    int err = begun(c);
    for (uint32_t p = 0; !err && p < c->channel.shape.parts; p++) {
        struct wk_channel_done *d = wk_channel_done(&c->channel, p, c->rank);
        if (!c->due[p].renew) continue;
        c->renewals += c->due[p].renew - LOAD(d->renewed);
        STORE(d->renewed, c->due[p].renew);
        c->due[p].renew = 0;
    }
    if (!err) c->due_set &= ~(unsigned)LONGHAUL_RENEW;
    return err;
}

static int told(struct longhaul *c, int err, const char *what)
{
    if (err == LONGHAUL_E_DAMAGED)
        wk_client_fail(c, err, "%s: the worker's corrections are invalid", what);
    if (err == LONGHAUL_E_SYSTEM) wk_client_fail(c, err, "%s: the device failed to do it", what);
    if (err == LONGHAUL_E_NO_MEMORY) wk_client_fail(c, err, "%s: out of memory", what);
    return err;
}

int longhaul_renew(struct longhaul *c)
{
    int64_t since = wk_link_now();
    int err = begun(c);
    if (!err) err = told(c, longhaul_renew_piece(c, 0, 1), "longhaul_renew");
    if (!err) err = longhaul_renew_done(c);
    if (!err) spent(c, since);
    return err;
}

// ---------------------------------------------------------------- cut

int longhaul_cut_piece(struct longhaul *c, uint32_t i, uint32_t pieces)
{
    int err = piece_of(c, i, pieces);
    if (!err && c->due_set & LONGHAUL_RENEW) err = LONGHAUL_E_STATE;
    if (!err && c->due_set & LONGHAUL_CUT) err = wk_device_fence(c);
    for (uint32_t p = 0; !err && p < c->channel.shape.parts; p++)
        if (c->due[p].cut) err = wk_pieces_cut(c, p, c->due[p].cut, i, pieces);
    return err;
}

int longhaul_cut_done(struct longhaul *c)
{
    int err = begun(c);
    if (err || !(c->due_set & LONGHAUL_CUT)) return err;
    c->flies = c->cuda.lanes > 0;
    err = told(c, wk_device_queued(c), "longhaul_cut_done");
    if (err) return err;
    for (uint32_t p = 0; p < c->channel.shape.parts; p++) {
        struct wk_channel_done *d = wk_channel_done(&c->channel, p, c->rank);
        uint64_t number = c->due[p].cut;
        if (!number) continue;
        d->of[number % 2] = c->mark;
        d->of[number % 2].included = LOAD(d->renewed);
        c->due[p].cut = 0;
        if (c->flies)
            c->due[p].flies = number;
        else
            store_cut(c, p, number);
    }
    c->due_set &= ~(unsigned)LONGHAUL_CUT;
    if (!c->flies) wk_link_ring(c);
    return LONGHAUL_OK;
}

int longhaul_cut(struct longhaul *c)
{
    int err = begun(c);
    if (err) return err;
    if (c->due_set & LONGHAUL_RENEW)
        return wk_client_fail(c, LONGHAUL_E_STATE, "call longhaul_renew() before longhaul_cut()");
    int64_t since = wk_link_now();
    err = told(c, longhaul_cut_piece(c, 0, 1), "longhaul_cut");
    if (!err) err = longhaul_cut_done(c);
    if (!err) spent(c, since);
    return err;
}

int longhaul_before_step(struct longhaul *c)
{
    int err = begun(c);
    if (err || !c->flies) return err;
    err = told(c, wk_device_hold(c), "longhaul_before_step");
    return err ? err : landed(c, false);
}

// ---------------------------------------------------------------- waiting, clock, units

int longhaul_wait(struct longhaul *c, int timeout_ms)
{
    int err = begun(c);
    if (err) return err;
    struct wk_channel_worker *w = wk_channel_worker(&c->channel);
    uint32_t seen = c->rank ? LOAD(w->bell) : c->bell;
    int64_t until = wk_link_now() + timeout_ms * MS;
    bool away = c->link != WK_LINK_UP, paused = c->stands;
    for (;;) {
        wk_link_look(c, c->step);
        err = alive(c);
        if (!err) err = landed(c, false);
        if (err) return err;
        if (paused) // other news end no pause
            seen = LOAD(w->bell);
        else if (LOAD(w->bell) != seen || (away && c->link == WK_LINK_UP))
            return LONGHAUL_OK;
        c->stands = paused && held(c);
        if (paused && !c->stands) return LONGHAUL_OK; // it may have gone on before the call
        int64_t left = until - wk_link_now(), most = away ? LOOK_NS / 5 : LOOK_NS;
        if (c->flies) most = MS;
        if (left <= 0)
            return wk_client_fail(c, LONGHAUL_E_TIMEOUT,
                                  paused                  ? "the run is paused"
                                  : c->link == WK_LINK_UP ? "the worker says nothing new"
                                                          : "the worker is away");
        wk_link_sleep(&w->bell, seen, left < most ? left : most);
    }
}

int longhaul_credited(struct longhaul *c, uint64_t *tokens)
{
    int err = begun(c);
    if (err) return err;
    if (!tokens) return wk_client_fail(c, LONGHAUL_E_INVALID, "nowhere to put them");
    const struct wk_channel_worker *w = wk_channel_worker(&c->channel);
    uint64_t shared = c->step ? c->clock : LOAD(w->credited_first);
    *tokens = c->ranks > 1 ? shared : LOAD(w->credited);
    return LONGHAUL_OK;
}

int longhaul_budget(struct longhaul *c, struct longhaul_budget *out)
{
    int err = begun(c);
    if (err) return err;
    if (!out) return wk_client_fail(c, LONGHAUL_E_INVALID, "nowhere to put it");
    const struct wk_channel_worker *w = wk_channel_worker(&c->channel);
    *out = (struct longhaul_budget){LOAD(w->budget[0]), LOAD(w->budget[1]), LOAD(w->budget[2])};
    return LONGHAUL_OK;
}

int longhaul_schedule(struct longhaul *c, enum longhaul_schedule follows)
{
    int err = begun(c);
    if (err) return err;
    if (follows != LONGHAUL_RUNS_CLOCK && follows != LONGHAUL_OWN_STEPS)
        return wk_client_fail(c, LONGHAUL_E_INVALID,
                              "expected: rates follow the run's clock, or the loop's own steps");
    STORE(wk_channel_rank(&c->channel, c->rank)->schedule, (uint32_t)follows);
    return LONGHAUL_OK;
}

static uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

int longhaul_noise(struct longhaul *c, const struct longhaul_noise *noise)
{
    int err = begun(c);
    if (err) return err;
    if (!noise || noise->size != sizeof *noise) // no other size was released
        return wk_client_fail(c, LONGHAUL_E_INVALID, "it is not of this library's size");
    const struct longhaul_noise n = *noise;
    if (!(n.sigma > 0 && n.sigma <= 1e6) || !(n.rate > 0 && n.rate <= 1) ||
        !(n.clip > 0 && n.clip <= 1e9))
        return wk_client_fail(c, LONGHAUL_E_INVALID,
                              "sigma and clip must be above 0, the rate above 0 and at most 1");
    struct wk_channel_rank *me = wk_channel_rank(&c->channel, c->rank);
    STORE(me->noise[0], bits_of(n.sigma));
    STORE(me->noise[1], bits_of(n.rate));
    STORE(me->noise[2], bits_of(n.clip));
    // Several calls before a boundary add up: steps that were reported are never forgotten.
    uint32_t room = UINT32_MAX - c->private_steps;
    c->private_steps += n.steps < room ? n.steps : room;
    return LONGHAUL_OK;
}

int longhaul_lease(struct longhaul *c, struct longhaul_unit *out)
{
    int err = begun(c);
    if (!err && !out) err = wk_client_fail(c, LONGHAUL_E_INVALID, "nowhere to put it");
    if (!err) err = alive(c);
    if (err) return err;
    struct wk_channel_rank *me = wk_channel_rank(&c->channel, c->rank);
    struct wk_channel_worker_rank *w = wk_channel_worker_rank(&c->channel, c->rank);
    uint64_t n = LOAD(me->taken);
    if (n >= LOAD(w->leased)) {
        STORE(me->wants, n + 1);
        wk_link_ring(c);
        bool over = phase(c) >= WK_CHANNEL_DRAIN;
        return wk_client_fail(c, over ? LONGHAUL_E_DRAINED : LONGHAUL_E_AGAIN, "no unit is leased");
    }
    const struct wk_channel_lease *l = wk_channel_lease(&c->channel, c->rank, n);
    *out = (struct longhaul_unit){l->unit, l->from, l->tokens};
    STORE(me->taken, n + 1);
    return LONGHAUL_OK;
}

int longhaul_trained(struct longhaul *c, uint64_t unit, uint64_t upto)
{
    int err = begun(c);
    if (err) return err;
    struct wk_channel_rank *me = wk_channel_rank(&c->channel, c->rank);
    uint64_t retired = LOAD(wk_channel_worker_rank(&c->channel, c->rank)->retired);
    if (c->noted - retired >= c->channel.shape.journal)
        return wk_client_fail(c, LONGHAUL_E_AGAIN, "%u notes wait for a cut",
                              c->channel.shape.journal);
    *wk_channel_note(&c->channel, c->rank, c->noted) =
        (struct wk_channel_note){unit, upto, c->mark.step + 1};
    STORE(me->noted, ++c->noted);
    return LONGHAUL_OK;
}

// ---------------------------------------------------------------- the end

static int load_final(struct longhaul *c)
{
    int err = LONGHAUL_OK;
    for (uint32_t i = 0; !err && i < c->channel.shape.parts; i++)
        err = wk_pieces_load(c, i, LOAD(wk_channel_part(&c->channel, i)->committed) + 1);
    return told(c, err, "longhaul_finish");
}

// Parameters may have changed since a cut that no step waited for: takes it again from the current
// values. The new copies follow the earlier ones.
static void take_anew(struct longhaul *c)
{
    for (uint32_t p = 0; p < c->channel.shape.parts; p++) {
        if (!c->due[p].flies) continue;
        c->due[p].cut = c->due[p].flies;
        c->due[p].flies = 0;
        c->due_set |= LONGHAUL_CUT;
    }
    c->flies = false;
}

int longhaul_finish(struct longhaul *c, int timeout_ms)
{
    int err = begun(c);
    if (err) return err;
    if (wk_device_unheld(c)) take_anew(c);
    int64_t until = wk_link_now() + timeout_ms * MS;
    struct wk_channel_rank *me = wk_channel_rank(&c->channel, c->rank);
    if (!LOAD(me->ending)) {
        STORE(me->ending, 1);
        wk_link_ring(c);
    }
    for (;;) {
        unsigned due = c->due_set; // left by the last boundary
        if (due & LONGHAUL_RENEW) err = longhaul_renew(c);
        if (!err && due & LONGHAUL_CUT) err = longhaul_cut(c);
        if (!err) err = longhaul_before_step(c);
        if (!err) err = landed(c, true);
        if (!err && phase(c) == WK_CHANNEL_END) return load_final(c);
        if (!err) err = pass(c, c->step + 1, &due); // without training: the mark stays
        if (err) return err;
        if (c->due_set) continue;
        int64_t left = (until - wk_link_now()) / MS;
        if (left <= 0) return wk_client_fail(c, LONGHAUL_E_TIMEOUT, "the run is not over yet");
        if (phase(c) == WK_CHANNEL_END) continue;
        // The other ranks wait in the boundary for rank 0's steps, and an act of rank 0 for theirs.
        int64_t slice = c->ranks > 1 ? 1 : 100;
        err = c->rank == 0 ? longhaul_wait(c, (int)(left < slice ? left : slice)) : LONGHAUL_OK;
        if (err && err != LONGHAUL_E_TIMEOUT) return err;
        err = LONGHAUL_OK;
    }
}
