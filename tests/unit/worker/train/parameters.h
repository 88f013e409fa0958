// A trainer's parameters, read and written through its two operations.
#ifndef TRAINER_PARAMETERS_H
#define TRAINER_PARAMETERS_H

#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "worker/train/trainer.h"

// Copies all parameters; the caller frees the copy.
static inline float *copy_parameters(struct wk_trainer *t, uint64_t values)
{
    float *copy = malloc(values * sizeof *copy);
    LH_ASSERT(copy);
    t->ops->copy(t, 0, values, copy);
    return copy;
}

static inline void set_parameters(struct wk_trainer *t, const float *to, uint64_t values)
{
    const struct wk_renewal all = {.values = values, .to = to};
    t->ops->renew(t, &all);
}

static inline bool has_parameters(struct wk_trainer *t, const float *expected, uint64_t values)
{
    float *copy = copy_parameters(t, values);
    bool equal = memcmp(copy, expected, values * sizeof *copy) == 0;
    free(copy);
    return equal;
}

static inline bool equal_parameters(struct wk_trainer *a, struct wk_trainer *b, uint64_t values)
{
    float *of_b = copy_parameters(b, values);
    bool equal = has_parameters(a, of_b, values);
    free(of_b);
    return equal;
}

static inline void share_parameters(struct wk_trainer *from, struct wk_trainer *to, uint64_t values)
{
    float *copy = copy_parameters(from, values);
    set_parameters(to, copy, values);
    free(copy);
}

#endif
