// Budgets over HTTP/2 frames: how each frame is counted, in pieces of any size, and that they
// suffice for an honest peer.
#include <string.h>

#include "common/base/check.h"
#include "common/env/env.h"
#include "common/net/grpc/transport_grpc_frames.h"
#include "tests/test.h"

static const uint8_t preface[24];

struct stream {
    struct lh_grpc_frames frames;
    struct lh_grpc_allowance allowance;
    int64_t now_ns;
};

static void begin(struct stream *s)
{
    *s = (struct stream){.now_ns = 5 * LH_SECOND};
    lh_grpc_allowance_begin(&s->allowance, s->now_ns);
    assert_null(lh_grpc_frames_read(&s->frames, &s->allowance, s->now_ns, preface, sizeof preface));
}

static const char *send_frame(struct stream *s, uint8_t type, uint8_t flags, size_t length,
                              size_t piece)
{
    uint8_t bytes[9 + 4096] = {0, (uint8_t)(length >> 8), (uint8_t)length, type, flags};
    const char *much = NULL;
    assert_true(length <= 4096 && piece > 0);
    for (size_t at = 0; at < 9 + length && !much; at += piece) {
        size_t n = piece < 9 + length - at ? piece : 9 + length - at;
        much = lh_grpc_frames_read(&s->frames, &s->allowance, s->now_ns, bytes + at, n);
    }
    return much;
}

static long until_too_much(struct stream *s, uint8_t type, uint8_t flags, size_t length)
{
    long n = 0;
    while (!send_frame(s, type, flags, length, 4096)) assert_true(++n < 10000000);
    s->frames.left = 0; // drops the rest of that frame
    return n;
}

TEST(each_kind_has_its_budget)
{
    static const struct {
        uint8_t type, flags;
        size_t length;
        long most;
    } row[] = {
        {0, 0, 0, LH_GRPC_SMALL_BURST},  {3, 0, 4, LH_GRPC_RESETS_BURST},
        {4, 0, 6, LH_GRPC_SMALL_BURST},  {6, 0, 8, LH_GRPC_SMALL_BURST},
        {6, 1, 8, LH_GRPC_SMALL_BURST},  {2, 0, 5, LH_GRPC_SMALL_BURST},
        {99, 0, 0, LH_GRPC_SMALL_BURST}, {8, 0, 4, LH_GRPC_WINDOWS_BURST},
        {1, 4, 100, LH_GRPC_EARLY_MAX},  {9, 0, 4096, LH_GRPC_BLOCK_BYTES_MAX / 4096},
    };
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        struct stream s;
        begin(&s);
        assert_int_equal(until_too_much(&s, row[i].type, row[i].flags, row[i].length), row[i].most);
    }
}

TEST(requests_after_the_settings)
{
    struct stream s;
    begin(&s);
    assert_null(send_frame(&s, 4, 1, 0, 9));
    assert_int_equal(until_too_much(&s, 1, 5, 100), LH_GRPC_REQUESTS_BURST);
    begin(&s);
    assert_null(send_frame(&s, 4, 1, 0, 9));
    assert_int_equal(until_too_much(&s, 1, 5, 1024), LH_GRPC_HEADERS_BURST / 1024);
}

// A server answers as often as it is asked, and may end calls that it has not heard to their end.
TEST(a_server_is_charged_for_what_no_answer_needs)
{
    static const struct {
        uint8_t type, flags;
        size_t length;
        long most;
    } row[] = {{0, 0, 0, LH_GRPC_SMALL_BURST},
               {6, 0, 8, LH_GRPC_SMALL_BURST},
               {4, 0, 6, LH_GRPC_SMALL_BURST},
               {9, 0, 4096, LH_GRPC_BLOCK_BYTES_MAX / 4096}};
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        struct stream s = {.frames.dialled = true, .now_ns = 5 * LH_SECOND};
        lh_grpc_allowance_begin(&s.allowance, s.now_ns);
        for (int k = 0; k < 2 * LH_GRPC_WINDOWS_BURST; k++) {
            assert_null(send_frame(&s, 1, 4, 100, 4096));
            assert_null(send_frame(&s, 3, 0, 4, 4096));
            assert_null(send_frame(&s, 8, 0, 4, 4096));
        }
        assert_int_equal(until_too_much(&s, row[i].type, row[i].flags, row[i].length), row[i].most);
    }
}

TEST(pieces_make_no_difference)
{
    for (size_t piece = 1; piece < 40; piece++) {
        struct stream s;
        long resets = 0;
        begin(&s);
        while (!send_frame(&s, 3, 0, 4, piece)) {
            assert_null(send_frame(&s, 0, 0, 333, piece)); // data frames are free
            resets++;
        }
        assert_int_equal(resets, LH_GRPC_RESETS_BURST);
    }
}

TEST(data_is_free)
{
    struct stream s;
    begin(&s);
    for (int i = 0; i < 2 * LH_GRPC_SMALL_BURST; i++) assert_null(send_frame(&s, 0, 0, 4096, 4105));
}

TEST(time_gives_back)
{
    struct stream s;
    begin(&s);
    assert_int_equal(until_too_much(&s, 3, 0, 4), LH_GRPC_RESETS_BURST);
    s.now_ns += LH_SECOND;
    assert_int_equal(until_too_much(&s, 3, 0, 4), LH_GRPC_RESETS_PER_S);
    s.now_ns += 1000 * LH_SECOND; // the burst is the maximum
    assert_int_equal(until_too_much(&s, 3, 0, 4), LH_GRPC_RESETS_BURST);
    for (int i = 0; i < 1000; i++) { // small steps add up
        s.now_ns += LH_SECOND / 1000;
        (void)lh_grpc_spend(&s.allowance, LH_GRPC_RESETS_SPENT, 0, s.now_ns);
    }
    assert_int_equal(until_too_much(&s, 3, 0, 4), LH_GRPC_RESETS_PER_S);
    s.now_ns -= 10 * LH_SECOND; // a clock that is set back adds nothing
    assert_int_equal(until_too_much(&s, 3, 0, 4), 0);
}
