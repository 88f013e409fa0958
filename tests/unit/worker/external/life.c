// Cuts of a life: complete and invalid ones; the work lost at its end, and an orderly end.
#include <math.h>

#include "tests/unit/worker/external/external_rig.h"

// ---------------------------------------------------------------- cuts

static void a_cut_counts_when_all_ranks_wrote_it(void **state)
{
    struct rig *r = *state;
    float delta[1000];
    join_both(r);
    wk_external_want(r->x, 0, 5);
    struct wk_channel_note *note = wk_channel_note(&r->channel, 0, 0);
    *note = (struct wk_channel_note){77, 64, 5};
    wk_channel_rank(&r->channel, 0)->noted = 1;
    rank_cuts(r, 0, 0, 1, 5, 0);
    say_kind(r, 1, WK_CHANNEL_RING);
    assert_int_equal(r->cuts + r->notes, 0);
    rank_cuts(r, 0, 1, 1, 5, 0);
    wk_channel_note(&r->channel, 0, 1)->upto = 65; // belongs to the next cut
    wk_channel_rank(&r->channel, 0)->noted = 2;
    say_kind(r, 2, WK_CHANNEL_RING);
    assert_int_equal(r->cuts, 1);
    assert_int_equal(r->cut.tokens, 1000);
    assert_int_equal(r->notes, 1);
    assert_int_equal(r->noted, 64);
    assert_int_equal(wk_external_delta(r->x, 0, 0, 1000, delta), LH_OK);
    assert_true(delta[0] == 1 && delta[999] == 1);
    assert_int_equal(wk_channel_part(&r->channel, 0)->committed, 0);
    wk_external_committed(r->x, 0, 1);
    assert_int_equal(wk_channel_part(&r->channel, 0)->committed, 1);
    // The note stays until the other part has committed too.
    assert_int_equal(wk_channel_worker_rank(&r->channel, 0)->retired, 0);
    wk_external_want(r->x, 1, 6);
    both_cut(r, 1, 1, 6);
    wk_external_committed(r->x, 1, 1);
    assert_int_equal(wk_channel_worker_rank(&r->channel, 0)->retired, 1);
    say_kind(r, 1, WK_CHANNEL_RING);
    assert_int_equal(r->cuts, 2); // neither cut is counted twice
}

static void a_cut_that_cannot_be_ends_the_life(void **state)
{
    struct rig *r = *state;
    join_both(r);
    rank_cuts(r, 0, 0, 1, 5, 0); // a cut that was not requested
    wk_external_want(r->x, 1, 5);
    say_kind(r, 1, WK_CHANNEL_RING);
    assert_int_equal(r->overs, 0);
    rank_cuts(r, 1, 0, 2, 5, 0); // one after the requested cut
    say_kind(r, 1, WK_CHANNEL_RING);
    assert_int_equal(r->overs, 1);
    assert_int_equal(r->cuts, 0);
}

static void ranks_must_agree(void **state)
{
    struct rig *r = *state;
    join_both(r);
    wk_external_want(r->x, 0, 5);
    rank_cuts(r, 0, 0, 1, 5, 0);
    rank_cuts(r, 0, 1, 1, 6, 0); // a different step
    say_kind(r, 1, WK_CHANNEL_RING);
    assert_int_equal(r->overs, 1);
    assert_int_equal(r->cuts, 0);
}

static void a_cut_cannot_hold_what_is_not_published(void **state)
{
    struct rig *r = *state;
    join_both(r);
    wk_external_want(r->x, 0, 5);
    rank_cuts(r, 0, 0, 1, 5, 1);
    rank_cuts(r, 0, 1, 1, 5, 1);
    say_kind(r, 1, WK_CHANNEL_RING);
    assert_int_equal(r->overs, 1);
}

// A journal holds 8 notes; if more were written, some were overwritten before they were read.
static void a_journal_that_was_written_over_ends_the_life(void **state)
{
    struct rig *r = *state;
    join_both(r);
    note(r, 1, 8);
    wk_external_want(r->x, 0, 5);
    both_cut(r, 0, 1, 5);
    assert_int_equal(r->notes, 8); // a full journal is still read
    assert_int_equal(r->overs, 0);
    wk_external_want(r->x, 1, 5);
    note(r, 0, 9);
    both_cut(r, 1, 1, 5);
    assert_int_equal(r->overs, 1);
    assert_int_equal(r->cuts, 1);
    assert_int_equal(r->notes, 8);
}

// ---------------------------------------------------------------- deaths

static void counts_what_no_cut_holds(void **state)
{
    struct rig *r = *state;
    join_both(r);
    wk_external_want(r->x, 0, 5);
    wk_external_want(r->x, 1, 5);
    both_cut(r, 0, 1, 5);
    both_cut(r, 1, 1, 5);
    wk_channel_rank(&r->channel, 0)->tokens = 512;
    wk_external_closed(r->x, 2);
    assert_int_equal(r->overs, 1);
    assert_int_equal(r->lost, 12);
    assert_int_equal(r->forgets, 0); // two cuts are not committed yet
    greet(r, 5, 0, NULL, 0, 700);
    greet(r, 6, 1, NULL, 700, 1300);
    assert_int_equal(r->creates, 1);
    wk_external_committed(r->x, 0, 1);
    assert_int_equal(r->creates, 1);
    wk_external_committed(r->x, 1, 1);
    assert_int_equal(r->forgets, 1);
    assert_int_equal(r->creates, 2);
    assert_int_equal(r->comes, 2);
}

static void a_cut_that_was_whole_at_a_death_counts(void **state)
{
    struct rig *r = *state;
    join_both(r);
    wk_external_want(r->x, 0, 5);
    rank_cuts(r, 0, 0, 1, 5, 0);
    rank_cuts(r, 0, 1, 1, 5, 0); // this rank never rang the bell
    wk_external_closed(r->x, 1);
    assert_int_equal(r->cuts, 1);
    wk_external_committed(r->x, 0, 1);
    assert_int_equal(r->forgets, 1);
}

// ---------------------------------------------------------------- values that are not finite

// Runs a life whose cut of this part contains a value that is not finite.
static void spoiled_life(struct rig *r, uint64_t from, uint32_t part)
{
    wk_channel_close(&r->channel);
    r->channel = (struct wk_channel){0};
    greet(r, from, 0, NULL, 0, 700);
    greet(r, from + 1, 1, NULL, 700, 1300);
    assert_null(wk_channel_read(&r->channel, r->memory, r->bytes));
    wk_external_want(r->x, part, 5);
    rank_cuts(r, part, 0, 1, 5, 0);
    rank_cuts(r, part, 1, 1, 5, 0);
    say_kind(r, from, WK_CHANNEL_RING);
    r->sents = 0;
    wk_external_spoiled(r->x, part, "parameter w is not finite");
    for (uint32_t i = 0; i < 2; i++) { // each rank is told the parameter
        assert_int_equal(r->sent[i].m.kind, WK_CHANNEL_REFUSED);
        assert_int_equal(r->sent[i].m.as.refused.why, WK_CHANNEL_NOT_FINITE);
        assert_string_equal(r->sent[i].m.as.refused.text, "parameter w is not finite");
    }
}

static void lives_that_end_not_finite_in_a_row_are_failing(void **state)
{
    struct rig *r = *state;
    for (uint32_t i = 0; i < WK_LIVES_SPOILED; i++) {
        assert_null(wk_external_failing(r->x));
        spoiled_life(r, 10 + 2 * i, 1);
    }
    assert_string_equal(wk_external_failing(r->x), "parameter w is not finite");
}

static void a_cut_of_another_part_does_not_mend_it(void **state)
{
    struct rig *r = *state;
    for (uint32_t i = 0; i < WK_LIVES_SPOILED; i++) spoiled_life(r, 10 + 2 * i, 1);
    wk_channel_close(&r->channel);
    r->sents = r->comes = 0;
    r->creates = 0;
    join_both(r);
    for (uint32_t part = 0; part < PARTS; part++) {
        assert_non_null(wk_external_failing(r->x));
        wk_external_want(r->x, part, 5);
        both_cut(r, part, 1, 5);
        wk_external_committed(r->x, part, 1);
    }
    assert_null(wk_external_failing(r->x));
}

static void figures_of_the_loop_come_through(void **state)
{
    struct rig *r = *state;
    join_both(r);
    struct wk_channel_message m = {.kind = WK_CHANNEL_REPORT, .as.report = {1.5, "loss"}};
    say(r, 1, &m);
    assert_int_equal(r->reports, 1);
    assert_true(r->reported == 1.5);
    assert_string_equal(r->metric, "loss");
    uint8_t bytes[WK_CHANNEL_MESSAGE];
    m.as.report.value = NAN;
    assert_int_equal(wk_channel_encode(&m, bytes), 0);
    m.as.report = (struct wk_channel_report){1, ""};
    assert_int_equal(wk_channel_encode(&m, bytes), 0);
}

// ---------------------------------------------------------------- the end

static void ranks_leave_one_by_one(void **state)
{
    struct rig *r = *state;
    join_both(r);
    wk_channel_rank(&r->channel, 0)->ending = 1;
    say_kind(r, 1, WK_CHANNEL_RING);
    say_kind(r, 1, WK_CHANNEL_RING);
    assert_int_equal(r->endings, 1);
    wk_channel_rank(&r->channel, 1)->ending = 1;
    for (uint32_t part = 0; part < PARTS; part++) {
        wk_external_want(r->x, part, 0);
        both_cut(r, part, 1, 9);
        assert_true(r->cut.last);
        wk_external_committed(r->x, part, 1);
    }
    wk_external_end(r->x);
    assert_int_equal(wk_channel_worker(&r->channel)->phase, WK_CHANNEL_END);
    assert_true(wk_channel_slot(&r->channel, 2)[VALUES - 1] == 99);
    say_kind(r, 1, WK_CHANNEL_LEAVE);
    wk_external_closed(r->x, 1);
    assert_int_equal(r->overs, 0); // the other rank still reads the final parameters
    say_kind(r, 2, WK_CHANNEL_LEAVE);
    wk_external_closed(r->x, 2);
    assert_int_equal(r->orderlies, 1);
    assert_int_equal(r->lost, 0);
}

static void leases_have_room_or_wait(void **state)
{
    struct rig *r = *state;
    assert_int_equal(wk_external_lease(r->x, 0, 1, 0, 64), LH_ERR_BUSY); // no ranks yet
    join_both(r);
    for (uint64_t i = 0; i < 8; i++) assert_int_equal(wk_external_lease(r->x, 1, i, 0, 64), LH_OK);
    assert_int_equal(wk_external_lease(r->x, 1, 8, 0, 64), LH_ERR_BUSY);
    assert_int_equal(wk_external_waiting(r->x, 1), 8);
    wk_channel_rank(&r->channel, 1)->taken = 3;
    assert_int_equal(wk_external_lease(r->x, 1, 8, 0, 64), LH_OK);
    assert_int_equal(wk_channel_lease(&r->channel, 1, 8)->unit, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_cut_counts_when_all_ranks_wrote_it),
        TEST(a_cut_that_cannot_be_ends_the_life),
        TEST(ranks_must_agree),
        TEST(a_cut_cannot_hold_what_is_not_published),
        TEST(a_journal_that_was_written_over_ends_the_life),
        TEST(counts_what_no_cut_holds),
        TEST(a_cut_that_was_whole_at_a_death_counts),
        TEST(lives_that_end_not_finite_in_a_row_are_failing),
        TEST(a_cut_of_another_part_does_not_mend_it),
        TEST(figures_of_the_loop_come_through),
        TEST(ranks_leave_one_by_one),
        TEST(leases_have_room_or_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
