// common/net/leader: whose answers a client accepts, the leader number on its disk, the next
// address.
#include "common/net/leader.h"
#include "tests/test.h"
#include "tests/world/env_fake.h"

struct heard {
    uint64_t number;
    lh_err err;
};

static lh_err on_heard(void *self, uint64_t number)
{
    struct heard *h = self;
    h->number = number;
    return h->err;
}

TEST(an_earlier_leader_is_not_taken)
{
    struct heard heard = {0};
    struct lh_leader l = {.number = 7, .heard = on_heard, .self = &heard};
    assert_int_equal(lh_leader_hears(&l, 7), LH_OK);
    assert_int_equal(lh_leader_hears(&l, 6), LH_ERR_FENCED);
    // 0: no number, after an answer that had one
    assert_int_equal(lh_leader_hears(&l, 0), LH_ERR_FENCED);
    assert_int_equal(heard.number, 0);
    assert_int_equal(lh_leader_hears(&l, 9), LH_OK);
    assert_int_equal(heard.number, 9);
    assert_int_equal(lh_leader_hears(&l, 7), LH_ERR_FENCED);
}

TEST(a_number_that_can_not_be_kept_is_not_taken)
{
    struct heard heard = {.err = LH_ERR_IO};
    struct lh_leader l = {.number = 7, .heard = on_heard, .self = &heard};
    assert_int_equal(lh_leader_hears(&l, 8), LH_ERR_IO);
    assert_int_equal(l.number, 7);
    heard.err = LH_OK;
    assert_int_equal(lh_leader_hears(&l, 8), LH_OK);
    assert_int_equal(l.number, 8);
}

TEST(the_number_survives_a_power_cut)
{
    struct lh_fake_world *world = lh_fake_world_create(1);
    struct lh_env *env = lh_fake_node(world, NULL, NULL);
    uint64_t number = 0;
    lh_fake_boot(env);
    assert_int_equal(lh_leader_load(env, "dir", &number), LH_ERR_NOT_FOUND);
    assert_int_equal(lh_leader_save(env, "dir", 11), LH_OK);
    assert_int_equal(lh_leader_save(env, "dir", 12), LH_OK);
    lh_fake_kill(env, true);
    lh_fake_boot(env);
    assert_int_equal(lh_leader_load(env, "dir", &number), LH_OK);
    assert_int_equal(number, 12);
    assert_int_equal(lh_fake_flip(env, "dir/leader", 9, 1), LH_OK);
    assert_int_equal(lh_leader_load(env, "dir", &number), LH_ERR_CORRUPT);
    lh_fake_world_destroy(world);
}

TEST(addresses_follow_each_other)
{
    char at[16] = "a:1";
    assert_false(lh_leader_next("a:1", at, sizeof at));
    assert_string_equal(at, "a:1");
    assert_true(lh_leader_next("a:1,a:10,b:2", at, sizeof at));
    assert_string_equal(at, "a:10");
    assert_true(lh_leader_next("a:1,a:10,b:2", at, sizeof at));
    assert_string_equal(at, "b:2");
    assert_true(lh_leader_next("a:1,a:10,b:2", at, sizeof at));
    assert_string_equal(at, "a:1");
}
