// A communicator's thread over made-up operations: what is left at an abort says so, and nothing
// that was opened stays open.
// labels: tsan
#include "worker/ranks/comm/comm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static int under_way; // an eventfd: reduce() waits

static lh_err init(struct wk_comm *c, const struct wk_nccl_id *id, uint32_t ranks, uint32_t rank)
{
    (void)c, (void)id, (void)ranks, (void)rank;
    return LH_OK;
}

// It would never end by itself.
static lh_err reduce(struct wk_comm *c, float *sum, uint64_t sums, enum wk_sum_type type)
{
    (void)sum, (void)sums, (void)type;
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
    .name = "made-up", .init = init, .reduce = reduce, .end = nothing, .destroy = nothing};

static void what_is_left_at_an_abort_says_so(void **state)
{
    (void)state;
    struct wk_comm c = {.ops = &ops};
    const struct wk_comm_arrays arrays = {.parts = 0};
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

// A process without a standard input has descriptor 0 for its first file.
static void descriptor_0_is_closed_as_well(void **state)
{
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_left_at_an_abort_says_so),
        cmocka_unit_test(descriptor_0_is_closed_as_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
