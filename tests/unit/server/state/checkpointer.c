// When a checkpoint is due: by versions, by the time to replay the log at a start, at the end.
// ctest: keep
#include "server/core.h"
#include "server/server.h"
#include "server/state/checkpointer.h"
#include "tests/test.h"
#include "tests/world/env_fake.h"

static struct ps_server server;
static struct ps_shard shard, other, *both[] = {&shard, &other};

static int fresh(void **state)
{
    (void)state;
    server = (struct ps_server){.conf = {.checkpoint_every = 100, .replay_ns = LH_SECOND}};
    shard = (struct ps_shard){.server = &server, .checkpointed = 50};
    shard.replica.ledger.version = 60;
    other = (struct ps_shard){.server = &server};
    return 0;
}

#define ON_SHARD(name) TEST_WITH(name, void *unused, fresh, NULL)

ON_SHARD(is_due_after_so_many_versions)
{
    assert_false(ps_checkpointer_due(&shard));
    shard.replica.ledger.version = 149;
    assert_false(ps_checkpointer_due(&shard));
    shard.replica.ledger.version = 150;
    assert_true(ps_checkpointer_due(&shard));
    server.conf.checkpoint_every = 0;
    assert_false(ps_checkpointer_due(&shard));
}

ON_SHARD(is_due_when_replay_would_take_long)
{
    shard.replay_ns = LH_SECOND - 1;
    assert_false(ps_checkpointer_due(&shard));
    shard.replay_ns = LH_SECOND;
    assert_true(ps_checkpointer_due(&shard));
    server.conf.replay_ns = 0;
    assert_false(ps_checkpointer_due(&shard));
}

// Folding while the next checkpoint is made is expected to take as long as during the last one.
ON_SHARD(is_due_earlier_by_what_comes_meanwhile)
{
    shard.meanwhile_ns = 300 * LH_MS;
    shard.replay_ns = 700 * LH_MS - 1;
    assert_false(ps_checkpointer_due(&shard));
    shard.replay_ns++;
    assert_true(ps_checkpointer_due(&shard));
    shard.meanwhile_ns = INT64_MAX; // too long, or not known: half the time
    shard.replay_ns = LH_SECOND / 2 - 1;
    assert_false(ps_checkpointer_due(&shard));
    shard.replay_ns++;
    assert_true(ps_checkpointer_due(&shard));
}

ON_SHARD(is_due_once_when_the_log_has_ended)
{
    shard.replica.ledger.plan.phase = LH_PHASE_END;
    assert_true(ps_checkpointer_due(&shard));
    shard.checkpointed = 60;
    shard.replay_ns = LH_SECOND;
    assert_false(ps_checkpointer_due(&shard));
}

// A full disk makes a checkpoint due, because it lets the log be trimmed; one that failed for lack
// of space waits.
ON_SHARD(is_due_when_the_disk_is_full)
{
    struct lh_fake_world *world = lh_fake_world_create(1);
    server.conf.env = lh_fake_node(world, NULL, NULL);
    lh_fake_boot(server.conf.env);
    server.disk_full.now = true;
    assert_true(ps_checkpointer_due(&shard));
    shard.disk_retry_at_ns = lh_now(server.conf.env) + 1;
    assert_false(ps_checkpointer_due(&shard));
    shard.disk_retry_at_ns = 0;
    shard.checkpointed = 60; // no record above it
    assert_false(ps_checkpointer_due(&shard));
    shard.unwritten = true; // the checkpoint at 60 failed
    assert_true(ps_checkpointer_due(&shard));
    server.disk_full.now = false; // once there is disk space, the next regular one suffices
    assert_false(ps_checkpointer_due(&shard));
    lh_fake_world_destroy(world);
}

// One checkpoint at a time is written. None of weights only begins if a full one, of any shard,
// would soon have to wait for it.
ON_SHARD(weights_wait_for_a_full_one_that_falls_due_soon)
{
    server.shard = both;
    server.conf.shard_count = 2;
    server.conf.weights_every = 10;
    assert_true(ps_checkpointer_weights_due(&shard));
    other.meanwhile_ns = 200 * LH_MS;
    other.replay_ns = 600 * LH_MS - 1;
    assert_true(ps_checkpointer_weights_due(&shard));
    other.replay_ns++;
    assert_false(ps_checkpointer_weights_due(&shard));
    other.replay_ns = 0;
    other.meanwhile_ns = INT64_MAX; // not known yet: a quarter of the time
    assert_true(ps_checkpointer_weights_due(&shard));
    other.replay_ns = 250 * LH_MS;
    assert_false(ps_checkpointer_weights_due(&shard));
    server.conf.replay_ns = 0;
    assert_true(ps_checkpointer_weights_due(&shard));
}
