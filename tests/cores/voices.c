// A state is rebuilt only if workers of two regions hold it, two regions proved it while the server
// lived, or an operator chooses it (server/docs/0000-protocol.md#rule-17).
#include <stdio.h>
#include <string.h>

#include "server/recovery/choose.h"
#include "tests/head.h"
#include "longhaul/v1/member.pb-c.h"
#include "server/coordinator/owners/rights.h"
#include "server/recovery/rebuilding.h"
#include "tests/cores/offer.h"

enum { LIAR, HONEST }; // workers of two regions

static struct ps_rebuild *rebuild(const struct rig *r)
{
    return r->server->shard[0]->rebuild;
}

struct lost {
    struct offer_held held;
    struct lh_hash none;
    Longhaul__V1__Point made_up; // a little above the last report
};

static void begin(struct rig *r, struct lost *l)
{
    *l = (struct lost){.none = {{1}}};
    r->unsealed = true;
    r->voices = 2;
    offer_lose_directory(r, &l->held);
    l->made_up = l->held.at;
    l->made_up.version += 5;
    l->made_up.chain.data = l->none.b;
}

// Both offer their state for a while; returns whether the server asks one of them for it, and whom.
static bool say(struct rig *r, Longhaul__V1__Point *liar, const struct lh_hash *liars,
                Longhaul__V1__Point *honest, uint32_t *who)
{
    for (int i = 0; i < 40; i++) {
        rig_run(r, 100 * LH_MS);
        *who = LIAR;
        if (liar && offer_say_other(r, LIAR, liar, liars)) return true;
        *who = HONEST;
        if (honest && offer_say(r, HONEST, honest)) return true;
    }
    return false;
}

static void serves(struct rig *r, struct lost *l, uint32_t who)
{
    assert_int_equal(offer_bring(r, who, &l->held.at, l->held.state), LH_OK);
    for (int i = 0; i < 100 && r->server->phase != PS_SERVING; i++) rig_run(r, 100 * LH_MS);
    assert_true(r->server->phase == PS_SERVING);
    assert_true(r->server->shard[0]->replica.ledger.version > l->held.at.version);
    assert_int_equal(r->fatal_count, 0);
    lh_blob_release(l->held.state);
}

static const char *waits_for(const struct rig *r)
{
    static char text[32];
    json_t *status = ps_rebuild_status(rebuild(r));
    snprintf(text, sizeof text, "%s", json_string_value(json_object_get(status, "waits_for")));
    json_decref(status);
    return text;
}

static lh_err adopt(struct rig *r, const struct lh_hash *digest, size_t bytes)
{
    struct lh_adopt_request m = {.server = ""};
    uint32_t shard = 0, shards;
    m.n_shards = 1;
    m.shards = &shard;
    m.state = lh_span(digest->b, bytes);
    return ps_co_adopt(r->coordinator, &m, &shards);
}

RIG_TEST(two_regions_that_hold_the_same_are_enough, struct rig *r)
{
    struct lost l;
    uint32_t who;
    begin(r, &l);
    assert_true(say(r, &l.held.at, &l.held.digest, &l.held.at, &who));
    serves(r, &l, who);
}

// The liar's state is plausible, finite and newer, but nobody confirms it.
RIG_TEST(one_that_makes_a_state_up_is_not_believed, struct rig *r)
{
    struct lost l;
    uint32_t who;
    begin(r, &l);
    assert_false(say(r, &l.made_up, &l.none, &l.held.at, &who));
    assert_string_equal(waits_for(r), "operator");
    json_t *claims = ps_rebuild_claims(rebuild(r));
    assert_int_equal(json_array_size(claims), 2); // the operator sees both
    json_decref(claims);
    assert_int_equal(adopt(r, &l.held.digest, 7), LH_ERR_INVALID);
    assert_int_equal(adopt(r, &l.held.digest, 8), LH_OK);
    assert_true(say(r, &l.made_up, &l.none, &l.held.at, &who));
    assert_int_equal(who, HONEST);
    serves(r, &l, who);
    assert_int_equal(r->coordinator->shard[0].choice_bytes, 0); // the choice is used once
}

// The liar offers the true version, chain and epoch with other bytes: nobody can tell which is
// right.
RIG_TEST(the_same_point_with_other_bytes_is_another_state, struct rig *r)
{
    struct lost l;
    uint32_t who;
    begin(r, &l);
    assert_false(say(r, &l.held.at, &l.none, &l.held.at, &who));
    assert_string_equal(waits_for(r), "operator");
    assert_int_equal(adopt(r, &l.held.digest, LH_HASH_BYTES), LH_OK);
    rig_settle(r);
    rig_kill_coordinator(r); // the choice survives this
    rig_start_coordinator(r);
    assert_true(say(r, &l.held.at, &l.none, &l.held.at, &who));
    assert_int_equal(who, HONEST);
    serves(r, &l, who);
}

// A worker offers the true digest and sends other bytes: it is not asked again.
RIG_TEST(a_brought_state_must_have_the_digest, struct rig *r)
{
    struct lost l;
    uint32_t who;
    begin(r, &l);
    assert_true(say(r, &l.held.at, &l.held.digest, &l.held.at, &who));
    uint64_t values = r->server->shard[0]->replica.layout->values;
    uint8_t *middle = (uint8_t *)l.held.state->data + 100;
    while (memcmp(middle, &values, sizeof values) != 0) middle++;
    middle[sizeof values] ^= 1; // the last bit of the first parameter
    assert_int_equal(offer_bring(r, who, &l.held.at, l.held.state), LH_ERR_MALFORMED);
    assert_false(rebuild(r)->fetched);
    middle[sizeof values] ^= 1;
    uint32_t liar = who;
    // Without the liar's offer only one region is left: the operator decides.
    assert_false(say(r, &l.held.at, &l.held.digest, &l.held.at, &who));
    assert_int_equal(adopt(r, &l.held.digest, LH_HASH_BYTES), LH_OK);
    assert_true(say(r, &l.held.at, &l.held.digest, &l.held.at, &who));
    assert_int_not_equal(who, liar);
    serves(r, &l, who);
}

// The liar offers a higher state beside the true one: the rebuild does not wait for that.
RIG_TEST(a_higher_claim_holds_nobody_up, struct rig *r)
{
    struct lost l;
    begin(r, &l);
    Longhaul__V1__OfferRequest m = LONGHAUL__V1__OFFER_REQUEST__INIT;
    Longhaul__V1__Point *have[] = {&l.made_up, &l.held.at};
    ProtobufCBinaryData digests[] = {{LH_HASH_BYTES, l.none.b}, {LH_HASH_BYTES, l.held.digest.b}};
    lh_head_run(r->server->conf.job, &r->manifest.hash, &m.job, &m.manifest);
    m.worker = lh_worker_id(&r->w[LIAR].self);
    m.n_have = m.n_digests = 2;
    m.have = have;
    m.digests = digests;
    bool wanted = false, theirs = false;
    for (int i = 0; i < 40 && !wanted; i++) {
        ProtobufCMessage *answer;
        rig_run(r, 100 * LH_MS);
        wanted = offer_say(r, HONEST, &l.held.at);
        if (wanted) break;
        assert_int_equal(rig_ask(r, r->to_s[LIAR], LH_RPC_OFFER, &m.base, &answer), LH_OK);
        const Longhaul__V1__Point *want = ((Longhaul__V1__OfferReply *)answer)->want;
        theirs = wanted = want != NULL;
        if (want) assert_int_equal(want->version, l.held.at.version);
        rig_free_message(answer);
    }
    assert_true(wanted);
    serves(r, &l, theirs ? LIAR : HONEST);
}

RIG_TEST(one_voice_alone_is_not_enough, struct rig *r)
{
    struct lost l;
    uint32_t who;
    begin(r, &l);
    assert_false(say(r, NULL, NULL, &l.held.at, &who));
    assert_string_equal(waits_for(r), "operator");
    lh_blob_release(l.held.state);
}

// The stable point needs no second region, as two regions proved its digest.
RIG_TEST(the_stable_point_is_confirmed_already, struct rig *r)
{
    struct lost l;
    uint32_t who;
    begin(r, &l);
    struct ps_co_shard *s = &r->coordinator->shard[0];
    s->stable = (struct lh_point){l.held.at.epoch, l.held.at.version, l.held.chain};
    s->stable_digest = l.held.digest;
    // The coordinator confirms it when the server asks again.
    assert_true(say(r, &l.made_up, &l.none, &l.held.at, &who));
    assert_int_equal(who, HONEST);
    serves(r, &l, who);
}

// A point without a digest is no state, nor is one with an impossible version.
RIG_TEST(an_impossible_point_is_no_voice, struct rig *r)
{
    struct lost l;
    uint32_t who;
    begin(r, &l);
    Longhaul__V1__Point far = l.held.at;
    far.version = UINT64_MAX;
    assert_false(say(r, &far, &l.held.digest, NULL, &who));
    assert_true(r->server->phase == PS_SERVING); // nobody holds a state: it begins anew
    lh_blob_release(l.held.state);
}

// The stable point is of epoch 5, so all earlier epochs ended at or below its version.
TEST(earlier_epochs_do_not_count_above_the_stable_point)
{
    struct ps_rebuild b = {.stable = {.epoch = 5, .version = 40}};
    for (uint64_t epoch = 3; epoch <= 7; epoch++)
        for (uint64_t version = 38; version <= 60; version += version == 40 ? 2 : 1) {
            if (version == 40) continue; // there the chain decides
            const struct lh_point p = {.epoch = epoch, .version = version};
            assert_int_equal(ps_rebuild_counts(&b, &p), version < 40 || epoch >= 5);
        }
}
