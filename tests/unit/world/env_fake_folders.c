// Folders of the fake world: a power cut removes the last names added to an unsynced folder,
// whatever happened to other folders; a rename is undone as a whole or not at all.
#include "common/base/check.h"
#include "tests/test.h"
#include "tests/world/env_fake.h"

enum { SEEDS = 64 };

struct disk {
    struct lh_fake_world *world;
    struct lh_env *env;
    const struct lh_files_ops *files;
};

static struct disk start(uint64_t seed)
{
    struct disk d = {.world = lh_fake_world_create(seed)};
    d.env = lh_fake_node(d.world, NULL, NULL);
    lh_fake_boot(d.env);
    lh_fake_folders_apart(d.env);
    d.files = d.env->ops->files;
    return d;
}

static void make(struct disk *d, const char *path)
{
    struct lh_file *file;
    assert_int_equal(d->files->open(d->env, path, LH_OPEN_WRITE | LH_OPEN_CREATE, &file), LH_OK);
    assert_int_equal(d->files->write(file, 0, lh_span_str("x")), LH_OK);
    assert_int_equal(d->files->sync(file), LH_OK);
    d->files->close(file);
}

static bool there(struct disk *d, const char *path)
{
    struct lh_file *file;
    lh_err err = d->files->open(d->env, path, LH_OPEN_READ, &file);
    if (!err) d->files->close(file);
    return !err;
}

static void cut(struct disk *d)
{
    lh_fake_kill(d->env, true);
    lh_fake_boot(d->env);
}

TEST(only_the_folder_that_was_synced_is_durable)
{
    int lost = 0, first_alone = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct disk d = start(seed);
        make(&d, "a/1");
        make(&d, "b/1");
        make(&d, "b/2");
        assert_int_equal(d.files->sync_dir(d.env, "a"), LH_OK);
        cut(&d);
        assert_true(there(&d, "a/1"));
        assert_false(there(&d, "b/2") && !there(&d, "b/1"));
        lost += !there(&d, "b/1");
        first_alone += there(&d, "b/1") && !there(&d, "b/2");
        bool second = there(&d, "b/2");
        cut(&d); // names that survived the first cut are durable
        assert_int_equal(there(&d, "b/2"), second);
        lh_fake_world_destroy(d.world);
    }
    assert_in_range(lost, SEEDS / 8, SEEDS / 2);
    assert_in_range(first_alone, SEEDS / 8, SEEDS / 2);
}

TEST(a_rename_is_a_whole)
{
    int undone = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct disk d = start(seed);
        make(&d, "a/1");
        assert_int_equal(d.files->sync_dir(d.env, "a"), LH_OK);
        assert_int_equal(d.files->rename(d.env, "a/1", "b/1"), LH_OK);
        if (seed % 2) assert_int_equal(d.files->sync_dir(d.env, seed % 4 == 1 ? "a" : "b"), LH_OK);
        cut(&d);
        assert_true(there(&d, "a/1") != there(&d, "b/1"));
        if (seed % 2) assert_true(there(&d, "b/1"));
        undone += there(&d, "a/1");
        lh_fake_world_destroy(d.world);
    }
    assert_in_range(undone, SEEDS / 8, SEEDS / 2);
}

TEST(a_removal_and_a_replacement_come_undone)
{
    int back = 0, older = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct disk d = start(seed);
        struct lh_buf b = lh_buf(16);
        make(&d, "a/gone");
        make(&d, "b/kept");
        assert_int_equal(d.files->sync_dir(d.env, "a"), LH_OK);
        assert_int_equal(d.files->sync_dir(d.env, "b"), LH_OK);
        assert_int_equal(d.files->remove(d.env, "a/gone"), LH_OK);
        make(&d, "b/new");
        assert_int_equal(d.files->rename(d.env, "b/new", "b/kept"), LH_OK);
        cut(&d);
        back += there(&d, "a/gone");
        older += there(&d, "b/new"); // its rename was undone
        assert_int_equal(lh_file_load(d.env, "b/kept", &b), LH_OK);
        lh_buf_free(&b);
        lh_fake_world_destroy(d.world);
    }
    assert_in_range(back, SEEDS / 8, 7 * SEEDS / 8);
    assert_in_range(older, SEEDS / 8, 7 * SEEDS / 8);
}
