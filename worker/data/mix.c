// The mix of a batch. See mix.h.
#include "worker/data/mix.h"

#include "worker/worker.h"

// Finalizer of SplitMix64 (Steele et al. 2014): makes neighbouring numbers unrelated.
static uint64_t scramble(uint64_t z)
{
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static bool has_left(const struct wk_queued *q, uint64_t taken)
{
    return q->done + taken < q->tokens;
}

int wk_mix_draw(const struct wk_queued *unit, uint32_t n, const uint64_t *taken, uint64_t draw)
{
    uint32_t opens = 0;
    for (uint32_t i = 0; i < n; i++) opens += has_left(&unit[i], taken[i]);
    if (!opens) return -1;
    uint64_t at = scramble(draw) % opens;
    for (uint32_t i = 0;; i++)
        if (has_left(&unit[i], taken[i]) && at-- == 0) return (int)i;
}

uint32_t wk_mix_window(const struct lh_units *units, uint64_t budget_tokens)
{
    uint64_t all = 0, run = units->count;
    for (uint64_t u = 0; u < units->count; u++) all += units->unit[u].tokens;
    if (budget_tokens && budget_tokens < all)
        run = (uint64_t)((double)units->count * (double)budget_tokens / (double)all);
    uint64_t part = run / 20;
    return part < WK_WINDOW_MIN   ? WK_WINDOW_MIN
           : part > WK_WINDOW_MAX ? WK_WINDOW_MAX
                                  : (uint32_t)part;
}
