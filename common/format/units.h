// The data's manifest: units of tokens, with language, home region and residency.
//
// File (JSON): {"schema": "longhaul.units/1", "vocabulary": 256, "dtype": "u16"|"u32",
//   "unit_tokens": N, "units": [{"id": 0, "file": "asia-ja-000.bin", "from": token offset,
//   "tokens": N, "language": "ja", "home": "asia", "sha256": hex of these tokens' bytes,
//   "may_leave": true}, ...], "heldout": [{"language": "ja", "file": ..., "tokens": N,
//   "bytes": N, "sha256": hex}]}
// ids are 0, 1, 2, ... in order; unit_tokens is the size of the largest unit; no two units share
// tokens; files are plain names in this file's folder. Token files are llm.c's .bin: 256 int32 of
// header (magic 20240520 version 1 for u16, 20240801 version 7 for u32, count in [2]), then the
// tokens, all little endian.
//
// A run may train on the data for several epochs. Unit number of the run = epoch * count + unit of
// the data, epochs from 0. Leases, claims and credits name units of the run, at most LH_UNITS_MAX;
// files and tokens belong to units of the data.
#ifndef LH_COMMON_UNITS_H
#define LH_COMMON_UNITS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"

struct lh_unit {
    uint64_t id;
    char file[128], language[16], home[64];
    uint64_t from, tokens;
    uint8_t sha256[32];
    bool may_leave;
};

struct lh_heldout {
    char language[16], file[128];
    uint64_t tokens, bytes;
    uint8_t sha256[32];
};

struct lh_units {
    struct lh_unit *unit;
    uint64_t count;
    struct lh_heldout *heldout;
    uint32_t heldout_count;
    uint32_t vocabulary;
    uint32_t token_bytes; // 2 or 4
    struct lh_hash hash;  // BLAKE2b-256 of the file's bytes
};

// LH_ERR_MALFORMED, LH_ERR_INVALID or LH_ERR_TOO_LARGE names the unit and the error; *u is then
// empty.
LH_MUST lh_err lh_units_parse(struct lh_units *u, struct lh_span json);
// Refuses units that lh_units_parse() would refuse. Does not set the hash: parse the written bytes
// for it.
LH_MUST lh_err lh_units_write(const struct lh_units *u, struct lh_buf *out);
void lh_units_free(struct lh_units *u);

// The unit of the data behind this unit of the run. Borrowed.
static inline const struct lh_unit *lh_units_at(const struct lh_units *u, uint64_t unit)
{
    return &u->unit[unit % u->count];
}
// LH_ERR_CONFIG: a run of `epochs` epochs has no units, or more than LH_UNITS_MAX.
LH_MUST lh_err lh_units_check_epochs(const struct lh_units *u, uint64_t epochs);

#endif
