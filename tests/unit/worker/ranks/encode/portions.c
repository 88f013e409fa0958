// Portions of pushes and who encodes them, under a virtual clock: seeds of ranks that answer, are
// late, wrong, lost and come back. Whatever they do, each portion is encoded once, by somebody who
// had it, and the leader waits for no longer than it says.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "common/base/check.h"
#include "common/env/env.h"
#include "worker/ranks/encode/portions.h"

enum { RANKS = 4, PORTIONS = 23, MAIL = 64, SEEDS = 2000, PATIENCE = 1000 };

static struct wk_portions portions_of(uint32_t ranks, uint64_t here)
{
    struct wk_portions p = {.ranks = ranks, .patience_ns = PATIENCE, .push = 41};
    wk_portions_here(&p, here);
    return p;
}

static enum wk_portions_next next(struct wk_portions *p, int64_t now)
{
    size_t portion;
    return wk_portions_next(p, now, &portion);
}

static void encode_own(struct wk_portions *p, int64_t now, size_t count)
{
    size_t portion;
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(wk_portions_next(p, now, &portion), WK_PORTIONS_ENCODE);
        wk_portions_done(p, portion, true);
    }
}

static void each_rank_has_its_portion_at_once(void **state)
{
    uint32_t rank;
    size_t portion;
    (void)state;
    struct wk_portions p = portions_of(3, 6);
    assert_int_equal(wk_portions_helpers(&p), 2);
    assert_int_equal(wk_portions_begin(&p, 3), LH_OK);
    encode_own(&p, 0, 1); // the leader's one: the others are the ranks' before they are asked
    assert_int_equal(next(&p, 0), WK_PORTIONS_WAIT);
    assert_false(wk_portions_came(&p, 1, 42, 0)); // Nobody was asked for it yet.
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(wk_portions_ask(&p, &rank, &portion));
        assert_int_equal(rank, 1 + i);
        assert_int_equal(portion, i);
        assert_false(wk_portions_came(&p, rank, 41, portion)); // It is of another push.
        assert_false(wk_portions_came(&p, 3 - rank, 42, portion));
        assert_true(wk_portions_came(&p, rank, 42, portion));
        assert_false(wk_portions_came(&p, rank, 42, portion)); // twice
        assert_int_equal(wk_portions_next(&p, 0, &portion), WK_PORTIONS_CHECK);
        wk_portions_done(&p, portion, true);
    }
    assert_false(wk_portions_ask(&p, &rank, &portion));
    assert_int_equal(next(&p, 0), WK_PORTIONS_END);
    assert_true(p.counts.leader == 1 && p.counts.ranks == 2);
    wk_portions_free(&p);
}

static void fewer_portions_than_encoders_are_anothers_each_time(void **state)
{
    uint32_t rank;
    size_t portion;
    unsigned of[3] = {0};
    (void)state;
    struct wk_portions p = portions_of(3, 6);
    for (unsigned push = 0; push < 10; push++) {
        assert_int_equal(wk_portions_begin(&p, 2), LH_OK);
        assert_true(wk_portions_ask(&p, &rank, &portion));
        of[rank]++;
        assert_false(wk_portions_ask(&p, &rank, &portion)); // One is the leader's.
        wk_portions_end(&p);
    }
    assert_true(of[1] == 5 && of[2] == 5);
    wk_portions_free(&p);
}

static void one_portion_and_nobody_there_are_the_leaders(void **state)
{
    uint32_t rank;
    size_t portion;
    (void)state;
    struct wk_portions one = portions_of(3, 6), none = portions_of(3, 0);
    assert_int_equal(wk_portions_begin(&one, 1), LH_OK);
    assert_int_equal(wk_portions_begin(&none, 5), LH_OK);
    encode_own(&one, 0, 1);
    encode_own(&none, 0, 5);
    assert_int_equal(next(&one, 0), WK_PORTIONS_END);
    assert_false(wk_portions_ask(&none, &rank, &portion));
    assert_int_equal(next(&none, 0), WK_PORTIONS_END);
    wk_portions_free(&one);
    wk_portions_free(&none);
}

// The rank that is late is done without for this push and 16 more; its answer is not taken any
// more.
static void a_rank_that_is_late_is_done_without(void **state)
{
    uint32_t rank;
    size_t portion, other;
    (void)state;
    struct wk_portions p = portions_of(2, 2);
    assert_int_equal(wk_portions_begin(&p, 2), LH_OK);
    encode_own(&p, 0, 1);
    assert_true(wk_portions_ask(&p, &rank, &portion));
    assert_int_equal(next(&p, 10), WK_PORTIONS_WAIT);
    assert_int_equal(next(&p, 10 + PATIENCE - 1), WK_PORTIONS_WAIT);
    assert_int_equal(wk_portions_next(&p, 10 + PATIENCE, &other), WK_PORTIONS_ENCODE);
    assert_int_equal(other, portion);
    assert_false(wk_portions_came(&p, rank, 42, portion));
    wk_portions_done(&p, other, true);
    assert_int_equal(next(&p, 0), WK_PORTIONS_END);
    assert_int_equal(p.counts.late, 1);
    for (unsigned i = 0; i < WK_PORTIONS_SKIP; i++) {
        wk_portions_end(&p);
        assert_int_equal(wk_portions_helpers(&p), 0);
        assert_int_equal(wk_portions_begin(&p, 2), LH_OK);
        assert_false(wk_portions_ask(&p, &rank, &portion));
        encode_own(&p, 0, 2);
    }
    wk_portions_end(&p);
    assert_int_equal(wk_portions_helpers(&p), 1);
    wk_portions_free(&p);
}

static void what_is_wrong_is_encoded_by_the_leader(void **state)
{
    uint32_t rank;
    size_t portion, other;
    (void)state;
    struct wk_portions p = portions_of(3, 6);
    assert_int_equal(wk_portions_begin(&p, 3), LH_OK);
    assert_true(wk_portions_ask(&p, &rank, &portion));
    assert_true(wk_portions_came(&p, rank, 42, portion));
    assert_int_equal(wk_portions_next(&p, 0, &other), WK_PORTIONS_CHECK);
    wk_portions_done(&p, other, false);
    assert_int_equal(p.counts.wrong, 1);
    assert_int_equal(wk_portions_helpers(&p), 1); // the other one
    wk_portions_gone(&p, 2);
    encode_own(&p, 0, 3); // what that one had as well, before it was asked
    assert_int_equal(next(&p, 0), WK_PORTIONS_END);
    wk_portions_free(&p);
}

static void who_is_gone_has_nothing(void **state)
{
    uint32_t rank;
    size_t portion;
    (void)state;
    struct wk_portions p = portions_of(2, 2);
    assert_int_equal(wk_portions_begin(&p, 4), LH_OK);
    assert_true(wk_portions_ask(&p, &rank, &portion));
    wk_portions_here(&p, 0);
    assert_false(wk_portions_came(&p, rank, 42, portion));
    encode_own(&p, 0, 4); // All at once: nobody waits.
    assert_int_equal(next(&p, 0), WK_PORTIONS_END);
    assert_int_equal(p.counts.late, 0);
    wk_portions_free(&p);
}

// ---------------------------------------------------------------- seeds

struct mail { // an answer on its way
    uint32_t rank;
    uint64_t push;
    size_t portion;
    int64_t at;
};
struct world {
    uint64_t seed;
    int64_t now;
    struct wk_portions p;
    struct mail mail[MAIL];
    size_t mails;
    unsigned encoded[PORTIONS]; // How often, by whoever counts.
    bool asked[RANKS][PORTIONS];
};

static uint64_t below(struct world *w, uint64_t n)
{
    w->seed = w->seed * 6364136223846793005u + 1442695040888963407u;
    return (w->seed >> 33) % n;
}

static void ask_all(struct world *w)
{
    uint32_t rank;
    size_t portion;
    while (wk_portions_ask(&w->p, &rank, &portion)) {
        uint32_t has = 0;
        assert_true(rank && rank < RANKS && portion < PORTIONS);
        assert_true(w->p.here >> rank & 1);
        for (size_t i = 0; i < w->p.count; i++)
            has += w->p.portion[i].state == WK_PORTION_RANK && w->p.portion[i].rank == rank;
        assert_true(has <= WK_PORTIONS_AHEAD);
        w->asked[rank][portion] = true;
        bool lost = below(w, 6) == 0;
        int64_t takes = (int64_t)below(w, below(w, 5) ? PATIENCE / 2 : 4 * PATIENCE);
        if (!lost && w->mails < MAIL)
            w->mail[w->mails++] = (struct mail){rank, w->p.push, portion, w->now + takes};
    }
}

static void deliver(struct world *w)
{
    for (size_t i = 0; i < w->mails; i++) {
        struct mail m = w->mail[i];
        if (m.at > w->now) continue;
        w->mail[i--] = w->mail[--w->mails];
        bool taken = wk_portions_came(&w->p, m.rank, m.push, m.portion);
        if (taken) assert_true(m.push == w->p.push && w->asked[m.rank][m.portion]);
    }
}

static void come_and_go(struct world *w)
{
    uint32_t rank = 1 + (uint32_t)below(w, RANKS - 1);
    if (below(w, 4) == 0) wk_portions_gone(&w->p, rank);
    if (below(w, 4) == 0) wk_portions_here(&w->p, w->p.here | UINT64_C(1) << rank);
    if (below(w, 30) == 0) wk_portions_here(&w->p, below(w, 8) << 1);
}

// Returns the time that the leader waited.
static int64_t encode_push(struct world *w, size_t count)
{
    int64_t waited = 0;
    memset(w->encoded, 0, sizeof w->encoded);
    memset(w->asked, 0, sizeof w->asked);
    assert_int_equal(wk_portions_begin(&w->p, count), LH_OK);
    for (unsigned turn = 0;; turn++) {
        size_t portion = 0;
        assert_true(turn < 10000);
        if (below(w, 2)) come_and_go(w);
        if (below(w, 3)) ask_all(w);
        deliver(w);
        enum wk_portions_next is = wk_portions_next(&w->p, w->now, &portion);
        if (is == WK_PORTIONS_END) break;
        int64_t takes = (int64_t)below(w, 100);
        w->now += takes;
        if (is == WK_PORTIONS_WAIT) {
            waited += takes;
            continue;
        }
        bool fine = is == WK_PORTIONS_ENCODE || below(w, 5);
        w->encoded[portion] += fine;
        wk_portions_done(&w->p, portion, fine);
    }
    for (size_t i = 0; i < count; i++) assert_int_equal(w->encoded[i], 1);
    wk_portions_end(&w->p);
    return waited;
}

// Once the leader has waited, it does what comes back to it itself.
static void what_comes_back_late_is_the_leaders(void **state)
{
    uint32_t rank;
    size_t portion;
    (void)state;
    struct wk_portions p = portions_of(3, 6);
    assert_int_equal(wk_portions_begin(&p, 3), LH_OK);
    while (wk_portions_ask(&p, &rank, &portion)) continue;
    encode_own(&p, 0, 1);
    assert_int_equal(next(&p, 0), WK_PORTIONS_WAIT);
    wk_portions_gone(&p, 1);
    assert_true(wk_portions_came(&p, 2, 42, 1));
    assert_int_equal(wk_portions_next(&p, 0, &portion), WK_PORTIONS_CHECK);
    wk_portions_done(&p, portion, true);
    encode_own(&p, 0, 1);
    assert_int_equal(next(&p, 0), WK_PORTIONS_END);
    wk_portions_free(&p);
}

static void every_portion_is_encoded_once_whatever_ranks_do(void **state)
{
    struct wk_portions_counts sum = {0};
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct world w = {.seed = seed, .p = {.ranks = RANKS, .patience_ns = PATIENCE}};
        w.p.here = below(&w, 8) << 1;
        for (unsigned push = 0; push < 20; push++) {
            int64_t waited = encode_push(&w, 1 + below(&w, PORTIONS));
            assert_true(waited <= PATIENCE + 100); // a turn more
        }
        sum.leader += w.p.counts.leader;
        sum.ranks += w.p.counts.ranks;
        sum.late += w.p.counts.late;
        sum.wrong += w.p.counts.wrong;
        wk_portions_free(&w.p);
    }
    // Else it would prove nothing.
    assert_true(sum.leader > 1000 && sum.ranks > 1000 && sum.late > 1000 && sum.wrong > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rank_has_its_portion_at_once),
        cmocka_unit_test(fewer_portions_than_encoders_are_anothers_each_time),
        cmocka_unit_test(one_portion_and_nobody_there_are_the_leaders),
        cmocka_unit_test(a_rank_that_is_late_is_done_without),
        cmocka_unit_test(what_is_wrong_is_encoded_by_the_leader),
        cmocka_unit_test(who_is_gone_has_nothing),
        cmocka_unit_test(what_comes_back_late_is_the_leaders),
        cmocka_unit_test(every_portion_is_encoded_once_whatever_ranks_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
