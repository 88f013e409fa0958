// A communicator's thread over made-up operations: buckets are summed in order and only when they
// are final; an abort is reported for unfinished sums, and everything that was opened is closed.
// labels: tsan
#include "worker/ranks/comm/comm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/check.h"
#include "tests/test.h"

static int under_way; // an eventfd: reduce() has started

static lh_err init(struct wk_comm *c, const struct wk_nccl_id *id, uint32_t ranks, uint32_t rank)
{
    (void)c, (void)id, (void)ranks, (void)rank;
    return LH_OK;
}

// Blocks until it is stopped.
static lh_err reduce(struct wk_comm *c, float *bucket, uint64_t values, bool last)
{
    (void)bucket, (void)values, (void)last;
    struct pollfd p = {c->bell, POLLIN, 0};
    eventfd_write(under_way, 1);
    while (!wk_comm_stopped(c)) poll(&p, 1, -1);
    return wk_comm_leaves();
}

static void nothing(struct wk_comm *c)
{
    (void)c;
}

static const struct wk_comm_ops ops = {
    .init = init, .reduce = reduce, .end = nothing, .destroy = nothing};

TEST(an_aborted_reduce_gives_the_reason)
{
    struct wk_comm c = {.ops = &ops};
    const struct wk_comm_arrays arrays = {.sums = 1};
    const struct wk_nccl_id id = {{0}};
    eventfd_t count;
    int told = eventfd(0, EFD_CLOEXEC);
    under_way = eventfd(0, EFD_CLOEXEC);
    assert_int_equal(wk_comm_start(&c), LH_OK);
    wk_comm_bind(&c, &arrays, told);
    wk_comm_region.init(&c, &id, 1, 0);
    assert_int_equal(eventfd_read(told, &count), 0);
    assert_int_equal(wk_comm_region.poll(&c), WK_REGION_OK);
    wk_comm_region.reduce(&c, UINT64_MAX);
    assert_int_equal(eventfd_read(under_way, &count), 0);
    wk_comm_region.abort(&c);
    while (!wk_comm_region.aborted(&c)) assert_int_equal(eventfd_read(told, &count), 0);
    assert_string_equal(wk_comm_region.why(&c), "the communicator is aborted");
    wk_comm_destroy(&c);
    close(told);
    close(under_way);
}

enum { VALUES = 23, BEHIND = 3, BUCKET = 8 };
struct counting {
    struct wk_comm base; // first
    float x[VALUES];
    char order[64]; // "4+8 " for a bucket of 8 from value 4 on; "." after the last one
    bool fails;     // the second bucket fails
    _Atomic unsigned idle;
};

static lh_err note_bucket(struct wk_comm *c, float *bucket, uint64_t values, bool last)
{
    struct counting *n = (struct counting *)c;
    size_t at = strlen(n->order);
    if (at && n->fails) return lh_fail(LH_ERR_UNAVAILABLE, "made up");
    snprintf(n->order + at, sizeof n->order - at, "%d+%d%s", (int)(bucket - n->x), (int)values,
             last ? "." : " ");
    return LH_OK;
}

static void until_early(struct wk_comm *c, uint64_t buckets)
{
    while (wk_comm_counts(c).early != buckets) usleep(1000);
}

static enum wk_region_progress until_over(struct wk_comm *c)
{
    while (wk_comm_region.poll(c) == WK_REGION_BUSY) usleep(1000);
    return wk_comm_region.poll(c);
}

static void open_counting(struct counting *n, const struct wk_comm_ops *o)
{
    const struct wk_comm_arrays arrays = {
        .sum = n->x, .sums = VALUES, .behind = BEHIND, .bucket_bytes = BUCKET * sizeof(float)};
    const struct wk_nccl_id id = {{0}};
    n->base.ops = o;
    assert_int_equal(wk_comm_start(&n->base), LH_OK);
    wk_comm_bind(&n->base, &arrays, -1);
    wk_comm_region.init(&n->base, &id, 1, 0);
    assert_int_equal(until_over(&n->base), WK_REGION_OK);
}

static const struct wk_comm_ops counting_ops = {
    .init = init, .reduce = note_bucket, .end = nothing, .destroy = nothing};

// Buckets are summed from the end on, the values behind the gradient last. They are the same
// whenever values are reported final.
TEST(a_bucket_is_summed_once_it_is_final)
{
    static const uint64_t steps[][4] = {{7, 8, 19, UINT64_MAX}, {20, UINT64_MAX}, {UINT64_MAX}};
    static const uint64_t early[] = {2, 3, 0};
    struct counting n = {.fails = false};
    open_counting(&n, &counting_ops);
    struct wk_comm_counts before = {0};
    for (size_t s = 0; s < LH_COUNT(steps); s++) {
        n.order[0] = 0;
        for (const uint64_t *final = steps[s];; final++) {
            wk_comm_region.reduce(&n.base, *final);
            if (*final == UINT64_MAX) break;
            until_early(&n.base, before.early + (*final == VALUES - BEHIND ? 3 : *final / BUCKET));
            assert_int_equal(wk_comm_region.poll(&n.base), WK_REGION_BUSY);
        }
        assert_int_equal(until_over(&n.base), WK_REGION_OK);
        struct wk_comm_counts is = wk_comm_counts(&n.base);
        assert_string_equal(n.order, "12+8 4+8 0+4 20+3.");
        assert_int_equal(is.early - before.early, early[s]);
        assert_int_equal(is.buckets - before.buckets, 4);
        before = is;
    }
    wk_comm_destroy(&n.base);
}

static lh_err note_idle(struct wk_comm *c)
{
    ((struct counting *)c)->idle++;
    return LH_OK;
}

// If nothing is behind the gradient, the last bucket waits for the report that all is final. A sum
// that ended earlier would be started again.
TEST(a_sum_ends_after_the_last_word)
{
    struct counting n = {.fails = false};
    struct wk_comm_ops idles = counting_ops;
    idles.idle = note_idle;
    open_counting(&n, &idles);
    n.base.arrays.behind = 0;
    wk_comm_region.reduce(&n.base, VALUES);
    while (wk_comm_counts(&n.base).early < 2) usleep(1000);
    n.idle = 0;
    while (n.idle < 2) usleep(1000);
    assert_int_equal(wk_comm_region.poll(&n.base), WK_REGION_BUSY);
    wk_comm_region.reduce(&n.base, UINT64_MAX);
    assert_int_equal(until_over(&n.base), WK_REGION_OK);
    assert_string_equal(n.order, "15+8 7+8 0+7.");
    wk_comm_destroy(&n.base);
}

// A sum that failed during the backward pass stays failed, although more values become final; the
// next communicator starts without it.
TEST(a_failure_beside_the_backward_pass_is_told)
{
    struct counting n = {.fails = true};
    const struct wk_nccl_id id = {{0}};
    open_counting(&n, &counting_ops);
    wk_comm_region.reduce(&n.base, 2 * BUCKET);
    assert_int_equal(until_over(&n.base), WK_REGION_WRONG);
    wk_comm_region.reduce(&n.base, UINT64_MAX);
    assert_int_equal(wk_comm_region.poll(&n.base), WK_REGION_WRONG);
    assert_string_equal(n.order, "12+8 ");
    wk_comm_region.abort(&n.base);
    while (!wk_comm_region.aborted(&n.base)) usleep(1000);
    n.fails = false;
    n.order[0] = 0;
    wk_comm_region.init(&n.base, &id, 1, 0);
    assert_int_equal(until_over(&n.base), WK_REGION_OK);
    wk_comm_region.reduce(&n.base, BUCKET);
    until_early(&n.base, 3);
    assert_int_equal(wk_comm_region.poll(&n.base), WK_REGION_BUSY); // the next bucket is not final
    wk_comm_region.reduce(&n.base, UINT64_MAX);
    assert_int_equal(until_over(&n.base), WK_REGION_OK);
    assert_string_equal(n.order, "12+8 4+8 0+4 20+3.");
    wk_comm_destroy(&n.base);
}

// In a process without standard input, its first file has descriptor 0.
TEST(descriptor_0_is_closed_as_well)
{
    struct wk_comm c = {.ops = &ops};
    int input = dup(0);
    close(0);
    assert_int_equal(wk_comm_start(&c), LH_OK);
    assert_int_equal(c.bell, 0);
    wk_comm_destroy(&c);
    assert_int_equal(fcntl(0, F_GETFD), -1);
    assert_int_equal(errno, EBADF);
    if (input < 0) return;
    assert_int_equal(dup2(input, 0), 0);
    close(input);
}
