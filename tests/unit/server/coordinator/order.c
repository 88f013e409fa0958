// server/coordinator/order.c: an epoch's order has each unit once, and follows from seed and epoch.
#include <string.h>

#include "server/coordinator/order.h"
#include "tests/test.h"

enum { MOST = 1000 };

static void has_each_once(const uint32_t *order, uint32_t count)
{
    bool seen[MOST] = {false};
    for (uint32_t i = 0; i < count; i++) {
        assert_true(order[i] < count && !seen[order[i]]);
        seen[order[i]] = true;
    }
}

TEST(each_epoch_has_each_unit_once)
{
    static const uint32_t count[] = {1, 2, 3, 8, 257, MOST};
    uint32_t order[MOST];
    for (size_t i = 0; i < sizeof count / sizeof *count; i++)
        for (uint64_t seed = 0; seed < 20; seed++)
            for (uint32_t epoch = 0; epoch < 5; epoch++) {
                ps_co_shuffle(seed, epoch, order, count[i]);
                has_each_once(order, count[i]);
            }
}

TEST(the_first_epoch_comes_as_it_is_numbered)
{
    uint32_t order[MOST];
    ps_co_shuffle(7, 0, order, MOST);
    for (uint32_t i = 0; i < MOST; i++) assert_int_equal(order[i], i);
}

// The number of places at which two orders agree; for two random orders it is about one.
static uint32_t shared(const uint32_t *a, const uint32_t *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < MOST; i++) n += a[i] == b[i];
    return n;
}

TEST(the_order_follows_from_seed_and_epoch)
{
    uint32_t first[MOST], again[MOST], other[MOST];
    for (uint64_t seed = 0; seed < 10; seed++)
        for (uint32_t epoch = 1; epoch < 5; epoch++) {
            ps_co_shuffle(seed, epoch, first, MOST);
            ps_co_shuffle(seed, epoch, again, MOST);
            assert_memory_equal(first, again, sizeof first);
            ps_co_shuffle(seed + 1, epoch, other, MOST);
            assert_true(shared(first, other) < 10);
            ps_co_shuffle(seed, epoch - 1, other, MOST);
            assert_true(shared(first, other) < 10);
        }
}
