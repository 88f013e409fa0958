// Admission of ranks, and lives of the trainer that outlive their worker.
#include "tests/unit/worker/external/external_rig.h"

// ---------------------------------------------------------------- admission

IN_RIG(lets_all_ranks_in_or_none, struct rig *r)
{
    join_both(r);
    assert_true(wk_channel_slot(&r->channel, 0)[VALUES - 1] == 10); // the first view
    greet(r, 3, 0, NULL, 0, 700);
    assert_int_equal(r->sent[2].m.as.refused.why, WK_CHANNEL_BUSY);
    assert_int_equal(r->overs, 0);
}

IN_RIG(wants_shares_that_make_a_whole, struct rig *r)
{
    greet(r, 1, 0, NULL, 0, 700);
    greet(r, 2, 1, NULL, 701, 1299); // value 700 belongs to no rank
    assert_int_equal(r->sents, 2);
    assert_int_equal(r->sent[0].m.as.refused.why, WK_CHANNEL_OTHER_MODEL);
    assert_non_null(strstr(r->sent[0].m.as.refused.text, "rows"));
    greet(r, 3, 0, NULL, 0, 701);
    greet(r, 4, 1, NULL, 700, 1300); // value 700 belongs to both ranks
    assert_int_equal(r->sent[2].m.as.refused.why, WK_CHANNEL_OTHER_MODEL);
    assert_int_equal(r->creates, 0);
}

IN_RIG(wants_as_many_values_as_the_model_has, struct rig *r)
{
    greet_with(r, 1, 0, NULL, 0, 700, 1999);
    greet_with(r, 2, 1, NULL, 700, 1299, 1999);
    assert_int_equal(r->sents, 2);
    assert_int_equal(r->sent[0].m.as.refused.why, WK_CHANNEL_OTHER_MODEL);
    assert_non_null(strstr(r->sent[0].m.as.refused.text, "5999 values"));
    assert_int_equal(r->creates, 0);
}

IN_RIG(sends_nonsense_away, struct rig *r)
{
    join_both(r);
    wk_external_opened(r->x, 3);
    wk_external_message(r->x, 3, lh_span("nonsense", 8));
    assert_int_equal(r->sent[2].m.as.refused.why, WK_CHANNEL_BAD);
    assert_int_equal(r->overs, 0); // the other ranks go on
    say_kind(r, 1, WK_CHANNEL_DESCRIBED);
    assert_int_equal(r->overs, 1); // an unexpected message of an admitted rank
    wk_external_opened(r->x, 4);
    wk_external_message(r->x, 4, lh_span("\x08\0\0\0\x02\0\x01\0", 8));
    assert_int_equal(r->sent[r->sents - 1].m.as.refused.why, WK_CHANNEL_OTHER_VERSION);
}

IN_RIG(wants_ranks_that_describe_the_same, struct rig *r)
{
    greet_with(r, 1, 0, NULL, 0, 700, 2000);
    greet_with(r, 2, 1, NULL, 700, 1300, 2001); // as much, but of a larger tensor
    assert_int_equal(r->sents, RANKS);
    assert_int_equal(r->sent[1].m.as.refused.why, WK_CHANNEL_OTHER_MODEL);
    greet(r, 3, 0, NULL, 0, 700);
    struct wk_channel_message m = {.kind = WK_CHANNEL_HELLO}; // one tensor, where rank 0 has two
    m.as.hello = (struct wk_channel_hello){1, RANKS, 1, false, {0}};
    wk_external_opened(r->x, 4);
    say(r, 4, &m);
    m = (struct wk_channel_message){.kind = WK_CHANNEL_TENSOR};
    m.as.tensor = (struct wk_channel_tensor){0, WK_CHANNEL_FP32, 1, 0, 4000, true, {4000}, "all"};
    say(r, 4, &m);
    say_kind(r, 4, WK_CHANNEL_DESCRIBED);
    assert_int_equal(r->sents, 2 * RANKS);
    assert_non_null(strstr(r->sent[3].m.as.refused.text, "different parameters"));
    assert_int_equal(r->creates, 0);
}

IN_RIG(wants_a_description_in_its_order, struct rig *r)
{
    struct wk_channel_message hello = {.kind = WK_CHANNEL_HELLO}, t = {.kind = WK_CHANNEL_TENSOR};
    hello.as.hello = (struct wk_channel_hello){0, RANKS, 1, false, {0}};
    t.as.tensor = (struct wk_channel_tensor){0, WK_CHANNEL_FP32, 1, 0, 4000, true, {4000}, "all"};
    for (uint64_t from = 1; from < 5; from++) {
        wk_external_opened(r->x, from);
        hello.as.hello.ranks = from == 4 ? RANKS + 1 : RANKS;
        say(r, from, &hello);
        t.as.tensor.index = from == 1; // the second tensor before the first
        if (from < 3) say(r, from, &t);
        t.as.tensor.index = 1;
        if (from == 2) say(r, from, &t);                        // more than announced
        if (from == 3) say_kind(r, from, WK_CHANNEL_DESCRIBED); // fewer
        assert_int_equal(r->sents, from);
        assert_int_equal(r->sent[from - 1].m.as.refused.why, WK_CHANNEL_BAD);
    }
    assert_int_equal(r->drops, 4);
}

IN_RIG(a_rank_that_goes_before_the_others_come_leaves_its_place, struct rig *r)
{
    greet(r, 8, 0, NULL, 0, 700);
    wk_external_closed(r->x, 8);
    join_both(r);
    assert_int_equal(r->overs, 0);
}

IN_RIG(more_connections_than_places_are_dropped, struct rig *r)
{
    enum { PLACES = 2 * WK_CHANNEL_RANKS_MAX };
    for (uint64_t i = 0; i < PLACES; i++) wk_external_opened(r->x, 100 + i);
    assert_int_equal(r->drops, 0);
    wk_external_opened(r->x, 99);
    assert_int_equal(r->drops, 1);
    wk_external_closed(r->x, 100);
    wk_external_opened(r->x, 99);
    assert_int_equal(r->drops, 1);
}

IN_RIG(a_held_worker_begins_no_life, struct rig *r)
{
    wk_external_hold(r->x, true);
    wk_external_hold(r->x, true);
    greet(r, 1, 0, NULL, 0, 700);
    greet(r, 2, 1, NULL, 700, 1300);
    wk_external_hold(r->x, false);
    assert_int_equal(r->comes, 0); // held twice
    wk_external_hold(r->x, false);
    assert_int_equal(r->comes, 1);
}

IN_RIG(a_life_begins_with_what_the_worker_knows, struct rig *r)
{
    wk_external_budget(r->x, 3, 2, 1);
    wk_external_credited(r->x, 500);
    wk_external_pause(r->x, true);
    wk_external_drain(r->x);
    join_both(r);
    const struct wk_channel_worker *w = wk_channel_worker(&r->channel);
    assert_true(w->budget[0] == 3 && w->budget[1] == 2 && w->budget[2] == 1);
    assert_true(w->credited == 500 && w->credited_first == 500);
    assert_true(w->paused && w->phase == WK_CHANNEL_DRAIN);
    uint64_t pause = w->paused;
    uint32_t bell = w->bell;
    wk_external_pause(r->x, true); // the same pause
    assert_true(w->paused == pause && w->bell == bell);
    wk_external_pause(r->x, false);
    assert_true(!w->paused && w->bell == bell + 1);
}

// ---------------------------------------------------------------- lives that continue

// The worker dies, and the trainer offers the memory to the next worker.
static void die_and_return(struct rig *r, const uint8_t *other_life)
{
    uint8_t life[WK_CHANNEL_LIFE];
    void *kept = malloc(r->bytes);
    memcpy(kept, r->memory, r->bytes);
    memcpy(life, other_life ? other_life : wk_channel_head(&r->channel)->life, sizeof life);
    wk_external_destroy(r->x);
    begin_worker(r);
    r->offered = kept;
    r->sents = 0;
    greet(r, 11, 0, life, 0, 700);
    greet(r, 12, 1, life, 700, 1300);
    if (r->memory) assert_null(wk_channel_read(&r->channel, r->memory, r->bytes));
}

IN_RIG(a_life_goes_on_with_a_cut_that_was_not_committed, struct rig *r)
{
    float delta[1000], view0[1000];
    join_both(r);
    for (int i = 0; i < 1000; i++) view0[i] = 13;
    assert_int_equal(wk_external_renew(r->x, 0, &(struct wk_external_view){.theta = view0}), LH_OK);
    wk_external_want(r->x, 0, 5);
    rank_cuts(r, 0, 0, 1, 5, 1);
    rank_cuts(r, 0, 1, 1, 5, 1);
    say_kind(r, 1, WK_CHANNEL_RING);
    assert_int_equal(r->cuts, 1);
    die_and_return(r, NULL);
    assert_int_equal(r->resumes, 1);
    assert_int_equal(r->cuts, 2); // the same cut again
    assert_int_equal(wk_external_delta(r->x, 0, 0, 1000, delta), LH_OK);
    assert_true(delta[0] == 13 - 9);
    wk_external_committed(r->x, 0, 1);
    for (int i = 0; i < 1000; i++) view0[i] = 9;
    uint64_t published = wk_channel_part(&r->channel, 0)->published;
    assert_int_equal(wk_external_renew(r->x, 0, &(struct wk_external_view){.theta = view0}),
                     LH_OK); // the slot holds that view already
    assert_int_equal(wk_channel_part(&r->channel, 0)->published, published);
}

IN_RIG(the_word_follows_the_commit, struct rig *r)
{
    join_both(r);
    wk_external_want(r->x, 0, 5);
    both_cut(r, 0, 1, 5);
    r->own[0] = 1; // it died after the commit, before it set `committed` in the memory
    die_and_return(r, NULL);
    assert_int_equal(r->resumes, 1);
    assert_int_equal(r->cuts, 1); // the cut is not handled again
    assert_int_equal(wk_channel_part(&r->channel, 0)->committed, 1);
}

// Notes in the committed cuts of all parts were reported to the previous process.
IN_RIG(a_life_goes_on_behind_the_notes_that_are_committed, struct rig *r)
{
    join_both(r);
    note(r, 0, 1);
    note(r, 1, 2);
    for (uint32_t part = 0; part < PARTS; part++) {
        wk_external_want(r->x, part, 5);
        both_cut(r, part, 1, 5);
        wk_external_committed(r->x, part, 1);
        r->own[part] = 1;
    }
    assert_int_equal(r->notes, 3);
    note(r, 1, 8); // fills its journal
    die_and_return(r, NULL);
    assert_int_equal(r->resumes, 1);
    wk_external_want(r->x, 0, 6);
    both_cut(r, 0, 2, 6);
    say_kind(r, 11, WK_CHANNEL_RING);
    assert_int_equal(r->notes, 3 + 8);
    assert_int_equal(r->noted, 10);
    note(r, 1, 1); // overwrites a note
    die_and_return(r, NULL);
    assert_int_equal(r->resumes, 1);
    assert_int_equal(r->sent[0].m.as.refused.why, WK_CHANNEL_AGAIN);
}

IN_RIG(other_commits_end_the_life, struct rig *r)
{
    join_both(r);
    wk_external_want(r->x, 0, 5);
    both_cut(r, 0, 1, 5);
    r->own[0] = 2;
    die_and_return(r, NULL);
    assert_int_equal(r->resumes, 0);
    assert_int_equal(r->sent[0].m.as.refused.why, WK_CHANNEL_AGAIN);
    assert_int_equal(r->sent[1].m.as.refused.why, WK_CHANNEL_AGAIN);
}

IN_RIG(a_commit_without_its_cut_ends_the_life, struct rig *r)
{
    join_both(r);
    r->own[1] = 1; // the number of a cut that no rank wrote
    die_and_return(r, NULL);
    assert_int_equal(r->resumes, 0);
}

IN_RIG(a_memory_of_another_life_is_refused, struct rig *r)
{
    join_both(r);
    die_and_return(r, (const uint8_t[WK_CHANNEL_LIFE]){1});
    assert_int_equal(r->resumes, 0);
    assert_int_equal(r->sent[0].m.as.refused.why, WK_CHANNEL_AGAIN);
}

// Damages one thing that the worker must not take over; returns what the refusal says of it.
static const char *damage(struct rig *r, int row)
{
    struct wk_channel_part *part = wk_channel_part(&r->channel, 1);
    switch (row) {
    case 0: wk_channel_worker(&r->channel)->phase = 0; return "has ended";
    case 1: wk_channel_worker(&r->channel)->phase = WK_CHANNEL_OVER; return "has ended";
    case 2: wk_channel_head(&r->channel)->manifest[0] = 1; return "another model";
    case 3: part->published = WK_CHANNEL_LIVE + 1; return "its corrections differ";
    case 4: part->published = 1; return "a correction is damaged";
    default:
        r->own[1] = 1;
        wk_channel_done(&r->channel, 1, 0)->cut = 1; // rank 1 did not write it
        return "a committed cut is missing";
    }
}

IN_RIG(a_memory_that_does_not_fit_is_refused, struct rig *r)
{
    for (int row = 0; row < 6; row++) {
        greet(r, 1, 0, NULL, 0, 700);
        greet(r, 2, 1, NULL, 700, 1300);
        assert_int_equal(r->comes, row + 1);
        wk_channel_close(&r->channel);
        assert_null(wk_channel_read(&r->channel, r->memory, r->bytes));
        const char *text = damage(r, row);
        die_and_return(r, NULL);
        assert_int_equal(r->resumes, 0);
        assert_int_equal(r->sents, RANKS);
        assert_int_equal(r->sent[0].m.as.refused.why, WK_CHANNEL_AGAIN);
        assert_non_null(strstr(r->sent[0].m.as.refused.text, text));
    }
}

IN_RIG(ranks_of_different_lives_are_refused, struct rig *r)
{
    const uint8_t one[WK_CHANNEL_LIFE] = {1}, other[WK_CHANNEL_LIFE] = {2};
    r->offered = calloc(1, 1);
    greet(r, 1, 0, one, 0, 700);
    greet(r, 2, 1, other, 700, 1300);
    assert_int_equal(r->sents, RANKS);
    assert_non_null(strstr(r->sent[1].m.as.refused.text, "ranks of different lives"));
    assert_non_null(r->offered); // nobody looked at it
}

// The new process continues with the numbers of the memory, not with its own.
IN_RIG(a_life_that_goes_on_keeps_its_numbers, struct rig *r)
{
    wk_external_budget(r->x, 3, 2, 1);
    wk_external_credited(r->x, 500);
    join_both(r);
    wk_external_want(r->x, 0, 5);
    both_cut(r, 0, 1, 5);
    wk_external_committed(r->x, 0, 1);
    r->own[0] = 1;
    wk_channel_part(&r->channel, 0)->wanted = 9; // no number that a worker could have requested
    die_and_return(r, NULL);
    assert_int_equal(r->resumes, 1);
    const struct wk_channel_worker *w = wk_channel_worker(&r->channel);
    assert_true(w->budget[0] == 3 && w->credited_first == 500 && w->credited == 0);
    struct wk_external_cut at = wk_external_base(r->x, 0);
    assert_true(at.part == 0 && at.number == 1 && at.step == 5 && at.steps == 5);
    assert_true(at.corrections == 0 && at.tokens == 1000);
    assert_false(wk_external_wanted(r->x, 0));
    wk_external_want(r->x, 0, 6);
    assert_int_equal(wk_channel_part(&r->channel, 0)->wanted, 2);
}

IN_RIG(a_damaged_correction_ends_the_life, struct rig *r)
{
    float view0[1000] = {0};
    join_both(r);
    assert_int_equal(wk_external_renew(r->x, 0, &(struct wk_external_view){.theta = view0}), LH_OK);
    wk_channel_part(&r->channel, 0)->entry[1].count = 1 << 30;
    die_and_return(r, NULL);
    assert_int_equal(r->resumes, 0);
}

IN_RIG(one_that_begins_anew_ends_the_others_life, struct rig *r)
{
    uint8_t life[WK_CHANNEL_LIFE] = {3};
    greet(r, 1, 0, life, 0, 700);
    greet(r, 2, 1, NULL, 700, 1300);
    assert_int_equal(r->sents, 1);
    assert_int_equal(r->sent[0].to, 1);
    assert_int_equal(r->sent[0].m.as.refused.why, WK_CHANNEL_AGAIN);
    greet(r, 3, 0, NULL, 0, 700);
    assert_int_equal(r->comes, 1);
}
