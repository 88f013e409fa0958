// The local optimizer against kernels/layers: AdamW to the bit, norms to within a rounding of
// fp64; and what the host prepares for them.
#include "tests/parity/device.h"

#include <stdlib.h>

#include "kernels/cuda/prepare.h"

enum { TENSORS = 5, STEPS = 3 };
static const uint64_t lens[TENSORS] = {1, 300, LK_GPU_PIECE, 2 * LK_GPU_PIECE + 7, 31};
// The piece that begins where a rank's part of the values may begin.
enum { FIRST = LK_GPU_PIECE, FIRST_PIECE = 3 };

struct pieces {
    struct lk_gpu_piece *host, *there;
    uint64_t count, values;
};

static struct pieces make_pieces(const struct device *dev)
{
    struct pieces p = {0};
    for (uint64_t i = 0, at = 0; i < TENSORS; at += lens[i++])
        p.count += lk_gpu_piece_count(at, lens[i], LK_GPU_PIECE);
    must(p.count == 8, "%llu pieces, not 8", (unsigned long long)p.count);
    p.host = calloc(p.count, sizeof *p.host);
    must(p.host != NULL, "no memory");
    for (uint64_t i = 0, at = 0; i < TENSORS; i++) {
        lk_gpu_pieces_of(p.values, lens[i], LK_GPU_PIECE, i % 2, p.host + at);
        at += lk_gpu_piece_count(p.values, lens[i], LK_GPU_PIECE);
        p.values += lens[i];
    }
    p.there = device_put(dev, p.host, p.count * sizeof *p.host);
    return p;
}

static float *filled(uint64_t n, uint64_t seed, bool squared)
{
    float *x = made(CASE_GAUSSIAN, n, seed);
    for (uint64_t i = 0; squared && i < n; i++) x[i] *= x[i];
    return x;
}

static void steps(const struct device *dev, const struct pieces *pieces, uint64_t seed)
{
    uint64_t n = pieces->values;
    size_t bytes = n * sizeof(float);
    float *g = filled(n, seed, false), *m = filled(n, seed + 1, false);
    float *v = filled(n, seed + 2, true), *p = filled(n, seed + 3, false), *is = malloc(bytes);
    must(is != NULL, "no memory");
    float *g_there = device_put(dev, g, bytes), *m_there = device_put(dev, m, bytes);
    float *v_there = device_put(dev, v, bytes), *p_there = device_put(dev, p, bytes);
    for (uint64_t step = seed; step < seed + STEPS; step++) {
        struct lk_adamw c = {3e-3, 0.9, 0.95, 1e-8, step, seed % 2 ? 1.0f : 0.37f};
        const struct lk_gpu_adamw numbers = lk_gpu_adamw_of(&c, 0.1);
        const struct lk_gpu_adamw_arrays all = {g_there, m_there, v_there, p_there,
                                                m_there, v_there, p_there, 0};
        must_succeed(
            dev,
            dev->b->optimizer->adamw(&numbers, pieces->there, pieces->count, &all, dev->stream),
            "adamw");
        for (uint64_t i = 0, at = 0; i < TENSORS; at += lens[i++])
            lk_adamw(&c, i % 2 ? 0.1 : 0, lens[i], g + at, m + at, v + at, p + at);
    }
    const float *should[] = {m, v, p};
    float *there[] = {m_there, v_there, p_there};
    for (int i = 0; i < 3; i++) {
        device_get(dev, is, there[i], bytes);
        must_equal(is, should[i], bytes, "adamw, array %d, seed %llu", i, (unsigned long long)seed);
        device_free(dev, there[i]);
    }
    free(g);
    free(m);
    free(v);
    free(p);
    free(is);
    device_free(dev, g_there);
}

// A step of the values from FIRST on, as in a rank's part: new moments go to arrays of their own,
// new values to the gradient's place; the inputs stay as they are.
static void part_of_a_step(const struct device *dev, const struct pieces *pieces, uint64_t seed)
{
    uint64_t n = pieces->values, part = n - FIRST;
    size_t bytes = n * sizeof(float), some = part * sizeof(float);
    struct lk_adamw c = {3e-3, 0.9, 0.95, 1e-8, seed, 0.37f};
    const struct lk_gpu_adamw numbers = lk_gpu_adamw_of(&c, 0.1);
    float *g = filled(n, seed, false), *m = filled(part, seed + 1, false), *is = malloc(bytes);
    float *v = filled(part, seed + 2, true), *p = filled(n, seed + 3, false);
    must(is != NULL && pieces->host[FIRST_PIECE].at == FIRST, "a part begins at a piece");
    float *g_there = device_put(dev, g, bytes), *p_there = device_put(dev, p, bytes);
    float *m_there = device_put(dev, m, some), *v_there = device_put(dev, v, some);
    float *m_to = device_room(dev, some), *v_to = device_room(dev, some);
    const struct lk_gpu_adamw_arrays arrays = {g_there, m_there, v_there, p_there,
                                               m_to,    v_to,    g_there, FIRST};
    must_succeed(dev,
                 dev->b->optimizer->adamw(&numbers, pieces->there + FIRST_PIECE,
                                          pieces->count - FIRST_PIECE, &arrays, dev->stream),
                 "a part's adamw");
    const struct {
        float *there;
        const float *should;
        size_t bytes;
    } before[] = {{m_there, m, some}, {v_there, v, some}, {p_there, p, bytes}},
      after[] = {{m_to, m, some}, {v_to, v, some}, {g_there, g, bytes}};
    for (int i = 0; i < 3; i++) {
        device_get(dev, is, before[i].there, before[i].bytes);
        must_equal(is, before[i].should, before[i].bytes, "a part's adamw changed array %d", i);
    }
    for (uint64_t i = 0, at = 0; i < TENSORS; at += lens[i++]) {
        uint64_t from = at < FIRST ? FIRST : at, end = at + lens[i];
        if (end <= from) continue;
        lk_adamw(&c, i % 2 ? 0.1 : 0, end - from, g + from, m + from - FIRST, v + from - FIRST,
                 p + from);
    }
    memcpy(g + FIRST, p + FIRST, some);
    for (int i = 0; i < 3; i++) {
        device_get(dev, is, after[i].there, after[i].bytes);
        must_equal(is, after[i].should, after[i].bytes, "a part's adamw, array %d", i);
        device_free(dev, after[i].there);
        device_free(dev, before[i].there);
    }
    free(g);
    free(m);
    free(v);
    free(p);
    free(is);
}

static void squares(const struct device *dev, const struct pieces *pieces, uint64_t seed)
{
    uint64_t n = pieces->values;
    float *a = filled(n, seed, false), *b = filled(n, seed + 1, false);
    float *a_there = device_put(dev, a, n * sizeof *a),
          *b_there = device_put(dev, b, n * sizeof *b);
    double *out = device_room(dev, pieces->count * sizeof *out), got[8];
    must(pieces->count <= LH_COUNT(got), "room for pieces");
    for (int apart = 0; apart < 2; apart++) {
        must_succeed(dev,
                     dev->b->optimizer->sum_squares(pieces->there, pieces->count, a_there,
                                                    apart ? b_there : NULL, out, dev->stream),
                     "sum_squares");
        device_get(dev, got, out, pieces->count * sizeof *got);
        for (uint64_t i = 0; i < pieces->count; i++) {
            double sum = 0;
            for (uint64_t j = pieces->host[i].at; j < pieces->host[i].at + pieces->host[i].len;
                 j++) {
                double d = (double)a[j] - (apart ? (double)b[j] : 0);
                sum += d * d;
            }
            must(fabs(got[i] - sum) <= 1e-12 * sum, "squares of piece %llu: %.17g, not %.17g",
                 (unsigned long long)i, got[i], sum);
        }
    }
    must_succeed(dev, dev->b->optimizer->zero(a_there, n - 1, dev->stream), "zero");
    memset(b, 0, (n - 1) * sizeof *b);
    b[n - 1] = a[n - 1];
    device_get(dev, a, a_there, n * sizeof *a);
    must_equal(a, b, n * sizeof *a, "zeros, and the value behind them");
    free(a);
    free(b);
    device_free(dev, a_there);
    device_free(dev, b_there);
    device_free(dev, out);
}

// A piece's digest equals the host's, and changes when a bit changes or two values swap places.
static void digests(const struct device *dev, const struct pieces *pieces, uint64_t seed)
{
    uint64_t n = pieces->values, got[2][8];
    float *a = filled(n, seed, false), *there = device_put(dev, a, n * sizeof *a);
    uint64_t *out = device_room(dev, pieces->count * sizeof *out);
    const struct lk_gpu_piece *large = &pieces->host[2];
    for (int again = 0; again < 2; again++) {
        must_succeed(
            dev, dev->b->optimizer->digest(pieces->there, pieces->count, there, out, dev->stream),
            "digest");
        device_get(dev, got[again], out, pieces->count * sizeof *out);
        for (uint64_t i = 0; i < pieces->count; i++) {
            uint64_t should = 0, at = pieces->host[i].at;
            for (uint64_t j = at; j < at + pieces->host[i].len; j++) {
                uint32_t bits;
                memcpy(&bits, &a[j], sizeof bits);
                should += lk_gpu_value_digest(j, bits);
            }
            must(got[again][i] == should, "digest of piece %llu", (unsigned long long)i);
        }
        float was = a[large->at];
        a[large->at] = a[large->at + large->len - 1];
        a[large->at + large->len - 1] = was;
        a[0] = nextafterf(a[0], 1e9f);
        device_free(dev, there);
        there = device_put(dev, a, n * sizeof *a);
    }
    for (uint64_t i = 0; i < pieces->count; i++)
        must((got[0][i] == got[1][i]) == (i != 0 && i != 2), "piece %llu, changed or not",
             (unsigned long long)i);
    free(a);
    device_free(dev, there);
    device_free(dev, out);
}

static void places(void)
{
    static const uint32_t id[] = {7, 2, 7, 0, 2, 7};
    static const uint32_t tokens[] = {0, 2, 7}, starts[] = {0, 1, 3, 6};
    static const uint32_t rows[] = {3, 1, 4, 0, 2, 5};
    uint64_t key[6];
    uint32_t token[6], from[7], row[6];
    must(lk_gpu_places_of(6, id, key, token, from, row) == 3, "three tokens");
    must_equal(token, tokens, sizeof tokens, "tokens");
    must_equal(from, starts, sizeof starts, "where their rows begin");
    must_equal(row, rows, sizeof rows, "rows");
}

void parity_optimizer(void)
{
    struct device dev = device_create();
    struct pieces pieces = make_pieces(&dev);
    places();
    for (uint64_t seed = 1; seed <= seeds_of(2); seed++) {
        simt_seed(seed);
        steps(&dev, &pieces, seed);
        part_of_a_step(&dev, &pieces, seed);
        squares(&dev, &pieces, seed);
        digests(&dev, &pieces, seed);
    }
    free(pieces.host);
    device_free(&dev, pieces.there);
    device_destroy(&dev);
}
