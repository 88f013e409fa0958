// The worker's end of the boundary, with this process's memory as its world; the tests write the
// trainer's part.
#ifndef TESTS_UNIT_EXTERNAL_RIG_H
#define TESTS_UNIT_EXTERNAL_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "tests/test.h"
#include "worker/external/external.h"

enum { VALUES = 6000, PARTS = 2, RANKS = 2, MESSAGES = 64 };
static const uint64_t first[] = {0, 1000, VALUES};

struct rig {
    struct wk_external_io io; // first
    struct lh_env *env;
    struct wk_external *x;
    void *memory, *offered; // offered: the memory that comes with a hello
    uint64_t bytes, creates, forgets;
    struct {
        uint64_t to;
        struct wk_channel_message m;
    } sent[MESSAGES];
    uint32_t sents, drops;
    // calls to the core
    uint64_t own[PARTS]; // returned by committed()
    uint32_t comes, resumes, overs, orderlies, endings, cuts, notes, settles;
    struct wk_external_cut cut;
    uint64_t lost, noted;
    uint32_t reports;
    double reported;
    uint64_t damaged; // last unit reported as damaged
    char metric[WK_CHANNEL_METRIC];
    struct wk_channel channel; // the trainer's view of the memory
};

// ---------------------------------------------------------------- the world

static inline struct rig *rig_of(struct wk_external_io *io)
{
    return (struct rig *)io;
}

static inline LH_MUST lh_err create(struct wk_external_io *io, uint64_t bytes, void **out)
{
    struct rig *r = rig_of(io);
    r->creates++;
    r->bytes = bytes;
    *out = r->memory = calloc(1, bytes);
    return r->memory ? LH_OK : LH_ERR_NO_MEMORY;
}

static inline LH_MUST lh_err adopt(struct wk_external_io *io, uint64_t from, void **out,
                                   uint64_t *bytes)
{
    struct rig *r = rig_of(io);
    (void)from;
    if (!r->offered) return LH_ERR_MALFORMED;
    *out = r->memory = r->offered;
    r->offered = NULL;
    *bytes = r->bytes;
    return LH_OK;
}

static inline void forget(struct wk_external_io *io)
{
    struct rig *r = rig_of(io);
    r->forgets++;
    wk_channel_close(&r->channel);
    free(r->memory);
    r->memory = NULL;
}

static inline void send_message(struct wk_external_io *io, uint64_t to, struct lh_span message,
                                bool memory)
{
    struct rig *r = rig_of(io);
    (void)memory;
    assert_true(r->sents < MESSAGES);
    r->sent[r->sents].to = to;
    assert_true(wk_channel_decode(message.data, message.len, &r->sent[r->sents++].m));
}

static inline void drop(struct wk_external_io *io, uint64_t connection)
{
    (void)connection;
    rig_of(io)->drops++;
}

static inline void wake(struct wk_external_io *io, const _Atomic uint32_t *word)
{
    (void)io, (void)word;
}

static const struct wk_external_io_ops io_ops = {create, adopt, forget, send_message, drop, wake};

// ---------------------------------------------------------------- the core

static inline LH_MUST lh_err described(void *arg, const struct wk_channel_tensor *tensor,
                                       uint32_t tensors)
{
    (void)arg, (void)tensor, (void)tensors;
    return LH_OK;
}

static inline void view(void *arg, uint32_t part, bool final, float *out)
{
    (void)arg;
    for (uint64_t i = 0; i < first[part + 1] - first[part]; i++) out[i] = final ? 99 : 10;
}

static inline uint64_t committed(void *arg, const uint8_t life[WK_CHANNEL_LIFE], uint32_t part)
{
    (void)life;
    return ((struct rig *)arg)->own[part];
}

static inline void came(void *arg, const uint8_t life[WK_CHANNEL_LIFE], bool resumed)
{
    struct rig *r = arg;
    (void)life;
    r->comes++;
    r->resumes += resumed;
}

static inline void trained(void *arg, uint32_t rank, uint64_t unit, uint64_t upto, uint64_t step)
{
    struct rig *r = arg;
    (void)rank, (void)unit, (void)step;
    r->notes++;
    r->noted = upto;
}

static inline void reported(void *arg, const char *name, double value)
{
    struct rig *r = arg;
    r->reports++;
    r->reported = value;
    snprintf(r->metric, sizeof r->metric, "%s", name);
}

static inline void cut(void *arg, const struct wk_external_cut *c)
{
    struct rig *r = arg;
    r->cuts++;
    r->cut = *c;
}

static inline void ending(void *arg)
{
    ((struct rig *)arg)->endings++;
}

static inline void over(void *arg, uint64_t lost, bool orderly)
{
    struct rig *r = arg;
    r->overs++;
    r->orderlies += orderly;
    r->lost = lost;
}

static inline void settled(void *arg)
{
    ((struct rig *)arg)->settles++;
}

static inline void damaged(void *arg, uint64_t unit)
{
    ((struct rig *)arg)->damaged = unit;
}

static const struct wk_external_ops ops = {described, view,   committed, came,    trained, reported,
                                           cut,       ending, over,      settled, damaged};

static inline void begin_worker(struct rig *r)
{
    struct wk_external_conf conf = {.env = r->env,
                                    .values = VALUES,
                                    .parts = PARTS,
                                    .first = first,
                                    .ranks = RANKS,
                                    .leases = 8,
                                    .journal = 8};
    r->io.ops = &io_ops;
    assert_int_equal(wk_external_create(&conf, &ops, r, &r->io, &r->x), LH_OK);
}

static inline int set_up(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    *state = r;
    LH_ASSERT(r && lh_env_real_create(&r->env) == LH_OK);
    begin_worker(r);
    return 0;
}

static inline int tear_down(void **state)
{
    struct rig *r = *state;
    wk_external_destroy(r->x);
    wk_channel_close(&r->channel);
    free(r->memory);
    free(r->offered);
    lh_env_real_destroy(r->env);
    free(r);
    return 0;
}

// ---------------------------------------------------------------- the trainer

static inline void say(struct rig *r, uint64_t from, struct wk_channel_message *m)
{
    uint8_t bytes[WK_CHANNEL_MESSAGE];
    m->abi = WK_CHANNEL_ABI;
    size_t n = wk_channel_encode(m, bytes);
    assert_true(n > 0);
    wk_external_message(r->x, from, lh_span(bytes, n));
}

static inline void say_kind(struct rig *r, uint64_t from, uint16_t kind)
{
    struct wk_channel_message m = {.kind = kind};
    say(r, from, &m);
}

// Sends a rank's hello and two tensors; the rank holds `count` values of the second from `begin`
// on.
static inline void greet_with(struct rig *r, uint64_t from, uint32_t rank, const uint8_t *life,
                              uint64_t begin, uint64_t count, uint64_t rows)
{
    struct wk_channel_message m = {.kind = WK_CHANNEL_HELLO};
    m.as.hello = (struct wk_channel_hello){rank, RANKS, 2, life != NULL, {0}};
    if (life) memcpy(m.as.hello.life, life, WK_CHANNEL_LIFE);
    wk_external_opened(r->x, from);
    say(r, from, &m);
    m = (struct wk_channel_message){.kind = WK_CHANNEL_TENSOR};
    m.as.tensor = (struct wk_channel_tensor){0, WK_CHANNEL_FP32, 1, 0, 4000, true, {4000}, "all"};
    say(r, from, &m);
    m.as.tensor =
        (struct wk_channel_tensor){1, WK_CHANNEL_FP32, 1, begin, count, false, {rows}, "rows"};
    say(r, from, &m);
    say_kind(r, from, WK_CHANNEL_DESCRIBED);
}

static inline void greet(struct rig *r, uint64_t from, uint32_t rank, const uint8_t *life,
                         uint64_t begin, uint64_t count)
{
    greet_with(r, from, rank, life, begin, count, 2000);
}

static inline void join_both(struct rig *r)
{
    greet(r, 1, 0, NULL, 0, 700);
    assert_int_equal(r->creates, 0); // not before all ranks are there
    greet(r, 2, 1, NULL, 700, 1300);
    assert_int_equal(r->comes, 1);
    assert_int_equal(r->sents, 2);
    assert_int_equal(r->sent[1].m.kind, WK_CHANNEL_WELCOME);
    assert_null(wk_channel_read(&r->channel, r->memory, r->bytes));
}

static inline void rank_cuts(struct rig *r, uint32_t part, uint32_t rank, uint64_t number,
                             uint64_t step, uint64_t included)
{
    struct wk_channel_done *d = wk_channel_done(&r->channel, part, rank);
    struct wk_channel_rank *me = wk_channel_rank(&r->channel, rank);
    float *slot = wk_channel_slot(&r->channel, number) + first[part];
    for (uint64_t i = 0; i < first[part + 1] - first[part]; i++) slot[i] = 10 - (float)number;
    me->step = me->trained = step;
    me->tokens = 100 * step;
    d->of[number % 2] = (struct wk_channel_cut){step, 100 * step, included, me->noted, step};
    d->cut = number;
}

static inline void both_cut(struct rig *r, uint32_t part, uint64_t number, uint64_t step)
{
    rank_cuts(r, part, 0, number, step, 0);
    rank_cuts(r, part, 1, number, step, 0);
    say_kind(r, 1, WK_CHANNEL_RING);
}

// The rank trains `notes` more units.
static inline void note(struct rig *r, uint32_t rank, uint64_t notes)
{
    struct wk_channel_rank *me = wk_channel_rank(&r->channel, rank);
    for (; notes; notes--, me->noted++)
        *wk_channel_note(&r->channel, rank, me->noted) =
            (struct wk_channel_note){rank, me->noted + 1, 5};
}

#define IN_RIG(name, parameter) TEST_WITH(name, parameter, set_up, tear_down)

#endif
