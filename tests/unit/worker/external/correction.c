// Corrections of a part that several threads share: the trainer adds them and must arrive at the
// view.
#include <stdlib.h>
#include <string.h>

#include "kernels/view.h"
#include "tests/test.h"
#include "worker/external/correction.h"

enum { SMALL = 5000, PART = (1 << 19) + 4096 + 11 }; // PART: a part for three threads

struct fixture {
    struct wk_channel channel;
    uint8_t *memory;
    float *theta, *residual, *view, *base;
    uint64_t *changed;    // [PART / 64 + 1]
    const uint64_t *told; // `changed`, or NULL
    struct wk_correction_work work;
    uint64_t number, at; // number of corrections, and the ring offset of the next one
};

static const uint64_t first[] = {0, SMALL, SMALL + PART};
// Multiples of 1/64, so that no sum or difference here is rounded.
static uint32_t drawn = 1;
static float draw(void)
{
    drawn = drawn * 1664525 + 1013904223;
    return (float)(drawn >> 20) * 0x1p-6f;
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    const struct wk_channel_shape shape = {SMALL + PART, 2, 1, 4, 4, first};
    struct wk_channel_layout layout;
    assert_non_null(f);
    assert_true(wk_channel_plan(&shape, &layout));
    f->memory = calloc(1, layout.bytes);
    assert_true(f->memory && wk_channel_open(&f->channel, &shape, f->memory));
    wk_channel_format(&f->channel, (const uint8_t[WK_CHANNEL_LIFE]){1},
                      (const uint8_t[WK_CHANNEL_HASH]){2});
    float **array[] = {&f->theta, &f->residual, &f->view, &f->base};
    for (size_t k = 0; k < sizeof array / sizeof *array; k++) {
        *array[k] = calloc(PART, sizeof **array[k]);
        assert_non_null(*array[k]);
    }
    f->changed = calloc(PART / 64 + 1, sizeof *f->changed);
    assert_non_null(f->changed);
    assert_int_equal(wk_correction_open(&f->work, PART), LH_OK);
    float *slot = wk_channel_slot(&f->channel, 0) + SMALL;
    for (uint64_t i = 0; i < PART; i++) {
        f->theta[i] = draw();
        f->residual[i] = draw();
        f->base[i] = slot[i] = draw();
    }
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    wk_correction_close(&f->work);
    wk_channel_close(&f->channel);
    free(f->memory);
    free(f->theta);
    free(f->residual);
    free(f->view);
    free(f->base);
    free(f->changed);
    free(f);
    return 0;
}

// Computes the next correction to theta - residual / 4 and adds it as the trainer does.
static struct wk_correction_plan correct(struct fixture *f)
{
    const struct wk_external_view view = {f->theta, f->residual, 0.25f, f->told};
    struct wk_base base = {&f->channel, 1, 0, 0, f->number};
    struct wk_correction_plan plan;
    struct wk_channel_correction r;
    assert_int_equal(wk_correction_plan(&base, &view, &f->work, &plan), LH_OK);
    if (!plan.count) return plan;
    f->number++;
    assert_int_equal(
        wk_correction_write(&base, &view, &f->work, &plan, wk_channel_ring(&f->channel, 1) + f->at),
        LH_OK);
    wk_channel_part(&f->channel, 1)->entry[f->number % WK_CHANNEL_LIVE] =
        (struct wk_channel_entry){f->number, plan.kind, 0, f->at, plan.count};
    f->at += plan.bytes;
    lk_view_of(f->theta, 0.25f, f->residual, f->view, PART);
    assert_true(wk_channel_correction(&f->channel, 1, f->number, &r));
    for (uint64_t k = 0; k * WK_CHANNEL_CHUNK < PART; k++) {
        uint64_t from = k * WK_CHANNEL_CHUNK, n = PART - from;
        if (n > WK_CHANNEL_CHUNK) n = WK_CHANNEL_CHUNK;
        assert_true(wk_channel_add(&r, k, from, n, f->base + from));
    }
    assert_memory_equal(f->base, f->view, PART * sizeof *f->base);
    return plan;
}

#define IN_FIXTURE(name, parameter) TEST_WITH(name, parameter, set_up, tear_down)

IN_FIXTURE(all_parts_of_a_correction_lead_to_the_view, struct fixture *f)
{
    struct wk_correction_plan plan = correct(f);
    assert_int_equal(plan.kind, WK_CHANNEL_DENSE);
    assert_int_equal(plan.count, PART);
    assert_int_equal(correct(f).count, 0);
    const uint64_t some[] = {0, 4095, 4096, (1 << 18) - 1, 1 << 18, 1 << 19, PART - 1};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) f->theta[some[i]] += 1;
    plan = correct(f);
    assert_int_equal(plan.kind, WK_CHANNEL_SPARSE);
    assert_int_equal(plan.count, sizeof some / sizeof *some);
    for (uint64_t i = 5; i < PART; i += 64) f->theta[i] -= 2;
    plan = correct(f);
    assert_int_equal(plan.kind, WK_CHANNEL_SPARSE);
    assert_int_equal(plan.count, (PART - 5 + 63) / 64);
}

static void change(struct fixture *f, uint64_t i, float by)
{
    f->theta[i] += by;
    f->changed[i / 64] |= UINT64_C(1) << i % 64;
}

// Values that the caller names get an entry each, in the place of a pass over the part.
IN_FIXTURE(named_changes_lead_to_the_view, struct fixture *f)
{
    assert_int_equal(correct(f).kind, WK_CHANNEL_DENSE);
    f->told = f->changed;
    assert_int_equal(correct(f).count, 0);
    const uint64_t some[] = {0, 63, 64, 4095, 4096, 1 << 19, PART - 1};
    for (int round = 0; round < 2; round++) { // the second base has a sparse correction too
        for (size_t i = 0; i < sizeof some / sizeof *some; i++) change(f, some[i], 1);
        struct wk_correction_plan plan = correct(f);
        assert_int_equal(plan.kind, WK_CHANNEL_SPARSE);
        assert_int_equal(plan.count, sizeof some / sizeof *some);
    }
    for (uint64_t i = 5; i < PART; i += 11) change(f, i, -2);
    assert_int_equal(correct(f).kind, WK_CHANNEL_SPARSE);
    memset(f->changed, 0, (PART / 64 + 1) * sizeof *f->changed);
    change(f, 4098, 0);
    assert_int_equal(correct(f).count, 1); // a value that is the same has an entry of 0
    f->changed[4098 / 64] = 0;
    f->theta[4097] += 1; // is not named
    assert_int_equal(correct(f).count, 0);
    f->told = NULL;
    assert_int_equal(correct(f).count, 1);
}

// Named changes give the entries that a pass over the part finds, to the bit, from values that are
// rounded.
IN_FIXTURE(named_changes_give_the_same_entries, struct fixture *f)
{
    for (uint64_t i = 0; i < PART; i++) {
        f->theta[i] = (f->theta[i] + 1) / 3;
        wk_channel_slot(&f->channel, 0)[SMALL + i] = f->theta[i] - 0.25f * f->residual[i];
    }
    for (uint64_t i = 3; i < PART; i += 1 + i % 37) change(f, i, 0.1f + (float)(i % 5));
    struct wk_external_view view = {f->theta, f->residual, 0.25f, NULL};
    struct wk_base base = {&f->channel, 1, 0, 0, 0};
    struct wk_correction_plan found, named;
    assert_int_equal(wk_correction_plan(&base, &view, &f->work, &found), LH_OK);
    assert_int_equal(found.kind, WK_CHANNEL_SPARSE);
    uint8_t *one = malloc(found.bytes), *two = malloc(found.bytes);
    assert_true(one && two);
    memset(one, 0, found.bytes), memset(two, 0, found.bytes);
    assert_int_equal(wk_correction_write(&base, &view, &f->work, &found, one), LH_OK);
    view.changed = f->changed;
    assert_int_equal(wk_correction_plan(&base, &view, &f->work, &named), LH_OK);
    assert_int_equal(named.count, found.count);
    assert_int_equal(wk_correction_write(&base, &view, &f->work, &named, two), LH_OK);
    assert_memory_equal(one, two, found.bytes);
    free(one);
    free(two);
}

// Every thread must be able to find the damage.
IN_FIXTURE(a_base_that_was_written_over_is_refused, struct fixture *f)
{
    const struct wk_external_view view = {f->theta, f->residual, 0.25f, NULL};
    struct wk_correction_plan plan = correct(f);
    for (uint64_t i = 5; i < PART; i += 64) f->theta[i] -= 2;
    plan = correct(f);
    assert_int_equal(plan.kind, WK_CHANNEL_SPARSE);
    struct wk_channel_entry *e =
        &wk_channel_part(&f->channel, 1)->entry[f->number % WK_CHANNEL_LIVE];
    uint64_t *begin = (uint64_t *)(void *)(wk_channel_ring(&f->channel, 1) + e->at);
    struct wk_base base = {&f->channel, 1, 0, 0, f->number};
    uint8_t *to = wk_channel_ring(&f->channel, 1) + f->at;
    const struct wk_external_view named = {f->theta, f->residual, 0.25f, f->changed};
    const uint64_t chunk[] = {0, 70, (PART - 1) / WK_CHANNEL_CHUNK};
    for (size_t i = 0; i < sizeof chunk / sizeof *chunk; i++)
        change(f, chunk[i] * WK_CHANNEL_CHUNK, 1);
    for (size_t i = 0; i < sizeof chunk / sizeof *chunk; i++) {
        uint64_t was = begin[chunk[i]];
        begin[chunk[i]] = UINT64_MAX;
        assert_int_equal(wk_correction_plan(&base, &view, &f->work, &plan), LH_ERR_CORRUPT);
        assert_non_null(strstr(lh_err_text(LH_ERR_CORRUPT), "part 1"));
        assert_int_equal(wk_correction_plan(&base, &named, &f->work, &plan), LH_OK);
        assert_int_equal(wk_correction_write(&base, &named, &f->work, &plan, to), LH_ERR_CORRUPT);
        begin[chunk[i]] = was;
    }
    assert_int_equal(wk_correction_plan(&base, &view, &f->work, &plan), LH_OK);
}

// The base changes between counting and writing: the write stays within the counted size.
IN_FIXTURE(a_base_that_changes_between_the_passes_is_refused, struct fixture *f)
{
    const struct wk_external_view view = {f->theta, f->residual, 0.25f, NULL};
    struct wk_correction_plan plan = correct(f);
    struct wk_base base = {&f->channel, 1, 0, 0, f->number};
    f->theta[7] += 1;
    assert_int_equal(wk_correction_plan(&base, &view, &f->work, &plan), LH_OK);
    assert_int_equal(plan.count, 1);
    uint8_t *to = wk_channel_ring(&f->channel, 1) + f->at;
    memset(to, 0xab, plan.bytes + 64);
    wk_channel_slot(&f->channel, 0)[SMALL + 3] += 1;
    assert_int_equal(wk_correction_write(&base, &view, &f->work, &plan, to), LH_ERR_CORRUPT);
    for (int i = 0; i < 64; i++) assert_int_equal(to[plan.bytes + (size_t)i], 0xab);
}
