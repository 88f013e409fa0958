// A segment of the write-ahead log, read at start: its records are replayed, or it is refused.
//
// Byte 0 odd: the checksums are repaired first, so that the code behind them is reached. After an
// accepted start the log takes one record, and a second start replays one record more.
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "server/state/disk_full.h"
#include "server/wal/wal_format.h"
#include "tests/fuzz/disk.h"
#include "tests/fuzz/fuzz.h"

struct seen {
    uint64_t records;
};

static lh_err replay(void *arg, uint32_t shard, const struct lh_record *r, struct ps_place place)
{
    struct seen *seen = arg;
    LH_ASSERT(shard != PS_MARK && place.bytes == LH_RECORD_HEADER_BYTES + r->body.len);
    lh_crc32c(0, r->body.data, r->body.len); // reads every byte of the body
    seen->records++;
    return LH_OK;
}

static void repair(uint8_t *bytes, size_t size)
{
    if (size < PS_SEGMENT_HEADER_BYTES) return;
    fuzz_repair_crc(bytes, 0, PS_SEGMENT_HEADER_BYTES - 8);
    for (size_t at = PS_SEGMENT_HEADER_BYTES;
         size - at >= PS_ENTRY_HEADER_BYTES + PS_ENTRY_TRAILER;) {
        uint32_t total = bytes[at + 4] | (uint32_t)bytes[at + 5] << 8;
        if (total < PS_ENTRY_HEADER_BYTES + PS_ENTRY_TRAILER || total > size - at) return;
        fuzz_repair_crc(bytes + at, 0, total - PS_ENTRY_TRAILER);
        at += total;
    }
}

static void start_twice(struct fuzz_disk *disk)
{
    struct ps_wal_conf conf = {
        .env = disk->env, .dir = "wal", .segment_bytes = 1 << 16, .job = "fuzz"};
    struct seen first = {0}, second = {0};
    struct ps_wal *w = NULL;
    bool torn;
    lh_err err = ps_wal_open(&conf, replay, &first, &torn, &w);
    if (err) return;
    struct ps_place place;
    struct lh_record r = {.version = 1, .epoch = 1, .kind = LH_FENCE, .body = lh_span("body", 4)};
    err = ps_wal_add(w, 0, &r, &place);
    if (!err) err = ps_wal_commit(w);
    LH_ASSERT(err == LH_OK);
    ps_wal_group_done(w);
    ps_wal_close(w);

    err = ps_wal_open(&conf, replay, &second, &torn, &w);
    LH_ASSERT(err == LH_OK && !torn && second.records == first.records + 1);
    ps_wal_close(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) return 0;
    struct fuzz_disk disk = fuzz_disk_create();
    uint8_t *bytes = malloc(size);
    LH_ASSERT(bytes);
    memcpy(bytes, data + 1, size - 1);
    if (data[0] & 1) repair(bytes, size - 1);
    fuzz_disk_put(&disk, "wal", "0000000000000001.seg", lh_span(bytes, size - 1));
    start_twice(&disk);
    free(bytes);
    fuzz_disk_destroy(&disk);
    return 0;
}
