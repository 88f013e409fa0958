// The worker's end of the boundary, as a state machine. See external.h and
// worker/docs/0001-boundary.md.
//
// A life of the trainer begins when all ranks have greeted and described the same parameters, and
// is over when one of them dies or leaves. Each life has a memory of its own and a random name:
// nobody who is left over from an earlier life can write into this one.
//
//  1. The word `committed` moves only after the core's commit. Until then slot and corrections stay
//     as they are, so a process that dies in between makes the same delta again.
//  2. What the core committed is the core's to say. After a restart its number may be one above the
//     word, which is then brought up to it; any other difference ends the life.
//  3. A cut counts when every rank wrote its number; the tokens and notes are those of that moment.
//  4. Numbers out of the memory are the trainer's: each is read once, and one that can't be ends
//  the
//     life, never this process.
//  5. A life that is over keeps its memory until its whole cuts are committed; only then the next
//     one begins.
#include "worker/external/external.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "worker/external/correction.h"

enum { PEERS_MAX = 2 * WK_CHANNEL_RANKS_MAX, LEASES = 4096, JOURNAL = 65536 };

#define LOAD(word) atomic_load_explicit(&(word), memory_order_acquire)
#define STORE(word, v) atomic_store_explicit(&(word), (v), memory_order_release)

enum peer_state { PEER_NONE, PEER_OPEN, PEER_DESCRIBES, PEER_READY, PEER_IN, PEER_LEFT };
struct peer {
    enum peer_state state;
    uint64_t connection;
    struct wk_channel_hello hello;
    struct wk_channel_tensor *tensor;
    uint32_t tensors;
};

struct part { // our own copies of what the memory says
    uint64_t wanted, committed, published, retired;
    uint64_t given;                               // the newest cut that the core was told of
    uint64_t included;                            // corrections that it holds
    uint64_t tokens, noted[WK_CHANNEL_RANKS_MAX]; // and what else it holds
};

enum life { LIFE_NONE, LIFE_RUNS, LIFE_SETTLES };
struct wk_external {
    struct wk_external_conf conf;
    uint64_t *first;
    const struct wk_external_ops *ops;
    void *arg;
    struct wk_external_io *io;
    struct peer peer[PEERS_MAX];
    enum life life;
    uint8_t name[WK_CHANNEL_LIFE];
    struct wk_channel channel;
    struct part *part;
    uint64_t read[WK_CHANNEL_RANKS_MAX]; // journal entries that the core was told of
    uint64_t credited;
    bool draining, ending_told;
};

static void begin(struct wk_external *x);

// ---------------------------------------------------------------- words

static void ring(struct wk_external *x)
{
    struct wk_channel_worker *w = wk_channel_worker(&x->channel);
    atomic_fetch_add(&w->bell, 1);
    x->io->ops->wake(x->io, &w->bell);
}

static uint64_t sum_tokens(const struct wk_external *x)
{
    uint64_t sum = 0;
    for (uint32_t r = 0; r < x->conf.ranks; r++)
        sum += LOAD(wk_channel_rank(&x->channel, r)->tokens);
    return sum;
}

// ---------------------------------------------------------------- peers

static struct peer *find(struct wk_external *x, uint64_t connection)
{
    for (uint32_t i = 0; i < PEERS_MAX; i++)
        if (x->peer[i].state && x->peer[i].connection == connection) return &x->peer[i];
    return NULL;
}

static struct peer *rank_in(struct wk_external *x, uint32_t rank, enum peer_state state)
{
    for (uint32_t i = 0; i < PEERS_MAX; i++)
        if (x->peer[i].state == state && x->peer[i].hello.rank == rank) return &x->peer[i];
    return NULL;
}

static void clear_peer(struct peer *p)
{
    free(p->tensor);
    *p = (struct peer){0};
}

static void send_to(struct wk_external *x, const struct peer *p, struct wk_channel_message *m,
                    bool memory)
{
    uint8_t bytes[WK_CHANNEL_MESSAGE];
    m->abi = WK_CHANNEL_ABI;
    size_t n = wk_channel_encode(m, bytes);
    LH_ASSERT(n);
    x->io->ops->send(x->io, p->connection, lh_span(bytes, n), memory);
}

static void refuse(struct wk_external *x, struct peer *p, uint32_t why, const char *text)
{
    struct wk_channel_message m = {.kind = WK_CHANNEL_REFUSED};
    m.as.refused.why = why;
    snprintf(m.as.refused.text, sizeof m.as.refused.text, "%s", text);
    if (why != WK_CHANNEL_BUSY)
        lh_logf(x->conf.log, LH_WARN, "trainer.refused", "rank %u: %s", p->hello.rank, text);
    send_to(x, p, &m, false);
    x->io->ops->drop(x->io, p->connection);
    clear_peer(p);
}

// ---------------------------------------------------------------- the end of a life

static bool settled(const struct wk_external *x)
{
    for (uint32_t i = 0; i < x->conf.parts; i++)
        if (x->part[i].given > x->part[i].committed) return false;
    return true;
}

static void forget(struct wk_external *x)
{
    wk_channel_close(&x->channel);
    x->io->ops->forget(x->io);
    x->life = LIFE_NONE;
    begin(x);
}

static uint64_t lost_tokens(const struct wk_external *x)
{
    uint64_t held = UINT64_MAX, all = sum_tokens(x);
    for (uint32_t i = 0; i < x->conf.parts; i++)
        if (x->part[i].tokens < held) held = x->part[i].tokens;
    return all > held ? all - held : 0;
}

static void end_life(struct wk_external *x, bool orderly, const char *why)
{
    if (x->life != LIFE_RUNS) return;
    x->life = LIFE_SETTLES;
    struct wk_channel_worker *w = wk_channel_worker(&x->channel);
    if (LOAD(w->phase) != WK_CHANNEL_END) STORE(w->phase, WK_CHANNEL_OVER);
    ring(x);
    for (uint32_t i = 0; i < PEERS_MAX; i++) {
        struct peer *p = &x->peer[i];
        if (p->state == PEER_IN) refuse(x, p, WK_CHANNEL_AGAIN, why);
        if (p->state == PEER_LEFT) clear_peer(p);
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
    uint64_t written = LOAD(wk_channel_rank(&x->channel, rank)->noted);
    if (upto > written || (upto > x->read[rank] && upto - x->read[rank] > x->channel.shape.journal))
        return false;
    for (; x->read[rank] < upto; x->read[rank]++) {
        struct wk_channel_note n = *wk_channel_note(&x->channel, rank, x->read[rank]);
        x->ops->trained(x->arg, rank, n.unit, n.upto, n.step);
    }
    return true;
}

// The cut is whole. NULL: taken up; else what is wrong with it.
static const char *give(struct wk_external *x, uint32_t part)
{
    struct part *p = &x->part[part];
    struct wk_external_cut cut = {.part = part, .number = p->wanted, .last = true};
    uint64_t included = 0, noted[WK_CHANNEL_RANKS_MAX];
    for (uint32_t r = 0; r < x->conf.ranks; r++) {
        struct wk_channel_cut of = wk_channel_done(&x->channel, part, r)->of[cut.number % 2];
        if (r && (of.included != included || of.step != cut.step)) return "its ranks disagree";
        included = of.included;
        cut.step = of.step;
        cut.tokens += of.tokens;
        noted[r] = of.noted;
        const struct wk_channel_rank *rank = wk_channel_rank(&x->channel, r);
        cut.last &= LOAD(rank->ending) && LOAD(rank->trained) == of.step;
    }
    if (included < p->retired || included > p->published)
        return "it holds what was never published";
    for (uint32_t r = 0; r < x->conf.ranks; r++)
        if (!tell_notes(x, r, noted[r])) return "its journal makes no sense";
    p->given = cut.number;
    p->included = included;
    p->tokens = cut.tokens;
    memcpy(p->noted, noted, sizeof noted[0] * x->conf.ranks);
    x->ops->cut(x->arg, &cut);
    return NULL;
}

// 1: every rank's share is there; 0: not yet; -1: a number that nobody asked for.
static int whole(const struct wk_external *x, uint32_t part)
{
    int all = 1;
    for (uint32_t r = 0; r < x->conf.ranks; r++) {
        uint64_t cut = LOAD(wk_channel_done(&x->channel, part, r)->cut);
        if (cut > x->part[part].wanted) return -1;
        if (cut < x->part[part].wanted) all = 0;
    }
    return all;
}

static void look(struct wk_external *x)
{
    const char *wrong = NULL;
    for (uint32_t i = 0; !wrong && x->life == LIFE_RUNS && i < x->conf.parts; i++) {
        const struct part *p = &x->part[i];
        if (p->wanted == p->committed || p->given == p->wanted) continue;
        int is = whole(x, i);
        if (is < 0) wrong = "a cut that was not wanted";
        if (is > 0) wrong = give(x, i);
    }
    if (wrong) {
        lh_logf(x->conf.log, LH_ERROR, "trainer.wrong", "%s", wrong);
        end_life(x, false, wrong);
    }
    for (uint32_t r = 0; x->life == LIFE_RUNS && !x->ending_told && r < x->conf.ranks; r++)
        if (LOAD(wk_channel_rank(&x->channel, r)->ending)) {
            x->ending_told = true;
            x->ops->ending(x->arg);
        }
}

static void retire_notes(struct wk_external *x)
{
    for (uint32_t r = 0; r < x->conf.ranks; r++) {
        uint64_t least = UINT64_MAX;
        for (uint32_t i = 0; i < x->conf.parts; i++) {
            const struct part *p = &x->part[i];
            uint64_t held = p->given == p->committed ? p->noted[r] : 0;
            if (held < least) least = held;
        }
        struct wk_channel_worker_rank *w = wk_channel_worker_rank(&x->channel, r);
        if (least > LOAD(w->retired)) STORE(w->retired, least);
    }
}

void wk_external_committed(struct wk_external *x, uint32_t part, uint64_t number)
{
    struct part *p = &x->part[part];
    LH_ASSERT(x->life != LIFE_NONE && number == p->given && number == p->committed + 1);
    STORE(wk_channel_part(&x->channel, part)->committed, number);
    p->committed = number;
    p->retired = p->included;
    retire_notes(x);
    ring(x);
    if (x->life == LIFE_SETTLES && settled(x)) forget(x);
}

void wk_external_want(struct wk_external *x, uint32_t part, uint64_t step)
{
    struct part *p = &x->part[part];
    if (x->life != LIFE_RUNS) return;
    struct wk_channel_part *w = wk_channel_part(&x->channel, part);
    bool already = p->wanted != p->committed;
    if (already && step >= LOAD(w->wanted_step)) return;
    STORE(w->wanted_step, step);
    if (!already) STORE(w->wanted, ++p->wanted);
    ring(x);
}

lh_err wk_external_delta(struct wk_external *x, uint32_t part, uint64_t from, uint64_t n,
                         float *out)
{
    const struct part *p = &x->part[part];
    struct wk_base base = {&x->channel, part, p->committed, p->retired, p->included};
    const float *cut = wk_channel_slot(&x->channel, p->given) + x->first[part];
    LH_ASSERT(p->given == p->committed + 1);
    for (uint64_t end = from + n; from < end;) {
        uint64_t stop = (from / WK_CHANNEL_CHUNK + 1) * WK_CHANNEL_CHUNK;
        if (stop > end) stop = end;
        LH_TRY(wk_base_read(&base, from, stop - from, out));
        for (; from < stop; from++, out++) *out -= cut[from];
    }
    return LH_OK;
}

// ---------------------------------------------------------------- corrections

static uint32_t live_entries(const struct wk_external *x, uint32_t part,
                             struct wk_channel_entry live[WK_CHANNEL_LIVE])
{
    const struct part *p = &x->part[part];
    uint32_t lives = 0;
    for (uint64_t n = p->retired + 1; n <= p->published; n++)
        live[lives++] = wk_channel_part(&x->channel, part)->entry[n % WK_CHANNEL_LIVE];
    return lives;
}

lh_err wk_external_renew(struct wk_external *x, uint32_t part, const float *view)
{
    struct part *p = &x->part[part];
    if (x->life != LIFE_RUNS) return LH_OK; // the next life begins with a view of its own
    if (p->published - p->retired >= WK_CHANNEL_LIVE) return LH_ERR_BUSY;
    struct wk_base base = {&x->channel, part, p->committed, p->retired, p->published};
    struct wk_correction_plan plan;
    LH_TRY(wk_correction_plan(&base, view, &plan));
    if (!plan.count) return LH_OK;
    struct wk_channel_entry live[WK_CHANNEL_LIVE];
    uint32_t lives = live_entries(x, part, live);
    uint64_t values = x->first[part + 1] - x->first[part];
    uint64_t room = wk_channel_ring_bytes(values);
    uint64_t at = wk_ring_place(live, lives, values, room, plan.bytes);
    if (at == UINT64_MAX) return LH_ERR_BUSY;
    if (at > room || plan.bytes > room - at || at % 64)
        return lh_fail(LH_ERR_CORRUPT, "the trainer wrote over the corrections of part %u", part);
    LH_TRY(wk_correction_write(&base, view, &plan, wk_channel_ring(&x->channel, part) + at));
    struct wk_channel_part *w = wk_channel_part(&x->channel, part);
    w->entry[(p->published + 1) % WK_CHANNEL_LIVE] = (struct wk_channel_entry){
        .number = p->published + 1, .kind = plan.kind, .at = at, .count = plan.count};
    STORE(w->published, ++p->published);
    ring(x);
    return LH_OK;
}

// ---------------------------------------------------------------- leases, clock, phases

bool wk_external_there(const struct wk_external *x)
{
    return x->life == LIFE_RUNS;
}

uint64_t wk_external_step(const struct wk_external *x)
{
    uint64_t least = UINT64_MAX;
    if (x->life == LIFE_NONE) return 0;
    for (uint32_t r = 0; r < x->conf.ranks; r++) {
        uint64_t step = LOAD(wk_channel_rank(&x->channel, r)->step);
        if (step < least) least = step;
    }
    return least;
}

uint64_t wk_external_tokens(const struct wk_external *x)
{
    return x->life == LIFE_NONE ? 0 : sum_tokens(x);
}

uint64_t wk_external_waiting(const struct wk_external *x, uint32_t rank)
{
    if (x->life != LIFE_RUNS) return 0;
    uint64_t leased = LOAD(wk_channel_worker_rank(&x->channel, rank)->leased);
    uint64_t taken = LOAD(wk_channel_rank(&x->channel, rank)->taken);
    return taken < leased ? leased - taken : 0;
}

lh_err wk_external_lease(struct wk_external *x, uint32_t rank, uint64_t unit, uint64_t from,
                         uint64_t tokens)
{
    if (x->life != LIFE_RUNS || wk_external_waiting(x, rank) >= x->channel.shape.leases)
        return LH_ERR_BUSY;
    struct wk_channel_worker_rank *w = wk_channel_worker_rank(&x->channel, rank);
    uint64_t n = LOAD(w->leased);
    *wk_channel_lease(&x->channel, rank, n) = (struct wk_channel_lease){unit, from, tokens};
    STORE(w->leased, n + 1);
    ring(x);
    return LH_OK;
}

void wk_external_credited(struct wk_external *x, uint64_t tokens)
{
    x->credited = tokens;
    if (x->life == LIFE_RUNS) STORE(wk_channel_worker(&x->channel)->credited, tokens);
}

void wk_external_drain(struct wk_external *x)
{
    x->draining = true;
    if (x->life != LIFE_RUNS) return;
    STORE(wk_channel_worker(&x->channel)->phase, WK_CHANNEL_DRAIN);
    ring(x);
}

void wk_external_end(struct wk_external *x)
{
    if (x->life != LIFE_RUNS) return;
    for (uint32_t i = 0; i < x->conf.parts; i++) {
        const struct part *p = &x->part[i];
        LH_ASSERT(p->wanted == p->committed);
        x->ops->view(x->arg, i, true, wk_channel_slot(&x->channel, p->committed + 1) + x->first[i]);
    }
    STORE(wk_channel_worker(&x->channel)->phase, WK_CHANNEL_END);
    ring(x);
}

// ---------------------------------------------------------------- the beginning of a life

static void welcome(struct wk_external *x, bool resumed)
{
    for (uint32_t i = 0; i < PEERS_MAX; i++) {
        struct peer *p = &x->peer[i];
        if (p->state != PEER_READY) continue;
        struct wk_channel_message m = {.kind = WK_CHANNEL_WELCOME};
        m.as.welcome.bytes = x->channel.layout.bytes;
        m.as.welcome.resumed = resumed;
        memcpy(m.as.welcome.life, x->name, sizeof x->name);
        p->state = PEER_IN;
        send_to(x, p, &m, !resumed);
    }
    x->life = LIFE_RUNS;
    struct wk_channel_worker *w = wk_channel_worker(&x->channel);
    STORE(w->credited, x->credited);
    STORE(w->run_on, x->conf.run_on);
    if (x->draining && LOAD(w->phase) == WK_CHANNEL_RUN) STORE(w->phase, WK_CHANNEL_DRAIN);
    x->ending_told = false;
    lh_logf(x->conf.log, LH_INFO, "trainer.came", "%u ranks%s", x->conf.ranks,
            resumed ? ", which outlived the worker" : "");
    x->ops->came(x->arg, x->name, resumed);
    ring(x);
    look(x);
}

static void refuse_ready(struct wk_external *x, uint32_t why, const char *text, bool resumers)
{
    for (uint32_t i = 0; i < PEERS_MAX; i++) {
        struct peer *p = &x->peer[i];
        if (p->state == PEER_READY && (p->hello.resumes || !resumers)) refuse(x, p, why, text);
    }
}

static lh_err make_memory(struct wk_external *x)
{
    void *base = NULL;
    struct wk_channel_shape shape = {x->conf.values, x->conf.parts,   x->conf.ranks,
                                     x->conf.leases, x->conf.journal, x->first};
    struct wk_channel_layout layout;
    LH_ASSERT(wk_channel_plan(&shape, &layout));
    LH_TRY(x->io->ops->create(x->io, layout.bytes, &base));
    if (!wk_channel_open(&x->channel, &shape, base)) return LH_ERR_NO_MEMORY;
    lh_random(x->conf.env, x->name, sizeof x->name);
    wk_channel_format(&x->channel, x->name, x->conf.manifest.b);
    return LH_OK;
}

static void start_life(struct wk_external *x)
{
    lh_err err = make_memory(x);
    if (err) {
        x->io->ops->forget(x->io);
        refuse_ready(x, WK_CHANNEL_BUSY, lh_err_text(err), false);
        return;
    }
    memset(x->part, 0, x->conf.parts * sizeof *x->part);
    memset(x->read, 0, sizeof x->read);
    for (uint32_t i = 0; i < x->conf.parts; i++)
        x->ops->view(x->arg, i, false, wk_channel_slot(&x->channel, 0) + x->first[i]);
    STORE(wk_channel_worker(&x->channel)->phase, WK_CHANNEL_RUN);
    welcome(x, false);
}

// ---------------------------------------------------------------- a life that outlived a worker

static bool same_shape(const struct wk_external *x)
{
    const struct wk_channel *c = &x->channel;
    const struct wk_channel_head *h = wk_channel_head(c);
    return c->shape.values == x->conf.values && c->shape.parts == x->conf.parts &&
           c->shape.ranks == x->conf.ranks &&
           !memcmp(c->first, x->first, (x->conf.parts + 1) * sizeof *x->first) &&
           !memcmp(h->manifest, x->conf.manifest.b, sizeof h->manifest);
}

// Takes over a part: NULL, or what is wrong.
static const char *take_part(struct wk_external *x, uint32_t i)
{
    struct wk_channel_part *w = wk_channel_part(&x->channel, i);
    uint64_t word = LOAD(w->committed), own = x->ops->committed(x->arg, x->name, i);
    struct part *p = &x->part[i];
    *p = (struct part){.wanted = LOAD(w->wanted), .published = LOAD(w->published)};
    if (own != word && own != word + 1) return "its commits are not ours";
    for (uint32_t r = 0; r < x->conf.ranks; r++) {
        const struct wk_channel_done *d = wk_channel_done(&x->channel, i, r);
        struct wk_channel_cut of = d->of[own % 2];
        if (LOAD(d->cut) < own) return "a committed cut is missing";
        if (!own) continue;
        p->retired = of.included;
        p->tokens += of.tokens;
        p->noted[r] = of.noted;
    }
    p->committed = p->given = own;
    p->included = p->retired;
    if (p->wanted != own + 1) p->wanted = own;
    if (p->published < p->retired || p->published - p->retired > WK_CHANNEL_LIVE)
        return "its corrections are not ours";
    struct wk_channel_correction c;
    for (uint64_t n = p->retired + 1; n <= p->published; n++)
        if (!wk_channel_correction(&x->channel, i, n, &c)) return "a correction is damaged";
    STORE(w->committed, own);
    return NULL;
}

static const char *take_journal(struct wk_external *x)
{
    for (uint32_t r = 0; r < x->conf.ranks; r++) {
        uint64_t written = LOAD(wk_channel_rank(&x->channel, r)->noted), least = written;
        for (uint32_t i = 0; i < x->conf.parts; i++)
            if (x->part[i].noted[r] < least) least = x->part[i].noted[r];
        if (written - least > x->channel.shape.journal) return "its journal makes no sense";
        x->read[r] = least;
    }
    return NULL;
}

static const char *take_life(struct wk_external *x, const struct peer *first)
{
    void *base;
    uint64_t bytes;
    if (x->io->ops->adopt(x->io, first->connection, &base, &bytes)) return "it brings no memory";
    const char *wrong = wk_channel_read(&x->channel, base, bytes);
    if (wrong) return wrong;
    memcpy(x->name, first->hello.life, sizeof x->name);
    if (!same_shape(x)) return "another model";
    if (memcmp(wk_channel_head(&x->channel)->life, x->name, sizeof x->name)) return "another life";
    uint32_t phase = LOAD(wk_channel_worker(&x->channel)->phase);
    if (phase < WK_CHANNEL_RUN || phase > WK_CHANNEL_END) return "that life is over";
    for (uint32_t i = 0; !wrong && i < x->conf.parts; i++) wrong = take_part(x, i);
    return wrong ? wrong : take_journal(x);
}

static void resume_life(struct wk_external *x)
{
    const struct peer *first = rank_in(x, 0, PEER_READY);
    const char *wrong = NULL;
    for (uint32_t r = 1; r < x->conf.ranks; r++)
        if (memcmp(rank_in(x, r, PEER_READY)->hello.life, first->hello.life, WK_CHANNEL_LIFE))
            wrong = "ranks of different lives";
    if (!wrong) wrong = take_life(x, first);
    if (!wrong) {
        welcome(x, true);
        return;
    }
    wk_channel_close(&x->channel);
    x->io->ops->forget(x->io);
    refuse_ready(x, WK_CHANNEL_AGAIN, wrong, false);
}

// ---------------------------------------------------------------- greetings

// Do the ranks' shares of a tensor make a whole, each value once?
static bool covered(struct wk_external *x, uint32_t tensor)
{
    const struct wk_channel_tensor *t = &rank_in(x, 0, PEER_READY)->tensor[tensor];
    uint64_t at = 0, all = wk_channel_tensor_values(t);
    for (uint32_t round = 0; !t->replica && round < x->conf.ranks && at < all; round++) {
        for (uint32_t r = 0; r < x->conf.ranks; r++) {
            const struct wk_channel_tensor *o = &rank_in(x, r, PEER_READY)->tensor[tensor];
            if (o->count && o->first == at) at += o->count;
        }
    }
    uint64_t sum = 0;
    for (uint32_t r = 0; r < x->conf.ranks; r++) {
        const struct wk_channel_tensor *o = &rank_in(x, r, PEER_READY)->tensor[tensor];
        bool same = !strcmp(o->name, t->name) && o->dims == t->dims && o->replica == t->replica &&
                    !memcmp(o->shape, t->shape, sizeof t->shape);
        if (!same) return false;
        sum += o->count;
    }
    return t->replica || (at == all && sum == all);
}

static lh_err check_tensors(struct wk_external *x)
{
    const struct peer *first = rank_in(x, 0, PEER_READY);
    uint64_t values = 0;
    for (uint32_t r = 1; r < x->conf.ranks; r++)
        if (rank_in(x, r, PEER_READY)->tensors != first->tensors)
            return lh_fail(LH_ERR_MANIFEST, "its ranks describe different parameters");
    for (uint32_t i = 0; i < first->tensors; i++) {
        if (!covered(x, i))
            return lh_fail(LH_ERR_MANIFEST, "%s: the ranks' shares do not make a whole",
                           first->tensor[i].name);
        values += wk_channel_tensor_values(&first->tensor[i]);
    }
    if (values != x->conf.values)
        return lh_fail(LH_ERR_MANIFEST, "%llu values are described, the run's model has %llu",
                       (unsigned long long)values, (unsigned long long)x->conf.values);
    return x->ops->described(x->arg, first->tensor, first->tensors);
}

static void begin(struct wk_external *x)
{
    uint32_t resumers = 0;
    if (x->life != LIFE_NONE) return;
    for (uint32_t r = 0; r < x->conf.ranks; r++) {
        const struct peer *p = rank_in(x, r, PEER_READY);
        if (!p) return;
        resumers += p->hello.resumes;
    }
    if (resumers && resumers < x->conf.ranks) {
        refuse_ready(x, WK_CHANNEL_AGAIN, "another rank begins anew", true);
        return;
    }
    lh_err err = check_tensors(x);
    if (err)
        refuse_ready(x, WK_CHANNEL_OTHER_MODEL, lh_err_text(err), false);
    else if (resumers)
        resume_life(x);
    else
        start_life(x);
}

static void greet(struct wk_external *x, struct peer *p, const struct wk_channel_hello *h)
{
    p->hello = *h;
    if (h->ranks != x->conf.ranks) {
        refuse(x, p, WK_CHANNEL_BAD, "the worker expects another number of ranks");
    } else if (rank_in(x, h->rank, PEER_IN) || rank_in(x, h->rank, PEER_READY)) {
        refuse(x, p, WK_CHANNEL_BUSY, "another process is this rank");
    } else {
        p->tensor = calloc(h->tensors, sizeof *p->tensor);
        p->state = PEER_DESCRIBES;
        if (!p->tensor) refuse(x, p, WK_CHANNEL_BUSY, "out of memory");
    }
}

static void describe(struct wk_external *x, struct peer *p, const struct wk_channel_tensor *t)
{
    if (t->index != p->tensors || p->tensors == p->hello.tensors)
        refuse(x, p, WK_CHANNEL_BAD, "tensors out of order");
    else
        p->tensor[p->tensors++] = *t;
}

static void take_message(struct wk_external *x, struct peer *p, const struct wk_channel_message *m)
{
    bool in = p->state == PEER_IN;
    if (p->state == PEER_OPEN && m->kind == WK_CHANNEL_HELLO) {
        greet(x, p, &m->as.hello);
    } else if (p->state == PEER_DESCRIBES && m->kind == WK_CHANNEL_TENSOR) {
        describe(x, p, &m->as.tensor);
    } else if (p->state == PEER_DESCRIBES && m->kind == WK_CHANNEL_DESCRIBED &&
               p->tensors == p->hello.tensors) {
        p->state = PEER_READY;
        begin(x);
    } else if (in && m->kind == WK_CHANNEL_RING) {
        look(x);
    } else if (in && m->kind == WK_CHANNEL_LEAVE) {
        look(x);
        if (p->state == PEER_IN) p->state = PEER_LEFT;
    } else {
        refuse(x, p, WK_CHANNEL_BAD, "a message out of turn");
    }
}

// All ranks are there. At the end of the run they leave one by one, and the last one ends the life.
static bool complete(struct wk_external *x)
{
    uint32_t here = 0;
    for (uint32_t r = 0; r < x->conf.ranks; r++)
        here += rank_in(x, r, PEER_IN) || rank_in(x, r, PEER_LEFT);
    bool over = LOAD(wk_channel_worker(&x->channel)->phase) == WK_CHANNEL_END;
    return over ? here > 0 : here == x->conf.ranks;
}

void wk_external_message(struct wk_external *x, uint64_t connection, struct lh_span bytes)
{
    struct wk_channel_message m;
    struct peer *p = find(x, connection);
    if (!p) return;
    if (!wk_channel_decode(bytes.data, bytes.len, &m)) {
        refuse(x, p, WK_CHANNEL_BAD, "not a message");
    } else if (m.abi != WK_CHANNEL_ABI) {
        char text[96];
        snprintf(text, sizeof text, "it speaks version %u, this worker %u", m.abi, WK_CHANNEL_ABI);
        refuse(x, p, WK_CHANNEL_OTHER_VERSION, text);
    } else {
        take_message(x, p, &m);
    }
    if (x->life == LIFE_RUNS && !complete(x)) end_life(x, false, "a rank was sent away");
}

void wk_external_opened(struct wk_external *x, uint64_t connection)
{
    for (uint32_t i = 0; i < PEERS_MAX; i++)
        if (!x->peer[i].state) {
            x->peer[i] = (struct peer){.state = PEER_OPEN, .connection = connection};
            return;
        }
    x->io->ops->drop(x->io, connection);
}

void wk_external_closed(struct wk_external *x, uint64_t connection)
{
    struct peer *p = find(x, connection);
    if (!p) return;
    char why[64];
    bool in = p->state == PEER_IN || p->state == PEER_LEFT, left = p->state == PEER_LEFT;
    snprintf(why, sizeof why, "rank %u %s", p->hello.rank, left ? "left" : "died");
    if (in) look(x); // what it wrote last counts
    p = find(x, connection);
    if (!p) return; // that ended the life
    clear_peer(p);
    if (in && !complete(x)) end_life(x, left, why);
}

// ---------------------------------------------------------------- create, destroy

lh_err wk_external_create(const struct wk_external_conf *conf, const struct wk_external_ops *ops,
                          void *arg, struct wk_external_io *io, struct wk_external **out)
{
    struct wk_external *x = calloc(1, sizeof *x);
    if (!x) return lh_fail(LH_ERR_NO_MEMORY, "the trainer's channel");
    x->conf = *conf;
    x->ops = ops;
    x->arg = arg;
    x->io = io;
    if (!x->conf.leases) x->conf.leases = LEASES;
    if (!x->conf.journal) x->conf.journal = JOURNAL;
    x->first = malloc(((size_t)conf->parts + 1) * sizeof *x->first);
    x->part = calloc(conf->parts, sizeof *x->part);
    if (!x->first || !x->part) {
        wk_external_destroy(x);
        return lh_fail(LH_ERR_NO_MEMORY, "the trainer's channel");
    }
    memcpy(x->first, conf->first, ((size_t)conf->parts + 1) * sizeof *x->first);
    x->conf.first = x->first;
    struct wk_channel_shape shape = {x->conf.values, x->conf.parts,   x->conf.ranks,
                                     x->conf.leases, x->conf.journal, x->first};
    struct wk_channel_layout layout;
    if (!wk_channel_plan(&shape, &layout)) {
        wk_external_destroy(x);
        return lh_fail(LH_ERR_CONFIG,
                       "an external trainer: %u ranks, %u shards or %llu parameters "
                       "are more than a channel holds",
                       conf->ranks, conf->parts, (unsigned long long)conf->values);
    }
    *out = x;
    return LH_OK;
}

void wk_external_destroy(struct wk_external *x)
{
    if (!x) return;
    for (uint32_t i = 0; i < PEERS_MAX; i++) clear_peer(&x->peer[i]);
    wk_channel_close(&x->channel);
    if (x->life != LIFE_NONE) x->io->ops->forget(x->io);
    free(x->part);
    free(x->first);
    free(x);
}

struct wk_external_io *wk_external_world(struct wk_external *x)
{
    return x->io;
}
