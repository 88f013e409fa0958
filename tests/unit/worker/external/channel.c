// The channel: areas that do not overlap, memory that is read only if it is valid, messages,
// corrections and their ring.
// ctest: channel
#include <stdlib.h>
#include <string.h>

#include "tests/test.h"
#include "worker/external/correction.h"

static const uint64_t first[] = {0, 5000, 5001, 20000};
static const struct wk_channel_shape shape = {20000, 3, 2, 16, 32, first};

static struct wk_channel make(void)
{
    struct wk_channel c;
    struct wk_channel_layout l;
    assert_true(wk_channel_plan(&shape, &l));
    assert_true(wk_channel_open(&c, &shape, calloc(1, l.bytes)));
    assert_non_null(c.base);
    wk_channel_format(&c, (const uint8_t[16]){7}, (const uint8_t[32]){9});
    return c;
}

static void drop(struct wk_channel *c)
{
    free(c->base);
    wk_channel_close(c);
}

TEST(areas_are_apart)
{
    struct wk_channel c = make();
    const struct wk_channel_layout *l = &c.layout;
    const uint64_t at[] = {0,          l->first_at, l->worker_at,  l->worker_rank_at,
                           l->part_at, l->lease_at, l->rank_at,    l->act_at,
                           l->done_at, l->note_at,  l->slot_at[0], l->slot_at[1],
                           l->ring_at, l->bytes};
    for (size_t i = 1; i < sizeof at / sizeof *at; i++) {
        assert_true(at[i] > at[i - 1]);
        assert_int_equal(at[i] % WK_CHANNEL_PAGE, 0);
    }
    // The last item of each area ends before the next area.
    uint8_t *end = (uint8_t *)(wk_channel_done(&c, 2, 1) + 1);
    assert_true(end <= c.base + l->note_at);
    assert_true((uint8_t *)(wk_channel_note(&c, 1, 31) + 1) <= c.base + l->slot_at[0]);
    assert_true((uint8_t *)(wk_channel_lease(&c, 1, 15) + 1) <= c.base + l->rank_at);
    assert_true((uint8_t *)(wk_channel_slot(&c, 1) + 20000) <= c.base + l->ring_at);
    assert_int_equal(c.ring_of[3], l->bytes);
    drop(&c);
}

TEST(reads_only_what_is_sound)
{
    struct wk_channel c = make(), same;
    assert_null(wk_channel_read(&same, c.base, c.layout.bytes));
    assert_int_equal(same.layout.ring_at, c.layout.ring_at);
    wk_channel_close(&same);
    struct wk_channel_head *h = wk_channel_head(&c), good = *h;
#define WRONG(change)                                                                              \
    do {                                                                                           \
        change;                                                                                    \
        assert_non_null(wk_channel_read(&same, c.base, c.layout.bytes));                           \
        *h = good;                                                                                 \
    } while (0)
    WRONG(h->magic++);
    WRONG(h->abi = 2);
    WRONG(h->parts = 0);
    WRONG(h->parts = UINT32_MAX);
    WRONG(h->values--);
    WRONG(h->values = UINT64_MAX);
    WRONG(h->bytes++);
    WRONG(h->ranks = 65);
    WRONG(h->leases = 0);
    WRONG(h->journal = UINT32_MAX);
    ((uint64_t *)(c.base + c.layout.first_at))[1] = 5001; // a part without values
    assert_non_null(wk_channel_read(&same, c.base, c.layout.bytes));
    assert_non_null(wk_channel_read(&same, c.base, 100));
    drop(&c);
}

// Assigns without garbage in the padding, because whole messages are compared.
#define ASSIGN(to, ...)                                                                            \
    do {                                                                                           \
        static const __typeof__(to) given = __VA_ARGS__;                                           \
        memcpy(&(to), &given, sizeof given);                                                       \
    } while (0)

TEST(messages_come_back)
{
    uint8_t bytes[WK_CHANNEL_MESSAGE];
    struct wk_channel_message out, m = {.abi = WK_CHANNEL_ABI, .kind = WK_CHANNEL_TENSOR};
    ASSIGN(m.as.tensor, {3, WK_CHANNEL_BF16, 2, 10, 20, false, {6, 5}, "w"});
    size_t n = wk_channel_encode(&m, bytes);
    assert_true(n > 8);
    assert_true(wk_channel_decode(bytes, n, &out));
    assert_memory_equal(&out, &m, sizeof m);
    assert_false(wk_channel_decode(bytes, n - 1, &out)); // shorter than its length field says
    m.as.tensor.count = 21;                              // 10 + 21 exceeds 20
    assert_int_equal(wk_channel_encode(&m, bytes), 0);
    m = (struct wk_channel_message){.abi = WK_CHANNEL_ABI, .kind = WK_CHANNEL_HELLO};
    m.as.hello = (struct wk_channel_hello){2, 2, 1, false, {0}};
    assert_int_equal(wk_channel_encode(&m, bytes), 0); // rank 2 of 2
    m.as.hello.rank = 1;
    n = wk_channel_encode(&m, bytes);
    bytes[4] = 2; // another abi: only the kind is read
    assert_true(wk_channel_decode(bytes, n, &out));
    assert_int_equal(out.abi, 2);
    assert_int_equal(out.as.hello.ranks, 0);
}

TEST(every_kind_of_message_comes_back)
{
    uint8_t bytes[WK_CHANNEL_MESSAGE];
    for (uint16_t kind = WK_CHANNEL_HELLO; kind < WK_CHANNEL_KINDS; kind++) {
        struct wk_channel_message out, m = {.abi = WK_CHANNEL_ABI, .kind = kind};
        if (kind == WK_CHANNEL_HELLO)
            ASSIGN(m.as.hello, {5, 6, 7, true, {1, 2, [WK_CHANNEL_LIFE - 1] = 3}});
        if (kind == WK_CHANNEL_TENSOR)
            ASSIGN(m.as.tensor, {3, WK_CHANNEL_BF16, 2, 10, 20, false, {6, 5}, "w"});
        if (kind == WK_CHANNEL_WELCOME) ASSIGN(m.as.welcome, {UINT64_C(5) << 40, true, {4, 5, 6}});
        if (kind == WK_CHANNEL_REFUSED)
            ASSIGN(m.as.refused, {WK_CHANNEL_OTHER_MODEL, "no tensor w"});
        if (kind == WK_CHANNEL_REPORT) ASSIGN(m.as.report, {0.5, "loss"});
        if (kind == WK_CHANNEL_DAMAGED) m.as.damaged = UINT64_C(6) << 40;
        size_t n = wk_channel_encode(&m, bytes);
        assert_true(n >= 8);
        assert_true(wk_channel_decode(bytes, n, &out));
        assert_memory_equal(&out, &m, sizeof m);
        assert_false(wk_channel_decode(bytes, n - 1, &out));
    }
}

TEST(a_kind_that_there_is_not_is_refused)
{
    struct wk_channel_message out;
    uint8_t none[] = {8, 0, 0, 0, WK_CHANNEL_ABI, 0, 0, 0};
    uint8_t beyond[] = {8, 0, 0, 0, WK_CHANNEL_ABI + 1, 0, WK_CHANNEL_KINDS, 0};
    assert_false(wk_channel_decode(none, sizeof none, &out));
    assert_false(wk_channel_decode(beyond, sizeof beyond, &out)); // unknown kind of another abi
    none[4]++;
    assert_false(wk_channel_decode(none, sizeof none, &out));
    beyond[6]--;
    assert_true(wk_channel_decode(beyond, sizeof beyond, &out));
}

// ---------------------------------------------------------------- corrections

static void plan_to(const struct wk_base *base, const float *view, uint64_t values,
                    struct wk_correction_work *work, struct wk_correction_plan *out)
{
    const struct wk_external_view to = {.theta = view};
    assert_int_equal(wk_correction_open(work, values), LH_OK);
    assert_int_equal(wk_correction_plan(base, &to, work, out), LH_OK);
}

static uint64_t publish(struct wk_channel *c, uint32_t part, uint64_t number, const float *view,
                        enum wk_channel_kind kind)
{
    struct wk_base base = {c, part, 0, 0, number - 1};
    struct wk_correction_plan plan;
    struct wk_correction_work work;
    static uint64_t at;
    if (number == 1) at = 0;
    plan_to(&base, view, first[part + 1] - first[part], &work, &plan);
    assert_int_equal(plan.kind, kind);
    const struct wk_external_view to = {.theta = view};
    assert_int_equal(wk_correction_write(&base, &to, &work, &plan, wk_channel_ring(c, part) + at),
                     LH_OK);
    wk_correction_close(&work);
    wk_channel_part(c, part)->entry[number % WK_CHANNEL_LIVE] =
        (struct wk_channel_entry){number, kind, 0, at, plan.count};
    at += plan.bytes;
    return plan.count;
}

TEST(corrections_lead_to_the_view)
{
    struct wk_channel c = make();
    enum { PART = 2, VALUES = 14999 };
    float *slot = wk_channel_slot(&c, 0) + first[PART], *view = malloc(VALUES * sizeof *view);
    float chunk[WK_CHANNEL_CHUNK];
    for (int i = 0; i < VALUES; i++) view[i] = slot[i] = (float)i * 0.125f;
    for (int i = 0; i < VALUES; i += 9) view[i] += 1;
    assert_int_equal(publish(&c, PART, 1, view, WK_CHANNEL_SPARSE), (VALUES + 8) / 9);
    for (int i = 0; i < VALUES; i++) view[i] -= 2;
    assert_int_equal(publish(&c, PART, 2, view, WK_CHANNEL_DENSE), VALUES);
    struct wk_base base = {&c, PART, 0, 0, 2};
    for (uint64_t from = 0; from < VALUES; from += WK_CHANNEL_CHUNK) {
        uint64_t n = VALUES - from < WK_CHANNEL_CHUNK ? VALUES - from : WK_CHANNEL_CHUNK;
        assert_int_equal(wk_base_read(&base, from, n, chunk), LH_OK);
        assert_memory_equal(chunk, view + from, n * sizeof *chunk);
    }
    struct wk_correction_plan plan;
    struct wk_correction_work work;
    plan_to(&base, view, VALUES, &work, &plan);
    assert_int_equal(plan.count, 0);
    wk_correction_close(&work);

    // Overwritten entries are detected, and nothing is read outside the ring.
    struct wk_channel_entry *e = &wk_channel_part(&c, PART)->entry[1], good = *e;
    struct wk_channel_correction r;
    e->count = VALUES + 1;
    assert_false(wk_channel_correction(&c, PART, 1, &r));
    *e = good, e->at = UINT64_MAX - 63;
    assert_false(wk_channel_correction(&c, PART, 1, &r));
    *e = good, e->kind = 3;
    assert_false(wk_channel_correction(&c, PART, 1, &r));
    *e = good, e->number = 17;
    assert_false(wk_channel_correction(&c, PART, 1, &r));
    *e = good;
    ((uint64_t *)wk_channel_ring(&c, PART))[1] = UINT64_MAX; // the sparse correction's table
    assert_int_equal(wk_base_read(&base, 0, 10, chunk), LH_ERR_CORRUPT);
    free(view);
    drop(&c);
}

// Entries are added at one end of the ring and removed at the other; live entries share no bytes.
TEST(the_ring_gives_no_byte_twice)
{
    enum { VALUES = 100000 };
    struct wk_channel_entry live[WK_CHANNEL_LIVE];
    uint32_t lives = 0, denses = 0, full = 0;
    uint64_t room = wk_channel_ring_bytes(VALUES), seed = 1;
    for (int round = 0; round < 20000; round++) {
        seed = seed * UINT64_C(6364136223846793005) + 1;
        uint64_t chance = seed >> 33;
        struct wk_channel_entry e = {.kind = chance % 4 ? WK_CHANNEL_SPARSE : WK_CHANNEL_DENSE};
        e.count = e.kind == WK_CHANNEL_DENSE ? VALUES : chance % 20000 + 1;
        uint64_t bytes = wk_channel_correction_bytes(e.kind, VALUES, e.count);
        e.at =
            lives < WK_CHANNEL_LIVE ? wk_ring_place(live, lives, VALUES, room, bytes) : UINT64_MAX;
        if (e.at == UINT64_MAX) { // a commit retires some entries
            assert_true(lives > 0);
            uint32_t gone = (uint32_t)(chance % lives) + 1;
            memmove(live, live + gone, (lives -= gone) * sizeof *live);
            full++;
            continue;
        }
        assert_true(e.at + bytes <= room && e.at % 64 == 0);
        for (uint32_t i = 0; i < lives; i++) {
            uint64_t end =
                live[i].at + wk_channel_correction_bytes(live[i].kind, VALUES, live[i].count);
            assert_true(end <= e.at || e.at + bytes <= live[i].at);
        }
        denses += e.kind == WK_CHANNEL_DENSE;
        live[lives++] = e;
    }
    assert_true(denses > 100 && full > 100);
}
