// The state from which a shard recovers (server/docs/0000-protocol.md#rule-17): which points are
// part of its history, and which of the claimed states is the best. Runs of servers and workers:
// tests/cores/voices.c.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/core.h"
#include "server/recovery/choose.h"
#include "server/recovery/rebuilding.h"
#include "tests/test.h"

enum { OWN = 10, REACH = 1 << 20 }; // the version here; versions and epochs beyond the known ones

struct rig {
    struct ps_rebuild b;
    struct ps_shard shard;
    struct ps_server server;
    struct lh_point begun[2];
};

static struct lh_hash hash_of(uint8_t x)
{
    struct lh_hash h = {{x}};
    return h;
}

static struct lh_point point(uint64_t epoch, uint64_t version, uint8_t chain)
{
    return (struct lh_point){epoch, version, hash_of(chain)};
}

// A server that has heard from the coordinator, with its own state at version OWN of epoch 3. Two
// regions have to confirm any other.
static int set_up(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    if (!r) return -1;
    *state = r;
    r->b.shard = &r->shard;
    r->shard.server = &r->server;
    r->server.conf.voices = 2;
    r->shard.replica.ledger.epoch = 3;
    r->shard.replica.ledger.version = OWN;
    r->shard.replica.ledger.chain = hash_of(OWN);
    r->b.asked = true;
    r->b.regions = 3;
    r->b.epoch = 3;
    r->b.begun = r->begun;
    return 0;
}

static int tear_down(void **state)
{
    free(*state);
    return 0;
}

// One more claim, by worker 1, 2, ... in the order of the calls.
static struct ps_offer *offer(struct rig *r, const char *region, uint64_t version, uint8_t digest)
{
    struct ps_offer *o = &r->b.offer[r->b.offer_count++];
    o->worker = r->b.offer_count;
    snprintf(o->region, sizeof o->region, "%s", region);
    o->have[o->have_count++] = (struct ps_state){point(3, version, 50), hash_of(digest)};
    return o;
}

static void chooses(struct rig *r, uint64_t version, uint64_t worker)
{
    struct ps_state best;
    uint64_t of;
    assert_true(ps_rebuild_choose(&r->b, &best, &of));
    assert_int_equal(best.at.version, version);
    assert_int_equal(of, worker);
}

static bool possible(const struct rig *r, struct lh_point p)
{
    return !ps_rebuild_impossible(&r->b, &p);
}

static bool counts(const struct rig *r, struct lh_point p)
{
    return ps_rebuild_counts(&r->b, &p);
}

// ---------------------------------------------------------------- points

#define IN_RIG(name, parameter) TEST_WITH(name, parameter, set_up, tear_down)

IN_RIG(no_log_goes_far_beyond_the_known_points, struct rig *r)
{
    r->b.stable = point(3, 100, 1);
    assert_true(possible(r, point(3, 100 + REACH, 2)));
    assert_false(possible(r, point(3, 101 + REACH, 2)));
    r->begun[0] = point(2, 50, 1);
    r->begun[1] = point(3, 200, 1);
    r->b.begun_count = 2;
    assert_true(possible(r, point(3, 200 + REACH, 2)));
    assert_false(possible(r, point(3, 201 + REACH, 2)));
    r->b.head = point(2, 300, 1);
    assert_false(possible(r, point(3, 300 + REACH, 2)));
    r->b.head_known = true;
    assert_true(possible(r, point(3, 300 + REACH, 2)));
    assert_false(possible(r, point(3, 301 + REACH, 2)));
    for (uint64_t known = 3; known < 6; known++) { // the newest of three epochs
        if (known == 4) r->b.reserved = known;
        if (known == 5) r->b.head.epoch = known;
        assert_true(possible(r, point(known + REACH, 5, 2)));
        assert_false(possible(r, point(known + 1 + REACH, 5, 2)));
    }
    r->b.asked = false; // nothing is known yet
    assert_true(possible(r, point(9 + REACH, 999 + REACH, 2)));
    r->b.asked = true;
    r->b.stable.version = UINT64_MAX / 2 + 1; // a sum with it could wrap
    assert_false(possible(r, point(3, 5, 2)));
    r->b.stable.version = 0;
    r->b.epoch = UINT64_MAX / 2 + 1;
    assert_false(possible(r, point(3, 5, 2)));
}

IN_RIG(the_reported_head_has_one_chain, struct rig *r)
{
    r->b.head = point(3, 20, 7);
    assert_true(possible(r, point(3, 20, 8)));
    r->b.head_known = true;
    assert_true(possible(r, point(3, 20, 7)));
    assert_false(possible(r, point(3, 20, 8)));
    assert_true(possible(r, point(3, 21, 8)));
    assert_true(possible(r, point(2, 20, 8)));
    r->b.head.chain = hash_of(0); // the chain was not reported
    assert_true(possible(r, point(3, 20, 8)));
}

IN_RIG(a_history_has_one_branch, struct rig *r)
{
    assert_true(counts(r, point(1, 0, 0)));
    r->b.stable = point(3, 20, 7);
    assert_true(counts(r, point(3, 20, 7)));
    assert_false(counts(r, point(3, 20, 8)));
    assert_true(counts(r, point(3, 21, 8)));
    assert_false(counts(r, point(2, 21, 8))); // its epoch ended below the stable point
    assert_true(counts(r, point(2, 19, 8)));
    r->begun[0] = point(3, 10, 1);
    r->begun[1] = point(4, 30, 1);
    r->b.begun_count = 2;
    assert_true(counts(r, point(3, 30, 8)));
    assert_false(counts(r, point(3, 31, 8))); // epoch 4 began below it
    assert_true(counts(r, point(4, 31, 8)));
    assert_false(counts(r, point(2, 11, 8)));
    assert_true(counts(r, point(2, 10, 8)));
    assert_false(counts(r, point(4, 31 + REACH, 8))); // an impossible one
}

IN_RIG(a_state_reaches_the_stable_point_or_an_operator_gave_it_up, struct rig *r)
{
    struct lh_point below = point(3, 19, 1), at = point(3, 20, 1);
    r->b.stable = at;
    assert_true(ps_rebuild_enough(&r->b, &at));
    assert_false(ps_rebuild_enough(&r->b, &below));
    r->server.conf.below_stable = true;
    assert_true(ps_rebuild_enough(&r->b, &below));
}

// ---------------------------------------------------------------- the best state

IN_RIG(the_highest_confirmed_state_is_the_best, struct rig *r)
{
    chooses(r, OWN, 0);
    offer(r, "asia", OWN + 2, 1);
    offer(r, "asia", OWN + 2, 1);
    chooses(r, OWN, 0); // one region is not enough
    r->b.regions = 1;
    chooses(r, OWN + 2, 1); // the only one
    r->b.regions = 0;
    chooses(r, OWN + 2, 1);
    r->b.regions = 3;
    struct ps_offer *third = offer(r, "europe", OWN + 2, 2);
    chooses(r, OWN, 0); // other bytes
    third->have[0].digest = hash_of(1);
    chooses(r, OWN + 2, 1);
    third->lied = true;
    chooses(r, OWN, 0);
    third->lied = false;
    offer(r, "asia", OWN + 1, 1);
    offer(r, "europe", OWN + 1, 1);
    chooses(r, OWN + 2, 1);
    r->server.conf.voices = 3;
    chooses(r, OWN, 0);
    r->server.conf.voices = 0;
    chooses(r, OWN + 2, 1);
}

IN_RIG(a_worker_may_hold_several_states, struct rig *r)
{
    struct ps_offer *a = offer(r, "asia", OWN + 1, 1), *b = offer(r, "europe", OWN + 4, 4);
    a->have[a->have_count++] = (struct ps_state){point(3, OWN + 3, 50), hash_of(3)};
    b->have[b->have_count++] = (struct ps_state){point(3, OWN + 3, 50), hash_of(3)};
    chooses(r, OWN + 3, 1);
}

IN_RIG(the_proved_stable_state_needs_one_holder, struct rig *r)
{
    r->b.stable = point(3, OWN + 2, 50);
    offer(r, "asia", OWN + 2, 1);
    struct ps_state best;
    uint64_t of;
    assert_false(ps_rebuild_choose(&r->b, &best, &of)); // its digest was not proved
    assert_true(ps_rebuild_undecided(&r->b));
    r->b.stable_digest = hash_of(2);
    assert_false(ps_rebuild_choose(&r->b, &best, &of));
    r->b.stable_digest = hash_of(1);
    chooses(r, OWN + 2, 1);
    r->b.offer[0].lied = true;
    assert_false(ps_rebuild_undecided(&r->b));
}

IN_RIG(an_operators_choice_comes_first, struct rig *r)
{
    offer(r, "asia", OWN + 2, 1);
    offer(r, "europe", OWN + 2, 1);
    offer(r, "africa", OWN + 1, 9);
    r->b.word_bytes = PS_WORD_BYTES_MIN;
    r->b.word[0] = 8;
    chooses(r, OWN + 2, 1); // nobody holds it
    r->b.word[0] = 9;
    chooses(r, OWN + 1, 3);
    r->b.taken = (struct ps_state){point(3, OWN, OWN), hash_of(8)};
    r->b.word[0] = 8; // the state here, which came from a follower
    chooses(r, OWN, 0);
}

// A worker that missed its turn comes after those that did not.
IN_RIG(workers_are_asked_in_turns, struct rig *r)
{
    struct ps_offer *a = offer(r, "asia", OWN + 2, 1), *b = offer(r, "europe", OWN + 2, 1);
    struct ps_offer *c = offer(r, "asia", OWN + 1, 3), *d = offer(r, "europe", OWN + 1, 3);
    a->turns = 1;
    chooses(r, OWN + 2, 2);
    b->turns = 1;
    chooses(r, OWN + 1, 3); // the higher ones have missed theirs
    c->turns = d->turns = 1;
    chooses(r, OWN, 0); // the state here has missed none
    r->b.unreliable = true;
    chooses(r, OWN + 2, 1);
    c->turns = d->turns = 0;
    chooses(r, OWN + 1, 3); // they come later in the list
}

IN_RIG(no_shard_begins_again_while_a_state_is_claimed, struct rig *r)
{
    struct ps_state best;
    uint64_t of;
    r->shard.replica.ledger.version = r->shard.replica.ledger.epoch = 0;
    r->shard.replica.ledger.chain = hash_of(0);
    chooses(r, 0, 0);
    offer(r, "asia", 0, 1);
    assert_false(ps_rebuild_undecided(&r->b));
    chooses(r, 0, 0);
    offer(r, "asia", 4, 1);
    assert_true(ps_rebuild_undecided(&r->b));
    assert_false(ps_rebuild_choose(&r->b, &best, &of));
    r->b.offer[1].turns = 7;
    offer(r, "europe", 4, 1)->turns = 9;
    chooses(r, 4, 2); // any state is better than none
    r->b.offer_count = 0;
    r->b.unreliable = true;
    assert_false(ps_rebuild_choose(&r->b, &best, &of));
}

IN_RIG(claims_say_who_confirms_them, struct rig *r)
{
    r->b.stable = point(3, OWN, OWN);
    offer(r, "asia", OWN + 2, 1);
    offer(r, "europe", OWN + 2, 1);
    offer(r, "asia", OWN - 1, 0xab);
    json_t *rows = ps_rebuild_claims(&r->b);
    assert_int_equal(json_array_size(rows), 3);
    const json_t *a = json_array_get(rows, 0), *c = json_array_get(rows, 2);
    assert_int_equal(json_integer_value(json_object_get(a, "voices")), 2);
    assert_true(json_is_true(json_object_get(a, "possible")));
    assert_int_equal(json_integer_value(json_object_get(c, "voices")), 1);
    assert_true(json_is_false(json_object_get(c, "possible"))); // below the stable point
    assert_string_equal(json_string_value(json_object_get(c, "state")), "ab00000000000000");
    json_decref(rows);
    while (r->b.offer_count < 33) offer(r, "asia", 1, 1);
    rows = ps_rebuild_claims(&r->b);
    assert_int_equal(json_array_size(rows), 32);
    json_decref(rows);
}
