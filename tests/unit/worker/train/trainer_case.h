// A small model, a loader over one text, and steps of the built-in trainer with both. Shared by the
// tests of a single trainer and of several ranks.
#ifndef TRAINER_CASE_H
#define TRAINER_CASE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "tests/test.h"
#include "tests/unit/worker/train/parameters.h"
#include "worker/train/model.h"
#include "worker/train/trainer_builtin.h"

// ---- a loader over one text, linked in place of worker/data/loader.c

struct wk_loader {
    const char *text;
    uint64_t announced, withdrawn;
};

LH_MUST lh_err wk_loader_open(const struct wk_loader_conf *conf, struct wk_loader **out)
{
    (void)conf, (void)out;
    return lh_fail(LH_ERR_UNSUPPORTED, "the test makes its own");
}
void wk_loader_close(struct wk_loader *l)
{
    (void)l;
}
uint64_t wk_loader_units(const struct wk_loader *l)
{
    (void)l;
    return 20; // units 10 to 19 cannot be read
}
void wk_loader_announce(struct wk_loader *l, uint64_t unit)
{
    l->announced = unit;
}
void wk_loader_withdraw(struct wk_loader *l, uint64_t unit)
{
    l->withdrawn = unit;
}
LH_MUST lh_err wk_loader_read(struct wk_loader *l, uint64_t unit, uint64_t offset, uint64_t tokens,
                              uint32_t *ids)
{
    if (unit > 9) return lh_fail(LH_ERR_NOT_FOUND, "unit");
    size_t n = strlen(l->text);
    for (uint64_t i = 0; i <= tokens; i++) ids[i] = (unsigned char)l->text[(offset + i + unit) % n];
    return LH_OK;
}

// ---- a small model and a trainer on it ----------------------------------------------------------

enum { SEQUENCE = 32, BATCH = 4 };

struct fixture {
    struct wk_shape shape;
    struct lh_manifest manifest;
    struct wk_loader loader;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    if (f == NULL) return -1;
    f->shape = (struct wk_shape){256, 32, 2, 4, 2, 64, SEQUENCE, 1e4, 1e-6, true, true};
    f->loader.text = "the region trains, the log keeps, the fold is the model; ";
    *state = f;
    return wk_model_manifest(&f->shape, 2, &f->manifest) == LH_OK ? 0 : -1;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    lh_manifest_free(&f->manifest);
    free(f);
    return 0;
}

static struct wk_builtin_conf conf_of(struct fixture *f)
{
    struct wk_builtin_conf c = wk_builtin_defaults();
    c.manifest = &f->manifest;
    c.loader = &f->loader;
    c.sequence = SEQUENCE;
    c.batch = BATCH;
    return c;
}

static struct wk_trainer *trainer_of(struct fixture *f, const struct wk_builtin_conf *conf)
{
    struct wk_trainer *t;
    float *first = malloc(f->manifest.values * sizeof *first);
    assert_non_null(first);
    assert_int_equal(wk_builtin_create(conf, &t), LH_OK);
    assert_int_equal(wk_model_init(&f->shape, 1, first), LH_OK);
    set_parameters(t, first, f->manifest.values);
    free(first);
    return t;
}

static struct wk_step_out take_step_with(struct wk_trainer *t, uint64_t number,
                                         struct wk_tensor_norms *norms)
{
    struct wk_piece piece[2] = {{number % 3, number * 5, SEQUENCE},
                                {4, number * 7, t->ops->step_tokens(t) - SEQUENCE}};
    struct wk_step_in in = {.piece = piece,
                            .pieces = 2,
                            .learning_rate = 3e-3f,
                            .credited = number * 100,
                            .norms = norms};
    struct wk_step_out out;
    assert_int_equal(t->ops->step(t, &in, &out), LH_OK);
    return out;
}

static inline struct wk_step_out take_step(struct wk_trainer *t, uint64_t number)
{
    return take_step_with(t, number, NULL);
}

#endif
