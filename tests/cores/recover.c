// Starts of a server whose log was cut below its newest checkpoint: the versions in between are in
// no record any more, so that everything depends on checkpoints (PROTOCOL 18, 23).
#include <stdio.h>
#include <stdlib.h>

#include "tests/cores/rig.h"

enum { RECORDS = 12, CUT = 9, CHECKPOINT = 10, CALLS_MAX = 400 };

// Every raised incarnation is a FENCE record.
static void log_records(struct rig *r, uint64_t from, uint64_t to)
{
    for (uint64_t v = from; v <= to; v++) rig_hello(r, 0, v << 32, 0, 1);
    assert_int_equal(r->server->shard[0]->replica.ledger.version, to);
}

static void damage(struct rig *r, const char *path, uint64_t from, uint64_t to)
{
    lh_fake_boot(r->s.env);
    for (uint64_t at = from; at < to; at += 8)
        assert_int_equal(lh_fake_flip(r->s.env, path, at, 1), LH_OK);
    lh_fake_kill(r->s.env, false);
}

// Leaves records 1 to CUT - 1 and the checkpoints of 5 and CHECKPOINT, and starts from them.
static void cut_below_the_checkpoint(struct rig *r)
{
    char path[160];
    assert_int_equal(rig_start_server(r, true), LH_OK);
    log_records(r, 1, RECORDS);
    assert_int_equal(r->server->shard[0]->checkpointed, CHECKPOINT);
    const struct ps_shard *s = r->server->shard[0];
    struct ps_place first = *ps_shard_place(s, CUT), last = *ps_shard_place(s, RECORDS);
    assert_int_equal(first.segment, last.segment);
    rig_kill_server(r, false);
    snprintf(path, sizeof path, "%s/log/%016llx.seg", r->s.dir, (unsigned long long)first.segment);
    damage(r, path, first.at, last.at + 512); // and the mark behind them
    assert_int_equal(rig_start_server(r, true), LH_OK);
    assert_int_equal(r->server->shard[0]->replica.ledger.version, CHECKPOINT + 1); // EPOCH
    assert_int_equal(r->server->shard[0]->index[0].version, CHECKPOINT + 1);
}

static void a_second_checkpoint_is_written_at_once(void **state)
{
    struct rig *r = *state;
    cut_below_the_checkpoint(r);
    rig_run(r, LH_SECOND); // nobody pushes anything
    rig_kill_server(r, true);
    char path[160];
    snprintf(path, sizeof path, "%s/checkpoints/0000-%016x.ckpt", r->s.dir, CHECKPOINT);
    damage(r, path, 0, 8);
    assert_int_equal(rig_start_server(r, true), LH_OK);
    assert_int_equal(r->server->shard[0]->replica.ledger.version, CHECKPOINT + 1);
    assert_int_equal(r->server->shard[0]->replica.ledger.row[0].incarnation.number >> 32,
                     CHECKPOINT);
}

// A start whose n-th file operation fails; false: none was left to fail.
static bool a_start_fails(int n)
{
    struct rig *r = rig_new(1);
    cut_below_the_checkpoint(r);
    rig_kill_server(r, false); // before there is another
    lh_fake_fail_at(r->s.env, n, LH_ERR_IO);
    lh_err err = rig_start_server(r, true);
    bool failed = lh_fake_failed(r->s.env);
    lh_fake_fail_at(r->s.env, -1, LH_OK);
    if (err) assert_int_equal(err, LH_ERR_IO);
    rig_kill_server(r, false);
    assert_int_equal(rig_start_server(r, true), LH_OK);
    assert_int_equal(r->server->shard[0]->replica.ledger.version, CHECKPOINT + 1);
    rig_free(r);
    return failed;
}

static void a_checkpoint_that_was_not_read_is_not_taken_for_lost(void **state)
{
    (void)state;
    int n = 0;
    while (a_start_fails(n)) assert_true(++n < CALLS_MAX);
    assert_true(n > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_second_checkpoint_is_written_at_once, rig_set_up,
                                        rig_tear_down),
        cmocka_unit_test(a_checkpoint_that_was_not_read_is_not_taken_for_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
