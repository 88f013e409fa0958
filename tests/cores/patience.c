// Followers that offer a state and do not deliver it: an honest follower still gets its turn
// (server/docs/0000-protocol.md#rule-29).
#include <string.h>

#include "server/recovery/rebuild.h"
#include "server/recovery/rebuilding.h"
#include "server/recovery/restore.h"
#include "tests/cores/offer.h"

enum { BAD, GOOD }; // workers; the bad one offers the higher version

static const int64_t STEP = 100 * LH_MS;
enum { STEPS = 300 }; // many times the server's grace time of one second

struct waiting {
    struct offer_held held; // the good one's state
    struct lh_hash none;
    Longhaul__V1__Point made_up;
    unsigned asked[2]; // how often each of the two was asked for its state
};

static void begin(struct rig *r, struct waiting *w)
{
    *w = (struct waiting){.none = {{1}}};
    r->unsealed = true;
    offer_lose_directory(r, &w->held);
    w->made_up = w->held.at;
    w->made_up.version += 100;
    w->made_up.chain.data = w->none.b;
}

// Both offer their state, the good one first. Returns whether the good one is asked for its state.
static bool say(struct rig *r, struct waiting *w)
{
    rig_run(r, STEP);
    bool good = offer_say(r, GOOD, &w->held.at), bad = offer_say(r, BAD, &w->made_up);
    assert_false(good && bad);
    w->asked[GOOD] += good;
    w->asked[BAD] += bad;
    return good;
}

static void comes_back(struct rig *r, struct waiting *w)
{
    assert_int_equal(offer_bring(r, GOOD, &w->held.at, w->held.state), LH_OK);
    for (int i = 0; i < STEPS && r->server->phase != PS_SERVING; i++) rig_run(r, STEP);
    assert_true(r->server->phase == PS_SERVING);
    const struct lh_ledger *l = &r->server->shard[r->shard]->replica.ledger;
    assert_true(l->version > w->held.at.version);
    assert_int_equal(l->row[0].incarnation.number >> 32, 3);
    assert_true(w->asked[BAD] > 0);
    lh_blob_release(w->held.state);
}

static void until_it_is_the_good_ones_turn(struct rig *r, struct waiting *w)
{
    for (int i = 0; i < STEPS; i++)
        if (say(r, w)) return;
    fail_msg("the good follower is never asked; the other one was %u times", w->asked[BAD]);
}

static void the_good_one_waits_for_the_others(struct rig *r, struct waiting *w)
{
    begin(r, w);
    for (int64_t ns = 0; ns < LH_SECOND / 2; ns += STEP) {
        rig_run(r, STEP);
        assert_false(offer_say(r, GOOD, &w->held.at));
    }
}

// A follower that is the first to answer may hold less than another one, which has a second.
RIG_TEST(a_state_is_chosen_when_all_have_answered, struct rig *r)
{
    struct waiting w;
    the_good_one_waits_for_the_others(r, &w);
    w.made_up.version = w.held.at.version - 1;
    assert_false(offer_say(r, BAD, &w.made_up));
    rig_run(r, STEP);
    assert_true(offer_say(r, GOOD, &w.held.at));
    lh_blob_release(w.held.state);
}

RIG_TEST(a_state_is_chosen_when_the_others_had_their_time, struct rig *r)
{
    struct waiting w;
    the_good_one_waits_for_the_others(r, &w);
    rig_run(r, LH_SECOND);
    assert_true(offer_say(r, GOOD, &w.held.at));
    lh_blob_release(w.held.state);
}

RIG_TEST(a_state_that_is_offered_and_never_brought_is_passed_over, struct rig *r)
{
    struct waiting w;
    begin(r, &w);
    until_it_is_the_good_ones_turn(r, &w);
    comes_back(r, &w);
}

// The bad one gets another turn after the good one had its own, and then the good one again.
RIG_TEST(a_worker_that_was_passed_over_is_asked_again, struct rig *r)
{
    struct waiting w;
    begin(r, &w);
    until_it_is_the_good_ones_turn(r, &w);
    unsigned asked = w.asked[BAD];
    // The good one does not send its state either.
    for (int i = 0; i < STEPS && w.asked[BAD] == asked; i++) say(r, &w);
    assert_true(w.asked[BAD] > asked);
    until_it_is_the_good_ones_turn(r, &w);
    comes_back(r, &w);
}

// A follower that comes and goes gets no more turns than one that stays.
RIG_TEST(a_turn_that_passed_is_not_forgotten_in_silence, struct rig *r)
{
    struct waiting w;
    begin(r, &w);
    while (!w.asked[BAD]) say(r, &w);
    bool good = false;
    for (int i = 0; i < STEPS && !good; i++) { // the bad one is silent
        rig_run(r, STEP);
        good = offer_say(r, GOOD, &w.held.at);
    }
    assert_true(good);
    assert_false(offer_say(r, BAD, &w.made_up)); // silent until now
    assert_true(offer_say(r, GOOD, &w.held.at));
    comes_back(r, &w);
}

// The bad one sends only empty messages, or the state's first bytes one at a time.
static void trickles(struct rig *r, size_t bytes)
{
    struct waiting w;
    struct rig_call h;
    size_t at = 0;
    bool good = false;
    begin(r, &w);
    while (!w.asked[BAD]) say(r, &w);
    offer_begin(r, BAD, &h);
    for (int i = 0; i < STEPS && !good; i++, at += bytes) {
        if (!h.over) offer_part(r, BAD, &w.made_up, w.held.state, at, bytes, &h);
        good = say(r, &w);
    }
    assert_true(good && h.over);
    assert_int_equal(h.status, LH_ERR_DEADLINE);
    comes_back(r, &w);
}

RIG_TEST(empty_messages_are_no_sign_of_life, struct rig *r)
{
    trickles(r, 0);
}

RIG_TEST(single_bytes_are_no_sign_of_life, struct rig *r)
{
    trickles(r, 1);
}

// The bad one is asked first, and sends the first part of a state that takes several messages.
static void begin_transfer(struct rig *r, struct waiting *w, struct rig_call *h)
{
    rig_enlarge(r, 3 * LH_PART_BYTES / sizeof(float));
    begin(r, w);
    while (!w->asked[BAD]) say(r, w);
    offer_begin(r, BAD, h);
    offer_part(r, BAD, &w->made_up, w->held.state, 0, LH_PART_BYTES, h);
}

RIG_TEST(a_transfer_that_stops_in_the_middle_is_passed_over, struct rig *r)
{
    struct waiting w;
    struct rig_call h;
    begin_transfer(r, &w, &h);
    until_it_is_the_good_ones_turn(r, &w);
    assert_int_equal(h.status, LH_ERR_DEADLINE);
    comes_back(r, &w);
}

// A transfer is passed over as soon as its time is up.
RIG_TEST(a_transfer_is_over_when_its_time_is, struct rig *r)
{
    struct waiting w;
    struct rig_call h;
    begin_transfer(r, &w, &h);
    rig_run(r, 10 * LH_MS);
    struct ps_rebuild *b = r->server->shard[0]->rebuild;
    struct ps_offer *o = ps_rebuild_offer(b, lh_worker_id(&r->w[BAD].self));
    o->asked_ns = lh_fake_now(r->world) - r->server->conf.grace_ns + 1;
    assert_true(ps_restore_coming(b));
    o->asked_ns--;
    assert_false(ps_restore_coming(b));
    until_it_is_the_good_ones_turn(r, &w);
    comes_back(r, &w);
}

// Each full part renews the time: a state that takes longer than the grace time is waited for.
RIG_TEST(a_transfer_that_gets_on_is_not_passed_over, struct rig *r)
{
    struct waiting w;
    struct rig_call h;
    rig_enlarge(r, 4 * LH_PART_BYTES / sizeof(float));
    begin(r, &w);
    bool good = false;
    for (int i = 0; i < STEPS && !good; i++) {
        rig_run(r, STEP);
        good = offer_say(r, GOOD, &w.held.at);
    }
    assert_true(good);
    offer_begin(r, GOOD, &h);
    for (size_t at = 0, n; at < w.held.state->len; at += n) {
        n = w.held.state->len - at < LH_PART_BYTES ? w.held.state->len - at : LH_PART_BYTES;
        offer_part(r, GOOD, &w.held.at, w.held.state, at, n, &h);
        for (int i = 0; i < 8; i++) assert_false(say(r, &w) || w.asked[BAD]);
    }
    rig_call_wait(r, &h);
    assert_int_equal(h.status, LH_OK);
    rig_run(r, 3 * LH_SECOND);
    assert_true(r->server->phase == PS_SERVING);
    lh_blob_release(w.held.state);
}

// A worker that keeps starting transfers and breaking them off loses its turn after a few.
RIG_TEST(a_transfer_that_breaks_again_and_again_is_passed_over, struct rig *r)
{
    struct waiting w;
    struct rig_call h;
    bool good = false;
    rig_enlarge(r, 3 * LH_PART_BYTES / sizeof(float));
    begin(r, &w);
    for (int i = 0; i < STEPS && !good; i++) {
        unsigned asked = w.asked[BAD];
        good = say(r, &w);
        if (w.asked[BAD] == asked) continue;
        offer_begin(r, BAD, &h);
        offer_part(r, BAD, &w.made_up, w.held.state, 0, LH_PART_BYTES, &h);
        rig_run(r, STEP);
        lh_call_cancel(h.call);
        rig_call_wait(r, &h);
    }
    assert_true(good);
    comes_back(r, &w);
}

// The other shard has only good followers, and waits for this one.
RIG_TEST(it_is_so_with_two_shards, struct rig *r)
{
    struct waiting w;
    rig_two_shards(r);
    r->shard = 1;
    begin(r, &w);
    until_it_is_the_good_ones_turn(r, &w);
    comes_back(r, &w);
}
