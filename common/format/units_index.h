// The index of the data's manifest: its units in their memory layout, to be mapped.
//
// File (units.json.index, beside units.json), little endian, 128 bytes of header:
//   0 "LHUI", 4 u32 version 1, 8 u32 bytes of a unit (272), 12 u32 bytes of a heldout file (192),
//   16 u64 units, 24 u32 heldout files, 28 u32 vocabulary, 32 u32 bytes of a token, 36 u32 CRC-32C
//   of all that follows the header, 40 the hash of units.json (32), 72 zeros, 124 u32 CRC-32C of
//   bytes 0 to 123
// then struct lh_unit for each unit, then struct lh_heldout for each file (units.h).
//
// It only repeats units.json. A program that finds no index, or one of another units.json, makes it
// again (common/app/units_file.h).
#ifndef LH_COMMON_UNITS_INDEX_H
#define LH_COMMON_UNITS_INDEX_H

#include "common/format/units.h"

enum { LH_UNITS_INDEX_HEADER = 128 };

// ---- reading units.json one unit at a time
typedef lh_err lh_unit_sink(void *arg, const struct lh_unit *unit);
// Calls put() for each unit and reads the rest into *u, whose `heldout` the caller frees, on
// failure too. u->unit stays NULL; call lh_units_check() once it is set.
LH_MUST lh_err lh_units_scan(struct lh_units *u, struct lh_span json, lh_unit_sink *put, void *arg,
                             uint64_t *unit_tokens);
LH_MUST lh_err lh_units_check(const struct lh_units *u, uint64_t unit_tokens);
LH_MUST lh_err lh_units_check_head(const struct lh_units *u);
LH_MUST lh_err lh_unit_check(const struct lh_unit *u, uint64_t i);
LH_MUST lh_err lh_heldout_check(const struct lh_units *u, uint32_t i);

// ---- the index
// `crc` is that of units and heldout files.
void lh_units_index_head(const struct lh_units *u, uint32_t crc, struct lh_buf *out);
// Fills *u from the index's bytes, which it borrows; they begin at a multiple of 16. Refuses an
// index that is incomplete, of a document with another hash, or with a unit that lh_units_parse()
// would refuse.
LH_MUST lh_err lh_units_index_read(struct lh_units *u, struct lh_span index,
                                   const struct lh_hash *hash);

#endif
