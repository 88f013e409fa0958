// The hashes in a state's digest (kernels/state/replica.c): BLAKE2b-256 of each range of 4 MiB, RFC
// 7693, no key. A hash is sequential, so one thread takes a range. Blocks have one warp: a state of
// 6 GB has 1500 ranges, which then use 47 multiprocessors instead of 6.
//
// Invariant: bytes at whole words; the last range may be short, by whole words too.
#include "kernels/cuda/internal.cuh"

enum { LK_DIGEST_THREADS = 32 };

LK_DEVICE uint64_t lk_rotate(uint64_t x, uint32_t by)
{
    return x >> by | x << (64 - by);
}

struct lk_blake2b {
    uint64_t h[8], count;
};

LK_DEVICE uint64_t lk_blake2b_iv(int i)
{
    const uint64_t iv[8] = {0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b,
                            0xa54ff53a5f1d36f1, 0x510e527fade682d1, 0x9b05688c2b3e6c1f,
                            0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};
    return iv[i];
}

LK_DEVICE void lk_blake2b_mix(uint64_t v[16], int a, int b, int c, int d, uint64_t x, uint64_t y)
{
    v[a] = v[a] + v[b] + x;
    v[d] = lk_rotate(v[d] ^ v[a], 32);
    v[c] = v[c] + v[d];
    v[b] = lk_rotate(v[b] ^ v[c], 24);
    v[a] = v[a] + v[b] + y;
    v[d] = lk_rotate(v[d] ^ v[a], 16);
    v[c] = v[c] + v[d];
    v[b] = lk_rotate(v[b] ^ v[c], 63);
}

LK_DEVICE void lk_blake2b_block(struct lk_blake2b *s, const uint64_t m[16], bool last)
{
    const uint8_t sigma[10][16] = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                   {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
                                   {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
                                   {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
                                   {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
                                   {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
                                   {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
                                   {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
                                   {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
                                   {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};
    uint64_t v[16];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        v[i] = s->h[i];
        v[i + 8] = lk_blake2b_iv(i);
    }
    v[12] ^= s->count;
    if (last) v[14] = ~v[14];
#pragma unroll
    for (int r = 0; r < 12; r++) {
        const uint8_t *p = sigma[r % 10];
        lk_blake2b_mix(v, 0, 4, 8, 12, m[p[0]], m[p[1]]);
        lk_blake2b_mix(v, 1, 5, 9, 13, m[p[2]], m[p[3]]);
        lk_blake2b_mix(v, 2, 6, 10, 14, m[p[4]], m[p[5]]);
        lk_blake2b_mix(v, 3, 7, 11, 15, m[p[6]], m[p[7]]);
        lk_blake2b_mix(v, 0, 5, 10, 15, m[p[8]], m[p[9]]);
        lk_blake2b_mix(v, 1, 6, 11, 12, m[p[10]], m[p[11]]);
        lk_blake2b_mix(v, 2, 7, 8, 13, m[p[12]], m[p[13]]);
        lk_blake2b_mix(v, 3, 4, 9, 14, m[p[14]], m[p[15]]);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) s->h[i] ^= v[i] ^ v[i + 8];
}

LK_KERNEL lk_digest_ranges(const uint32_t *words, uint64_t bytes, uint64_t ranges, uint8_t *out)
{
    uint64_t range = (uint64_t)blockIdx.x * LK_DIGEST_THREADS + threadIdx.x;
    if (range >= ranges) return;
    uint64_t at = range * LK_GPU_DIGEST_RANGE, left = bytes - at;
    if (left > LK_GPU_DIGEST_RANGE) left = LK_GPU_DIGEST_RANGE;
    struct lk_blake2b s;
    for (int i = 0; i < 8; i++) s.h[i] = lk_blake2b_iv(i);
    s.h[0] ^= 0x01010000 ^ LK_GPU_HASH_BYTES;
    s.count = 0;
    const uint32_t *from = words + at / 4;
    for (bool last = false; !last; left -= left < 128 ? left : 128, from += 32) {
        uint64_t m[16];
        last = left <= 128;
#pragma unroll
        for (uint32_t i = 0; i < 16; i++) {
            m[i] = 8 * i < left ? from[2 * i] : 0;
            if (8 * i + 4 < left) m[i] |= (uint64_t)from[2 * i + 1] << 32;
        }
        s.count += left < 128 ? left : 128;
        lk_blake2b_block(&s, m, last);
    }
    for (uint32_t i = 0; i < LK_GPU_HASH_BYTES; i++)
        out[range * LK_GPU_HASH_BYTES + i] = (uint8_t)(s.h[i / 8] >> (8 * (i % 8)));
}

void lk_launch_digest(const uint8_t *bytes, uint64_t n, uint8_t *hashes, cudaStream_t stream)
{
    uint64_t ranges = (n + LK_GPU_DIGEST_RANGE - 1) / LK_GPU_DIGEST_RANGE;
    if (!ranges) return;
    LK_LAUNCH(lk_digest_ranges, (unsigned)((ranges + LK_DIGEST_THREADS - 1) / LK_DIGEST_THREADS),
              LK_DIGEST_THREADS, stream, (const uint32_t *)(const void *)bytes, n, ranges, hashes);
}
