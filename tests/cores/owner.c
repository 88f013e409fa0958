// Whose a shard is once a standby took it over: the directory that did, and after its loss the same
// server with another one, where nobody else may hold what it acknowledged (PROTOCOL 17, 21).
#include "tests/cores/rig.h"

enum { X = 5, Y = 7, Z = 9 }; // identities of directories
enum { SERVER = 100, OTHER = 101, EPOCH = 3 };

static struct ps_co_shard *shard(struct rig *r)
{
    return &r->coordinator->shard[0];
}

static void again(struct rig *r)
{
    rig_settle(r);
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
    r->coordinator->conf.take_over_ns = LH_SECOND;
}

// X took the shard over, as `server`; Z is in sync with it.
static void begin(struct rig *r, uint64_t server)
{
    bool opened;
    struct ps_co_point p = {.epoch = EPOCH};
    rig_start_coordinator(r);
    r->coordinator->conf.take_over_ns = LH_SECOND;
    assert_int_equal(ps_co_open_epoch(r->coordinator, 0, 0, &p, 1, 0, false, &opened), LH_OK);
    shard(r)->standby = X;
    assert_false(rig_serves(r, X, server, false)); // its owner was heard of just now
    rig_run(r, LH_SECOND);
    assert_true(rig_serves(r, X, server, false));
    shard(r)->standby = Z;
    assert_int_equal(ps_co_store_insync(r->coordinator, 0), LH_OK);
    again(r);
    assert_int_equal(shard(r)->owner, X);
    assert_int_equal(shard(r)->standby, Z);
}

static void a_server_with_another_directory_is_the_owner_again(void **state)
{
    struct rig *r = *state;
    begin(r, SERVER);
    rig_run(r, LH_SECOND);
    assert_false(rig_serves(r, Y, SERVER, false)); // Z has what was acknowledged
    assert_false(rig_serves(r, Z, OTHER, true));   // and has it no more: it is struck out
    assert_true(rig_serves(r, Y, SERVER, false));
    again(r);
    assert_int_equal(shard(r)->owner, Y);
    assert_true(shard(r)->least > EPOCH); // under another epoch than X had
    assert_int_equal(ps_co_check_owner(r->coordinator, 0, X), LH_ERR_FENCED);
    assert_true(rig_serves(r, Y, SERVER, false));
}

static void nobody_else_is_nor_while_it_lives(void **state)
{
    struct rig *r = *state;
    begin(r, SERVER);
    shard(r)->standby = 0;
    assert_false(
        rig_serves(r, Y, SERVER, false)); // X was heard of, as far as this coordinator knows
    rig_run(r, LH_SECOND);
    assert_false(rig_serves(r, Y, OTHER, false));
    struct ps_co_point head = {.epoch = EPOCH};
    assert_int_equal(ps_co_heard_owner(r->coordinator, 0, X, SERVER, 1, &head), LH_OK);
    assert_false(rig_serves(r, Y, SERVER, false));
    rig_run(r, LH_SECOND);
    assert_true(rig_serves(r, Y, SERVER, false));
}

// A row of before it was written who an owner is.
static void of_an_owner_that_is_not_known_nobody_is(void **state)
{
    struct rig *r = *state;
    begin(r, 0);
    shard(r)->standby = 0;
    rig_run(r, LH_SECOND);
    assert_false(rig_serves(r, Y, SERVER, false));
    assert_false(rig_serves(r, Y, 0, false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(a_server_with_another_directory_is_the_owner_again),
        RIG_TEST(nobody_else_is_nor_while_it_lives),
        RIG_TEST(of_an_owner_that_is_not_known_nobody_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
