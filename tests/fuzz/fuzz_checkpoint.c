// A checkpoint file is accepted whole, with the digest that it names, or refused. A refusal leaves
// the replica at version 0.
//
// Byte 0 bit 0: the header's checksum is repaired first; bit 1: that of the manifest at its end.
// Sealed ranges cannot be forged, so the accepted files of the corpus come from
// lk_checkpoint_write(), under the key of the bytes 1 to 32.
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/format/manifest.h"
#include "kernels/storage/checkpoint_format.h"
#include "kernels/storage/checkpoint_read.h"
#include "tests/fuzz/disk.h"
#include "tests/fuzz/fuzz.h"

// Returns where the manifest of a file of this size would begin, by its header's count of ranges.
static size_t manifest_at(const uint8_t *bytes, size_t size)
{
    size_t n = size > 24 ? lk_ckpt_manifest_bytes(bytes[20] | (uint32_t)bytes[21] << 8) : 0;
    return n && n < size ? size - n : 0;
}

static void read_one(struct fuzz_disk *disk, struct lk_checkpoint_conf *conf)
{
    static const char *const names[] = {"w"};
    static const uint64_t shapes[][5] = {{40, 2, 0}};
    static const uint8_t job[LH_JOB_BYTES] = "fuzz";
    struct lh_manifest m = {0};
    struct lk_replica r;
    lh_err err = lh_manifest_build(&m, 1, names, shapes, 1, NULL);
    if (!err) err = lk_replica_create(&r, job, &m, 0, conf->keys);
    LH_ASSERT(err == LH_OK);
    conf->env = disk->env;

    err = lk_checkpoint_read(conf, "ckpt/0000-0000000000000002.ckpt", &r);
    LH_ASSERT(err == LH_OK || r.ledger.version == 0);
    struct lh_hash digest = lk_replica_digest(&r);
    struct lk_checkpoint_info info;
    lh_err checked = lk_checkpoint_check(conf, "ckpt/0000-0000000000000002.ckpt", &info);
    LH_ASSERT(err || info.weights || lh_hash_equal(&digest, &info.digest)); // as named
    LH_ASSERT(err ||
              checked != LH_ERR_UNAUTHENTICATED); // a hash may be wrong where all else is right
    lk_replica_free(&r);
    lh_manifest_free(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) return 0;
    struct fuzz_disk disk = fuzz_disk_create();
    struct lk_checkpoint_conf conf = {.dir = "ckpt", .cipher = LH_CIPHER_XCHACHA20, .key_id = 7};
    struct lh_seal_key key;
    uint8_t *bytes = malloc(size);
    for (size_t i = 0; i < sizeof key.b; i++) key.b[i] = (uint8_t)(1 + i);
    lh_err err = lh_keyring_create(&conf.keys);
    if (!err) err = lh_keyring_add(conf.keys, 7, &key);
    LH_ASSERT(err == LH_OK && bytes);

    size--;
    memcpy(bytes, data + 1, size);
    if (data[0] & 1 && size >= LK_CKPT_HEADER_BYTES)
        fuzz_repair_crc(bytes, 0, LK_CKPT_HEADER_BYTES - 4);
    if (data[0] & 2 && size >= 8) fuzz_repair_crc(bytes, manifest_at(bytes, size), size - 4);
    fuzz_disk_put(&disk, "ckpt", "0000-0000000000000002.ckpt", lh_span(bytes, size));
    read_one(&disk, &conf);
    free(bytes);
    lh_keyring_destroy(conf.keys);
    fuzz_disk_destroy(&disk);
    return 0;
}
