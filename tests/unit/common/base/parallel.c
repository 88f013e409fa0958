// common/base/parallel.c: every part runs once, on several threads if there are several processors.
// labels: tsan
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/parallel.h"
#include "tests/test.h"

enum { PARTS = 1000 };

static void count_part(void *arg, size_t i)
{
    atomic_fetch_add(&((atomic_int *)arg)[i], 1);
}

TEST(every_part_is_done_once)
{
    static const size_t n[] = {0, 1, 2, 3, LH_PARALLEL_MAX, PARTS};
    for (size_t k = 0; k < LH_COUNT(n); k++) {
        atomic_int done[PARTS + 1];
        for (size_t i = 0; i <= PARTS; i++) atomic_init(&done[i], 0);
        lh_parallel(n[k], count_part, done);
        for (size_t i = 0; i <= PARTS; i++)
            assert_int_equal(atomic_load(&done[i]), i < n[k] ? 1 : 0);
    }
}

// Parts that wait for each other finish only if each has a thread.
static void meet(void *arg, size_t i)
{
    (void)i;
    pthread_barrier_wait(arg);
}

TEST(parts_run_at_the_same_time)
{
    static const unsigned count[] = {1, 2, LH_PARALLEL_MAX, LH_PARALLEL_MAX + 3};
    for (size_t i = 0; i < LH_COUNT(count); i++) {
        unsigned threads = count[i];
        pthread_barrier_t barrier;
        assert_int_equal(pthread_barrier_init(&barrier, NULL, threads), 0);
        lh_parallel_on(threads, threads, meet, &barrier);
        pthread_barrier_destroy(&barrier);
    }
}

// One thread for each processor that this process may use.
TEST(every_processor_has_a_thread)
{
    cpu_set_t set;
    pthread_barrier_t barrier;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    unsigned n = CPU_COUNT(&set) < LH_PARALLEL_MAX ? (unsigned)CPU_COUNT(&set) : LH_PARALLEL_MAX;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, n), 0);
    lh_parallel(n, meet, &barrier);
    pthread_barrier_destroy(&barrier);
}

static void note_thread(void *arg, size_t i)
{
    ((pthread_t *)arg)[i] = pthread_self();
}

TEST(one_processor_takes_no_other_thread)
{
    cpu_set_t all, one;
    pthread_t who[8];
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (size_t cpu = 0; !CPU_COUNT(&one); cpu++)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    lh_parallel(LH_COUNT(who), note_thread, who);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    for (size_t i = 0; i < LH_COUNT(who); i++) assert_true(pthread_equal(who[i], pthread_self()));
}

TEST(a_copy_is_whole_at_every_length)
{
    static const size_t length[] = {0, 1, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, (9 << 20) + 7};
    size_t most = (9 << 20) + 7;
    uint8_t *from = malloc(most), *to = malloc(most + 1);
    assert_true(from && to);
    for (size_t i = 0; i < most; i++) from[i] = (uint8_t)(i * 31 + (i >> 12));
    for (size_t k = 0; k < LH_COUNT(length); k++) {
        memset(to, 0xee, most + 1);
        lh_parallel_copy(to, from, length[k]);
        assert_int_equal(memcmp(to, from, length[k]), 0);
        assert_int_equal(to[length[k]], 0xee);
    }
    free(from);
    free(to);
}
