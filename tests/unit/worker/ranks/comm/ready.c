// The ring of events: which event a bucket waits for, on made-up streams.
#include "tests/test.h"
#include "worker/ranks/comm/ready.h"

#include <stdlib.h>

enum { MANY = 3 * WK_READY_EVENTS };

struct event {
    uint64_t recorded; // number of its record() call
};

static struct {
    uint64_t records, followed; // followed: the record that a stream waits for
    int events, fails_at;       // fails_at: creating this event fails; 0: none
} made;

static int event_create(lk_gpu_event *out)
{
    if (made.fails_at && made.events + 1 == made.fails_at) return 1;
    *out = calloc(1, sizeof(struct event));
    made.events++;
    return *out ? 0 : 1;
}

static void event_destroy(lk_gpu_event event)
{
    free(event);
    made.events--;
}

static int event_record(lk_gpu_event event, lk_gpu_stream stream)
{
    (void)stream;
    ((struct event *)event)->recorded = ++made.records;
    return 0;
}

static int event_follow(lk_gpu_stream stream, lk_gpu_event event)
{
    (void)stream;
    made.followed = ((const struct event *)event)->recorded;
    return 0;
}

static const char *error_text(int err)
{
    return err ? "made up" : "fine";
}

static const struct lk_gpu_streams streams = {.event_create = event_create,
                                              .event_destroy = event_destroy,
                                              .event_record = event_record,
                                              .event_follow = event_follow};
static const struct lk_gpu_backend gpu = {.streams = &streams, .error_text = error_text};

static uint64_t followed(struct wk_ready *r, uint64_t needed)
{
    assert_int_equal(wk_ready_follow(r, NULL, needed), 0);
    return made.followed;
}

static struct wk_ready *ring(void)
{
    struct wk_ready *r;
    made.records = 0;
    assert_int_equal(wk_ready_create(&gpu, &r), LH_OK);
    return r;
}

TEST(a_bucket_follows_the_first_event_that_covers_it)
{
    struct wk_ready *r = ring();
    for (uint64_t final = 10; final <= 40; final += 10)
        assert_int_equal(wk_ready_record(r, NULL, final), 0);
    assert_int_equal(followed(r, 1), 1);
    assert_int_equal(followed(r, 10), 1);
    assert_int_equal(followed(r, 11), 2);
    assert_int_equal(followed(r, 40), 4);
    assert_int_equal(wk_ready_record(r, NULL, WK_READY_ALL), 0);
    // after the whole pass a bucket still waits for its own event
    assert_int_equal(followed(r, 25), 3);
    assert_int_equal(followed(r, 41), 5);
    assert_int_equal(followed(r, WK_READY_ALL), 5);
    assert_int_equal(wk_ready_record(r, NULL, WK_READY_ALL), 0);
    assert_int_equal(followed(r, WK_READY_ALL), 6); // includes the work queued since then
    wk_ready_destroy(r);
}

TEST(a_new_gradient_has_no_events_of_the_old_one)
{
    struct wk_ready *r = ring();
    made.followed = 99;
    assert_int_equal(followed(r, WK_READY_ALL), 99); // a new rank waits for no event
    for (int i = 0; i < 3; i++) {
        wk_ready_forget(r);
        if (i) assert_int_equal(followed(r, WK_READY_ALL), 2 * (uint64_t)i);
        assert_int_equal(wk_ready_record(r, NULL, 10), 0);
        assert_int_equal(wk_ready_record(r, NULL, 20), 0);
        assert_int_equal(followed(r, 5), 2 * (uint64_t)i + 1);
    }
    wk_ready_forget(r);
    assert_int_equal(wk_ready_record(r, NULL, WK_READY_ALL), 0); // zeros only
    assert_int_equal(followed(r, 5), 7);
    wk_ready_destroy(r);
}

TEST(more_layers_than_events_follow_later_ones)
{
    struct wk_ready *r = ring();
    for (uint64_t final = 1; final <= MANY; final++)
        assert_int_equal(wk_ready_record(r, NULL, final), 0);
    assert_int_equal(followed(r, 1), MANY - WK_READY_EVENTS + 1);
    assert_int_equal(followed(r, MANY - 1), MANY - 1);
    wk_ready_destroy(r);
}

TEST(no_event_is_left_where_one_fails)
{
    struct wk_ready *r;
    for (made.fails_at = 1; made.fails_at <= WK_READY_EVENTS; made.fails_at += 21) {
        assert_int_equal(wk_ready_create(&gpu, &r), LH_ERR_UNSUPPORTED);
        assert_null(r);
        assert_int_equal(made.events, 0);
    }
    made.fails_at = 0;
    wk_ready_destroy(ring());
    assert_int_equal(made.events, 0);
    wk_ready_destroy(NULL);
}
