// The mix of a batch: the unit of the window that gives the next sequence.
#include <stdlib.h>

#include "common/base/check.h"
#include "tests/test.h"
#include "worker/data/mix.h"
#include "worker/worker.h"

enum { UNITS = 32, SEQUENCES = 16, LENGTH = 128 };

static void fill(struct wk_queued *unit)
{
    for (uint32_t i = 0; i < UNITS; i++)
        unit[i] = (struct wk_queued){.unit = i, .done = 0, .tokens = SEQUENCES * LENGTH};
}

// Draws from a window of equal units. `given` gets the unit of each draw, `end` each unit's last
// draw.
static void train(uint64_t from, int *given, uint32_t *end)
{
    struct wk_queued unit[UNITS];
    uint64_t taken[UNITS] = {0};
    fill(unit);
    for (uint32_t n = 0; n < UNITS * SEQUENCES; n++) {
        int at = wk_mix_draw(unit, UNITS, taken, from + (uint64_t)n * LENGTH);
        assert_in_range(at, 0, UNITS - 1);
        unit[at].done += LENGTH;
        assert_true(unit[at].done <= unit[at].tokens);
        given[n] = at;
        end[at] = n;
    }
    assert_int_equal(wk_mix_draw(unit, UNITS, taken, 1), -1);
}

TEST(every_sequence_is_given_once)
{
    int given[UNITS * SEQUENCES];
    uint32_t end[UNITS];
    train(77, given, end);
}

// Units that all ended together would be credited together, and the learning rate would jump.
TEST(units_end_one_by_one)
{
    int given[UNITS * SEQUENCES];
    uint32_t end[UNITS], first = UINT32_MAX, late = 0;
    train(77, given, end);
    for (uint32_t i = 0; i < UNITS; i++) {
        if (end[i] < first) first = end[i];
        late += end[i] >= (UNITS - 1) * SEQUENCES;
    }
    assert_true(first < UNITS * SEQUENCES * 3 / 4);
    assert_true(late < UNITS / 2);
}

// With units in turn, a unit's next sequence would always come after UNITS draws.
TEST(a_units_next_sequence_follows_at_no_fixed_distance)
{
    int given[UNITS * SEQUENCES];
    uint32_t end[UNITS], last[UNITS] = {0}, same = 0, draws = UNITS * SEQUENCES / 2;
    train(77, given, end);
    for (uint32_t n = 0; n < draws; n++) {
        same += last[given[n]] && n + 1 - last[given[n]] == UNITS;
        last[given[n]] = n + 1;
    }
    assert_true(same < draws / 8);
}

TEST(the_same_number_draws_the_same)
{
    int a[UNITS * SEQUENCES], b[UNITS * SEQUENCES];
    uint32_t end[UNITS], equal = 0;
    train(77, a, end);
    train(77, b, end);
    for (uint32_t n = 0; n < UNITS * SEQUENCES; n++) assert_int_equal(a[n], b[n]);
    train(78, b, end); // another worker
    for (uint32_t n = 0; n < UNITS * SEQUENCES; n++) equal += a[n] == b[n];
    assert_true(equal < UNITS * SEQUENCES / 4);
}

TEST(sequences_already_in_the_step_count)
{
    struct wk_queued unit[2] = {{.unit = 5, .tokens = 256}, {.unit = 6, .tokens = 128}};
    uint64_t taken[2] = {128, 128};
    for (uint64_t draw = 0; draw < 100; draw++)
        assert_int_equal(wk_mix_draw(unit, 2, taken, draw), 0);
    taken[0] = 256;
    assert_int_equal(wk_mix_draw(unit, 2, taken, 1), -1);
}

TEST(the_window_follows_the_run)
{
    static const struct {
        uint64_t units, budget;
        uint32_t window;
    } row[] = {
        {10, 0, 8},     {160, 0, 8},       {1000, 0, 50},      {100000, 0, 64},
        {1000, 600, 8}, {1000, 64000, 25}, {1000, 128000, 50}, {1000, 1u << 30, 50},
    };
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        struct lh_units u = {.count = row[i].units};
        u.unit = calloc(row[i].units, sizeof *u.unit);
        assert_non_null(u.unit);
        for (uint64_t k = 0; k < u.count; k++) u.unit[k].tokens = 128;
        assert_int_equal(wk_mix_window(&u, row[i].budget), row[i].window);
        free(u.unit);
    }
}
