// Implements the fake disk of disk.h.
#include "tests/fuzz/disk.h"

#include "common/base/check.h"

static void die(void *arg)
{
    (void)arg;
    lh_assert_failed("nothing kills this node", __FILE__, __LINE__);
}

struct fuzz_disk fuzz_disk_create(void)
{
    struct fuzz_disk d = {.world = lh_fake_world_create(1)};
    LH_ASSERT(d.world);
    d.env = lh_fake_node(d.world, die, NULL);
    LH_ASSERT(d.env);
    lh_fake_boot(d.env);
    return d;
}

void fuzz_disk_destroy(struct fuzz_disk *d)
{
    lh_fake_world_destroy(d->world);
}

void fuzz_disk_put(struct fuzz_disk *d, const char *dir, const char *name, struct lh_span bytes)
{
    char path[128];
    lh_err err = lh_path(path, sizeof path, dir, "%s", name);
    if (!err) err = d->env->ops->files->make_dir(d->env, dir);
    if (!err) err = lh_file_replace(d->env, path, bytes);
    LH_ASSERT(err == LH_OK);
}

void fuzz_repair_crc(uint8_t *bytes, size_t from, size_t to)
{
    uint32_t crc = lh_crc32c(0, bytes + from, to - from);
    for (size_t i = 0; i < 4; i++) bytes[to + i] = (uint8_t)(crc >> (8 * i));
}
