// Cuts of a life: complete and invalid ones; the work lost at its end, and an orderly end.
#include <math.h>

#include "tests/unit/worker/external/external_rig.h"

// ---------------------------------------------------------------- cuts

IN_RIG(a_cut_counts_when_all_ranks_wrote_it, struct rig *r)
{
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

IN_RIG(a_cut_that_cannot_be_ends_the_life, struct rig *r)
{
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

IN_RIG(ranks_must_agree, struct rig *r)
{
    join_both(r);
    wk_external_want(r->x, 0, 5);
    rank_cuts(r, 0, 0, 1, 5, 0);
    rank_cuts(r, 0, 1, 1, 6, 0); // a different step
    say_kind(r, 1, WK_CHANNEL_RING);
    assert_int_equal(r->overs, 1);
    assert_int_equal(r->cuts, 0);
}

IN_RIG(a_cut_cannot_hold_what_is_not_published, struct rig *r)
{
    join_both(r);
    wk_external_want(r->x, 0, 5);
    rank_cuts(r, 0, 0, 1, 5, 1);
    rank_cuts(r, 0, 1, 1, 5, 1);
    say_kind(r, 1, WK_CHANNEL_RING);
    assert_int_equal(r->overs, 1);
}

// A journal holds 8 notes; if more were written, some were overwritten before they were read.
IN_RIG(a_journal_that_was_written_over_ends_the_life, struct rig *r)
{
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

IN_RIG(a_request_may_come_sooner_but_not_later, struct rig *r)
{
    join_both(r);
    struct wk_channel_part *part = wk_channel_part(&r->channel, 0);
    wk_external_want(r->x, 0, 5);
    wk_external_want(r->x, 0, 9);
    assert_int_equal(part->wanted_step, 5);
    uint32_t bell = wk_channel_worker(&r->channel)->bell;
    wk_external_want(r->x, 0, 3);
    assert_int_equal(part->wanted_step, 3);
    assert_int_equal(part->wanted, 1); // the same cut
    assert_int_equal(wk_channel_worker(&r->channel)->bell, bell + 1);
}

// Another part's cut has the note too, but is not committed yet.
IN_RIG(a_note_stays_until_its_cuts_are_committed, struct rig *r)
{
    join_both(r);
    note(r, 0, 1);
    for (uint32_t part = 0; part < PARTS; part++) {
        wk_external_want(r->x, part, 5);
        both_cut(r, part, 1, 5);
    }
    wk_external_committed(r->x, 0, 1);
    assert_int_equal(wk_channel_worker_rank(&r->channel, 0)->retired, 0);
    wk_external_committed(r->x, 1, 1);
    assert_int_equal(wk_channel_worker_rank(&r->channel, 0)->retired, 1);
}

IN_RIG(says_what_the_committed_cut_holds, struct rig *r)
{
    join_both(r);
    wk_external_want(r->x, 1, 5);
    wk_channel_done(&r->channel, 1, 1)->of[1].steps = 99; // no cut's
    both_cut(r, 1, 1, 5);
    assert_int_equal(wk_external_base(r->x, 1).number, 0);
    wk_external_committed(r->x, 1, 1);
    struct wk_external_cut at = wk_external_base(r->x, 1);
    assert_true(at.part == 1 && at.number == 1 && at.step == 5 && at.steps == 5);
    assert_true(at.corrections == 0 && at.tokens == 1000);
}

// A cut is the last one if every rank's loop is over and trained nothing after it.
IN_RIG(a_cut_is_not_the_last_while_a_rank_trains, struct rig *r)
{
    join_both(r);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        wk_channel_rank(&r->channel, rank)->ending = 1;
        wk_external_want(r->x, 0, 5);
        rank_cuts(r, 0, 0, 1 + rank, 5 + rank, 0);
        rank_cuts(r, 0, 1, 1 + rank, 5 + rank, 0);
        wk_channel_rank(&r->channel, 1)->trained += rank; // a step after the cut
        say_kind(r, 1, WK_CHANNEL_RING);
        assert_int_equal(r->cut.number, 1 + rank);
        assert_false(r->cut.last);
        wk_external_committed(r->x, 0, 1 + rank);
    }
}

// ---------------------------------------------------------------- corrections

static lh_err renew(struct rig *r, float by)
{
    float values[1000];
    for (int i = 0; i < 1000; i++) values[i] = 10;
    values[7] += by;
    return wk_external_renew(r->x, 0, &(struct wk_external_view){.theta = values});
}

IN_RIG(a_cut_keeps_the_corrections_that_are_committed, struct rig *r)
{
    join_both(r);
    assert_int_equal(renew(r, 1), LH_OK);
    for (uint64_t number = 1; number < 3; number++) { // the second one lacks the correction
        wk_external_want(r->x, 0, 5);
        rank_cuts(r, 0, 0, number, 4 + number, number == 1);
        rank_cuts(r, 0, 1, number, 4 + number, number == 1);
        say_kind(r, 1, WK_CHANNEL_RING);
        assert_int_equal(r->cuts, 1);
        if (number == 1) wk_external_committed(r->x, 0, 1);
    }
    assert_int_equal(r->overs, 1);
}

IN_RIG(corrections_wait_until_some_are_committed, struct rig *r)
{
    assert_int_equal(renew(r, 1), LH_OK); // no life takes it
    join_both(r);
    assert_int_equal(wk_external_published(r->x, 0), 0);
    for (int i = 1; i <= WK_CHANNEL_LIVE; i++) assert_int_equal(renew(r, (float)i), LH_OK);
    assert_int_equal(renew(r, 99), LH_ERR_BUSY);
    assert_int_equal(wk_external_published(r->x, 0), WK_CHANNEL_LIVE);
    wk_channel_done(&r->channel, 0, 0)->renewed = 3;
    wk_channel_done(&r->channel, 0, 1)->renewed = 2;
    assert_int_equal(wk_external_renewed(r->x, 0), 2); // all ranks did
    wk_external_want(r->x, 0, 5);
    rank_cuts(r, 0, 0, 1, 5, 2);
    rank_cuts(r, 0, 1, 1, 5, 2);
    say_kind(r, 1, WK_CHANNEL_RING);
    wk_external_committed(r->x, 0, 1);
    for (int i = 0; i < 2; i++) assert_int_equal(renew(r, 100 + (float)i), LH_OK);
    assert_int_equal(renew(r, 99), LH_ERR_BUSY);
}

// ---------------------------------------------------------------- deaths

IN_RIG(counts_what_no_cut_holds, struct rig *r)
{
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

IN_RIG(a_cut_that_was_whole_at_a_death_counts, struct rig *r)
{
    join_both(r);
    wk_external_want(r->x, 0, 5);
    rank_cuts(r, 0, 0, 1, 5, 0);
    rank_cuts(r, 0, 1, 1, 5, 0); // this rank never rang the bell
    wk_external_closed(r->x, 1);
    assert_int_equal(r->cuts, 1);
    wk_external_committed(r->x, 0, 1);
    assert_int_equal(r->forgets, 1);
}

// The tokens of a dropped cut are in no cut.
IN_RIG(a_dropped_cut_ends_the_life, struct rig *r)
{
    join_both(r);
    for (uint64_t number = 1; number < 3; number++)
        for (uint32_t part = 0; part < PARTS; part++) {
            wk_external_want(r->x, part, 5);
            both_cut(r, part, number, 3 + 2 * number);
            if (part || number == 1) wk_external_committed(r->x, part, number);
        }
    r->sents = 0;
    wk_external_drop(r->x, 0, "no room for it");
    assert_int_equal(r->overs, 1);
    assert_int_equal(r->orderlies, 0);
    assert_int_equal(r->lost, 1400 - 1000);
    assert_int_equal(r->forgets, 1);
    assert_int_equal(r->sents, RANKS);
    assert_int_equal(r->sent[0].m.as.refused.why, WK_CHANNEL_AGAIN);
    assert_string_equal(r->sent[0].m.as.refused.text, "no room for it");
    assert_null(wk_external_failing(r->x));
}

// A life that has ended already waits for the other part's cut, not for the dropped one.
IN_RIG(a_dropped_cut_holds_no_ended_life, struct rig *r)
{
    join_both(r);
    for (uint32_t part = 0; part < PARTS; part++) {
        wk_external_want(r->x, part, 5);
        both_cut(r, part, 1, 5);
    }
    wk_external_closed(r->x, 1);
    wk_external_drop(r->x, 0, "no room for it");
    assert_int_equal(r->overs, 1);
    assert_int_equal(r->forgets, 0);
    wk_external_committed(r->x, 1, 1);
    assert_int_equal(r->forgets, 1);
    assert_int_equal(r->settles, 1);
}

IN_RIG(a_rank_that_leaves_ends_the_life_in_order, struct rig *r)
{
    join_both(r);
    say_kind(r, 1, WK_CHANNEL_LEAVE);
    assert_int_equal(r->overs, 0);
    wk_external_closed(r->x, 1);
    assert_int_equal(r->overs, 1);
    assert_int_equal(r->orderlies, 1);
    greet(r, 3, 0, NULL, 0, 700);
    greet(r, 4, 1, NULL, 700, 1300);
    wk_external_closed(r->x, 3); // one that dies does not
    assert_int_equal(r->overs, 2);
    assert_int_equal(r->orderlies, 1);
}

IN_RIG(a_run_that_goes_on_ends_a_draining_life, struct rig *r)
{
    join_both(r);
    wk_external_undrain(r->x);
    assert_int_equal(r->overs, 0); // it did not drain
    wk_external_drain(r->x);
    assert_int_equal(wk_channel_worker(&r->channel)->phase, WK_CHANNEL_DRAIN);
    wk_external_undrain(r->x);
    assert_int_equal(r->orderlies, 1);
    wk_channel_close(&r->channel);
    r->sents = r->comes = 0;
    r->creates = 0;
    join_both(r);
    assert_int_equal(wk_channel_worker(&r->channel)->phase, WK_CHANNEL_RUN);
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

IN_RIG(lives_that_end_not_finite_in_a_row_are_failing, struct rig *r)
{
    for (uint32_t i = 0; i < WK_LIVES_SPOILED; i++) {
        assert_null(wk_external_failing(r->x));
        spoiled_life(r, 10 + 2 * i, 1);
    }
    assert_string_equal(wk_external_failing(r->x), "parameter w is not finite");
}

IN_RIG(a_cut_of_another_part_does_not_mend_it, struct rig *r)
{
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

IN_RIG(figures_of_the_loop_come_through, struct rig *r)
{
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

IN_RIG(ranks_leave_one_by_one, struct rig *r)
{
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

IN_RIG(leases_have_room_or_wait, struct rig *r)
{
    assert_int_equal(wk_external_lease(r->x, 0, 1, 0, 64), LH_ERR_BUSY); // no ranks yet
    join_both(r);
    for (uint64_t i = 0; i < 8; i++) assert_int_equal(wk_external_lease(r->x, 1, i, 0, 64), LH_OK);
    assert_int_equal(wk_external_lease(r->x, 1, 8, 0, 64), LH_ERR_BUSY);
    assert_int_equal(wk_external_waiting(r->x, 1), 8);
    wk_channel_rank(&r->channel, 1)->taken = 3;
    assert_int_equal(wk_external_lease(r->x, 1, 8, 0, 64), LH_OK);
    assert_int_equal(wk_channel_lease(&r->channel, 1, 8)->unit, 8);
}

// ---------------------------------------------------------------- what the ranks say

IN_RIG(what_ranks_say_is_taken_together, struct rig *r)
{
    assert_int_equal(wk_external_step(r->x) + wk_external_steps(r->x), 0); // no ranks yet
    assert_int_equal(wk_external_tokens(r->x) + wk_external_renewed(r->x, 0), 0);
    join_both(r);
    struct wk_channel_rank *a = wk_channel_rank(&r->channel, 0);
    struct wk_channel_rank *b = wk_channel_rank(&r->channel, 1);
    a->step = 7;
    a->steps = 6;
    a->tokens = 100;
    b->step = 8;
    b->steps = 5;
    b->tokens = 11;
    assert_int_equal(wk_external_step(r->x), 7);
    assert_int_equal(wk_external_steps(r->x), 6);
    assert_int_equal(wk_external_tokens(r->x), 111);
    b->wants = 4;
    assert_int_equal(wk_external_wants(r->x, 1), 4);
    assert_int_equal(wk_external_lease(r->x, 1, 33, 2, 64), LH_OK);
    assert_int_equal(wk_external_leased(r->x, 1), 1);
    assert_int_equal(wk_external_lease_unit(r->x, 1, 0), 33);
    b->taken = 9; // more than there are
    assert_int_equal(wk_external_waiting(r->x, 1), 0);
    wk_external_closed(r->x, 1);
    assert_int_equal(wk_external_wants(r->x, 1) + wk_external_leased(r->x, 1), 0);
}

IN_RIG(ranks_agree_about_their_clock, struct rig *r)
{
    enum { UNTOLD = WK_CHANNEL_UNTOLD, CLOCK = WK_CHANNEL_RUNS_CLOCK, OWN = WK_CHANNEL_OWN_STEPS };
    static const uint32_t row[][3] = {{UNTOLD, UNTOLD, UNTOLD}, {CLOCK, UNTOLD, UNTOLD},
                                      {UNTOLD, CLOCK, UNTOLD},  {CLOCK, CLOCK, CLOCK},
                                      {UNTOLD, OWN, OWN},       {OWN, CLOCK, OWN}};
    join_both(r);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        for (uint32_t k = 0; k < RANKS; k++) wk_channel_rank(&r->channel, k)->schedule = row[i][k];
        assert_int_equal(wk_external_schedule(r->x), row[i][2]);
    }
}

static void make_noise(struct rig *r, uint32_t rank, double sigma, double rate, double clip)
{
    const double said[] = {sigma, rate, clip};
    for (int i = 0; i < 3; i++) {
        uint64_t bits;
        memcpy(&bits, &said[i], sizeof bits);
        wk_channel_rank(&r->channel, rank)->noise[i] = bits;
    }
}

// The least private one counts.
IN_RIG(ranks_are_as_private_as_the_least_of_them, struct rig *r)
{
    struct wk_external_noise n;
    assert_false(wk_external_noise(r->x, &n));
    join_both(r);
    make_noise(r, 0, 2, 0.25, 1);
    assert_false(wk_external_noise(r->x, &n)); // the other one says nothing
    for (int turn = 0; turn < 2; turn++) {
        make_noise(r, turn == 0, 1.5, 0.5, 3);
        make_noise(r, turn == 1, 2, 0.25, 1);
        assert_true(wk_external_noise(r->x, &n));
        assert_true(n.sigma == 1.5 && n.rate == 0.5 && n.clip == 3);
    }
    for (int i = 0; i < 3; i++) {
        make_noise(r, 1, i != 0, i != 1, i != 2);
        assert_false(wk_external_noise(r->x, &n));
    }
}
