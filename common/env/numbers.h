// A small file of numbers that is replaced as a whole: an identity, an epoch.
//
//   magic u32, version u16, 0 u16, the numbers u64 each, CRC-32C of all before u32
#ifndef LH_COMMON_NUMBERS_H
#define LH_COMMON_NUMBERS_H

#include "common/env/env.h"

enum { LH_NUMBERS_MAX = 4 };

struct lh_numbers { // a kind of file
    uint32_t magic;
    uint16_t version;   // the only version that load() accepts
    uint8_t count;      // numbers in the file
    const char *remedy; // advice if the file is damaged
    bool secret;        // only its owner may read the file
};

// Reads the numbers. LH_ERR_NOT_FOUND, LH_ERR_CORRUPT with path and remedy, or a disk error: then
// `out` is unchanged.
LH_MUST lh_err lh_numbers_load(struct lh_env *e, const struct lh_numbers *kind, const char *path,
                               uint64_t *out);
// Durable after LH_OK; all or nothing (lh_file_replace()).
LH_MUST lh_err lh_numbers_store(struct lh_env *e, const struct lh_numbers *kind, const char *path,
                                const uint64_t *number);

#endif
