// lh_units_index_read: an index is refused, or all its units are ones that lh_units_parse would
// accept, and lie within its bytes.
//
// Byte 0 bit 0: the checksums are repaired first.
#include "common/base/check.h"
#include "common/format/units_index.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

enum { CRC_AT = 36, HASH_AT = 40, SUM_AT = 124 };

static void repair(uint8_t *bytes, size_t size)
{
    uint32_t crc;
    if (size < LH_UNITS_INDEX_HEADER) return;
    crc = lh_crc32c(0, bytes + LH_UNITS_INDEX_HEADER, size - LH_UNITS_INDEX_HEADER);
    memcpy(bytes + CRC_AT, &crc, sizeof crc); // little endian, like the host
    crc = lh_crc32c(0, bytes, SUM_AT);
    memcpy(bytes + SUM_AT, &crc, sizeof crc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lh_units u;
    struct lh_hash hash = {0};
    if (size < 1) return 0;
    bool repaired = data[0] & 1;
    uint8_t *bytes = malloc(size); // allocated, so aligned for any struct, as a mapped file is
    LH_ASSERT(bytes);
    size--;
    memcpy(bytes, data + 1, size);
    if (repaired) repair(bytes, size);
    if (size >= HASH_AT + sizeof hash.b) memcpy(hash.b, bytes + HASH_AT, sizeof hash.b);
    if (lh_units_index_read(&u, lh_span(bytes, size), &hash)) {
        LH_ASSERT(!u.unit && !u.heldout && !u.count && !u.heldout_count);
    } else {
        LH_ASSERT((const uint8_t *)(u.heldout + u.heldout_count) == bytes + size);
        for (uint64_t i = 0; i < u.count; i++) {
            const struct lh_unit *x = &u.unit[i];
            LH_ASSERT(x->id == i && x->tokens > 0 && x->from + x->tokens <= INT32_MAX);
            LH_ASSERT(x->file[0] && !strchr(x->file, '/') && !strstr(x->file, ".."));
        }
    }
    free(bytes);
    return 0;
}
