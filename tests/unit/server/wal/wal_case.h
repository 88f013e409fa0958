// An entry of a log, byte by byte, as our writer or anybody else may make it.
#ifndef TESTS_UNIT_WAL_CASE_H
#define TESTS_UNIT_WAL_CASE_H

#include <string.h>

#include "server/wal/wal_format.h"

enum {
    CASE_BODY = 24,
    CASE_ENTRY = PS_ENTRY_HEADER_BYTES + LH_RECORD_HEADER_BYTES + CASE_BODY + PS_ENTRY_TRAILER,
};

struct case_entry {
    uint64_t generation, sequence, durable, version;
    uint32_t shard;
};

// Writes the checksum of an entry, the last `bytes` of `b`, anew.
static inline void case_sum(struct lh_buf *b, size_t bytes)
{
    uint8_t *end = b->data + b->len;
    struct lh_buf sum = lh_buf_over(end - PS_ENTRY_TRAILER, 4);
    lh_put_u32(&sum, lh_crc32c(0, end - bytes, bytes - PS_ENTRY_TRAILER));
}

// Appends CASE_ENTRY bytes: a FENCE whose body repeats the low byte of its sequence.
static inline void case_put_entry(struct lh_buf *b, const struct case_entry *e)
{
    uint8_t body[CASE_BODY];
    memset(body, (int)e->sequence, CASE_BODY);
    struct lh_record record = {.version = e->version,
                               .epoch = 1,
                               .kind = LH_FENCE,
                               .scale = 1,
                               .body = lh_span(body, CASE_BODY)};
    lh_put_u32(b, PS_ENTRY_MAGIC);
    lh_put_u32(b, CASE_ENTRY);
    lh_put_u64(b, e->generation);
    lh_put_u64(b, e->sequence);
    lh_put_u64(b, e->durable);
    lh_put_u32(b, e->shard);
    lh_put_u32(b, 0);
    lh_record_write_header(&record, b);
    lh_put(b, body, CASE_BODY);
    lh_put_u64(b, 0);
    case_sum(b, CASE_ENTRY);
}

#endif
