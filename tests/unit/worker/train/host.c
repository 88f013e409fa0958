// A trainer's two operations on an array of parameters: parts meet without gap or overlap.
#include <stdlib.h>
#include <string.h>

#include "kernels/view.h"
#include "tests/test.h"
#include "worker/train/host.h"

enum {
    FIRST = 4096,
    RANGE = (5 << 20) / 2 + 7,
    ALL = FIRST + RANGE + 33
}; // three parts, one of them short

static float *numbers(uint64_t n, float factor)
{
    float *values = malloc(n * sizeof *values);
    assert_non_null(values);
    for (uint64_t i = 0; i < n; i++) values[i] = factor * (float)(i % 65521);
    return values;
}

TEST(a_cut_copies_its_range)
{
    float *value = numbers(ALL, 1), *slot = calloc(RANGE + 1, sizeof *slot);
    assert_non_null(slot);
    wk_host_copy(value, FIRST, RANGE, slot);
    assert_memory_equal(slot, value + FIRST, RANGE * sizeof *slot);
    assert_float_equal(slot[RANGE], 0, 0);
    free(value);
    free(slot);
}

TEST(a_first_view_is_taken_as_it_is)
{
    float *value = numbers(ALL, 1), *to = numbers(RANGE, 3);
    const struct wk_renewal r = {FIRST, RANGE, NULL, to, NULL};
    wk_host_renew(value, &r);
    assert_memory_equal(value + FIRST, to, RANGE * sizeof *to);
    for (uint64_t i = 0; i < ALL; i++)
        if (i < FIRST || i >= FIRST + RANGE) assert_float_equal(value[i], (float)(i % 65521), 0);
    free(value);
    free(to);
}

TEST(a_renewal_keeps_progress_in_all_parts)
{
    float *value = numbers(ALL, 1), *from = malloc(RANGE * sizeof *from),
          *to = numbers(RANGE, 0.5f);
    uint64_t *changed = malloc((RANGE / 1024 + 1) * sizeof *changed);
    assert_true(from && changed);
    memcpy(from, value + FIRST, RANGE * sizeof *from);
    for (uint64_t i = 0; i < ALL; i++) value[i] += 2; // training progress
    memset(changed, 0xff, (RANGE / 1024 + 1) * sizeof *changed);
    changed[RANGE / 1024] = ((uint64_t)1 << (RANGE % 1024 + LK_VIEW_LINE - 1) / LK_VIEW_LINE) - 1;
    const struct wk_renewal r = {FIRST, RANGE, from, to, changed};
    wk_host_renew(value, &r);
    for (uint64_t i = 0; i < RANGE; i++) assert_float_equal(value[FIRST + i], to[i] + 2, 0);
    assert_float_equal(value[FIRST - 1], FIRST - 1 + 2, 0);
    assert_float_equal(value[FIRST + RANGE], (float)((FIRST + RANGE) % 65521) + 2, 0);
    free(value);
    free(from);
    free(to);
    free(changed);
}
