// A DIGEST record whose digest is made beside the loop: it follows the version that it is of, and
// what comes meanwhile follows it.
#include "tests/cores/rig.h"

enum { EVERY = 4, RECORDS_MAX = 64 };

static uint16_t kinds[RECORDS_MAX]; // of the records that were folded last, by version

static void note(void *arg, uint32_t shard, const struct lh_record *record)
{
    (void)arg;
    assert_int_equal(shard, 0);
    assert_in_range(record->version, 1, RECORDS_MAX - 1);
    kinds[record->version] = record->kind;
}

static void wait_for_version(struct rig *r, uint64_t version)
{
    const struct lh_ledger *l = &r->server->shard[0]->replica.ledger;
    for (int i = 0; i < 1000 && l->version < version; i++) rig_run(r, LH_MS);
    assert_int_equal(l->version, version);
}

static struct ps_shard *start(struct rig *r)
{
    r->folded = note;
    assert_int_equal(rig_start_server(r, true), LH_OK);
    r->server->conf.digest_every = EVERY;
    r->server->conf.digest_now_bytes = 1;
    r->server->conf.checkpoint_every = 0;
    return r->server->shard[0];
}

// A greeting comes while the record that makes a digest due is committed: it waits for the digest.
static void what_comes_meanwhile_follows_it(void **state)
{
    struct rig *r = *state;
    struct ps_shard *shard = start(r);
    for (uint64_t v = 1; v < EVERY; v++) rig_hello(r, 0, v << 32, 0, 1);
    rig_greet(r, 0, (uint64_t)EVERY << 32, 0, 1);
    for (int i = 0; i < 1000 && !r->server->committing; i++) rig_run(r, 1000);
    rig_greet(r, 1, UINT64_C(1) << 32, 0, 1);
    wait_for_version(r, EVERY + 2);
    assert_int_equal(kinds[EVERY], LH_FENCE);
    assert_int_equal(kinds[EVERY + 1], LH_DIGEST_RECORD);
    assert_int_equal(kinds[EVERY + 2], LH_FENCE);
    assert_false(ps_digest_busy(shard));

    rig_kill_server(r, false); // a start reads it again: it is the digest of that version
    kinds[EVERY + 1] = 0;
    assert_int_equal(rig_start_server(r, true), LH_OK);
    assert_int_equal(kinds[EVERY + 1], LH_DIGEST_RECORD);
    assert_int_equal(r->server->shard[0]->replica.ledger.version, EVERY + 2);
}

// The shard may go on meanwhile where nothing is held for it.
static void one_of_an_older_version_does_not_count(void **state)
{
    struct rig *r = *state;
    struct ps_shard *shard = start(r);
    r->server->conf.digest_every = 0;
    rig_hello(r, 0, UINT64_C(1) << 32, 0, 1);
    assert_false(ps_digest_ready(shard, false)); // made beside the loop
    assert_true(ps_digest_busy(shard) && !ps_digest_holds(shard));
    rig_hello(r, 0, UINT64_C(2) << 32, 0, 1);
    assert_false(ps_digest_busy(shard));
    struct lh_hash now = lk_replica_digest(&shard->replica), made = ps_digest_now(shard);
    assert_true(lh_hash_equal(&now, &made));
    assert_true(ps_digest_ready(shard, false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(what_comes_meanwhile_follows_it),
        RIG_TEST(one_of_an_older_version_does_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
