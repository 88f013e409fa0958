// The worker's end of the boundary as a state machine: who is let in, which cuts count, which lives
// go on. The world below is memory of this process; the trainer is what the tests write into it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "worker/external/external.h"

enum { VALUES = 6000, PARTS = 2, RANKS = 2, MESSAGES = 64 };
static const uint64_t first[] = {0, 1000, VALUES};

struct rig {
    struct wk_external_io io; // first
    struct lh_env *env;
    struct wk_external *x;
    void *memory, *offered; // offered: what a greeting brings
    uint64_t bytes, creates, forgets;
    struct {
        uint64_t to;
        struct wk_channel_message m;
    } sent[MESSAGES];
    uint32_t sents, drops;
    // what the core saw
    uint64_t own[PARTS]; // what committed() says
    uint32_t comes, resumes, overs, orderlies, endings, cuts, notes, settles;
    struct wk_external_cut cut;
    uint64_t lost, noted;
    struct wk_channel channel; // the trainer's view of the memory
};

// ---------------------------------------------------------------- the world

static struct rig *rig_of(struct wk_external_io *io)
{
    return (struct rig *)io;
}

static lh_err create(struct wk_external_io *io, uint64_t bytes, void **out)
{
    struct rig *r = rig_of(io);
    r->creates++;
    r->bytes = bytes;
    *out = r->memory = calloc(1, bytes);
    return LH_OK;
}

static lh_err adopt(struct wk_external_io *io, uint64_t from, void **out, uint64_t *bytes)
{
    struct rig *r = rig_of(io);
    (void)from;
    if (!r->offered) return LH_ERR_MALFORMED;
    *out = r->memory = r->offered;
    r->offered = NULL;
    *bytes = r->bytes;
    return LH_OK;
}

static void forget(struct wk_external_io *io)
{
    struct rig *r = rig_of(io);
    r->forgets++;
    wk_channel_close(&r->channel);
    free(r->memory);
    r->memory = NULL;
}

static void send_message(struct wk_external_io *io, uint64_t to, struct lh_span message,
                         bool memory)
{
    struct rig *r = rig_of(io);
    (void)memory;
    assert_true(r->sents < MESSAGES);
    r->sent[r->sents].to = to;
    assert_true(wk_channel_decode(message.data, message.len, &r->sent[r->sents++].m));
}

static void drop(struct wk_external_io *io, uint64_t connection)
{
    (void)connection;
    rig_of(io)->drops++;
}

static void wake(struct wk_external_io *io, const _Atomic uint32_t *word)
{
    (void)io, (void)word;
}

static const struct wk_external_io_ops io_ops = {create, adopt, forget, send_message, drop, wake};

// ---------------------------------------------------------------- the core

static lh_err described(void *arg, const struct wk_channel_tensor *tensor, uint32_t tensors)
{
    (void)arg, (void)tensor, (void)tensors;
    return LH_OK;
}

static void view(void *arg, uint32_t part, bool final, float *out)
{
    (void)arg;
    for (uint64_t i = 0; i < first[part + 1] - first[part]; i++) out[i] = final ? 99 : 10;
}

static uint64_t committed(void *arg, const uint8_t life[WK_CHANNEL_LIFE], uint32_t part)
{
    (void)life;
    return ((struct rig *)arg)->own[part];
}

static void came(void *arg, const uint8_t life[WK_CHANNEL_LIFE], bool resumed)
{
    struct rig *r = arg;
    (void)life;
    r->comes++;
    r->resumes += resumed;
}

static void trained(void *arg, uint32_t rank, uint64_t unit, uint64_t upto, uint64_t step)
{
    struct rig *r = arg;
    (void)rank, (void)unit, (void)step;
    r->notes++;
    r->noted = upto;
}

static void cut(void *arg, const struct wk_external_cut *c)
{
    struct rig *r = arg;
    r->cuts++;
    r->cut = *c;
}

static void ending(void *arg)
{
    ((struct rig *)arg)->endings++;
}

static void over(void *arg, uint64_t lost, bool orderly)
{
    struct rig *r = arg;
    r->overs++;
    r->orderlies += orderly;
    r->lost = lost;
}

static void settled(void *arg)
{
    ((struct rig *)arg)->settles++;
}

static const struct wk_external_ops ops = {described, view,   committed, came,   trained,
                                           cut,       ending, over,      settled};

static void begin_worker(struct rig *r)
{
    struct wk_external_conf conf = {.env = r->env,
                                    .values = VALUES,
                                    .parts = PARTS,
                                    .first = first,
                                    .ranks = RANKS,
                                    .leases = 8,
                                    .journal = 8};
    r->io.ops = &io_ops;
    assert_int_equal(wk_external_create(&conf, &ops, r, &r->io, &r->x), LH_OK);
}

static int set_up(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    *state = r;
    LH_ASSERT(r && lh_env_real_create(&r->env) == LH_OK);
    begin_worker(r);
    return 0;
}

static int tear_down(void **state)
{
    struct rig *r = *state;
    wk_external_destroy(r->x);
    wk_channel_close(&r->channel);
    free(r->memory);
    free(r->offered);
    lh_env_real_destroy(r->env);
    free(r);
    return 0;
}

// ---------------------------------------------------------------- the trainer

static void say(struct rig *r, uint64_t from, struct wk_channel_message *m)
{
    uint8_t bytes[WK_CHANNEL_MESSAGE];
    m->abi = WK_CHANNEL_ABI;
    size_t n = wk_channel_encode(m, bytes);
    assert_true(n > 0);
    wk_external_message(r->x, from, lh_span(bytes, n));
}

static void say_kind(struct rig *r, uint64_t from, uint16_t kind)
{
    struct wk_channel_message m = {.kind = kind};
    say(r, from, &m);
}

// Of two tensors the second is sharded: `first` and `count` of its 2000 values.
static void greet(struct rig *r, uint64_t from, uint32_t rank, const uint8_t *life, uint64_t begin,
                  uint64_t count)
{
    struct wk_channel_message m = {.kind = WK_CHANNEL_HELLO};
    m.as.hello = (struct wk_channel_hello){rank, RANKS, 2, life != NULL, {0}};
    if (life) memcpy(m.as.hello.life, life, WK_CHANNEL_LIFE);
    wk_external_opened(r->x, from);
    say(r, from, &m);
    m = (struct wk_channel_message){.kind = WK_CHANNEL_TENSOR};
    m.as.tensor = (struct wk_channel_tensor){0, WK_CHANNEL_FP32, 1, 0, 4000, true, {4000}, "all"};
    say(r, from, &m);
    m.as.tensor =
        (struct wk_channel_tensor){1, WK_CHANNEL_FP32, 1, begin, count, false, {2000}, "rows"};
    say(r, from, &m);
    say_kind(r, from, WK_CHANNEL_DESCRIBED);
}

static void join_both(struct rig *r)
{
    greet(r, 1, 0, NULL, 0, 700);
    assert_int_equal(r->creates, 0); // not before all are there
    greet(r, 2, 1, NULL, 700, 1300);
    assert_int_equal(r->comes, 1);
    assert_int_equal(r->sents, 2);
    assert_int_equal(r->sent[1].m.kind, WK_CHANNEL_WELCOME);
    assert_null(wk_channel_read(&r->channel, r->memory, r->bytes));
}

static void rank_cuts(struct rig *r, uint32_t part, uint32_t rank, uint64_t number, uint64_t step,
                      uint64_t included)
{
    struct wk_channel_done *d = wk_channel_done(&r->channel, part, rank);
    struct wk_channel_rank *me = wk_channel_rank(&r->channel, rank);
    float *slot = wk_channel_slot(&r->channel, number) + first[part];
    for (uint64_t i = 0; i < first[part + 1] - first[part]; i++) slot[i] = 10 - (float)number;
    me->step = me->trained = step;
    me->tokens = 100 * step;
    d->of[number % 2] = (struct wk_channel_cut){step, 100 * step, included, me->noted};
    d->cut = number;
}

static void both_cut(struct rig *r, uint32_t part, uint64_t number, uint64_t step)
{
    rank_cuts(r, part, 0, number, step, 0);
    rank_cuts(r, part, 1, number, step, 0);
    say_kind(r, 1, WK_CHANNEL_RING);
}

// ---------------------------------------------------------------- who is let in

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
    greet(r, 2, 1, NULL, 701, 1299); // a value is nobody's
    assert_int_equal(r->sents, 2);
    assert_int_equal(r->sent[0].m.as.refused.why, WK_CHANNEL_OTHER_MODEL);
    assert_non_null(strstr(r->sent[0].m.as.refused.text, "rows"));
    greet(r, 3, 0, NULL, 0, 701);
    greet(r, 4, 1, NULL, 700, 1300); // one is two ranks'
    assert_int_equal(r->sent[2].m.as.refused.why, WK_CHANNEL_OTHER_MODEL);
    assert_int_equal(r->creates, 0);
}

static void sends_nonsense_away(void **state)
{
    struct rig *r = *state;
    join_both(r);
    wk_external_opened(r->x, 3);
    wk_external_message(r->x, 3, lh_span("nonsense", 8));
    assert_int_equal(r->sent[2].m.as.refused.why, WK_CHANNEL_BAD);
    assert_int_equal(r->overs, 0); // the others go on
    say_kind(r, 1, WK_CHANNEL_DESCRIBED);
    assert_int_equal(r->overs, 1); // out of turn, from one that is in
    wk_external_opened(r->x, 4);
    wk_external_message(r->x, 4, lh_span("\x08\0\0\0\x02\0\x01\0", 8));
    assert_int_equal(r->sent[r->sents - 1].m.as.refused.why, WK_CHANNEL_OTHER_VERSION);
}

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
    wk_channel_note(&r->channel, 0, 1)->upto = 65; // it belongs to the next one
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
    // The note stays for the other part, which did not commit yet.
    assert_int_equal(wk_channel_worker_rank(&r->channel, 0)->retired, 0);
    wk_external_want(r->x, 1, 6);
    both_cut(r, 1, 1, 6);
    wk_external_committed(r->x, 1, 1);
    assert_int_equal(wk_channel_worker_rank(&r->channel, 0)->retired, 1);
    say_kind(r, 1, WK_CHANNEL_RING);
    assert_int_equal(r->cuts, 2); // none twice
}

static void a_cut_that_cannot_be_ends_the_life(void **state)
{
    struct rig *r = *state;
    join_both(r);
    rank_cuts(r, 0, 0, 1, 5, 0); // nobody asked
    wk_external_want(r->x, 1, 5);
    say_kind(r, 1, WK_CHANNEL_RING);
    assert_int_equal(r->overs, 0);
    rank_cuts(r, 1, 0, 2, 5, 0); // the one after the one that is wanted
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
    rank_cuts(r, 0, 1, 1, 6, 0); // another step
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
    rank_cuts(r, 0, 1, 1, 5, 0); // this rank never rang
    wk_external_closed(r->x, 1);
    assert_int_equal(r->cuts, 1);
    wk_external_committed(r->x, 0, 1);
    assert_int_equal(r->forgets, 1);
}

// The worker dies; the trainer brings the memory back to the next one.
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
    assert_int_equal(wk_external_renew(r->x, 0, view0), LH_OK);
    wk_external_want(r->x, 0, 5);
    rank_cuts(r, 0, 0, 1, 5, 1);
    rank_cuts(r, 0, 1, 1, 5, 1);
    say_kind(r, 1, WK_CHANNEL_RING);
    assert_int_equal(r->cuts, 1);
    die_and_return(r, NULL);
    assert_int_equal(r->resumes, 1);
    assert_int_equal(r->cuts, 2); // the same again
    assert_int_equal(wk_external_delta(r->x, 0, 0, 1000, delta), LH_OK);
    assert_true(delta[0] == 13 - 9);
    wk_external_committed(r->x, 0, 1);
    for (int i = 0; i < 1000; i++) view0[i] = 9;
    uint64_t published = wk_channel_part(&r->channel, 0)->published;
    assert_int_equal(wk_external_renew(r->x, 0, view0), LH_OK); // the slot is that already
    assert_int_equal(wk_channel_part(&r->channel, 0)->published, published);
}

static void the_word_follows_the_commit(void **state)
{
    struct rig *r = *state;
    join_both(r);
    wk_external_want(r->x, 0, 5);
    both_cut(r, 0, 1, 5);
    r->own[0] = 1; // committed, and then it died before the word moved
    die_and_return(r, NULL);
    assert_int_equal(r->resumes, 1);
    assert_int_equal(r->cuts, 1); // not again
    assert_int_equal(wk_channel_part(&r->channel, 0)->committed, 1);
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
    r->own[1] = 1; // a number that no rank wrote
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
    assert_int_equal(wk_external_renew(r->x, 0, view0), LH_OK);
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
    assert_int_equal(r->overs, 0); // the other one reads the final parameters
    say_kind(r, 2, WK_CHANNEL_LEAVE);
    wk_external_closed(r->x, 2);
    assert_int_equal(r->orderlies, 1);
    assert_int_equal(r->lost, 0);
}

static void leases_have_room_or_wait(void **state)
{
    struct rig *r = *state;
    assert_int_equal(wk_external_lease(r->x, 0, 1, 0, 64), LH_ERR_BUSY); // nobody is there
    join_both(r);
    for (uint64_t i = 0; i < 8; i++) assert_int_equal(wk_external_lease(r->x, 1, i, 0, 64), LH_OK);
    assert_int_equal(wk_external_lease(r->x, 1, 8, 0, 64), LH_ERR_BUSY);
    assert_int_equal(wk_external_waiting(r->x, 1), 8);
    wk_channel_rank(&r->channel, 1)->taken = 3;
    assert_int_equal(wk_external_lease(r->x, 1, 8, 0, 64), LH_OK);
    assert_int_equal(wk_channel_lease(&r->channel, 1, 8)->unit, 8);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(lets_all_ranks_in_or_none),
        TEST(wants_shares_that_make_a_whole),
        TEST(sends_nonsense_away),
        TEST(a_cut_counts_when_all_ranks_wrote_it),
        TEST(a_cut_that_cannot_be_ends_the_life),
        TEST(ranks_must_agree),
        TEST(a_cut_cannot_hold_what_is_not_published),
        TEST(counts_what_no_cut_holds),
        TEST(a_cut_that_was_whole_at_a_death_counts),
        TEST(a_life_goes_on_with_a_cut_that_was_not_committed),
        TEST(the_word_follows_the_commit),
        TEST(other_commits_end_the_life),
        TEST(a_commit_without_its_cut_ends_the_life),
        TEST(a_memory_of_another_life_is_refused),
        TEST(a_damaged_correction_ends_the_life),
        TEST(one_that_begins_anew_ends_the_others_life),
        TEST(ranks_leave_one_by_one),
        TEST(leases_have_room_or_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
