// A standby whose log has a history that its owner gave up fetches the owner's state, and sets its
// log aside. Wherever it is killed meanwhile, its next life reads nothing of the old log.
#include "tests/cores/image.h"

enum { HEAD = 7, MORE = 4, OPERATIONS_MAX = 400 };

static const struct ps_shard *shard_of(const struct ps_server *s)
{
    return s->shard[0];
}

// The standby is down and has all records of epoch 1. The owner lost the last one of them, and has
// the first record of epoch 2 in its place.
static struct rig *begin(uint64_t seed)
{
    struct rig *r = rig_new(seed);
    rig_serve(r, 2 * LH_SECOND);
    assert_int_equal(rig_start_standby(r), LH_OK);
    rig_run(r, 2 * LH_SECOND);
    for (uint64_t i = 1; i <= HEAD; i++) rig_hello(r, 0, i << 32, 0, 1);
    const struct lh_ledger *owned = &shard_of(r->server)->replica.ledger;
    const struct lh_ledger *copied = &shard_of(r->standby)->replica.ledger;
    for (int i = 0; i < 50 && copied->version < owned->version; i++) rig_run(r, LH_MS);
    assert_int_equal(copied->version, owned->version); // its log ends with the record of HEAD
    struct lh_hash held = shard_of(r->standby)->replica.ledger.chain;
    uint64_t version = shard_of(r->standby)->replica.ledger.version;
    rig_kill_standby(r, false);
    rig_kill_server(r, false);
    image_damage_tail(&r->s);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    rig_run(r, 5 * LH_SECOND);
    const struct lh_ledger *l = &shard_of(r->server)->replica.ledger;
    assert_int_equal(l->epoch, 2);
    assert_int_equal(l->version, version);
    assert_false(lh_hash_equal(&l->chain, &held));
    return r;
}

// Checks that the records in the standby's log have the same chain as in its owner's.
static void check_log(struct rig *r)
{
    const struct ps_shard *s = shard_of(r->standby), *owner = shard_of(r->server);
    assert_int_equal(s->replica.ledger.version, owner->replica.ledger.version);
    for (size_t i = 0; i < s->index_count; i++) {
        struct lh_hash mine, its;
        assert_int_equal(ps_shard_chain(s, s->index[i].version, &mine), LH_OK);
        assert_int_equal(ps_shard_chain(owner, s->index[i].version, &its), LH_OK);
        if (!lh_hash_equal(&mine, &its))
            fail_msg("version %u is of another history", (unsigned)s->index[i].version);
    }
}

// Returns false if the standby made fewer file operations than that until it followed.
static bool is_killed_at(int64_t operation)
{
    struct rig *r = begin(1);
    assert_int_equal(rig_start_standby(r), LH_OK);
    lh_fake_crash_at(r->t.env, operation, false);
    rig_run(r, 3 * LH_SECOND);
    bool killed = !lh_fake_alive(r->t.env);
    lh_fake_crash_at(r->t.env, -1, false);
    if (killed) {
        rig_kill_standby(r, false);
        r->fatal_count = 0; // the killed process had one
        assert_int_equal(rig_start_standby(r), LH_OK);
        rig_run(r, 3 * LH_SECOND);
    }
    for (uint64_t i = 1; i <= MORE; i++) rig_hello(r, 0, (HEAD + i) << 32, 0, 1);
    rig_run(r, LH_SECOND);
    check_log(r);
    assert_int_equal(r->fatal_count, 0);
    rig_free(r);
    return killed;
}

TEST(a_log_of_another_history_is_never_read_again)
{
    int64_t operation = 0;
    while (is_killed_at(operation)) assert_true(++operation < OPERATIONS_MAX);
    assert_true(operation > 10); // including a checkpoint, a log and their names
}
