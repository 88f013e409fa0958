// A leader's way through a step, with made-up ranks and communicator: the bandwidth that it
// computes for a sum that overlaps the backward pass.
#include "worker/ranks/region_core.h"

#include <string.h>

#include "common/env/env.h"
#include "tests/test.h"

enum { VALUES = 1000, EARLY = 600 };

static struct {
    uint64_t final, given, steps;
    bool computed, summed;
} made;

static void send(void *arg, uint32_t to, struct lh_span bytes)
{
    (void)arg, (void)to, (void)bytes;
}

static uint32_t version(void *arg)
{
    (void)arg;
    return 1;
}

static lh_err unique_id(void *arg, struct wk_nccl_id *out)
{
    (void)arg;
    *out = (struct wk_nccl_id){{0}};
    return LH_OK;
}

static void init(void *arg, const struct wk_nccl_id *id, uint32_t ranks, uint32_t rank)
{
    (void)arg, (void)id, (void)ranks, (void)rank;
}

static void share(void *arg, enum wk_region_share what)
{
    (void)arg, (void)what;
}

static void reduce(void *arg, uint64_t final)
{
    (void)arg;
    made.given = final;
}

static enum wk_region_progress poll(void *arg)
{
    (void)arg;
    return made.given && !made.summed ? WK_REGION_BUSY : WK_REGION_OK;
}

static void compute(void *arg, uint64_t step, uint32_t part, uint32_t parts, struct lh_span payload)
{
    (void)arg, (void)step, (void)part, (void)parts, (void)payload;
}

static uint64_t final(void *arg)
{
    (void)arg;
    return made.final;
}

static enum wk_region_progress computed(void *arg)
{
    (void)arg;
    return made.computed ? WK_REGION_OK : WK_REGION_BUSY;
}

static lh_err apply(void *arg)
{
    (void)arg;
    made.steps++;
    return LH_OK;
}

static uint64_t steps(void *arg)
{
    (void)arg;
    return made.steps;
}

static uint64_t digest(void *arg)
{
    (void)arg;
    return 7;
}

static void stepped(void *arg)
{
    (void)arg;
}

static void changed(void *arg, uint64_t members)
{
    (void)arg, (void)members;
}

static void failed(void *arg, const char *cause)
{
    (void)arg, (void)cause;
}

static void ended(void *arg, lh_err err, const char *text)
{
    (void)arg, (void)err, (void)text;
}

static void hear_from(struct wk_region *r, uint32_t rank, struct wk_region_message m, int64_t now)
{
    struct lh_buf bytes = lh_buf(WK_REGION_HEAD_BYTES);
    m.rank = rank;
    m.life = 10 + rank;
    wk_region_message_put(&bytes, &m);
    assert_int_equal(wk_region_receive(r, rank, lh_buf_span(&bytes), now), LH_OK);
    lh_buf_free(&bytes);
}

static void hear(struct wk_region *r, struct wk_region_message m, int64_t now)
{
    hear_from(r, 1, m, now);
}

// The last 1600 bytes of the gradient take a second to sum; the minute before that was the backward
// pass.
TEST(a_long_backward_pass_is_no_slow_network)
{
    static const struct wk_region_comm_ops comm = {
        version, unique_id, init, share, reduce, poll, NULL, NULL, NULL,
    };
    static const struct wk_region_ops ops = {send,   compute, final,   computed, apply,  steps,
                                             digest, digest,  stepped, changed,  failed, ended};
    const struct wk_region_conf conf = {.ranks = 2,
                                        .life = 10,
                                        .reduce_bytes = VALUES * sizeof(float),
                                        .gather_ns = LH_SECOND,
                                        .beat_ns = LH_SECOND,
                                        .silence_ns = 600 * LH_SECOND,
                                        .init_ns = LH_SECOND,
                                        .compute_ns = 600 * LH_SECOND,
                                        .op_ns = LH_SECOND,
                                        .bytes_per_s = 1,
                                        .comm = &comm,
                                        .ops = &ops};
    struct wk_region *r;
    int64_t now = LH_SECOND;
    assert_int_equal(wk_region_create(&conf, now, &r), LH_OK);
    hear(r, (struct wk_region_message){.kind = WK_REGION_HELLO, .nccl = 1, .digest = 7}, now);
    assert_int_equal(wk_region_want(r, lh_span("step", 4), false), LH_OK);
    wk_region_tick(r, now);
    assert_int_equal(r->phase, WK_REGION_INIT);
    wk_region_tick(r, now);
    hear(r, (struct wk_region_message){.kind = WK_REGION_READY, .epoch = r->epoch}, now);
    wk_region_tick(r, now);
    assert_int_equal(r->phase, WK_REGION_COMPUTE);
    made.final = EARLY;
    wk_region_tick(r, now);
    assert_int_equal(made.given, EARLY);
    made.computed = true;
    wk_region_tick(r, now += 60 * LH_SECOND);
    assert_int_equal(r->phase, WK_REGION_REDUCE);
    assert_true(made.given == UINT64_MAX);
    made.summed = true;
    wk_region_tick(r, now += LH_SECOND);
    assert_int_equal(made.steps, 1);
    assert_true(wk_region_bandwidth(r) == (VALUES - EARLY) * sizeof(float));
    wk_region_destroy(r);
}
