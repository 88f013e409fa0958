// The worker's local view: progress survives a new base, enters one delta only, and can be given
// back.
#include <string.h>

#include "kernels/view.h"
#include "tests/test.h"

enum { N = 5 };
// Values are small integers and halves, so every result is exact.
static const float THETA[N] = {8, -4, 0, 16, 2}, NEXT[N] = {10, -6, 1, 16, 4};
static const float RESIDUAL[N] = {2, 4, -2, 0, 6}, PROGRESS[N] = {1, -1, 3, 0, -2};

static void train(float *local)
{
    for (int i = 0; i < N; i++) local[i] += PROGRESS[i];
}

TEST(starts_on_the_base_less_part_of_the_residual)
{
    float view[N];
    lk_view_of(THETA, 0.5f, RESIDUAL, view, N);
    const float expected[N] = {7, -6, 1, 16, -1};
    for (int i = 0; i < N; i++) assert_float_equal(view[i], expected[i], 0);
}

TEST(keeps_progress_over_a_new_base)
{
    float local[N], from[N], to[N];
    uint64_t changed[1];
    lk_view_of(THETA, 0.5f, RESIDUAL, from, N);
    memcpy(local, from, sizeof local);
    train(local);
    lk_view_make(NEXT, 0.5f, RESIDUAL, from, to, changed, N);
    lk_view_move(from, to, changed, local, N);
    for (int i = 0; i < N; i++) {
        assert_float_equal(to[i], NEXT[i] - 0.5f * RESIDUAL[i], 0);
        assert_float_equal(local[i] - to[i], PROGRESS[i], 0);
    }
}

TEST(takes_progress_once_as_base_minus_local)
{
    float local[N], base[N], out[N];
    lk_view_of(THETA, 0, RESIDUAL, base, N);
    memcpy(local, base, sizeof local);
    train(local);
    lk_view_delta(0.5f, RESIDUAL, base, local, out, N);
    for (int i = 0; i < N; i++) assert_float_equal(out[i], 0.5f * RESIDUAL[i] - PROGRESS[i], 0);
    lk_view_delta(0.5f, RESIDUAL, local, local, out, N);
    for (int i = 0; i < N; i++) assert_float_equal(out[i], 0.5f * RESIDUAL[i], 0);
}

// For a trainer in another process, which returns its delta.
TEST(says_the_same_of_parameters_that_are_elsewhere)
{
    float local[N], base[N], out[N], delta[N];
    lk_view_of(THETA, 0.5f, RESIDUAL, base, N);
    memcpy(local, base, sizeof local);
    train(local);
    for (int i = 0; i < N; i++) delta[i] = base[i] - local[i];
    lk_view_delta(0.5f, RESIDUAL, base, local, out, N);
    lk_view_feed(0.5f, RESIDUAL, delta, N);
    assert_memory_equal(delta, out, sizeof out);
}

// ---- a renewal of many values, compared with the same value by value

enum {
    MANY = 3 * 1024 + 37,
    WORDS = MANY / 1024 + 1
}; // words of `changed`; the last line is short

static uint32_t drawn = 1;
static float draw(void)
{
    drawn = drawn * 1664525 + 1013904223;
    return (float)(int32_t)drawn * 0x1p-31f;
}

struct both {
    float theta[MANY], residual[MANY], local[MANY], base[MANY], next[MANY];
    uint64_t changed[WORDS];
};

static void fill(struct both *b)
{
    for (int i = 0; i < MANY; i++) b->theta[i] = draw();
    for (int i = 0; i < MANY; i++) b->residual[i] = draw();
    lk_view_of(b->theta, 0.25f, b->residual, b->base, MANY);
    memcpy(b->local, b->base, sizeof b->local);
    for (int i = 0; i < MANY; i++) b->local[i] += 0x1p-8f * draw();
}

TEST(a_dense_renewal_has_the_bits_of_one_by_value)
{
    static struct both b;
    static float local[MANY], view[MANY];
    fill(&b);
    for (int i = 0; i < MANY; i++) b.residual[i] = draw(); // after an own cut
    for (int i = 0; i < MANY; i++) {
        view[i] = b.theta[i] - 0.25f * b.residual[i];
        local[i] = view[i] + (b.local[i] - b.base[i]);
    }
    lk_view_make(b.theta, 0.25f, b.residual, b.base, b.next, b.changed, MANY);
    lk_view_move(b.base, b.next, b.changed, b.local, MANY);
    assert_memory_equal(b.next, view, sizeof view);
    for (int i = 0; i < MANY; i++) {
        if (b.next[i] != b.base[i]) assert_float_equal(b.local[i], local[i], 0);
    }
    for (int i = 0; i < WORDS; i++) {
        uint64_t lines = i < WORDS - 1 ? 64 : (MANY % 1024 + LK_VIEW_LINE - 1) / LK_VIEW_LINE;
        assert_true(b.changed[i] == (lines < 64 ? ((uint64_t)1 << lines) - 1 : UINT64_MAX));
    }
}

// Changes one value at a time: every 101st, and the last one.
TEST(a_sparse_renewal_touches_what_changed_alone)
{
    static struct both b;
    static float before[MANY];
    for (int at = 0; at < MANY; at += at + 101 < MANY || at == MANY - 1 ? 101 : MANY - 1 - at) {
        fill(&b);
        memcpy(before, b.local, sizeof before);
        b.theta[at] += 1;
        lk_view_make(b.theta, 0.25f, b.residual, b.base, b.next, b.changed, MANY);
        for (int i = 0; i < WORDS; i++)
            assert_true(b.changed[i] ==
                        (i == at / 1024 ? (uint64_t)1 << at % 1024 / LK_VIEW_LINE : 0));
        lk_view_move(b.base, b.next, b.changed, b.local, MANY);
        assert_float_equal(b.local[at], b.next[at] + (before[at] - b.base[at]), 0);
        b.local[at] = before[at];
        assert_memory_equal(b.local, before, sizeof before);
    }
}

TEST(without_progress_the_parameters_are_the_view)
{
    static struct both b;
    fill(&b);
    memcpy(b.local, b.base, sizeof b.local);
    for (int i = 0; i < MANY; i += 3) b.theta[i] = draw();
    lk_view_make(b.theta, 0.25f, b.residual, b.base, b.next, b.changed, MANY);
    lk_view_move(b.base, b.next, b.changed, b.local, MANY);
    assert_memory_equal(b.local, b.next, sizeof b.next);
}

TEST(a_delta_has_the_bits_of_one_by_value)
{
    static struct both b;
    static float out[MANY];
    fill(&b);
    for (int i = 0; i < MANY; i++) {
        float delta = b.base[i] - b.local[i];
        out[i] = 0.95f * b.residual[i] + delta;
    }
    lk_view_delta(0.95f, b.residual, b.base, b.local, b.next, MANY);
    assert_memory_equal(b.next, out, sizeof out);
}
