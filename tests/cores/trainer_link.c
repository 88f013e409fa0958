// The link between a trainer and its worker, on the fake env: shared memory, connections, and
// messages with delays. One end is under the worker's core (worker/external), the other replaces
// the client library's link.c.
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "tests/cores/trainer_link.h"
#include "worker/client/handle.h"

enum { TRAINERS_MAX = 8, MAILS_MAX = 8 };

// Memory shared by two processes.
struct shared {
    void *base;
    uint64_t bytes;
    int owners;
};

struct mail {
    struct wk_channel_message m;
    struct shared *memory;
    bool end; // the worker closed the connection
};

struct beside_link {
    struct wk_external_io io; // must be first
    struct beside *owner;
    struct wk_external *x;           // NULL: no worker runs, or it does not listen yet
    struct shared *worker, *trainer; // memory that each has mapped
    struct shared *offered;          // memory that came with a greeting
    uint64_t connection, numbers;    // 0: none
    bool calling;                    // it greeted, and waits for a welcome
    bool lost;                       // the process that it greeted has ended
    struct mail mail[MAILS_MAX];
    uint32_t mails;
};

// The library's calls name only the handle.
static struct beside *trainer[TRAINERS_MAX];

static struct beside *owner_of(const struct longhaul *c)
{
    for (int i = 0; i < TRAINERS_MAX; i++)
        if (trainer[i] && trainer[i]->client == c) return trainer[i];
    LH_ASSERT(c == NULL); // a handle without an owner
    return NULL;
}

static struct shared *hold(struct shared *s)
{
    if (s) s->owners++;
    return s;
}

static void let_go(struct shared **s)
{
    if (*s && --(*s)->owners == 0) {
        free((*s)->base);
        free(*s);
    }
    *s = NULL;
}

// ---------------------------------------------------------------- the worker's end

static struct beside_link *link_of(struct wk_external_io *io)
{
    return (struct beside_link *)io;
}

static lh_err create(struct wk_external_io *io, uint64_t bytes, void **out)
{
    struct beside_link *l = link_of(io);
    let_go(&l->worker);
    l->worker = calloc(1, sizeof *l->worker);
    LH_ASSERT(l->worker);
    *l->worker = (struct shared){calloc(1, bytes), bytes, 1};
    LH_ASSERT(l->worker->base);
    *out = l->worker->base;
    return LH_OK;
}

static lh_err adopt(struct wk_external_io *io, uint64_t from, void **out, uint64_t *bytes)
{
    struct beside_link *l = link_of(io);
    let_go(&l->worker);
    if (from != l->connection || !l->offered) return LH_ERR_MALFORMED;
    l->worker = l->offered;
    l->offered = NULL;
    *out = l->worker->base;
    *bytes = l->worker->bytes;
    return LH_OK;
}

static void forget(struct wk_external_io *io)
{
    let_go(&link_of(io)->worker);
}

static void post_mail(struct beside_link *l, uint64_t to, const struct mail *m)
{
    if (to != l->connection) return;
    LH_ASSERT(l->mails < MAILS_MAX);
    l->mail[l->mails++] = *m;
}

static void send_message(struct wk_external_io *io, uint64_t to, struct lh_span message,
                         bool memory)
{
    struct beside_link *l = link_of(io);
    struct mail m = {0};
    LH_ASSERT(wk_channel_decode(message.data, message.len, &m.m));
    if (to == l->connection && memory) m.memory = hold(l->worker);
    post_mail(l, to, &m);
}

static void drop(struct wk_external_io *io, uint64_t connection)
{
    post_mail(link_of(io), connection, &(struct mail){.end = true});
}

static void wake(struct wk_external_io *io, const _Atomic uint32_t *word)
{
    (void)io, (void)word;
}

static const struct wk_external_io_ops io_ops = {create, adopt, forget, send_message, drop, wake};

static lh_err listen_here(void *arg, const struct wk_external_conf *conf,
                          const struct wk_external_ops *ops, void *self, struct wk_external **out)
{
    struct beside *b = arg;
    LH_ASSERT(!b->link->x);
    LH_TRY(wk_external_create(conf, ops, self, &b->link->io, out));
    b->link->x = *out;
    return LH_OK;
}

// The worker's process was killed, or ends.
static void close_here(struct wk_external *x)
{
    struct beside_link *l = link_of(wk_external_world(x));
    wk_external_destroy(x);
    let_go(&l->worker);
    let_go(&l->offered);
    l->x = NULL;
    l->lost = true;
}

// ---------------------------------------------------------------- messages

enum event_kind { OPENED, MESSAGE, CLOSED };
struct event {
    struct beside_link *link;
    struct wk_external *x;
    uint64_t connection;
    enum event_kind kind;
    size_t n;
    uint8_t bytes[WK_CHANNEL_MESSAGE];
};

static void arrive(void *arg)
{
    struct event *e = arg;
    if (e->link->x == e->x) {
        if (e->kind == OPENED) wk_external_opened(e->x, e->connection);
        if (e->kind == MESSAGE) wk_external_message(e->x, e->connection, lh_span(e->bytes, e->n));
        if (e->kind == CLOSED) wk_external_closed(e->x, e->connection);
    }
    free(e);
}

static void tell_late(struct beside_link *l, enum event_kind kind,
                      const struct wk_channel_message *m, int64_t ns)
{
    if (!l->x || !l->connection) return; // nobody hears it
    struct event *e = calloc(1, sizeof *e);
    LH_ASSERT(e);
    *e = (struct event){.link = l, .x = l->x, .connection = l->connection, .kind = kind};
    if (m) e->n = wk_channel_encode(m, e->bytes);
    LH_ASSERT(!m || e->n);
    lh_fake_deliver(l->owner->worker, ns, arrive, free, e);
}

static void tell(struct beside_link *l, enum event_kind kind, const struct wk_channel_message *m)
{
    tell_late(l, kind, m, LH_MS / 10);
}

static bool worker_there(const struct beside_link *l)
{
    return l->x && lh_fake_alive(l->owner->worker);
}

static void hang_up(struct beside_link *l)
{
    tell(l, CLOSED, NULL);
    for (uint32_t i = 0; i < l->mails; i++) let_go(&l->mail[i].memory);
    l->mails = 0;
    l->connection = 0;
    l->calling = false;
}

static bool take_mail(struct beside_link *l, struct mail *out)
{
    if (!l->mails) return false;
    *out = l->mail[0];
    memmove(l->mail, l->mail + 1, --l->mails * sizeof *l->mail);
    return true;
}

// ---------------------------------------------------------------- the library's end: link.c

int64_t wk_link_now(void)
{
    for (int i = 0; i < TRAINERS_MAX; i++)
        if (trainer[i]) return lh_fake_now(trainer[i]->world);
    return 0;
}

static void introduce(struct longhaul *c, struct beside_link *l, bool resumes)
{
    struct wk_channel_message m = {.abi = WK_CHANNEL_ABI, .kind = WK_CHANNEL_HELLO};
    hang_up(l);
    l->connection = ++l->numbers;
    l->calling = true;
    l->lost = false;
    let_go(&l->offered);
    if (resumes) l->offered = hold(l->trainer);
    m.as.hello = (struct wk_channel_hello){
        .rank = c->rank, .ranks = c->ranks, .tensors = c->extents, .resumes = resumes};
    if (resumes) memcpy(m.as.hello.life, c->life, sizeof c->life);
    tell(l, OPENED, NULL);
    tell(l, MESSAGE, &m);
    for (uint32_t i = 0; i < c->extents; i++) {
        m = (struct wk_channel_message){.abi = WK_CHANNEL_ABI, .kind = WK_CHANNEL_TENSOR};
        m.as.tensor = c->extent[i].tensor;
        tell(l, MESSAGE, &m);
    }
    m = (struct wk_channel_message){.abi = WK_CHANNEL_ABI, .kind = WK_CHANNEL_DESCRIBED};
    tell(l, MESSAGE, &m);
}

void wk_link_forget(struct longhaul *c)
{
    struct beside *b = owner_of(c);
    wk_channel_close(&c->channel);
    free(c->due);
    c->due = NULL;
    c->started = false;
    c->link = WK_LINK_NONE;
    let_go(&b->link->trainer);
}

static int map(struct longhaul *c, struct beside_link *l, struct mail *m)
{
    let_go(&l->trainer);
    l->trainer = m->memory;
    const char *wrong = wk_channel_read(&c->channel, l->trainer->base, l->trainer->bytes);
    LH_ASSERT(!wrong);
    memcpy(c->life, m->m.as.welcome.life, sizeof c->life);
    c->due = calloc(c->channel.shape.parts, sizeof *c->due);
    LH_ASSERT(c->due);
    c->link = WK_LINK_UP;
    l->calling = false;
    return LONGHAUL_OK;
}

static bool ends_life(const struct wk_channel_message *m)
{
    uint32_t why = m->as.refused.why;
    return why == WK_CHANNEL_AGAIN || why == WK_CHANNEL_NOT_FINITE;
}

// Greets, and returns at once: the trainer calls this again until the worker has answered.
int wk_link_connect(struct longhaul *c, int timeout_ms)
{
    struct beside_link *l = owner_of(c)->link;
    struct mail m;
    (void)timeout_ms;
    if (!worker_there(l) || l->lost) hang_up(l);
    if (!worker_there(l)) return LONGHAUL_E_TIMEOUT;
    if (!l->calling) {
        wk_link_forget(c);
        introduce(c, l, false);
    }
    while (take_mail(l, &m)) {
        if (!m.end && m.m.kind == WK_CHANNEL_WELCOME) return map(c, l, &m);
        bool other = !m.end && m.m.as.refused.why == WK_CHANNEL_OTHER_MODEL;
        LH_ASSERT(m.end || other || m.m.as.refused.why == WK_CHANNEL_BUSY || ends_life(&m.m));
        l->owner->refusals += other;
        l->calling = false;
    }
    return LONGHAUL_E_TIMEOUT;
}

void wk_link_ring(struct longhaul *c)
{
    struct wk_channel_message m = {.abi = WK_CHANNEL_ABI, .kind = WK_CHANNEL_RING};
    const struct beside *b = owner_of(c);
    if (c->link == WK_LINK_UP) tell_late(b->link, MESSAGE, &m, LH_MS / 10 + b->late_ms * LH_MS);
}

void wk_link_hear_end(struct longhaul *c)
{
    (void)c; // the text is not used here
}

void wk_link_report(struct longhaul *c, const char *name, double value)
{
    struct wk_channel_message m = {.abi = WK_CHANNEL_ABI, .kind = WK_CHANNEL_REPORT};
    const struct beside *b = owner_of(c);
    m.as.report.value = value;
    snprintf(m.as.report.name, sizeof m.as.report.name, "%s", name);
    if (c->link == WK_LINK_UP) tell_late(b->link, MESSAGE, &m, LH_MS / 10 + b->late_ms * LH_MS);
}

int wk_link_damaged(struct longhaul *c, uint64_t unit)
{
    struct wk_channel_message m = {.abi = WK_CHANNEL_ABI, .kind = WK_CHANNEL_DAMAGED};
    const struct beside *b = owner_of(c);
    m.as.damaged = unit;
    if (c->link != WK_LINK_UP) return LONGHAUL_E_AGAIN;
    tell_late(b->link, MESSAGE, &m, LH_MS / 10 + b->late_ms * LH_MS);
    return LONGHAUL_OK;
}

static void hear(struct longhaul *c, struct beside_link *l, const struct mail *m, uint64_t step)
{
    if (!m->end && m->m.kind == WK_CHANNEL_WELCOME) {
        c->link = WK_LINK_UP;
        c->returns++;
        l->calling = false;
        wk_link_ring(c);
        return;
    }
    bool over = !m->end && ends_life(&m->m);
    if (c->link == WK_LINK_UP) c->away_from = step;
    if (c->link != WK_LINK_OVER) c->link = over ? WK_LINK_OVER : WK_LINK_AWAY;
}

void wk_link_look(struct longhaul *c, uint64_t step)
{
    struct beside_link *l = owner_of(c)->link;
    struct mail m;
    if (!worker_there(l) || l->lost) {
        if (c->link == WK_LINK_UP) c->away_from = step;
        if (c->link == WK_LINK_UP || c->link == WK_LINK_CALLING) c->link = WK_LINK_AWAY;
        hang_up(l);
    }
    if (!worker_there(l)) return;
    while (take_mail(l, &m)) hear(c, l, &m, step);
    if (c->link != WK_LINK_AWAY) return;
    introduce(c, l, true);
    c->link = WK_LINK_CALLING;
}

void wk_link_close(struct longhaul *c, bool orderly)
{
    struct beside_link *l = owner_of(c)->link;
    struct wk_channel_message m = {.abi = WK_CHANNEL_ABI, .kind = WK_CHANNEL_LEAVE};
    if (orderly && c->link == WK_LINK_UP) tell(l, MESSAGE, &m);
    hang_up(l);
    wk_link_forget(c);
}

void wk_link_sleep(const _Atomic uint32_t *word, uint32_t seen, int64_t ns)
{
    (void)seen, (void)ns;
    LH_ASSERT(word == NULL); // nothing may sleep here
}

void wk_link_wake(const _Atomic uint32_t *word)
{
    (void)word;
}

// ---------------------------------------------------------------- open and close

void beside_link_open(struct beside *b)
{
    int at = 0;
    b->conf.open = listen_here;
    b->conf.close = close_here;
    b->conf.arg = b;
    b->link = calloc(1, sizeof *b->link);
    LH_ASSERT(b->link);
    b->link->io.ops = &io_ops;
    b->link->owner = b;
    while (at < TRAINERS_MAX && trainer[at]) at++;
    LH_ASSERT(at < TRAINERS_MAX);
    trainer[at] = b;
}

void beside_link_close(struct beside *b)
{
    for (int i = 0; i < TRAINERS_MAX; i++)
        if (trainer[i] == b) trainer[i] = NULL;
    let_go(&b->link->worker);
    let_go(&b->link->offered);
    free(b->link);
}
