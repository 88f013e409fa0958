// Admits ranks: greetings, and the beginning of a life. See external.h and
// worker/docs/0001-boundary.md.
//
// A life of the trainer begins when all ranks have greeted and described the same parameters. It
// ends when one of them dies or leaves. Each life has its own memory and a random name, so
// processes of an earlier life can't write into this one.
//
// The core decides which cuts are committed. After a restart the core's number may be one above the
// word `committed`, which is then updated; any other difference ends the life.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/text.h"
#include "worker/external/life.h"

enum { LEASES = 4096, JOURNAL = 65536 };

// ---------------------------------------------------------------- the beginning of a life

static void welcome(struct wk_external *x, bool resumed)
{
    struct wk_channel_worker *w = wk_channel_worker(&x->channel);
    // Stored before the word that admits ranks to read them.
    WK_STORE(w->credited, x->credited);
    if (!resumed) WK_STORE(w->credited_first, x->credited); // otherwise some ranks may have read it
    for (int i = 0; i < 3 && !resumed; i++) WK_STORE(w->budget[i], x->budget[i]);
    WK_STORE(w->run_on, x->conf.run_on);
    // A trainer that stands still already goes on standing: its ranks know the pause by its number.
    if (resumed && x->paused && WK_LOAD(w->paused)) x->paused = WK_LOAD(w->paused);
    WK_STORE(w->paused, x->paused);
    for (uint32_t i = 0; i < WK_PEERS_MAX; i++) {
        struct wk_peer *p = &x->peer[i];
        if (p->state != WK_PEER_READY) continue;
        struct wk_channel_message m = {.kind = WK_CHANNEL_WELCOME};
        m.as.welcome.bytes = x->channel.layout.bytes;
        m.as.welcome.resumed = resumed;
        memcpy(m.as.welcome.life, x->name, sizeof x->name);
        p->state = WK_PEER_IN;
        wk_life_send(x, p, &m, !resumed);
    }
    x->life = WK_LIFE_RUNS;
    if (x->draining && WK_LOAD(w->phase) == WK_CHANNEL_RUN) WK_STORE(w->phase, WK_CHANNEL_DRAIN);
    x->ending_told = x->ended = false;
    lh_logf(x->conf.log, LH_INFO, "trainer.came", "%u rank%s%s", x->conf.ranks, lh_s(x->conf.ranks),
            resumed ? ", which outlived the worker" : "");
    x->ops->came(x->arg, x->name, resumed);
    wk_life_ring(x);
    wk_life_look(x);
}

static void refuse_ready(struct wk_external *x, uint32_t why, const char *text, bool resumers)
{
    for (uint32_t i = 0; i < WK_PEERS_MAX; i++) {
        struct wk_peer *p = &x->peer[i];
        if (p->state == WK_PEER_READY && (p->hello.resumes || !resumers))
            wk_life_refuse(x, p, why, text);
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
    WK_STORE(wk_channel_worker(&x->channel)->phase, WK_CHANNEL_RUN);
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

// Takes over a part. NULL: success; otherwise the reason for the failure.
static const char *take_part(struct wk_external *x, uint32_t i)
{
    struct wk_channel_part *w = wk_channel_part(&x->channel, i);
    uint64_t word = WK_LOAD(w->committed), own = x->ops->committed(x->arg, x->name, i);
    struct wk_life_part *p = &x->part[i];
    *p = (struct wk_life_part){.wanted = WK_LOAD(w->wanted), .published = WK_LOAD(w->published)};
    if (own != word && own != word + 1) return "its commits differ from the worker's";
    for (uint32_t r = 0; r < x->conf.ranks; r++) {
        const struct wk_channel_done *d = wk_channel_done(&x->channel, i, r);
        struct wk_channel_cut of = d->of[own % 2];
        if (WK_LOAD(d->cut) < own) return "a committed cut is missing";
        if (!own) continue;
        p->retired = of.included;
        p->tokens += of.tokens;
        p->step = of.step;
        if (of.steps > p->steps) p->steps = of.steps;
        p->noted[r] = of.noted;
    }
    p->base = p->given = own;
    p->included = p->retired;
    p->at = (struct wk_external_cut){.part = i,
                                     .number = own,
                                     .step = p->step,
                                     .steps = p->steps,
                                     .corrections = p->retired,
                                     .tokens = p->tokens};
    if (p->wanted != own + 1) p->wanted = own;
    if (p->published < p->retired || p->published - p->retired > WK_CHANNEL_LIVE)
        return "its corrections differ from the worker's";
    struct wk_channel_correction c;
    for (uint64_t n = p->retired + 1; n <= p->published; n++)
        if (!wk_channel_correction(&x->channel, i, n, &c)) return "a correction is damaged";
    WK_STORE(w->committed, own);
    return NULL;
}

static const char *take_journal(struct wk_external *x)
{
    for (uint32_t r = 0; r < x->conf.ranks; r++) {
        uint64_t written = WK_LOAD(wk_channel_rank(&x->channel, r)->noted), least = written;
        for (uint32_t i = 0; i < x->conf.parts; i++)
            if (x->part[i].noted[r] < least) least = x->part[i].noted[r];
        if (written - least > x->channel.shape.journal) return "its journal is invalid";
        x->read[r] = least;
    }
    return NULL;
}

static const char *take_life(struct wk_external *x, const struct wk_peer *first)
{
    void *base;
    uint64_t bytes;
    if (x->io->ops->adopt(x->io, first->connection, &base, &bytes)) return "it brings no memory";
    const char *wrong = wk_channel_read(&x->channel, base, bytes);
    if (wrong) return wrong;
    memcpy(x->name, first->hello.life, sizeof x->name);
    if (!same_shape(x)) return "another model";
    if (memcmp(wk_channel_head(&x->channel)->life, x->name, sizeof x->name)) return "another life";
    uint32_t phase = WK_LOAD(wk_channel_worker(&x->channel)->phase);
    if (phase < WK_CHANNEL_RUN || phase > WK_CHANNEL_END) return "that life has ended";
    for (uint32_t i = 0; !wrong && i < x->conf.parts; i++) wrong = take_part(x, i);
    return wrong ? wrong : take_journal(x);
}

static void resume_life(struct wk_external *x)
{
    const struct wk_peer *first = wk_life_rank(x, 0, WK_PEER_READY);
    const char *wrong = NULL;
    for (uint32_t r = 1; r < x->conf.ranks; r++)
        if (memcmp(wk_life_rank(x, r, WK_PEER_READY)->hello.life, first->hello.life,
                   WK_CHANNEL_LIFE))
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

// True: the ranks' shares cover each value of the tensor exactly once.
static bool covered(struct wk_external *x, uint32_t tensor)
{
    const struct wk_channel_tensor *t = &wk_life_rank(x, 0, WK_PEER_READY)->tensor[tensor];
    uint64_t at = 0, all = wk_channel_tensor_values(t);
    for (uint32_t round = 0; !t->replica && round < x->conf.ranks && at < all; round++) {
        for (uint32_t r = 0; r < x->conf.ranks; r++) {
            const struct wk_channel_tensor *o = &wk_life_rank(x, r, WK_PEER_READY)->tensor[tensor];
            if (o->count && o->first == at) at += o->count;
        }
    }
    uint64_t sum = 0;
    for (uint32_t r = 0; r < x->conf.ranks; r++) {
        const struct wk_channel_tensor *o = &wk_life_rank(x, r, WK_PEER_READY)->tensor[tensor];
        bool same = !strcmp(o->name, t->name) && o->dims == t->dims && o->replica == t->replica &&
                    !memcmp(o->shape, t->shape, sizeof t->shape);
        if (!same) return false;
        sum += o->count;
    }
    return t->replica || (at == all && sum == all);
}

static lh_err check_tensors(struct wk_external *x)
{
    const struct wk_peer *first = wk_life_rank(x, 0, WK_PEER_READY);
    uint64_t values = 0;
    for (uint32_t r = 1; r < x->conf.ranks; r++)
        if (wk_life_rank(x, r, WK_PEER_READY)->tensors != first->tensors)
            return lh_fail(LH_ERR_MANIFEST, "its ranks describe different parameters");
    for (uint32_t i = 0; i < first->tensors; i++) {
        if (!covered(x, i))
            return lh_fail(LH_ERR_MANIFEST,
                           "%s: the ranks' shares do not add up to the whole tensor",
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
    if (x->life != WK_LIFE_NONE || x->held) return;
    for (uint32_t r = 0; r < x->conf.ranks; r++) {
        const struct wk_peer *p = wk_life_rank(x, r, WK_PEER_READY);
        if (!p) return;
        resumers += p->hello.resumes;
    }
    if (resumers && resumers < x->conf.ranks) {
        refuse_ready(x, WK_CHANNEL_AGAIN, "another rank begins a new life", true);
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

void wk_external_hold(struct wk_external *x, bool on)
{
    LH_ASSERT(on || x->held);
    x->held += on ? 1 : UINT32_MAX;
    if (!x->held) begin(x);
}

static void greet(struct wk_external *x, struct wk_peer *p, const struct wk_channel_hello *h)
{
    p->hello = *h;
    if (h->ranks != x->conf.ranks) {
        wk_life_refuse(x, p, WK_CHANNEL_BAD, "the worker expects another number of ranks");
    } else if (wk_life_rank(x, h->rank, WK_PEER_IN) || wk_life_rank(x, h->rank, WK_PEER_READY)) {
        wk_life_refuse(x, p, WK_CHANNEL_BUSY,
                       "its trainer has connected already with this rank: another process, or "
                       "another handle of this one");
    } else {
        p->tensor = calloc(h->tensors, sizeof *p->tensor);
        p->state = WK_PEER_DESCRIBES;
        if (!p->tensor) wk_life_refuse(x, p, WK_CHANNEL_BUSY, "out of memory");
    }
}

static void describe(struct wk_external *x, struct wk_peer *p, const struct wk_channel_tensor *t)
{
    if (t->index != p->tensors || p->tensors == p->hello.tensors)
        wk_life_refuse(x, p, WK_CHANNEL_BAD, "tensors out of order");
    else
        p->tensor[p->tensors++] = *t;
}

static void take_message(struct wk_external *x, struct wk_peer *p,
                         const struct wk_channel_message *m)
{
    bool in = p->state == WK_PEER_IN;
    if (p->state == WK_PEER_OPEN && m->kind == WK_CHANNEL_HELLO) {
        greet(x, p, &m->as.hello);
    } else if (p->state == WK_PEER_DESCRIBES && m->kind == WK_CHANNEL_TENSOR) {
        describe(x, p, &m->as.tensor);
    } else if (p->state == WK_PEER_DESCRIBES && m->kind == WK_CHANNEL_DESCRIBED &&
               p->tensors == p->hello.tensors) {
        p->state = WK_PEER_READY;
        begin(x);
    } else if (in && m->kind == WK_CHANNEL_RING) {
        wk_life_look(x);
    } else if (in && m->kind == WK_CHANNEL_REPORT) {
        x->ops->reported(x->arg, m->as.report.name, m->as.report.value);
    } else if (in && m->kind == WK_CHANNEL_DAMAGED) {
        x->ops->damaged(x->arg, m->as.damaged);
    } else if (in && m->kind == WK_CHANNEL_LEAVE) {
        wk_life_look(x);
        if (p->state == WK_PEER_IN) p->state = WK_PEER_LEFT;
    } else {
        wk_life_refuse(x, p, WK_CHANNEL_BAD, "a message out of turn");
    }
}

// True: all ranks are there. At the end of the run they leave one by one; the last ends the life.
static bool complete(struct wk_external *x)
{
    uint32_t here = 0;
    for (uint32_t r = 0; r < x->conf.ranks; r++)
        here += wk_life_rank(x, r, WK_PEER_IN) || wk_life_rank(x, r, WK_PEER_LEFT);
    bool over = WK_LOAD(wk_channel_worker(&x->channel)->phase) == WK_CHANNEL_END;
    return over ? here > 0 : here == x->conf.ranks;
}

void wk_external_message(struct wk_external *x, uint64_t connection, struct lh_span bytes)
{
    struct wk_channel_message m;
    struct wk_peer *p = wk_life_peer(x, connection);
    if (!p) return;
    if (!wk_channel_decode(bytes.data, bytes.len, &m)) {
        wk_life_refuse(x, p, WK_CHANNEL_BAD, "not a message");
    } else if (m.abi != WK_CHANNEL_ABI) {
        char text[96];
        snprintf(text, sizeof text, "it speaks version %u, this worker %u", m.abi, WK_CHANNEL_ABI);
        wk_life_refuse(x, p, WK_CHANNEL_OTHER_VERSION, text);
    } else {
        take_message(x, p, &m);
    }
    if (x->life == WK_LIFE_RUNS && !complete(x))
        wk_life_end(x, false, WK_CHANNEL_AGAIN, "a rank was sent away");
}

void wk_external_opened(struct wk_external *x, uint64_t connection)
{
    for (uint32_t i = 0; i < WK_PEERS_MAX; i++)
        if (!x->peer[i].state) {
            x->peer[i] = (struct wk_peer){.state = WK_PEER_OPEN, .connection = connection};
            return;
        }
    x->io->ops->drop(x->io, connection);
}

void wk_external_closed(struct wk_external *x, uint64_t connection)
{
    struct wk_peer *p = wk_life_peer(x, connection);
    if (!p) return;
    char why[64];
    bool in = p->state == WK_PEER_IN || p->state == WK_PEER_LEFT, left = p->state == WK_PEER_LEFT;
    snprintf(why, sizeof why, "rank %u %s", p->hello.rank, left ? "left" : "died");
    if (in) wk_life_look(x); // its last writes still count
    p = wk_life_peer(x, connection);
    if (!p) return; // the look ended the life
    wk_life_clear(p);
    if (in && !complete(x)) wk_life_end(x, left, WK_CHANNEL_AGAIN, why);
}

// ---------------------------------------------------------------- create, destroy

static lh_err open_work(struct wk_external *x, const struct wk_external_conf *conf)
{
    uint64_t largest = 0;
    for (uint32_t i = 0; i < conf->parts; i++) {
        uint64_t values = conf->first[i + 1] - conf->first[i];
        if (values > largest) largest = values;
    }
    return wk_correction_open(&x->work, largest);
}

lh_err wk_external_create(const struct wk_external_conf *conf, const struct wk_external_ops *ops,
                          void *arg, struct wk_external_io *io, struct wk_external **out)
{
    struct wk_external *x = calloc(1, sizeof *x);
    if (!x) return lh_fail(LH_ERR_NO_MEMORY, "the trainer's channel");
    x->conf = *conf;
    x->ops = ops;
    x->arg = arg;
    x->io = io;
    x->vacant = begin;
    if (!x->conf.leases) x->conf.leases = LEASES;
    if (!x->conf.journal) x->conf.journal = JOURNAL;
    x->first = malloc(((size_t)conf->parts + 1) * sizeof *x->first);
    x->part = calloc(conf->parts, sizeof *x->part);
    x->spoiled = calloc(conf->parts, sizeof *x->spoiled);
    if (!x->first || !x->part || !x->spoiled || open_work(x, conf)) {
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
    for (uint32_t i = 0; i < WK_PEERS_MAX; i++) wk_life_clear(&x->peer[i]);
    wk_channel_close(&x->channel);
    if (x->life != WK_LIFE_NONE) x->io->ops->forget(x->io);
    wk_correction_close(&x->work);
    free(x->part);
    free(x->spoiled);
    free(x->first);
    free(x);
}

struct wk_external_io *wk_external_world(struct wk_external *x)
{
    return x->io;
}
