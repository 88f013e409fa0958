// The host's part of the trainer's kernels. See prepare.h.
#include "kernels/cuda/prepare.h"

#include <math.h>
#include <stdlib.h>

struct lk_gpu_adamw lk_gpu_adamw_of(const struct lk_adamw *c, double decay)
{
    double t = (double)c->step;
    return (struct lk_gpu_adamw){
        .keep_decayed = (float)(1.0 - c->rate * decay),
        .keep = 1.0f,
        .beta1 = (float)c->beta1,
        .rest1 = (float)(1.0 - c->beta1),
        .beta2 = (float)c->beta2,
        .rest2 = (float)(1.0 - c->beta2),
        .inverse_root = (float)(1.0 / sqrt(1.0 - pow(c->beta2, t))),
        .size = (float)(c->rate / (1.0 - pow(c->beta1, t))),
        .eps = (float)c->eps,
        .grad_scale = c->grad_scale,
    };
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

uint64_t lk_gpu_places_of(uint64_t rows, const uint32_t *id, uint64_t *key, uint32_t *token,
                          uint32_t *from, uint32_t *row)
{
    uint64_t tokens = 0;
    for (uint64_t i = 0; i < rows; i++) key[i] = (uint64_t)id[i] << 32 | i;
    qsort(key, rows, sizeof *key, by_value);
    for (uint64_t i = 0; i < rows; i++) {
        uint32_t is = (uint32_t)(key[i] >> 32);
        if (!i || is != token[tokens - 1]) {
            token[tokens] = is;
            from[tokens++] = (uint32_t)i;
        }
        row[i] = (uint32_t)key[i];
    }
    from[tokens] = (uint32_t)rows;
    return tokens;
}

uint64_t lk_gpu_piece_count(uint64_t at, uint64_t len, uint32_t most)
{
    return len ? (at + len - 1) / most - at / most + 1 : 0;
}

void lk_gpu_pieces_of(uint64_t at, uint64_t len, uint32_t most, bool decays,
                      struct lk_gpu_piece *out)
{
    for (uint64_t end = at + len, to; at < end; at = to) {
        to = (at / most + 1) * most;
        if (to > end) to = end;
        *out++ = (struct lk_gpu_piece){at, (uint32_t)(to - at), decays};
    }
}
