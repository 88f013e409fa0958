// Admission of ranks, and lives of the trainer that outlive their worker.
#include "tests/unit/worker/external/external_rig.h"

// ---------------------------------------------------------------- admission

static void lets_all_ranks_in_or_none(void **state)
{
    struct rig *r = *state;
    join_both(r);
    assert_true(wk_channel_slot(&r->channel, 0)[VALUES - 1] == 10); // the first view
    greet(r, 3, 0, NULL, 0, 700);
    assert_int_equal(r->sent[2].m.as.refused.why, WK_CHANNEL_BUSY);
    assert_int_equal(r->overs, 0);
}

static void wants_shares_that_make_a_whole(void **state)
{
    struct rig *r = *state;
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

static void wants_as_many_values_as_the_model_has(void **state)
{
    struct rig *r = *state;
    greet_with(r, 1, 0, NULL, 0, 700, 1999);
    greet_with(r, 2, 1, NULL, 700, 1299, 1999);
    assert_int_equal(r->sents, 2);
    assert_int_equal(r->sent[0].m.as.refused.why, WK_CHANNEL_OTHER_MODEL);
    assert_non_null(strstr(r->sent[0].m.as.refused.text, "5999 values"));
    assert_int_equal(r->creates, 0);
}

static void sends_nonsense_away(void **state)
{
    struct rig *r = *state;
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

static void a_life_goes_on_with_a_cut_that_was_not_committed(void **state)
{
    struct rig *r = *state;
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

static void the_word_follows_the_commit(void **state)
{
    struct rig *r = *state;
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
static void a_life_goes_on_behind_the_notes_that_are_committed(void **state)
{
    struct rig *r = *state;
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

static void other_commits_end_the_life(void **state)
{
    struct rig *r = *state;
    join_both(r);
    wk_external_want(r->x, 0, 5);
    both_cut(r, 0, 1, 5);
    r->own[0] = 2;
    die_and_return(r, NULL);
    assert_int_equal(r->resumes, 0);
    assert_int_equal(r->sent[0].m.as.refused.why, WK_CHANNEL_AGAIN);
    assert_int_equal(r->sent[1].m.as.refused.why, WK_CHANNEL_AGAIN);
}

static void a_commit_without_its_cut_ends_the_life(void **state)
{
    struct rig *r = *state;
    join_both(r);
    r->own[1] = 1; // the number of a cut that no rank wrote
    die_and_return(r, NULL);
    assert_int_equal(r->resumes, 0);
}

static void a_memory_of_another_life_is_refused(void **state)
{
    struct rig *r = *state;
    join_both(r);
    die_and_return(r, (const uint8_t[WK_CHANNEL_LIFE]){1});
    assert_int_equal(r->resumes, 0);
    assert_int_equal(r->sent[0].m.as.refused.why, WK_CHANNEL_AGAIN);
}

static void a_damaged_correction_ends_the_life(void **state)
{
    struct rig *r = *state;
    float view0[1000] = {0};
    join_both(r);
    assert_int_equal(wk_external_renew(r->x, 0, &(struct wk_external_view){.theta = view0}), LH_OK);
    wk_channel_part(&r->channel, 0)->entry[1].count = 1 << 30;
    die_and_return(r, NULL);
    assert_int_equal(r->resumes, 0);
}

static void one_that_begins_anew_ends_the_others_life(void **state)
{
    struct rig *r = *state;
    uint8_t life[WK_CHANNEL_LIFE] = {3};
    greet(r, 1, 0, life, 0, 700);
    greet(r, 2, 1, NULL, 700, 1300);
    assert_int_equal(r->sents, 1);
    assert_int_equal(r->sent[0].to, 1);
    assert_int_equal(r->sent[0].m.as.refused.why, WK_CHANNEL_AGAIN);
    greet(r, 3, 0, NULL, 0, 700);
    assert_int_equal(r->comes, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(lets_all_ranks_in_or_none),
        TEST(wants_shares_that_make_a_whole),
        TEST(wants_as_many_values_as_the_model_has),
        TEST(sends_nonsense_away),
        TEST(a_life_goes_on_with_a_cut_that_was_not_committed),
        TEST(the_word_follows_the_commit),
        TEST(a_life_goes_on_behind_the_notes_that_are_committed),
        TEST(other_commits_end_the_life),
        TEST(a_commit_without_its_cut_ends_the_life),
        TEST(a_memory_of_another_life_is_refused),
        TEST(a_damaged_correction_ends_the_life),
        TEST(one_that_begins_anew_ends_the_others_life),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
