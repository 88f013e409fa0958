// A run moves into another store, and the n-th allocation or file operation fails. After the next
// try every row is there.
#include <stdio.h>

#include "common/base/check.h"
#include "server/coordinator/store/move.h"
#include "tests/fault/fault.h"
#include "tests/test.h"
#include "tests/world/env_fake.h"

enum { ROWS = 80, CALLS_MAX = 2000 }; // more rows than a store at first has space for

static void name(int row, char out[16])
{
    snprintf(out, 16, "row/%02d", row);
}

static struct ps_store *open_store(struct lh_env *env, const char *dir)
{
    struct ps_store *s;
    assert_int_equal(ps_store_open(env, dir, &s), LH_OK);
    return s;
}

static void begin(struct lh_env *disk)
{
    lh_fake_disk_wipe(disk);
    struct ps_store *s = open_store(disk, "from");
    for (int i = 0; i < ROWS; i++) {
        char key[16];
        name(i, key);
        assert_int_equal(ps_store_put(s, key, lh_span_str(key)), LH_OK);
    }
    assert_int_equal(ps_store_commit(s), LH_OK);
    ps_store_close(s);
}

static void check(struct lh_env *disk)
{
    struct ps_store *s = open_store(disk, "to");
    bool moved;
    assert_int_equal(ps_store_move(disk, "from", s, &moved), LH_OK);
    for (int i = 0; i < ROWS; i++) {
        char key[16];
        struct lh_span value;
        name(i, key);
        assert_true(ps_store_get(s, key, &value));
        assert_true(lh_span_equal(value, lh_span_str(key)));
    }
    ps_store_close(s);
}

TEST(a_move_that_fails_is_made_again)
{
    static const lh_err ways[] = {LH_ERR_NO_MEMORY, LH_ERR_IO, LH_ERR_DISK_FULL};
    struct lh_fake_world *world = lh_fake_world_create(3);
    struct lh_env *disk = lh_fake_node(world, NULL, NULL);
    lh_fake_boot(disk);
    struct lh_env *env = fault_env(disk);
    for (size_t i = 0; i < LH_COUNT(ways); i++) {
        bool struck = true, moved;
        for (long n = 0; struck; n++) {
            assert_true(n < CALLS_MAX);
            begin(disk);
            struct ps_store *to = open_store(env, "to");
            if (ways[i] == LH_ERR_NO_MEMORY)
                fault_alloc(n);
            else
                fault_files(n, 0, ways[i]);
            lh_err err = ps_store_move(env, "from", to, &moved);
            struck = fault_over();
            assert_true(moved == !err && (struck || moved));
            ps_store_close(to);
            check(disk);
        }
    }
    lh_fake_world_destroy(world);
}
