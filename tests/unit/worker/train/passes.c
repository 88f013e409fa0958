// The passes over a part of a step add up; values are reported final only if no later pass and no
// measurement needs them.
#include "tests/test.h"
#include "worker/train/passes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 8, LAYERS = 2, SEQUENCES = 3, IDS = SEQUENCES * (LENGTH + 1) };

struct fixture {
    struct wk_params params;
    struct wk_passes passes;
    struct wk_reduce_step step;
    uint32_t ids[IDS];
    float *value, *gradient, *seen; // seen: values when they were reported final
    uint64_t from;                  // start of the last report
    uint32_t told;
};

// Overwrites final values: a later pass or a measurement that used them would give another result.
static void take_final(void *arg, uint64_t from)
{
    struct fixture *f = arg;
    assert_true(from < f->from);
    for (uint64_t i = from; i < f->from; i++) {
        f->seen[i] = f->gradient[i];
        f->gradient[i] = 1e9f;
    }
    f->from = from;
    f->told++;
}

static int setup(void **state)
{
    static struct fixture f;
    const struct wk_shape shape = {50, 16, LAYERS, 2, 1, 24, LENGTH, 1e4, 1e-6, true, true};
    const struct wk_transformer_conf conf = {shape, LENGTH, SEQUENCES * LENGTH, true};
    f = (struct fixture){.passes = {.batch = 1}};
    if (wk_params_list(&shape, &f.params)) return 1;
    if (wk_transformer_create(&conf, &f.passes.transformer)) return 1;
    f.value = calloc(f.params.values, sizeof(float));
    f.gradient = calloc(f.params.values, sizeof(float));
    f.seen = calloc(f.params.values, sizeof(float));
    if (!f.value || !f.gradient || !f.seen || wk_model_init(&shape, 3, f.value)) return 1;
    for (uint32_t i = 0; i < IDS; i++) f.ids[i] = i * 7919 % 50;
    f.step = (struct wk_reduce_step){.ids = f.ids,
                                     .sequences = SEQUENCES,
                                     .length = LENGTH,
                                     .values = f.params.values,
                                     .scale = 1.0f / (SEQUENCES * LENGTH)};
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    wk_transformer_destroy(f->passes.transformer);
    wk_params_free(&f->params);
    free(f->value);
    free(f->gradient);
    free(f->seen);
    return 0;
}

static struct wk_share run(struct fixture *f, struct wk_part part, bool fresh, bool tell)
{
    const struct wk_final final = {take_final, f};
    struct wk_share share = {0};
    f->from = f->params.values;
    f->told = 0;
    memset(f->gradient, 0, f->params.values * sizeof(float));
    assert_int_equal(wk_passes_run(&f->passes, f->value, &f->step, part, fresh, f->gradient,
                                   tell ? &final : NULL, &share),
                     LH_OK);
    return share;
}

#define IN_FIXTURE(name, parameter) TEST_WITH(name, parameter, setup, teardown)

// The last of three passes alone reports values, and these are the sums of all three.
IN_FIXTURE(the_last_pass_is_told, struct fixture *f)
{
    size_t bytes = f->params.values * sizeof(float);
    float *whole = malloc(bytes);
    assert_non_null(whole);
    struct wk_share quiet = run(f, (struct wk_part){0, SEQUENCES}, true, false);
    memcpy(whole, f->gradient, bytes);
    struct wk_share told = run(f, (struct wk_part){0, SEQUENCES}, true, true);
    assert_int_equal(f->told, LAYERS + 2); // last norm, each layer, embedding
    assert_true(f->from == 0);
    assert_memory_equal(f->seen, whole, bytes);
    assert_true(quiet.nll == told.nll && !told.first);
    free(whole);
}

// The first pass's own gradient is measured after the pass, so a part of one pass reports nothing.
IN_FIXTURE(a_measured_pass_is_not_told, struct fixture *f)
{
    f->step.measure = true;
    struct wk_share alone = run(f, (struct wk_part){1, 1}, true, true);
    assert_int_equal(f->told, 0);
    assert_int_equal(alone.first, 1);
    assert_true(alone.first_square > 0 && alone.first_square < 1e6);
    struct wk_share two = run(f, (struct wk_part){1, 2}, true, true);
    assert_int_equal(f->told, LAYERS + 2);
    assert_true(two.first == 1 && two.first_square == alone.first_square);
    struct wk_share again = run(f, (struct wk_part){1, 1}, false, true); // without a measurement
    assert_int_equal(f->told, LAYERS + 2);
    assert_int_equal(again.first, 0);
}

IN_FIXTURE(an_empty_part_tells_nothing, struct fixture *f)
{
    struct wk_share none = run(f, (struct wk_part){2, 0}, true, true);
    assert_int_equal(f->told, 0);
    assert_true(none.nll == 0 && !none.first);
}
