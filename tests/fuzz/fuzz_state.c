// A server's small files, DIR/epoch-0000 and DIR/standby: the server starts from these bytes or
// refuses them.
//
// Byte 0 bit 0: the checksum is repaired first.
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/format/manifest.h"
#include "server/core.h"
#include "server/server.h"
#include "tests/fuzz/disk.h"
#include "tests/fuzz/fuzz.h"

static lh_err zeros(void *arg, uint64_t first, uint64_t n, float *out)
{
    (void)arg;
    (void)first;
    memset(out, 0, n * sizeof *out);
    return LH_OK;
}

static lh_err start(struct fuzz_disk *disk, const struct lh_manifest *m, bool standby)
{
    static const uint32_t shard = 0;
    struct ps_conf conf = {.env = disk->env,
                           .dir = "s",
                           .listen = "",
                           .advertise = "",
                           .coordinator = "",
                           .manifest = m,
                           .shards = &shard,
                           .shard_count = 1,
                           .initial = zeros,
                           .segment_bytes = 1 << 16,
                           .checkpoint_keep = 2,
                           .report_ns = LH_SECOND,
                           .mark_ns = LH_SECOND,
                           .standby = standby};
    struct ps_server *s;
    LH_TRY(lh_keyring_create(&conf.keys));
    lh_err err = ps_server_start(&conf, &s);
    if (!err && standby) LH_ASSERT(s->phase == PS_STANDBY && s->standby.identity);
    if (!err) ps_server_stop(s);
    lh_keyring_destroy(conf.keys);
    return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"w"};
    static const uint64_t shapes[][5] = {{4, 2, 0}};
    struct lh_manifest m;
    if (size < 1) return 0;
    uint8_t *bytes = malloc(size);
    LH_ASSERT(bytes);
    size--;
    memcpy(bytes, data + 1, size);
    if (data[0] & 1 && size >= 4) fuzz_repair_crc(bytes, 0, size - 4);
    lh_err err = lh_manifest_build(&m, 1, names, shapes, 1, NULL);
    LH_ASSERT(err == LH_OK);
    for (int standby = 0; standby < 2; standby++) {
        struct fuzz_disk disk = fuzz_disk_create();
        fuzz_disk_put(&disk, "s", standby ? "standby" : "epoch-0000", lh_span(bytes, size));
        err = start(&disk, &m, standby);
        LH_ASSERT(err == LH_OK || err == LH_ERR_CORRUPT);
        fuzz_disk_destroy(&disk);
    }
    lh_manifest_free(&m);
    free(bytes);
    return 0;
}
