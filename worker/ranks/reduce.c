// Reduce with one process: the leader computes everything. See reduce.h.
#include "worker/ranks/reduce.h"

const char *wk_sum_word(enum wk_sum_type type)
{
    return type == WK_SUM_BF16 ? "bf16" : "fp32";
}

static float *parameters(struct wk_reduce *r)
{
    (void)r;
    return NULL;
}

static void deal(struct wk_reduce *r, const struct wk_reduce_step *step, struct wk_part *own)
{
    (void)r;
    *own = (struct wk_part){0, step->sequences};
}

static lh_err bind(struct wk_reduce *r, const struct wk_reduce_state *state)
{
    (void)r;
    (void)state;
    return LH_OK;
}

static lh_err gather(struct wk_reduce *r, bool fine, float *gradient, struct wk_gathered *sum,
                     struct wk_part *missing)
{
    (void)r;
    (void)fine;
    (void)gradient;
    (void)sum;
    *missing = (struct wk_part){0};
    return LH_OK;
}

static void applied(struct wk_reduce *r)
{
    (void)r;
}

static uint32_t watch(struct wk_reduce *r, struct lh_log *log)
{
    (void)r;
    (void)log;
    return 1;
}

static void leave(struct wk_reduce *r)
{
    (void)r;
}

static bool close_none(struct wk_reduce *r, bool done)
{
    (void)r;
    (void)done;
    return true;
}

struct wk_reduce *wk_reduce_none(void)
{
    static const struct wk_reduce_ops ops = {"none", parameters, bind,  deal,  gather,
                                             NULL,   applied,    watch, leave, close_none};
    static const struct wk_reduce none = {&ops};
    return (struct wk_reduce *)(uintptr_t)&none; // it has no state that could change
}
