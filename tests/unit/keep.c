// When a checkpoint is due: by versions, by what a start would have to fold again, at the end.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "server/server.h"

static struct ps_server server;
static struct ps_shard shard;

static int fresh(void **state)
{
    (void)state;
    server = (struct ps_server){.conf = {.checkpoint_every = 100, .replay_ns = LH_SECOND}};
    shard = (struct ps_shard){.server = &server, .checkpointed = 50};
    shard.replica.ledger.version = 60;
    return 0;
}

static void is_due_after_so_many_versions(void **state)
{
    (void)state;
    assert_false(ps_keep_due(&shard));
    shard.replica.ledger.version = 149;
    assert_false(ps_keep_due(&shard));
    shard.replica.ledger.version = 150;
    assert_true(ps_keep_due(&shard));
    server.conf.checkpoint_every = 0;
    assert_false(ps_keep_due(&shard));
}

static void is_due_when_replay_would_take_long(void **state)
{
    (void)state;
    shard.replay_ns = LH_SECOND - 1;
    assert_false(ps_keep_due(&shard));
    shard.replay_ns = LH_SECOND;
    assert_true(ps_keep_due(&shard));
    server.conf.replay_ns = 0;
    assert_false(ps_keep_due(&shard));
}

static void is_due_once_when_the_log_has_ended(void **state)
{
    (void)state;
    shard.replica.ledger.plan.phase = LH_PHASE_END;
    assert_true(ps_keep_due(&shard));
    shard.checkpointed = 60;
    shard.replay_ns = LH_SECOND;
    assert_false(ps_keep_due(&shard));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(is_due_after_so_many_versions, fresh),
        cmocka_unit_test_setup(is_due_when_replay_would_take_long, fresh),
        cmocka_unit_test_setup(is_due_once_when_the_log_has_ended, fresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
