// The coordinator's store: a coordinator starts from these bytes or refuses them. After a refused
// version the file is as it was.
//
// Byte 0 bit 0: the checksums of the entries are repaired first.
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/format/manifest.h"
#include "server/coordinator/core.h"
#include "tests/fuzz/disk.h"
#include "tests/fuzz/fuzz.h"

enum { HEADER = 8, HEAD = 28, ENTRY = 8 }; // sizes: store.h

static void repair_sum(uint8_t *at, size_t n)
{
    uint32_t crc = lh_crc32c(0, at + 8, n);
    memcpy(at + 4, &crc, sizeof crc); // little endian, as here
}

static void repair(uint8_t *bytes, size_t size)
{
    for (size_t at = HEADER; at + HEAD <= size;) {
        uint32_t entries, n;
        memcpy(&entries, bytes + at + 16, sizeof entries);
        repair_sum(bytes + at, HEAD - 8);
        at += HEAD;
        for (; entries && at + ENTRY <= size; entries--) {
            memcpy(&n, bytes + at, sizeof n);
            if (n > size - at - ENTRY) return;
            repair_sum(bytes + at, n);
            at += ENTRY + n;
        }
    }
}

static lh_err start(struct fuzz_disk *disk, const struct lh_manifest *m, const struct lh_units *u)
{
    struct ps_co_conf conf = {.env = disk->env,
                              .dir = "c",
                              .listen = "",
                              .manifest = m,
                              .units = u,
                              .workers = 1,
                              .worker_timeout_ns = LH_SECOND,
                              .tick_ns = LH_SECOND,
                              .take_over_ns = LH_SECOND,
                              .h_base = 1,
                              .plan = {.eta = 1, .staleness_per_live = 4}};
    struct ps_coordinator *c;
    LH_TRY(ps_coordinator_start(&conf, &c));
    struct lh_buf json = lh_buf(1 << 22);
    LH_ASSERT(c->workers <= LH_WORKERS_MAX && c->drained_regions <= PS_DRAINED_REGIONS_MAX);
    lh_err err = ps_coordinator_status(c, &json);
    LH_ASSERT(err == LH_OK && json.len > 0);
    lh_buf_free(&json);
    ps_coordinator_stop(c);
    return LH_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"v", "w"};
    static const uint64_t shapes[][5] = {{40, 20, 0}, {300, 0}};
    struct lh_unit unit[3] = {{.tokens = 64}, {.id = 1, .tokens = 64}, {.id = 2, .tokens = 64}};
    struct lh_units units = {.unit = unit, .count = 3};
    struct lh_manifest m;
    if (size < 1) return 0;
    uint8_t *bytes = malloc(size);
    LH_ASSERT(bytes);
    size--;
    memcpy(bytes, data + 1, size);
    if (data[0] & 1) repair(bytes, size);
    struct fuzz_disk disk = fuzz_disk_create();
    fuzz_disk_put(&disk, "c", "store", lh_span(bytes, size));
    lh_err err = lh_manifest_build(&m, 2, names, shapes, 2, NULL);
    LH_ASSERT(err == LH_OK);

    struct lh_buf left = lh_buf(1 << 22);
    err = start(&disk, &m, &units);
    if (err == LH_OK) {
        LH_ASSERT(start(&disk, &m, &units) == LH_OK); // the store that it rewrote is readable
    } else {
        LH_ASSERT(err == LH_ERR_CORRUPT || err == LH_ERR_VERSION || err == LH_ERR_MALFORMED);
        LH_ASSERT(lh_file_load(disk.env, "c/store", &left) == LH_OK);
        struct lh_span was = lh_span(bytes, size);
        bool rows = err == LH_ERR_CORRUPT || err == LH_ERR_MALFORMED; // a bad row in a good file
        LH_ASSERT(rows || lh_span_equal(lh_buf_span(&left), was));
    }
    lh_buf_free(&left);
    lh_manifest_free(&m);
    fuzz_disk_destroy(&disk);
    free(bytes);
    return 0;
}
