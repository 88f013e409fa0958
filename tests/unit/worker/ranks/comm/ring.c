// A ring of ranks in threads: sums in the order of ranks bit for bit, in fp32 and in bf16; sharing
// rank 0's values; a rank that dies, sends garbage, or is told to leave.
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kernels/convert.h"
#include "tests/test.h"
#include "worker/ranks/comm/ring.h"

enum { RANKS = 5, SEGMENT = WK_RING_SEGMENT_BYTES / 4, SIZE = 3 * SEGMENT + 1001 };

struct member {
    struct wk_ring ring;
    struct wk_stream before, after;
    float *x;
    uint64_t n;
    enum { SUM, SHARE } what;
    enum wk_sum_type type;
    lh_err err;
    pthread_t thread;
};

static void open_ring(struct member *m, uint32_t ranks)
{
    for (uint32_t i = 0; i < ranks; i++)
        m[i].ring = (struct wk_ring){.ranks = ranks,
                                     .rank = i,
                                     .bell = eventfd(0, EFD_NONBLOCK),
                                     .scratch = malloc(WK_RING_SCRATCH_BYTES)};
    for (uint32_t i = 0; i < ranks; i++) {
        int pair[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
        struct member *next = &m[(i + 1) % ranks];
        m[i].after = (struct wk_stream){.fd = pair[0]};
        next->before = (struct wk_stream){.fd = pair[1]};
        m[i].ring.after = &m[i].after;
        next->ring.before = &next->before;
    }
}

static void close_ring(struct member *m, uint32_t ranks)
{
    for (uint32_t i = 0; i < ranks; i++) {
        wk_stream_close(&m[i].after);
        wk_stream_close(&m[i].before);
        close(m[i].ring.bell);
        free(m[i].ring.scratch);
        free(m[i].x);
    }
}

static void *take_part(void *arg)
{
    struct member *m = arg;
    struct wk_ring *r = &m->ring;
    size_t unit = sizeof *m->x;
    m->err = m->what == SHARE ? wk_ring_share(r, m->x, m->n * unit)
                              : wk_ring_sum(r, m->x, m->n, m->type);
    return NULL;
}

static void run_all(struct member *m, uint32_t ranks)
{
    for (uint32_t i = 0; i < ranks; i++)
        assert_int_equal(pthread_create(&m[i].thread, NULL, take_part, &m[i]), 0);
    for (uint32_t i = 0; i < ranks; i++) pthread_join(m[i].thread, NULL);
}

// Values of very different sizes, so that the order of a sum matters.
static float value(uint32_t rank, uint64_t i)
{
    uint32_t h = (rank + 1) * 2654435761u ^ (uint32_t)i * 40503u;
    h ^= h >> 15;
    return ldexpf((float)(int32_t)(h * 2246822519u) / 2147483648.0f, (int)(h % 24));
}

static void fill(struct member *m, uint32_t ranks, uint64_t n)
{
    for (uint32_t rank = 0; rank < ranks; rank++) {
        m[rank].n = n;
        m[rank].x = malloc((n + 1) * sizeof *m[rank].x);
        assert_non_null(m[rank].x);
        for (uint64_t i = 0; i < n; i++) m[rank].x[i] = value(rank, i);
        m[rank].x[n] = -7; // must not be overwritten
    }
}

// The value after it was sent between ranks.
static float as(enum wk_sum_type type, float x)
{
    uint16_t narrow;
    if (type == WK_SUM_FP32) return x;
    lk_bf16_of_fp32(&x, &narrow, 1);
    lk_fp32_of_bf16(&narrow, &x, 1);
    return x;
}

static void check_sum(const struct member *m, uint32_t ranks, uint64_t n, enum wk_sum_type type)
{
    for (uint64_t i = 0; i < n; i++) {
        float sum = as(type, value(0, i));
        double exact = (double)value(0, i), sizes = fabs(exact);
        for (uint32_t rank = 1; rank < ranks; rank++) {
            sum = as(type, sum + as(type, value(rank, i)));
            exact += (double)value(rank, i);
            sizes += fabs((double)value(rank, i));
        }
        // Each sum rounds by half an ulp: 2^-24 of the sum so far. In bf16 it is 2^-8 of that and
        // of each value, hence the power, which is about 1 + ranks / 256.
        double bound = type == WK_SUM_BF16 ? pow(1 + ldexp(1, -8) + ldexp(1, -23), ranks) - 1
                                           : ranks * ldexp(1, -24);
        assert_true(fabs((double)sum - exact) <= bound * sizes);
        for (uint32_t rank = 0; rank < ranks; rank++)
            assert_memory_equal(&m[rank].x[i], &sum, sizeof sum);
    }
    for (uint32_t rank = 0; rank < ranks; rank++) assert_true(m[rank].x[n] == -7);
}

TEST(sums_in_ranks_order)
{
    static const uint64_t sizes[] = {0, 1, 2, 4099, SEGMENT, SEGMENT + 1, 2 * SEGMENT, SIZE};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    for (uint32_t ranks = 2; ranks <= RANKS; ranks++)
        for (size_t s = 0; s < 2 * SIZES; s++) {
            enum wk_sum_type type = s < SIZES ? WK_SUM_FP32 : WK_SUM_BF16;
            struct member m[RANKS] = {0};
            open_ring(m, ranks);
            fill(m, ranks, sizes[s % SIZES]);
            for (uint32_t i = 0; i < ranks; i++) m[i].type = type;
            run_all(m, ranks);
            for (uint32_t i = 0; i < ranks; i++) assert_int_equal(m[i].err, LH_OK);
            check_sum(m, ranks, sizes[s % SIZES], type);
            close_ring(m, ranks);
        }
}

// All ranks get the same bits, also if one rank's value is NaN or infinite.
TEST(non_finite_values_reach_all_ranks)
{
    enum { N = 5 };
    static const float bad[N] = {NAN, INFINITY, -INFINITY, 3e38f, 1};
    for (uint32_t at = 0; at < 3; at++) {
        struct member m[3] = {0};
        open_ring(m, 3);
        fill(m, 3, N);
        memcpy(m[at].x, bad, sizeof bad);
        m[(at + 1) % 3].x[3] = 3e38f; // the sum exceeds the largest number
        for (uint32_t i = 0; i < 3; i++) m[i].type = WK_SUM_BF16;
        run_all(m, 3);
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(m[i].err, LH_OK);
            assert_memory_equal(m[i].x, m[0].x, sizeof bad);
        }
        assert_true(isnan(m[0].x[0]) && isfinite(m[0].x[4]));
        assert_true(m[0].x[1] == INFINITY && m[0].x[2] == -INFINITY && m[0].x[3] == INFINITY);
        close_ring(m, 3);
    }
}

TEST(all_ranks_get_rank_0s_values)
{
    for (uint32_t ranks = 2; ranks <= RANKS; ranks++) {
        struct member m[RANKS] = {0};
        open_ring(m, ranks);
        fill(m, ranks, SIZE);
        for (int again = 0; again < 2; again++) { // several operations in a row
            for (uint32_t i = 0; i < ranks; i++) m[i].what = again ? SUM : SHARE;
            run_all(m, ranks);
            for (uint32_t i = 0; i < ranks; i++) {
                assert_int_equal(m[i].err, LH_OK);
                assert_memory_equal(m[i].x, m[0].x, SIZE * sizeof(float));
            }
            if (again) continue;
            for (uint64_t i = 0; i < SIZE; i++) assert_true(m[ranks - 1].x[i] == value(0, i));
        }
        close_ring(m, ranks);
    }
}

TEST(a_rank_that_goes)
{
    struct member m[3] = {0};
    open_ring(m, 3);
    fill(m, 3, SIZE);
    wk_stream_close(&m[1].after);
    wk_stream_close(&m[1].before);
    for (uint32_t i = 0; i < 3; i += 2)
        assert_int_equal(pthread_create(&m[i].thread, NULL, take_part, &m[i]), 0);
    for (uint32_t i = 0; i < 3; i += 2) pthread_join(m[i].thread, NULL);
    assert_int_equal(m[0].err, LH_ERR_UNAVAILABLE);
    assert_int_equal(m[2].err, LH_ERR_UNAVAILABLE);
    close_ring(m, 3);
}

TEST(one_that_is_told_to_leave)
{
    struct member m[2] = {0};
    uint64_t one = 1;
    open_ring(m, 2);
    fill(m, 2, SIZE);
    assert_int_equal(pthread_create(&m[0].thread, NULL, take_part, &m[0]), 0);
    assert_int_equal(write(m[0].ring.bell, &one, sizeof one), sizeof one);
    pthread_join(m[0].thread, NULL);
    assert_int_equal(m[0].err, LH_ERR_CANCELLED);
    close_ring(m, 2);
}

// A head with one changed byte, and a head of another segment than the next one.
TEST(nonsense)
{
    static const uint8_t good[WK_RING_HEAD_BYTES] = {'W', 'S', 'E', 'G', 1};
    static const size_t wrong[] = {0, 4, 8, 12};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct member m[2] = {0};
        uint8_t head[WK_RING_HEAD_BYTES];
        open_ring(m, 2);
        fill(m, 2, 10);
        memcpy(head, good, sizeof head);
        // kind 2 is a result, which the last rank never gets
        head[wrong[i]] ^= wrong[i] == 4 ? 3 : 1;
        assert_int_equal(write(m[0].after.fd, head, sizeof head), sizeof head);
        take_part(&m[1]);
        assert_int_equal(m[1].err, LH_ERR_MALFORMED);
        close_ring(m, 2);
    }
}
