// A worker's local view and its error feedback. See kernels/view.h.
#include "kernels/view.h"

void lk_view_of(const float *theta, float kappa, const float *residual, float *out, uint64_t n)
{
#pragma omp simd
    for (uint64_t i = 0; i < n; i++) out[i] = theta[i] - kappa * residual[i];
}

void lk_view_feed(float beta, const float *residual, float *in_out, uint64_t n)
{
#pragma omp simd
    for (uint64_t i = 0; i < n; i++) in_out[i] = beta * residual[i] + in_out[i];
}

void lk_view_delta(float beta, const float *residual, const float *base, const float *local,
                   float *out, uint64_t n)
{
#pragma omp simd
    for (uint64_t i = 0; i < n; i++) {
        float delta = base[i] - local[i];
        out[i] = beta * residual[i] + delta;
    }
}

enum { WORD = 64 * LK_VIEW_LINE }; // values of a word of `changed`
enum { SPARSE = 12 };              // lines of a word; reading all of them is as fast as more

// The compiler knows how many values a whole line has.
static inline uint64_t make_line(const float *theta, float kappa, const float *residual,
                                 const float *from, float *restrict out, uint64_t n)
{
    uint32_t other = 0;
#pragma omp simd reduction(| : other)
    for (uint64_t i = 0; i < n; i++) {
        float view = theta[i] - kappa * residual[i];
        other |= view != from[i];
        out[i] = view;
    }
    return other;
}

static uint64_t make_word(const float *theta, float kappa, const float *residual, const float *from,
                          float *out, uint64_t n)
{
    uint64_t bits = 0, at = 0;
    for (; at + LK_VIEW_LINE <= n; at += LK_VIEW_LINE)
        bits |= make_line(theta + at, kappa, residual + at, from + at, out + at, LK_VIEW_LINE)
                << at / LK_VIEW_LINE;
    if (at < n)
        bits |= make_line(theta + at, kappa, residual + at, from + at, out + at, n - at)
                << at / LK_VIEW_LINE;
    return bits;
}

void lk_view_make(const float *theta, float kappa, const float *residual, const float *from,
                  float *out, uint64_t *changed, uint64_t n)
{
    for (uint64_t at = 0; at < n; at += WORD)
        *changed++ = make_word(theta + at, kappa, residual + at, from + at, out + at,
                               n - at < WORD ? n - at : WORD);
}

static inline void move_values(const float *from, const float *to, float *restrict local,
                               uint64_t n)
{
#pragma omp simd
    for (uint64_t i = 0; i < n; i++) {
        float moved = to[i] + (local[i] - from[i]);
        local[i] = to[i] != from[i] ? moved : local[i];
    }
}

static void move_word(const float *from, const float *to, uint64_t bits, float *local, uint64_t n)
{
    if (__builtin_popcountll(bits) > SPARSE) {
        move_values(from, to, local, n);
        return;
    }
    for (; bits; bits &= bits - 1) {
        uint64_t at = (uint64_t)__builtin_ctzll(bits) * LK_VIEW_LINE;
        if (n - at < LK_VIEW_LINE)
            move_values(from + at, to + at, local + at, n - at);
        else
            move_values(from + at, to + at, local + at, LK_VIEW_LINE);
    }
}

void lk_view_move(const float *from, const float *to, const uint64_t *changed, float *local,
                  uint64_t n)
{
    for (uint64_t at = 0; at < n; at += WORD)
        move_word(from + at, to + at, *changed++, local + at, n - at < WORD ? n - at : WORD);
}
