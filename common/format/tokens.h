// Token files: llm.c's .bin. 1024 bytes of header (256 int32, the unused ones 0), then the tokens.
//
//   at  0  i32  magic: 20240520 (u16 tokens) or 20240801 (u32 tokens)
//   at  4  i32  version: 1 (u16) or 7 (u32)
//   at  8  i32  number of tokens
// All little endian.
#ifndef LH_COMMON_TOKENS_H
#define LH_COMMON_TOKENS_H

#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"

enum { LH_TOKENS_HEADER_BYTES = 1024 };
#define LH_TOKENS_MAX (UINT64_C(0x7fffffff)) // tokens of one file: the header counts in an int32

// token_bytes is 2 or 4, count at most LH_TOKENS_MAX.
void lh_tokens_put_header(struct lh_buf *out, uint32_t token_bytes, uint64_t count);
void lh_tokens_put(struct lh_buf *out, uint32_t token_bytes, uint32_t id);
// Reads a header of tokens of this size: LH_ERR_MALFORMED names the error, not the file.
LH_MUST lh_err lh_tokens_header(struct lh_span head, uint32_t token_bytes, uint64_t *count);
// ids[n] from n * token_bytes bytes; no check against a vocabulary.
void lh_tokens_decode(const uint8_t *bytes, uint32_t token_bytes, uint64_t n, uint32_t *ids);
// Index of the first of n ids that is not below the vocabulary, n when all are.
uint64_t lh_tokens_beyond(const uint8_t *bytes, uint32_t token_bytes, uint64_t n,
                          uint32_t vocabulary);

#endif
