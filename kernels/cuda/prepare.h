// The host's part of the trainer's kernels (train.h): numbers of an AdamW step, the rows of each
// token, pieces of tensors.
#ifndef LK_CUDA_PREPARE_H
#define LK_CUDA_PREPARE_H

#include "kernels/cuda/train.h"
#include "kernels/optimizer.h"

// The numbers of lk_adamw()'s loop; `decay` applies to pieces that decay.
struct lk_gpu_adamw lk_gpu_adamw_of(const struct lk_adamw *c, double decay);

// The rows of each distinct id of id[rows], ids and rows rising. Fills token[rows], from[rows + 1]
// and row[rows]; `key` is scratch, [rows]. Returns the number of distinct ids.
uint64_t lk_gpu_places_of(uint64_t rows, const uint32_t *id, uint64_t *key, uint32_t *token,
                          uint32_t *from, uint32_t *row);

// Pieces of the tensor [at, at + len) of the flat array: their number, and the pieces. Cuts are at
// multiples of `most`, so an array cut there has whole pieces.
uint64_t lk_gpu_piece_count(uint64_t at, uint64_t len, uint32_t most);
void lk_gpu_pieces_of(uint64_t at, uint64_t len, uint32_t most, bool decays,
                      struct lk_gpu_piece *out);

// A value's part of a piece's digest, from its index in the flat array and its bits.
static inline uint64_t lk_gpu_value_digest(uint64_t at, uint32_t bits)
{
    uint64_t x = (at + 1) * 0x9e3779b97f4a7c15u + bits * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 32) * 0x94d049bb133111ebu;
    return x ^ x >> 29;
}

#endif
