// A DIGEST record whose digest is computed beside the loop: the record directly follows the version
// that it describes, and records that arrive meanwhile come after it.
#include "server/coordinator/owners/move.h"
#include "server/state/digest.h"
#include "server/state/fold.h"
#include "tests/cores/rig.h"

enum { EVERY = 4, RECORDS_MAX = 64 };

static uint16_t kinds[RECORDS_MAX]; // kinds of the records that were folded last, by version

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

// A greeting comes while the record that makes a digest due is committed. It waits for the digest.
RIG_TEST(a_greeting_meanwhile_follows_the_digest, struct rig *r)
{
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

    rig_kill_server(r, false); // a restart reads the record: it has the digest of that version
    kinds[EVERY + 1] = 0;
    assert_int_equal(rig_start_server(r, true), LH_OK);
    assert_int_equal(kinds[EVERY + 1], LH_DIGEST_RECORD);
    assert_int_equal(r->server->shard[0]->replica.ledger.version, EVERY + 2);
}

// A shard that holds nothing back for its digest may go on meanwhile; the digest is then outdated.
RIG_TEST(one_of_an_older_version_does_not_count, struct rig *r)
{
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

// A move hands over all shards of a group: the shard whose digest is ready waits for the other.
RIG_TEST(a_move_waits_for_the_digests_of_all_shards, struct rig *r)
{
    rig_two_shards(r);
    r->folded = NULL;
    rig_serve(r, 0);
    r->server->conf.digest_now_bytes = 1;
    r->server->conf.digest_every = 0;
    rig_run(r, LH_SECOND);
    assert_int_equal(rig_start_standby(r), LH_OK);
    rig_run(r, 2 * LH_SECOND);
    for (r->shard = 0; r->shard < RIG_SHARDS; r->shard++) rig_hello(r, 0, UINT64_C(1) << 32, 0, 1);
    rig_run(r, LH_SECOND);
    struct ps_shard *const *shard = r->server->shard;
    assert_true(ps_digest_ready(shard[0], false) || ps_digest_busy(shard[0]));
    rig_run(r, LH_MS); // the first shard's digest is made
    assert_false(ps_digest_all_ready(r->server));
    assert_true(ps_digest_busy(shard[0]) && ps_digest_busy(shard[1]));
    assert_true(ps_digest_holds(shard[0]) && ps_digest_holds(shard[1]));
    rig_run(r, LH_MS); // without a move they go on
    assert_false(ps_digest_busy(shard[0]) || ps_digest_busy(shard[1]));
    for (r->shard = 0; r->shard < RIG_SHARDS; r->shard++) rig_hello(r, 0, UINT64_C(2) << 32, 0, 1);

    shard[0]->digest.shard = shard[1]->digest.shard = NULL; // set again where the lane makes it
    uint32_t shards;
    assert_int_equal(ps_co_move(r->coordinator, r->t.self.name, &shards), LH_OK);
    rig_run(r, 3 * LH_SECOND);
    assert_true(r->standby->phase == PS_SERVING);
    for (uint32_t i = 0; i < RIG_SHARDS; i++) {
        assert_ptr_equal(shard[i]->digest.shard, shard[i]); // it was made beside the loop
        assert_int_equal(r->standby->shard[i]->replica.ledger.epoch, 2);
    }
}
