// ctest: worker_units
// The queue of leased units, and which of them are kept, given back or claimed, on a worker of
// which only the queue is there. Runs of whole workers: tests/cores.
#include <stdlib.h>
#include <string.h>

#include "tests/test.h"
#include "worker/units/travel.h"
#include "worker/units/units.h"

enum { UNITS = 600, EPOCHS = 2, SHARDS = 2, TOKENS = 64, AHEAD = 3 };

struct rig {
    struct wk_worker w;
    struct wk_shard shard[SHARDS];
    struct wk_slot slot[SHARDS];
    struct lh_unit unit[UNITS];
    struct lh_units units;
    uint8_t credit[SHARDS][UNITS * EPOCHS / 8];
    struct wk_trainer trainer;
    struct wk_beside_conf beside;
    uint32_t comes, leaves; // announcements
    uint64_t last;          // the unit of the last one
};

static struct rig *announced_to;

static void announce(struct wk_trainer *t, uint64_t unit, bool comes)
{
    (void)t;
    announced_to->comes += comes;
    announced_to->leaves += !comes;
    announced_to->last = unit;
}

static void grant(struct rig *r, uint64_t first, uint64_t n)
{
    struct lh_buf bytes = lh_buf((size_t)n * LH_CLAIM_BYTES);
    for (uint64_t u = first; u < first + n; u++)
        lh_claim_write(u, &(struct lh_grant){.number = (uint32_t)u + 1}, &bytes);
    wk_grants_take(&r->w, lh_buf_span(&bytes));
    lh_buf_free(&bytes);
}

static int set_up(void **state)
{
    static const struct wk_trainer_ops ops = {.announce = announce};
    struct rig *r = calloc(1, sizeof *r);
    if (!r) return -1;
    *state = announced_to = r;
    for (uint64_t u = 0; u < UNITS; u++) r->unit[u] = (struct lh_unit){.id = u, .tokens = TOKENS};
    r->units = (struct lh_units){.unit = r->unit, .count = UNITS};
    for (uint32_t i = 0; i < SHARDS; i++) {
        r->shard[i].id = i;
        r->shard[i].worker = &r->w;
        r->shard[i].slot.committed = &r->slot[i];
        r->shard[i].replica.ledger.credit = r->credit[i];
        r->shard[i].replica.ledger.credit_bytes = sizeof r->credit[i];
    }
    r->trainer.ops = &ops;
    r->w.conf.trainer = &r->trainer;
    r->w.conf.units = &r->units;
    r->w.conf.queue_units = AHEAD;
    r->w.epochs = EPOCHS;
    r->w.shard = r->shard;
    r->w.shards = SHARDS;
    r->w.change_posted = true; // nobody waits for changes
    return 0;
}

static int tear_down(void **state)
{
    struct rig *r = *state;
    free(r->w.grants.table);
    free(r->w.beside.handed);
    free(r->w.beside.note);
    free(r);
    return 0;
}

static void credit(struct rig *r, uint64_t unit)
{
    r->credit[unit % SHARDS][unit / 8] |= (uint8_t)(1u << unit % 8);
}

static void take(struct rig *r, uint64_t first, uint64_t n)
{
    for (uint64_t u = first; u < first + n; u++) wk_units_take(&r->w, 1, &u);
}

static void give_back(struct rig *r, uint64_t unit)
{
    wk_units_give_back(&r->w, 1, &unit);
}

// With a trainer beside the worker, which holds nothing yet.
static void put_beside(struct rig *r)
{
    r->beside = (struct wk_beside_conf){.ranks = 2, .ahead = 5};
    r->w.conf.beside = &r->beside;
    r->w.beside.handed = calloc(1, LH_UNITS_MAX / 8);
    r->w.beside.state = WK_BESIDE_THERE;
    r->w.beside.leases = true;
    assert_non_null(r->w.beside.handed);
}

// ---------------------------------------------------------------- the queue

#define IN_RIG(name, parameter) TEST_WITH(name, parameter, set_up, tear_down)

IN_RIG(takes_each_unit_of_the_run_once, struct rig *r)
{
    const uint64_t last = UNITS * EPOCHS - 1;
    const uint64_t leased[] = {7, 5, 7, last, last + 1, 6, 9, 10, 11};
    struct wk_claim claim = {.unit = 9};
    struct wk_entry pushed = {.head = {.claims = 1, .claim = {11}}};
    credit(r, 6);
    r->slot[1].claim = &claim;
    r->slot[1].claim_count = 1;        // 9 came back with a refused push
    r->shard[0].finished.unit[0] = 10; // its claim waits for a cut
    r->shard[0].finished.count = 1;
    r->shard[1].outbox.first = &pushed; // the claim of 11 is on its way
    wk_units_take(&r->w, sizeof leased / sizeof *leased, leased);
    assert_int_equal(r->w.queued, 3);
    assert_true(r->w.queue[0].unit == 7 && r->w.queue[1].unit == 5 && r->w.queue[2].unit == last);
    assert_true(r->w.queue[2].tokens == TOKENS && !r->w.queue[2].done && r->w.queue[2].here);
    assert_true(wk_units_any_here(&r->w));
}

IN_RIG(announces_as_many_units_as_are_read_ahead, struct rig *r)
{
    take(r, 0, AHEAD + 1);
    assert_int_equal(r->comes, AHEAD);
    assert_true(r->w.queue[AHEAD - 1].announced && !r->w.queue[AHEAD].announced);
    wk_units_announce(&r->w);
    assert_int_equal(r->comes, AHEAD); // each one once
    r->w.queue[0].announced = r->w.queue[0].here = false;
    wk_units_announce(&r->w);
    assert_int_equal(r->comes, AHEAD); // not before it is here
    for (uint32_t i = 1; i <= AHEAD; i++) r->w.queue[i].here = false;
    assert_false(wk_units_any_here(&r->w));
}

IN_RIG(begun_units_come_first, struct rig *r)
{
    for (uint64_t u = 1; u < 4; u++) wk_units_keep_position(&r->w, u, 10 * u);
    take(r, 0, 4);
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(r->w.queue[i].unit, (i + 1) % 4);
        assert_int_equal(r->w.queue[i].done, 10 * ((i + 1) % 4));
    }
    assert_int_equal(r->w.resume_count, 0); // the queue knows from here on
}

// Every shard's pushes hold all of it; only its claim was lost.
IN_RIG(a_unit_that_is_trained_whole_is_claimed, struct rig *r)
{
    wk_units_keep_position(&r->w, 4, TOKENS);
    wk_units_keep_position(&r->w, 5, TOKENS - 1);
    grant(r, 4, 2);
    take(r, 4, 2);
    assert_true(r->w.queued == 1 && r->w.queue[0].unit == 5);
    assert_int_equal(r->shard[0].finished.count, 1);
    assert_int_equal(r->shard[0].finished.unit[0], 4);
    assert_int_equal(r->shard[0].finished.grant[0].number, 5);
    assert_int_equal(r->shard[1].finished.count, 0);
}

IN_RIG(what_is_credited_leaves_the_queue, struct rig *r)
{
    take(r, 0, 5);
    credit(r, 0), credit(r, 4);
    r->w.stepping = true;
    wk_units_drop_credited(&r->w);
    assert_int_equal(r->w.queued, 5); // a step may use them
    r->w.stepping = false;
    wk_units_drop_credited(&r->w);
    assert_int_equal(r->w.queued, 3);
    assert_true(r->w.queue[0].unit == 1 && r->w.queue[2].unit == 3);
    assert_true(r->leaves == 1 && r->last == 0); // 4 was not announced
    credit(r, 1);
    r->w.conf.beside = &r->beside; // its trainer keeps what it has
    wk_units_drop_credited(&r->w);
    assert_int_equal(r->w.queued, 3);
}

IN_RIG(positions_are_kept_while_there_is_room, struct rig *r)
{
    credit(r, 2);
    for (uint64_t u = 0; u < WK_POSITIONS_MAX + 2; u++) wk_units_keep_position(&r->w, u, u + 1);
    assert_int_equal(r->w.resume_count, WK_POSITIONS_MAX);
    r->w.resume_count = 0;
    take(r, 0, 5);
    r->w.queue[1].done = 7;
    r->w.queue[3].done = 9;
    r->w.resume[0] = (struct wk_position){2, 5};
    r->w.resume_count = 1;
    wk_units_park(&r->w);
    assert_int_equal(r->w.queued, 0);
    assert_int_equal(r->w.resume_count, 2); // unit 2 is credited
    assert_true(r->w.resume[0].unit == 1 && r->w.resume[0].tokens == 7);
    assert_true(r->w.resume[1].unit == 4 && r->w.resume[1].tokens == 9);
    r->w.resume_count = WK_POSITIONS_MAX;
    memset(r->w.resume, 0, sizeof r->w.resume);
    take(r, 30, 1);
    r->w.queue[0].done = 1;
    wk_units_park(&r->w);
    assert_int_equal(r->w.resume_count, WK_POSITIONS_MAX);
}

IN_RIG(claims_need_a_grant_and_room, struct rig *r)
{
    struct wk_finished *f = &r->shard[1].finished;
    grant(r, 1, 3);
    wk_units_finished(&r->w, 5, 1);
    assert_int_equal(f->count, 0); // no lease of it is known
    f->count = WK_CLAIMS_HELD_MAX - 1;
    wk_units_finished(&r->w, 1, 8);
    wk_units_finished(&r->w, 3, 9);
    assert_int_equal(f->count, WK_CLAIMS_HELD_MAX);
    assert_int_equal(f->unit[WK_CLAIMS_HELD_MAX - 1], 1);
    assert_int_equal(f->steps[WK_CLAIMS_HELD_MAX - 1], 8);
}

// A grant stays until half of the table is full: then those of units that are not here any more go.
IN_RIG(grants_are_kept_while_there_is_room, struct rig *r)
{
    struct lh_grant got;
    take(r, 0, 2);
    grant(r, 0, 3);
    grant(r, 4, 1);
    assert_true(wk_grants_find(&r->w, 2, &got) && got.number == 3);
    for (uint64_t at = 10; at < 5 * LH_LEASES_MAX; at += LH_LEASES_MAX) grant(r, at, LH_LEASES_MAX);
    assert_false(wk_grants_find(&r->w, 2, &got));
    assert_true(wk_grants_find(&r->w, 1, &got) && got.number == 2);
}

// ---------------------------------------------------------------- recalls

IN_RIG(gives_back_what_is_not_begun, struct rig *r)
{
    struct wk_piece piece = {.unit = 2};
    take(r, 0, 5);
    r->w.queue[1].done = 3;
    r->w.piece[0] = piece;
    r->w.in.pieces = 1;
    r->w.stepping = true;
    wk_units_keep_position(&r->w, 40, 3);
    credit(r, 41);
    const uint64_t asked[] = {0, 1, 2, 3, 40, 41, 42, UNITS * EPOCHS};
    wk_units_give_back(&r->w, sizeof asked / sizeof *asked, asked);
    assert_int_equal(r->w.returned_count, 3); // 42 is not here: it was given back before
    assert_true(r->w.returned[0] == 0 && r->w.returned[1] == 3 && r->w.returned[2] == 42);
    assert_int_equal(r->w.queued, 3);
    assert_true(r->w.queue[0].unit == 1 && r->w.queue[1].unit == 2 && r->w.queue[2].unit == 4);
    assert_true(r->leaves == 1 && r->last == 0); // 3 was not announced
    r->w.stepping = false;
    give_back(r, 2);
    assert_true(r->w.returned_count == 1 && r->w.queued == 2);
}

IN_RIG(gives_back_what_an_absent_trainer_began, struct rig *r)
{
    put_beside(r);
    take(r, 0, 2);
    wk_units_mark(&r->w, 0);
    r->w.queue[1].done = 5;
    wk_units_keep_position(&r->w, 9, 7);
    const uint64_t asked[] = {0, 1, 9};
    wk_units_give_back(&r->w, 3, asked);
    assert_int_equal(r->w.returned_count, 0);
    r->w.beside.state = WK_BESIDE_AWAY;
    wk_units_give_back(&r->w, 3, asked);
    assert_int_equal(r->w.returned_count, 3);
    assert_int_equal(r->w.resume_count, 0); // another one trains it from its start
}

IN_RIG(gives_back_a_listful_at_a_time, struct rig *r)
{
    uint64_t asked[LH_RECALLS_MAX + 1];
    for (uint64_t u = 0; u <= LH_RECALLS_MAX; u++) asked[u] = u;
    wk_units_give_back(&r->w, LH_RECALLS_MAX + 1, asked);
    assert_int_equal(r->w.returned_count, LH_RECALLS_MAX);
}

// ---------------------------------------------------------------- a trainer beside the worker

IN_RIG(wants_what_its_trainer_may_read_ahead, struct rig *r)
{
    r->w.conf.queue_units = 20;
    assert_int_equal(wk_units_wanted(&r->w), 20);
    r->w.window = 21;
    assert_int_equal(wk_units_wanted(&r->w), 20);
    r->w.window = 19;
    assert_int_equal(wk_units_wanted(&r->w), 19);
    r->w.conf.privacy.budget = "a file";
    assert_int_equal(wk_units_wanted(&r->w), 0); // it draws records
    put_beside(r);
    take(r, 0, 3);
    assert_int_equal(wk_units_hand(&r->w)->unit, 0);
    assert_int_equal(wk_units_hand(&r->w)->unit, 1);
    assert_int_equal(wk_units_wanted(&r->w), 2 * 5 + 2); // two are handed out
    r->beside.ahead = LH_LEASES_MAX;
    assert_int_equal(wk_units_wanted(&r->w), LH_LEASES_MAX);
    r->w.beside.ending = true;
    assert_int_equal(wk_units_wanted(&r->w), 0);
    r->w.beside.ending = r->w.beside.leases = false;
    assert_int_equal(wk_units_wanted(&r->w), 0);
    r->w.beside.leases = true;
    r->w.leave.asked = true;
    assert_int_equal(wk_units_wanted(&r->w), 0);
    r->w.leave.asked = false;
    r->w.beside.state = WK_BESIDE_SETTLES;
    assert_int_equal(wk_units_wanted(&r->w), 0);
    assert_int_equal(wk_units_hand(&r->w)->unit, 2);
    assert_null(wk_units_hand(&r->w));
}

IN_RIG(counts_what_its_trainer_trained, struct rig *r)
{
    put_beside(r);
    grant(r, 0, 4);
    take(r, 0, 3);
    for (uint64_t u = 0; u < 2; u++) wk_units_mark(&r->w, u);
    wk_units_trained(&r->w, 0, 10, 1);
    wk_units_trained(&r->w, 0, 10, 2);         // no more than before
    wk_units_trained(&r->w, 0, TOKENS + 1, 3); // more than there is
    wk_units_trained(&r->w, LH_UNITS_MAX, 1, 3);
    wk_units_trained(&r->w, 2, 10, 3); // it was not handed out
    assert_int_equal(r->w.queue[0].done, 10);
    assert_int_equal(r->w.queue[2].done, 0);
    assert_int_equal(r->w.beside.notes, 1);
    wk_units_trained(&r->w, 0, TOKENS, 4);
    assert_int_equal(r->w.queued, 2);
    assert_int_equal(r->shard[0].finished.count, 1);
    assert_int_equal(r->shard[0].finished.steps[0], 4);
    assert_false(wk_units_handed(&r->w, 0));
    wk_units_mark(&r->w, 0);
    wk_units_trained(&r->w, 0, TOKENS, 5); // its claim is on its way
    credit(r, 1);
    wk_units_trained(&r->w, 1, 7, 5); // others had it credited
    assert_int_equal(r->w.beside.notes, 2);
    // One that is in the queue no more: its position is kept.
    wk_units_mark(&r->w, 3);
    wk_units_trained(&r->w, 3, 11, 6);
    wk_units_trained(&r->w, 3, 13, 7);
    assert_int_equal(r->w.resume_count, 1);
    assert_true(r->w.resume[0].unit == 3 && r->w.resume[0].tokens == 13);
    memset(r->w.resume, 0, sizeof r->w.resume);
    r->w.resume_count = WK_POSITIONS_MAX;
    wk_units_trained(&r->w, 3, 14, 8); // no room: it is trained again
    assert_int_equal(r->w.beside.notes, 4);
}

IN_RIG(a_cut_knows_the_positions_at_its_step, struct rig *r)
{
    enum { NOTES = 100 }; // more than fit at first
    struct wk_position at[] = {{0, TOKENS - 1}, {1, 5}};
    uint32_t count = 2;
    put_beside(r);
    r->unit[0].tokens = NOTES + 1;
    take(r, 0, 2);
    wk_units_mark(&r->w, 0), wk_units_mark(&r->w, 1);
    for (uint64_t k = 1; k <= NOTES; k++) wk_units_trained(&r->w, 0, k, k);
    wk_units_trained(&r->w, 1, 5, NOTES);
    at[0].tokens = NOTES;
    wk_units_as_of(&r->w, 40, at, &count);
    assert_int_equal(count, 1); // the other one was begun later
    assert_true(at[0].unit == 0 && at[0].tokens == 40);
    wk_units_settled(&r->w, 40);
    assert_int_equal(r->w.beside.notes, NOTES - 40 + 1);
    assert_int_equal(r->w.beside.note[0].steps, 41);
}

IN_RIG(a_damaged_unit_is_given_back, struct rig *r)
{
    put_beside(r);
    take(r, 3, 2);
    take(r, UNITS + 3, 1);
    for (uint32_t i = 0; i < 3; i++) wk_units_hand(&r->w);
    wk_units_damaged(&r->w, 9); // it was not handed out
    wk_units_damaged(&r->w, LH_UNITS_MAX);
    assert_int_equal(r->w.damaged_count + r->w.returned_count, 0);
    wk_units_keep_position(&r->w, 3, 5);
    wk_units_damaged(&r->w, 3);
    wk_units_damaged(&r->w, UNITS + 3); // the second data epoch's
    assert_int_equal(r->w.damaged_count, 1);
    assert_int_equal(r->w.damaged[0], 3);
    assert_int_equal(r->w.returned_count, 2);
    assert_int_equal(r->w.returned[1], UNITS + 3);
    assert_true(r->w.queued == 1 && r->w.queue[0].unit == 4);
    assert_int_equal(r->w.resume_count, 0);
    assert_false(wk_units_handed(&r->w, 3));
    r->w.damaged_count = LH_REFUSED_MAX;
    r->w.returned_count = LH_RECALLS_MAX;
    wk_units_damaged(&r->w, 4); // both lists are full
    assert_int_equal(r->w.damaged_count, LH_REFUSED_MAX);
    assert_int_equal(r->w.returned_count, LH_RECALLS_MAX);
    assert_int_equal(r->w.queued, 0);
}

// ---------------------------------------------------------------- another life

IN_RIG(goes_on_where_the_oldest_cut_ends, struct rig *r)
{
    struct wk_position first[] = {{1, 30}, {2, 30}, {3, 30}, {4, 30}};
    struct wk_position second[] = {{3, 20}, {1, 40}, {4, 30}};
    r->slot[0].position = first;
    r->slot[0].position_count = 4;
    r->slot[1].position = second;
    r->slot[1].position_count = 3;
    wk_units_resume(&r->w);
    assert_int_equal(r->w.resume_count, 3); // shard 1 has nothing of unit 2
    assert_true(r->w.resume[0].unit == 1 && r->w.resume[0].tokens == 30);
    assert_true(r->w.resume[1].unit == 3 && r->w.resume[1].tokens == 20);
    r->shard[0].finished.unit[0] = 4;
    r->shard[0].finished.count = 1;
    put_beside(r);
    wk_units_resume(&r->w);
    assert_int_equal(r->w.resume_count, 2); // 4 is claimed
}

IN_RIG(a_new_life_trains_again_what_no_cut_holds, struct rig *r)
{
    struct wk_position at[] = {{6, 30}};
    put_beside(r);
    grant(r, 0, 6);
    take(r, 0, 6);
    for (uint64_t u = 0; u < 6; u++) wk_units_mark(&r->w, u);
    for (uint64_t u = 0; u < 4; u++) wk_units_trained(&r->w, u, TOKENS, 10 + u);
    r->shard[0].progress.held_steps = 12;
    r->shard[1].progress.held_steps = 11;
    for (uint32_t i = 0; i < SHARDS; i++) r->slot[i].position = at, r->slot[i].position_count = 1;
    wk_units_restart(&r->w, false);
    assert_int_equal(r->shard[0].finished.count, 1);
    assert_int_equal(r->shard[0].finished.unit[0], 0);
    assert_int_equal(r->shard[0].finished.grant[0].number, 1);
    assert_int_equal(r->shard[1].finished.count, 1);
    assert_int_equal(r->shard[1].finished.steps[0], 11);
    assert_int_equal(r->w.queued + r->w.beside.notes, 0);
    assert_false(wk_units_handed(&r->w, 5));
    assert_int_equal(r->w.resume_count, 1);
    wk_units_restart(&r->w, true);
    assert_int_equal(r->w.resume_count, 0);
}

// A worker has drained when nothing of it is left that a push could hold.
IN_RIG(has_drained_when_nothing_is_left, struct rig *r)
{
    struct wk_shard *s = &r->shard[1];
    struct wk_cut *cut = (struct wk_cut *)r; // any
    struct wk_entry entry = {.head.step = 1};
    r->w.phase = LH_PHASE_RUN;
    assert_false(wk_units_drained(&r->w));
    for (int left = 0; left < 10; left++) {
        r->w.phase = left == 1 ? LH_PHASE_CLOSE : LH_PHASE_DRAIN;
        r->w.queued = left == 2;
        r->w.stepping = left == 3;
        s->cut = left == 4 ? cut : NULL;
        s->progress.steps = left == 5;
        s->progress.tokens = left == 6;
        s->finished.count = left == 7;
        r->slot[1].claim_count = left == 8;
        s->outbox.first = left == 9 ? &entry : NULL;
        assert_int_equal(wk_units_drained(&r->w), left < 2);
    }
    s->outbox.first = NULL;
    r->slot[1].tokens = 5; // the built-in trainer's residual is pushed in later runs, or never
    assert_true(wk_units_drained(&r->w));
    put_beside(r); // a loop that is there still trains
    assert_false(wk_units_drained(&r->w));
    r->w.beside.over = true;
    assert_false(wk_units_drained(&r->w)); // its remaining tokens are pushed
    r->slot[1].tokens = 0;
    assert_true(wk_units_drained(&r->w));
    r->slot[1].tokens = 5;
    r->w.privacy.reported.open = true;
    assert_true(wk_units_drained(&r->w));
    r->w.beside.over = false;
    r->w.beside.state = WK_BESIDE_AWAY;
    assert_true(wk_units_drained(&r->w));
}

IN_RIG(tells_how_long_its_queue_lasts, struct rig *r)
{
    assert_null(wk_travel_status(&r->w)); // without data elsewhere nothing travels
    take(r, 0, 2);
    r->w.queue[0].done = 4;
    for (int i = 0; i < 2; i++) {
        r->w.tokens_per_s = i ? 4 : 0;
        json_t *is = wk_units_status(&r->w);
        assert_int_equal(json_integer_value(json_object_get(is, "units")), 2);
        assert_true(json_real_value(json_object_get(is, "seconds")) ==
                    (i ? (2 * TOKENS - 4) / 4.0 : 0));
        json_decref(is);
    }
}

// ---------------------------------------------------------------- grants

// The table is made anew of the units that the worker has.
IN_RIG(grants_of_units_that_are_gone_are_forgotten, struct rig *r)
{
    enum { HALF = 1 << 14, MANY = 4096 };
    struct lh_grant is;
    assert_false(wk_grants_find(&r->w, 0, &is));
    wk_grants_take(&r->w, lh_span("", 0));
    assert_null(r->w.grants.table);
    take(r, 0, 2);
    wk_units_keep_position(&r->w, 5, 1);
    for (uint64_t first = 0; first < HALF; first += MANY) grant(r, first, MANY);
    assert_true(wk_grants_find(&r->w, 0, &is) && is.number == 1);
    assert_true(wk_grants_find(&r->w, HALF - 1, &is) && is.number == HALF);
    grant(r, HALF, 1);
    for (uint64_t u = 0; u < HALF; u++)
        assert_int_equal(wk_grants_find(&r->w, u, &is), u == 0 || u == 1 || u == 5);
    assert_true(wk_grants_find(&r->w, HALF, &is) && is.number == HALF + 1);
    grant(r, HALF, MANY + 1); // more than an answer may have
    assert_false(wk_grants_find(&r->w, HALF + 1, &is));
}
