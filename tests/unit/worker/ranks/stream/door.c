// A listener's waiting places: a connection that has greeted is handed over. A silent one loses its
// place only when others wait or its time is over; the oldest goes first. The test sets the clock.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/check.h"
#include "tests/test.h"
#include "worker/ranks/stream/door.h"

enum { GREETING = 4, MANY = 100000 };

struct world {
    struct wk_door door;
    struct wk_address address;
    int64_t now;
    int refusals;
    char why[256];
    struct wk_guest guest;
};

static void on_refused(void *arg, const char *why)
{
    struct world *w = arg;
    w->refusals++;
    snprintf(w->why, sizeof w->why, "%s", why);
}

static void open_world(struct world *w)
{
    *w = (struct world){.address = wk_address_loopback(0)};
    struct wk_door_conf conf = {.greeting_bytes = GREETING, .refused = on_refused, .arg = w};
    assert_int_equal(wk_address_listen(&w->address, 64, &conf.listener), LH_OK);
    wk_door_open(&w->door, &conf);
}

static int come(const struct world *w)
{
    struct sockaddr_storage a;
    socklen_t size = wk_address_sockaddr(&w->address, &a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, size), 0);
    return fd;
}

static int guests(const struct world *w)
{
    int count = 0;
    for (int i = 0; i < WK_DOOR_GUESTS; i++) count += w->door.guest[i].stream.fd >= 0;
    return count;
}

static bool look(struct world *w)
{
    struct pollfd p[WK_DOOR_POLLS];
    nfds_t n = wk_door_polls(&w->door, p);
    poll(p, n, 1);
    return wk_door_next(&w->door, w->now, &w->guest);
}

#define UNTIL(w, condition)                                                                        \
    do {                                                                                           \
        int looks = 0;                                                                             \
        while (!(condition)) {                                                                     \
            if (looks++ > MANY) fail_msg("waited in vain for %s", #condition);                     \
            assert_false(look(w));                                                                 \
        }                                                                                          \
    } while (0)

static void check_greets(struct world *w, const char *text)
{
    for (int i = 0; !look(w); i++)
        if (i > MANY) fail_msg("%s never gets in", text);
    assert_memory_equal(w->guest.greeting, text, GREETING);
    wk_stream_close(&w->guest.stream);
}

TEST(a_greeting_may_come_in_pieces)
{
    struct world w;
    open_world(&w);
    int a = come(&w), b = come(&w);
    UNTIL(&w, guests(&w) == 2);
    assert_int_equal(write(a, "on", 2), 2);
    assert_int_equal(write(b, "two.", 4), 4);
    check_greets(&w, "two.");
    UNTIL(&w, guests(&w) == 1);
    assert_int_equal(write(a, "e.behind", 8), 8);
    check_greets(&w, "one.");
    close(a);
    close(b);
    a = come(&w);
    assert_int_equal(write(a, "gon", 3), 3);
    close(a);
    UNTIL(&w, w.refusals == 1);
    assert_non_null(strstr(w.why, "before it had greeted"));
    wk_door_close(&w.door);
    wk_door_close(&w.door);
}

TEST(a_guest_that_does_not_greet_in_time_is_refused)
{
    struct world w;
    char byte;
    open_world(&w);
    int a = come(&w);
    UNTIL(&w, guests(&w) == 1);
    w.now = WK_DOOR_PATIENCE_S * LH_SECOND;
    for (int i = 0; i < 5; i++) assert_false(look(&w));
    assert_int_equal(w.refusals, 0);
    w.now++;
    UNTIL(&w, w.refusals == 1);
    assert_int_equal(read(a, &byte, 1), 0);
    close(a);
    wk_door_close(&w.door);
}

TEST(all_places_are_taken)
{
    struct world w;
    int fd[WK_DOOR_GUESTS];
    char byte;
    open_world(&w);
    for (int i = 0; i < WK_DOOR_GUESTS; i++) {
        fd[i] = come(&w);
        UNTIL(&w, guests(&w) == i + 1);
        w.now++;
    }
    close(fd[0]); // the first one leaves, and another takes its place
    UNTIL(&w, w.refusals == 1);
    fd[0] = come(&w);
    UNTIL(&w, guests(&w) == WK_DOOR_GUESTS);
    int rank = come(&w);
    assert_int_equal(write(rank, "rank", 4), 4);
    for (int i = 0; i < 20; i++) assert_false(look(&w)); // they still have time
    assert_int_equal(w.refusals, 1);
    w.now = WK_DOOR_GRACE_S * LH_SECOND + 1; // fd[1] alone is out of time
    check_greets(&w, "rank");
    assert_int_equal(w.refusals, 2);
    assert_non_null(strstr(w.why, "others wait"));
    assert_int_equal(read(fd[1], &byte, 1), 0);
    UNTIL(&w, guests(&w) == WK_DOOR_GUESTS - 1);
    for (int i = 0; i < WK_DOOR_GUESTS; i++) close(fd[i]);
    close(rank);
    wk_door_close(&w.door);
}
