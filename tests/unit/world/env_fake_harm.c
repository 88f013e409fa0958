// Other faults of the fake world: paused nodes, writes torn in the middle, a disk that fills up
// within a write, and failed syncs.
#include <string.h>

#include "common/base/check.h"
#include "tests/test.h"
#include "tests/world/env_fake.h"

enum { SEEDS = 64, SECTOR = 512 };

struct disk {
    struct lh_fake_world *world;
    struct lh_env *env;
    const struct lh_files_ops *files;
    struct lh_file *file;
};

static void dies(void *arg)
{
    (void)arg;
}

static struct disk start(uint64_t seed)
{
    struct disk d = {.world = lh_fake_world_create(seed)};
    d.env = lh_fake_node(d.world, dies, NULL);
    lh_fake_boot(d.env);
    d.files = d.env->ops->files;
    assert_int_equal(d.files->open(d.env, "a/f", LH_OPEN_WRITE | LH_OPEN_CREATE, &d.file), LH_OK);
    assert_int_equal(d.files->sync_dir(d.env, "a"), LH_OK);
    return d;
}

static void end(struct disk *d)
{
    d->files->close(d->file);
    lh_fake_world_destroy(d->world);
}

static size_t size(struct disk *d)
{
    uint64_t bytes;
    assert_int_equal(d->files->size(d->file, &bytes), LH_OK);
    return (size_t)bytes;
}

// ---------------------------------------------------------------- paused nodes

struct heard {
    struct disk *d;
    char order[8];
    int64_t at[8];
    size_t count;
};

static struct heard heard;

static void hear(char what)
{
    heard.order[heard.count] = what;
    heard.at[heard.count++] = lh_fake_now(heard.d->world);
}

static void early(void *arg)
{
    (void)arg;
    hear('e');
}

static void late(void *arg)
{
    (void)arg;
    hear('l');
}

static void writes(void *arg)
{
    struct disk *d = arg;
    hear('w');
    assert_int_equal(d->files->write(d->file, 0, lh_span_str("x")), LH_OK);
}

TEST(a_node_that_stands_still_hears_all_of_it_afterwards_in_the_order_of_its_coming)
{
    struct disk d = start(1);
    heard = (struct heard){.d = &d};
    lh_after(d.env, 30 * LH_MS, late, NULL);
    lh_after(d.env, 10 * LH_MS, early, NULL);
    lh_fake_stall_at(d.env, -1, LH_SECOND);
    assert_true(lh_fake_stalled(d.env));
    lh_fake_run(d.world, 999 * LH_MS);
    assert_int_equal(heard.count, 0);
    lh_after(d.env, 0, writes, &d);
    lh_fake_run(d.world, 2 * LH_SECOND);
    assert_string_equal(heard.order, "elw");
    for (size_t i = 0; i < 3; i++) assert_int_equal(heard.at[i], LH_SECOND);
    assert_false(lh_fake_stalled(d.env));
    end(&d);
}

TEST(a_node_stands_still_from_its_nth_file_operation_on)
{
    struct disk d = start(1);
    heard = (struct heard){.d = &d};
    lh_fake_stall_at(d.env, 1, LH_SECOND);
    lh_after(d.env, 10 * LH_MS, writes, &d);
    lh_after(d.env, 20 * LH_MS, writes, &d);
    lh_after(d.env, 30 * LH_MS, late, NULL);
    lh_fake_run(d.world, 2 * LH_SECOND);
    assert_string_equal(heard.order, "wwl");
    assert_int_equal(heard.at[1], 20 * LH_MS);
    assert_int_equal(heard.at[2], 20 * LH_MS + LH_SECOND);
    end(&d);
}

TEST(death_ends_a_stall)
{
    struct disk d = start(1);
    heard = (struct heard){.d = &d};
    lh_fake_stall_at(d.env, -1, LH_SECOND);
    lh_fake_deliver(d.env, 10 * LH_MS, early, late, NULL);
    lh_fake_deliver(d.env, 50 * LH_MS, early, late, NULL);
    lh_fake_run(d.world, 20 * LH_MS);
    assert_int_equal(heard.count, 0);
    lh_fake_kill(d.env, false);
    lh_fake_boot(d.env);
    lh_after(d.env, LH_MS, early, NULL);
    lh_fake_run(d.world, 2 * LH_SECOND);
    assert_string_equal(heard.order, "lel"); // each delivery is reported lost at its own time
    assert_int_equal(heard.at[0], 20 * LH_MS);
    assert_int_equal(heard.at[1], 21 * LH_MS);
    assert_int_equal(heard.at[2], 50 * LH_MS);
    end(&d);
}

// ---------------------------------------------------------------- disks

// Returns the sectors of an unsynced write of four that survive a power cut, one bit each.
static unsigned left_of_four(uint64_t seed, bool torn)
{
    struct disk d = start(seed);
    struct lh_fake_harm harm = {.seed = seed, .torn = torn};
    uint8_t bytes[4 * SECTOR], found[sizeof bytes] = {0};
    size_t got;
    unsigned left = 0;
    lh_fake_harm(d.env, &harm);
    memset(bytes, 1, sizeof bytes);
    assert_int_equal(d.files->write(d.file, 0, lh_span(bytes, sizeof bytes)), LH_OK);
    d.files->close(d.file);
    lh_fake_kill(d.env, true);
    lh_fake_boot(d.env);
    assert_int_equal(d.files->open(d.env, "a/f", LH_OPEN_WRITE, &d.file), LH_OK);
    assert_int_equal(d.files->read(d.file, 0, found, sizeof found, &got), LH_OK);
    for (unsigned i = 0; i < 4; i++) left |= (unsigned)found[i * SECTOR] << i;
    end(&d);
    return left;
}

TEST(a_power_cut_loses_the_middle_of_a_write_where_it_tears)
{
    unsigned holes = 0, heads = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        unsigned torn = left_of_four(seed, true), whole = left_of_four(seed, false);
        holes += (torn & (torn + 1)) != 0;   // a sector survives above a gap
        heads += (whole & (whole + 1)) != 0; // never: without `torn`, a write only loses its end
    }
    assert_true(holes > 4);
    assert_int_equal(heads, 0);
}

TEST(a_write_leaves_what_there_is_room_for)
{
    struct disk d = start(1);
    struct lh_fake_harm harm = {.seed = 1, .short_writes = true};
    uint8_t bytes[100] = {1};
    assert_int_equal(d.files->write(d.file, 0, lh_span(bytes, 10)), LH_OK);
    lh_fake_disk_limit(d.env, 30);
    assert_int_equal(d.files->write(d.file, 5, lh_span(bytes, 100)), LH_ERR_DISK_FULL);
    assert_int_equal(size(&d), 10);
    lh_fake_harm(d.env, &harm);
    assert_int_equal(d.files->write(d.file, 5, lh_span(bytes, 100)), LH_ERR_DISK_FULL);
    assert_int_equal(size(&d), 30);
    assert_int_equal(d.files->write(d.file, 0, lh_span(bytes, 30)), LH_OK);
    end(&d);
}

TEST(the_nth_write_finds_the_disk_full_once)
{
    struct disk d = start(1);
    uint8_t bytes[100] = {1};
    lh_fake_short_at(d.env, 1);
    assert_int_equal(d.files->write(d.file, 0, lh_span(bytes, 100)), LH_OK);
    assert_int_equal(d.files->write(d.file, 100, lh_span(bytes, 100)), LH_ERR_DISK_FULL);
    assert_in_range(size(&d), 100, 200);
    assert_int_equal(d.files->write(d.file, 100, lh_span(bytes, 100)), LH_OK);
    assert_false(lh_fake_no_room_in_place(d.env));
    end(&d);
}

TEST(it_tells_of_one_that_wanted_no_room)
{
    struct disk d = start(1);
    uint8_t bytes[100] = {1};
    assert_int_equal(d.files->write(d.file, 0, lh_span(bytes, 100)), LH_OK);
    lh_fake_short_at(d.env, 0);
    assert_int_equal(d.files->write(d.file, 1, lh_span(bytes, 99)), LH_ERR_DISK_FULL);
    assert_int_equal(size(&d), 100);
    assert_true(lh_fake_no_room_in_place(d.env));
    d.files->close(d.file);
    lh_fake_kill(d.env, false);
    lh_fake_boot(d.env);
    assert_false(lh_fake_no_room_in_place(d.env));
    assert_int_equal(d.files->open(d.env, "a/f", LH_OPEN_WRITE, &d.file), LH_OK);
    end(&d);
}

TEST(the_nth_sync_fails_once_and_loses_what_it_was_to_keep)
{
    struct disk d = start(1);
    lh_fake_fail_sync_at(d.env, 1);
    assert_int_equal(d.files->sync(d.file), LH_OK);
    assert_int_equal(d.files->write(d.file, 0, lh_span_str("lost")), LH_OK);
    assert_int_equal(d.files->sync(d.file), LH_ERR_IO);
    assert_true(lh_fake_failed(d.env));
    assert_int_equal(d.files->sync(d.file), LH_OK); // the failed sync marked the pages clean
    d.files->close(d.file);
    lh_fake_kill(d.env, true);
    lh_fake_boot(d.env);
    assert_int_equal(d.files->open(d.env, "a/f", LH_OPEN_WRITE, &d.file), LH_OK);
    assert_int_equal(size(&d), 0);
    end(&d);
}
