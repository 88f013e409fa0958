// A listener's clock stands still during a pause of its process, and for the same time after it.
#include "common/net/listener.h"
#include "tests/test.h"

enum { GAP = 100, REST = 1000, START = 5000 };

static struct lh_listener begun(void)
{
    struct lh_listener l;
    lh_listener_start(&l, START, GAP, REST);
    return l;
}

TEST(while_it_looks_often_it_goes_with_the_time)
{
    struct lh_listener l = begun();
    assert_int_equal(lh_listener_look(&l, START), START);
    for (int64_t at = START; at <= START + 3000; at += GAP)
        assert_int_equal(lh_listener_look(&l, at), at);
    assert_false(lh_listener_rests(&l));
}

TEST(a_pause_does_not_count_nor_as_long_a_time_after_it)
{
    struct lh_listener l = begun();
    int64_t at = START + 700; // a pause of 700
    assert_int_equal(lh_listener_look(&l, at), START);
    for (int i = 0; i < 7; i++) {
        assert_true(lh_listener_rests(&l));
        assert_int_equal(lh_listener_look(&l, at += GAP), START);
    }
    assert_false(lh_listener_rests(&l));
    assert_int_equal(lh_listener_look(&l, at += 40), START + 40);
    assert_int_equal(lh_listener_look(&l, at += GAP + 1), START + 40);
}

// The first look that is partly within the rest counts only the part after it.
TEST(a_look_across_the_end_of_a_rest_counts_the_part_beyond_it)
{
    struct lh_listener l = begun();
    assert_int_equal(lh_listener_look(&l, START + 130), START);
    assert_int_equal(lh_listener_look(&l, START + 230), START);
    assert_int_equal(lh_listener_look(&l, START + 330), START + 70);
}

TEST(a_long_pause_is_followed_by_a_rest_of_bounded_length)
{
    struct lh_listener l = begun();
    int64_t at = START + 1000000;
    assert_int_equal(lh_listener_look(&l, at), START);
    for (int64_t rest = 0; rest < REST; rest += GAP)
        assert_int_equal(lh_listener_look(&l, at += GAP), START);
    assert_int_equal(lh_listener_look(&l, at += GAP), START + GAP);
}

// Consecutive pauses: each is followed by its own rest, and none shortens the rest of a longer one.
TEST(a_pause_in_a_rest_does_not_shorten_it)
{
    struct lh_listener l = begun();
    int64_t at = START + 900;
    assert_int_equal(lh_listener_look(&l, at), START);
    assert_int_equal(lh_listener_look(&l, at += GAP), START); // 800 of its rest are left
    // This pause does not shorten them.
    assert_int_equal(lh_listener_look(&l, at += 2 * GAP), START);
    for (int i = 0; i < 8; i++) assert_int_equal(lh_listener_look(&l, at += GAP), START);
    assert_int_equal(lh_listener_look(&l, at += GAP), START + GAP);
}

TEST(it_never_falls)
{
    struct lh_listener l = begun();
    assert_int_equal(lh_listener_look(&l, START + 50), START + 50);
    assert_int_equal(lh_listener_look(&l, START + 20), START + 50);
    assert_int_equal(lh_listener_look(&l, START + 60), START + 60);
}
