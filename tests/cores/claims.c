// Stable points from workers' claims: the server's log vouches for a copy, its holder proves it,
// and two regions have it. So a false claim makes nothing stable, displaces no other copy, and
// stops no server (server/docs/0000-protocol.md#rule-13, #rule-27).
#include <stdlib.h>
#include <string.h>

#include "tests/head.h"
#include "kernels/state/possession.h"
#include "server/coordinator/stable.h"
#include "tests/cores/rig.h"

enum { HEAD = 24 };

static struct ps_co_shard *row(const struct rig *r, uint32_t shard)
{
    return &r->coordinator->shard[shard];
}

static const struct lh_ledger *ledger(const struct rig *r, uint32_t shard)
{
    return &r->server->shard[shard]->replica.ledger;
}

static void log_all(struct rig *r, uint64_t from, uint64_t to)
{
    for (r->shard = 0; r->shard < r->manifest.shards; r->shard++)
        for (uint64_t i = from; i <= to; i++) rig_hello(r, 0, i << 32, 0, 1);
    r->shard = 0;
    rig_run(r, 2 * LH_SECOND);
}

// Both workers joined, and each shard's head is reported.
static struct rig *begun(uint32_t shards, uint64_t segment_bytes)
{
    struct rig *r = rig_new(7);
    r->segment_bytes = segment_bytes;
    if (shards > 1) rig_two_shards(r);
    rig_serve(r, 0);
    for (uint32_t w = 0; w < RIG_WORKERS; w++) assert_int_equal(rig_join(r, w, 11, 0).granted, 1);
    rig_run(r, 3 * LH_SECOND);
    log_all(r, 2, HEAD);
    for (uint32_t k = 0; k < shards; k++) {
        assert_true(ledger(r, k)->version >= HEAD - 1);
        assert_int_equal(row(r, k)->head.version, ledger(r, k)->version);
    }
    return r;
}

static struct lh_point of_log(const struct rig *r, uint32_t shard, uint64_t back)
{
    const struct lh_ledger *l = ledger(r, shard);
    struct lh_point p = {l->epoch, l->version - back, {{0}}};
    assert_int_equal(ps_shard_chain(r->server->shard[shard], p.version, &p.chain), LH_OK);
    return p;
}

static struct lh_point made_up(const struct rig *r, uint32_t shard, uint64_t back)
{
    struct lh_point p = of_log(r, shard, back);
    p.chain.b[0] ^= 1;
    return p;
}

static struct ps_co_worker *worker_of(const struct rig *r, uint32_t w)
{
    struct ps_coordinator *c = r->coordinator;
    for (uint32_t i = 0; i < c->workers; i++)
        if (c->worker[i].id == lh_worker_id(&r->w[w].self)) return &c->worker[i];
    fail_msg("worker %u is unknown", w);
    return NULL;
}

// A worker's claim for each shard: which copy it holds, and how it proves that.
struct word {
    const struct lh_point *p;
    Longhaul__V1__Possession *proof; // manifest.shards of them; NULL: none
};

// *out gets the answer; if `out` is NULL, the answer is freed.
static void lease(struct rig *r, uint32_t w, const struct word *word,
                  Longhaul__V1__LeaseReply **out)
{
    Longhaul__V1__LeaseRequest m = rig_lease_request(r, w);
    Longhaul__V1__Point item[RIG_SHARDS], *list[RIG_SHARDS];
    Longhaul__V1__Possession *proofs[RIG_SHARDS];
    ProtobufCMessage *answer;
    for (uint32_t k = 0; k < r->manifest.shards; k++) {
        item[k] = lh_head_point(k, word->p[k].epoch, word->p[k].version, &word->p[k].chain);
        list[k] = &item[k];
        if (word->proof) proofs[k] = &word->proof[k];
    }
    m.n_durable = r->manifest.shards;
    m.durable = list;
    m.n_possessions = word->proof ? r->manifest.shards : 0;
    m.possessions = proofs;
    assert_int_equal(rig_ask(r, r->to_c[w], LH_RPC_LEASE, &m.base, &answer), LH_OK);
    if (out)
        *out = (Longhaul__V1__LeaseReply *)answer;
    else
        rig_free_message(answer);
}

// Worker w claims these copies, and proves nothing.
static void say(struct rig *r, uint32_t w, const struct lh_point *p)
{
    struct word word = {.p = p};
    lease(r, w, &word, NULL);
}

static struct lh_hash digest_of(const struct lh_point *p)
{
    struct lh_span part = lh_span(p->chain.b, LH_HASH_BYTES);
    return lh_hash_of((struct lh_span){0}, &part, 1);
}

// How a proof goes wrong.
enum wrong { RIGHT, NO_STATE, OLD_ANSWER, OTHER_DIGEST };

struct proof {
    struct lh_hash challenge, answer, digest;
};

// Makes the answer of a holder of this state. No record of these tests changes a parameter.
static void answer(const struct rig *r, const Longhaul__V1__Challenge *q, const struct lh_point *p,
                   enum wrong wrong, struct proof *out)
{
    struct lk_replica copy = r->server->shard[q->shard]->replica; // borrows
    copy.ledger.epoch = p->epoch;
    copy.ledger.version = p->version;
    copy.ledger.chain = p->chain;
    memcpy(out->challenge.b, q->challenge.data, LH_HASH_BYTES);
    struct lh_hash another = out->challenge;
    another.b[0] ^= wrong == OLD_ANSWER;
    float kept = copy.theta[0];
    copy.theta[0] += wrong == NO_STATE ? 1.0f : 0.0f;
    out->answer = lk_possession(&copy, &another);
    copy.theta[0] = kept;
    out->digest = digest_of(p);
    out->digest.b[0] ^= wrong == OTHER_DIGEST;
}

// Worker w claims these copies, is asked for proofs, and gives them. False: it was not asked about
// every shard.
static bool hold(struct rig *r, uint32_t w, const struct lh_point *p, enum wrong wrong)
{
    Longhaul__V1__LeaseReply *m;
    Longhaul__V1__Possession item[RIG_SHARDS];
    struct proof proof[RIG_SHARDS];
    struct word word = {.p = p};
    say(r, w, p);
    rig_run(r, 2 * LH_SECOND);
    lease(r, w, &word, &m);
    bool all = m->n_challenges == r->manifest.shards;
    for (size_t i = 0; i < m->n_challenges && all; i++) {
        uint32_t k = m->challenges[i]->shard;
        assert_int_equal(m->challenges[i]->version, p[k].version);
        answer(r, m->challenges[i], &p[k], wrong, &proof[k]);
        longhaul__v1__possession__init(&item[k]);
        item[k].shard = k;
        item[k].epoch = p[k].epoch;
        item[k].version = p[k].version;
        item[k].challenge = (ProtobufCBinaryData){LH_HASH_BYTES, proof[k].challenge.b};
        item[k].answer = (ProtobufCBinaryData){LH_HASH_BYTES, proof[k].answer.b};
        item[k].digest = (ProtobufCBinaryData){LH_HASH_BYTES, proof[k].digest.b};
    }
    rig_free_message(&m->base);
    word.proof = item;
    if (all) lease(r, w, &word, NULL);
    return all;
}

static bool is_stable(const struct rig *r, uint32_t shard, const struct lh_point *p)
{
    const struct lh_point *s = &row(r, shard)->stable;
    return s->epoch == p->epoch && s->version == p->version && lh_hash_equal(&s->chain, &p->chain);
}

// Restarts the server, which compares its log with the stable point.
static void starts_again(struct rig *r)
{
    uint64_t epoch = ledger(r, 0)->epoch;
    rig_settle(r);
    rig_kill_server(r, false);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    rig_run(r, 3 * LH_SECOND);
    assert_int_equal(r->fatal_count, 0);
    assert_true(r->server->phase == PS_SERVING);
    assert_int_equal(ledger(r, 0)->epoch, epoch);
}

TEST(a_made_up_history_below_the_head_is_not_stable)
{
    for (uint32_t shards = 1; shards <= RIG_SHARDS; shards++) {
        struct rig *r = begun(shards, 0);
        struct lh_point lie[RIG_SHARDS], honest[RIG_SHARDS];
        for (uint32_t k = 0; k < shards; k++) {
            lie[k] = made_up(r, k, 1);
            honest[k] = of_log(r, k, 3);
        }
        for (int i = 0; i < 10; i++) {
            say(r, 0, lie);
            rig_run(r, 300 * LH_MS);
            for (uint32_t k = 0; k < shards; k++) assert_int_equal(row(r, k)->stable.version, 0);
        }
        rig_run(r, 2 * LH_SECOND); // once the server has denied the copy, it is not asked again
        for (uint32_t k = 0; k < shards; k++)
            assert_int_equal(worker_of(r, 0)->claim[k].said.version, 0);
        assert_true(hold(r, 1, honest, RIGHT));
        assert_true(hold(r, 0, honest, RIGHT));
        for (uint32_t k = 0; k < shards; k++) assert_true(is_stable(r, k, &honest[k]));
        starts_again(r);
        rig_free(r);
    }
}

// The newest copy that workers of two regions have is the stable point, and no newer one.
TEST(the_latest_copy_of_two_regions_is_stable)
{
    struct rig *r = begun(1, 0);
    struct lh_point older = of_log(r, 0, 5), later = of_log(r, 0, 2), head = of_log(r, 0, 0);
    struct lh_hash digest = digest_of(&older);
    assert_true(hold(r, 0, &older, RIGHT));
    assert_true(hold(r, 0, &later, RIGHT));
    assert_true(hold(r, 0, &head, RIGHT));
    assert_int_equal(row(r, 0)->stable.version, 0);
    assert_true(hold(r, 1, &older, RIGHT));
    assert_true(is_stable(r, 0, &older));
    assert_true(lh_hash_equal(&row(r, 0)->stable_digest, &digest));
    assert_true(hold(r, 1, &head, RIGHT));
    assert_true(is_stable(r, 0, &head));
    assert_false(row(r, 0)->single);
    lh_fake_kill(r->c.env, true); // the point survives a power cut, and every worker is told
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
    rig_run(r, 2 * LH_SECOND);
    struct word word = {.p = &older};
    Longhaul__V1__LeaseReply *told;
    lease(r, 1, &word, &told);
    assert_int_equal(told->n_stable, 1);
    assert_int_equal(told->stable[0]->version, head.version);
    assert_memory_equal(told->stable[0]->chain.data, head.chain.b, LH_HASH_BYTES);
    rig_free_message((ProtobufCMessage *)told);
    starts_again(r);
    rig_free(r);
}

// A worker that knows the point and its digest, which every worker is told, but lacks the state,
// proves nothing, either with made-up bytes or with an answer to another challenge.
TEST(a_copy_that_is_not_proved_is_not_stable)
{
    const enum wrong wrong[] = {NO_STATE, OLD_ANSWER, OTHER_DIGEST};
    for (size_t i = 0; i < LH_COUNT(wrong); i++) {
        struct rig *r = begun(1, 0);
        struct lh_point p = of_log(r, 0, 2), head = of_log(r, 0, 0);
        assert_true(hold(r, 1, &p, RIGHT));
        assert_true(hold(r, 0, &p, wrong[i]));
        rig_run(r, 2 * LH_SECOND);
        assert_int_equal(row(r, 0)->stable.version, 0);
        for (int k = 0; k < 5; k++) say(r, 0, &p);
        assert_int_equal(row(r, 0)->stable.version, 0);
        assert_true(hold(r, 0, &head, RIGHT)); // an honest copy of it counts all the same
        assert_true(hold(r, 1, &head, RIGHT));
        assert_true(is_stable(r, 0, &head));
        rig_free(r);
    }
}

// One worker alone makes nothing stable that workers of another region count on, however often it
// claims it.
TEST(a_lone_region_is_not_enough_while_another_lives)
{
    struct rig *r = begun(1, 0);
    struct lh_point head = of_log(r, 0, 0);
    for (int i = 0; i < 5; i++) (void)hold(r, 0, &head, RIGHT);
    assert_int_equal(row(r, 0)->stable.version, 0);
    worker_of(r, 1)->seen_ns -= 700 * LH_SECOND; // it is lost
    rig_run(r, 3 * LH_SECOND);
    assert_true(is_stable(r, 0, &head));
    assert_true(row(r, 0)->single);
    assert_false(lh_point_named(&row(r, 0)->stable_digest)); // one region's claim alone
    rig_free(r);
}

// A region that makes no copies delays the others for a while, not for ever.
TEST(a_region_without_copies_is_not_waited_for_for_ever)
{
    struct rig *r = begun(1, 0);
    struct lh_point head = of_log(r, 0, 0);
    r->coordinator->conf.drain_floor_ns = LH_SECOND;
    assert_true(hold(r, 0, &head, RIGHT));
    assert_int_equal(row(r, 0)->stable.version, 0);
    for (int i = 0; i < 200 && !row(r, 0)->stable.version; i++) rig_run(r, LH_SECOND);
    assert_true(is_stable(r, 0, &head));
    assert_true(row(r, 0)->single);
    rig_free(r);
}

// A worker that claims a new copy with every lease is answered all the same.
TEST(a_worker_that_goes_on_is_not_passed_over)
{
    struct rig *r = begun(1, 0);
    for (uint64_t back = 12; back > 0; back--) {
        struct lh_point p = of_log(r, 0, back);
        say(r, 1, &p);
        rig_run(r, 170 * LH_MS); // three leases a report, which comes every 500 ms
    }
    assert_in_range(worker_of(r, 1)->claim[0].vouched.version, ledger(r, 0)->version - 9,
                    ledger(r, 0)->version - 1);
    rig_free(r);
}

TEST(a_copy_that_is_gone_is_not_stable)
{
    struct rig *r = begun(1, 0);
    struct lh_point p = of_log(r, 0, 2);
    assert_true(hold(r, 1, &p, RIGHT));
    assert_int_equal(rig_join(r, 1, 22, 1).granted, 2); // without its directory
    assert_true(hold(r, 0, &p, RIGHT));
    rig_run(r, 3 * LH_SECOND);
    assert_int_equal(row(r, 0)->stable.version, 0);
    rig_free(r);
}

// The server process that knew the proof for that version is gone, and its log begins above the
// version, so nobody can vouch for the copy. A copy of the newest version counts.
TEST(a_copy_that_nobody_can_vouch_for_is_not_stable)
{
    struct rig *r = begun(1, 4096);
    struct lh_point p = of_log(r, 0, 2);
    for (uint64_t i = HEAD + 1; i < 300 && ps_shard_place(r->server->shard[0], p.version); i++) {
        rig_hello(r, 0, i << 32, 0, 1);
        rig_run(r, 100 * LH_MS);
    }
    rig_run(r, 2 * LH_SECOND);
    assert_null(ps_shard_place(r->server->shard[0], p.version));
    starts_again(r);
    assert_false(hold(r, 1, &p, RIGHT));
    assert_int_equal(row(r, 0)->stable.version, 0);
    struct lh_point head = of_log(r, 0, 0);
    assert_true(hold(r, 1, &head, RIGHT));
    assert_true(hold(r, 0, &head, RIGHT));
    assert_true(is_stable(r, 0, &head));
    rig_free(r);
}

// A shard's number comes from the network; one beyond the last shard must not be written to.
TEST(a_copy_of_a_shard_that_does_not_exist_is_no_claim)
{
    struct rig *r = begun(RIG_SHARDS, 0);
    Longhaul__V1__LeaseRequest m = rig_lease_request(r, 0);
    struct ps_co_worker *w = worker_of(r, 0);
    static const struct ps_co_claim untouched = {.said = {.epoch = 77}, .asked = {.epoch = 78}};
    ps_co_forget_copies(w);
    w->claim = calloc(RIG_SHARDS + 1, sizeof *w->claim);
    assert_non_null(w->claim);
    w->claim[RIG_SHARDS] = untouched;
    struct lh_point p = of_log(r, 0, 0);
    Longhaul__V1__Point item = lh_head_point(RIG_SHARDS, p.epoch, p.version, &p.chain);
    Longhaul__V1__Point *list = &item;
    m.n_durable = 1;
    m.durable = &list;
    assert_int_equal(rig_say(r, r->to_c[0], LH_RPC_LEASE, &m.base), LH_OK);
    assert_memory_equal(&w->claim[RIG_SHARDS], &untouched, sizeof untouched);
    rig_free(r);
}
