// A communicator over the fake NCCL and device of tests/nccl: two ranks in one process get rank 0's
// values and the sums of both, in fp32 and in bf16, in buckets; everything of an epoch is freed; a
// rank uses the device that its settings name.
#include "tests/test.h"
#include "worker/ranks/comm/comm_nccl.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { RANKS = 2, BEHIND = 90, EARLY = 400 };
enum { VALUES = 1000, BUCKET_BYTES = 4 * 77 }; // 77 or 154 values, which do not divide VALUES

struct rank {
    struct wk_comm *comm;
    float x[VALUES];
    int told;
};

static void open_rank(struct rank *k, uint32_t rank, enum wk_sum_type type)
{
    const struct wk_comm_nccl_conf conf = {
        .library = NCCL_FAKE, .plugin = NCCL_FAKE, .interface = "lo", .log_file = "", .rank = rank};
    assert_int_equal(wk_comm_nccl_create(&conf, &k->comm), LH_OK);
    const struct wk_comm_arrays arrays = {
        .part = {{k->x, sizeof k->x}},
        .parts = 1,
        .sum = k->x,
        .sums = VALUES,
        .behind = BEHIND,
        .bucket_bytes = BUCKET_BYTES,
        .type = type,
    };
    k->told = eventfd(0, EFD_CLOEXEC);
    wk_comm_bind(k->comm, &arrays, k->told);
}

static void all_well(struct rank *k)
{
    eventfd_t count;
    for (int i = 0; i < RANKS; i++) {
        while (wk_comm_region.poll(k[i].comm) == WK_REGION_BUSY)
            assert_int_equal(eventfd_read(k[i].told, &count), 0);
        if (wk_comm_region.poll(k[i].comm) != WK_REGION_OK)
            fail_msg("rank %d: %s", i, wk_comm_region.why(k[i].comm));
    }
}

// Calls a function of tests/nccl/fake.h in the fake device.
static int asked(const char *name)
{
    int (*ask)(void);
    void *library = dlopen(NCCL_FAKE, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    void *symbol = dlsym(library, name);
    assert_non_null(symbol);
    memcpy(&ask, &symbol, sizeof ask);
    int n = ask();
    dlclose(library);
    return n;
}

// Number of the fake device's objects that are not freed.
static int held(void)
{
    return asked("fake_held");
}

// The sum of v and v after conversion to this type.
static float sum_of(enum wk_sum_type type, uint32_t v)
{
    uint32_t unit = type == WK_SUM_BF16 && v >= 256 ? v >= 512 ? 4 : 2 : 1, rest = v % unit;
    uint32_t low = v - rest;
    bool up = 2 * rest > unit || (2 * rest == unit && low / unit % 2);
    return 2 * (float)(low + (up ? unit : 0));
}

// The backward pass computes the rest while buckets at the end are summed.
static void sum_early(struct rank *k)
{
    static float x[RANKS][VALUES];
    for (int i = 0; i < RANKS; i++) {
        memcpy(x[i], k[i].x, sizeof x[i]);
        for (uint32_t v = 0; v < VALUES; v++)
            if (v < VALUES - BEHIND - EARLY || v >= VALUES - BEHIND) k[i].x[v] = -1;
        wk_comm_region.reduce(k[i].comm, EARLY);
    }
    uint64_t whole = EARLY / wk_comm_bucket_values(&k->comm->arrays);
    for (int i = 0; i < RANKS; i++)
        while (wk_comm_counts(k[i].comm).early % whole || !wk_comm_counts(k[i].comm).early)
            usleep(1000);
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(wk_comm_region.poll(k[i].comm), WK_REGION_BUSY);
        memcpy(k[i].x, x[i], (VALUES - BEHIND - EARLY) * sizeof(float));
        memcpy(k[i].x + VALUES - BEHIND, x[i] + VALUES - BEHIND, BEHIND * sizeof(float));
        wk_comm_region.reduce(k[i].comm, UINT64_MAX);
    }
    all_well(k);
}

static uint64_t slept_by(struct rank *k)
{
    uint64_t all = 0;
    for (int i = 0; i < RANKS; i++) all += wk_comm_counts(k[i].comm).sleeps;
    return all;
}

static void one_epoch(struct rank *k, enum wk_sum_type type)
{
    struct wk_nccl_id id;
    eventfd_t count;
    assert_int_equal(wk_comm_region.unique_id(k[0].comm, &id), LH_OK);
    for (uint32_t i = 0; i < RANKS; i++) wk_comm_region.init(k[i].comm, &id, RANKS, i);
    all_well(k);
    assert_true(held() > 0);
    for (uint32_t v = 0; v < VALUES; v++) {
        k[0].x[v] = (float)v;
        k[1].x[v] = -1;
    }
    for (int i = 0; i < RANKS; i++) wk_comm_region.share(k[i].comm, WK_REGION_SHARE_ALL);
    all_well(k);
    for (int i = 0; i < RANKS; i++)
        for (uint32_t v = 0; v < VALUES; v++) assert_float_equal(k[i].x[v], (float)v, 0);
    uint64_t slept = slept_by(k);
    sum_early(k);
    if (getenv("LH_FAKE_NCCL_ASKS")) assert_int_equal(slept_by(k), slept);
    for (int i = 0; i < RANKS; i++)
        for (uint32_t v = 0; v < VALUES; v++) assert_float_equal(k[i].x[v], sum_of(type, v), 0);
    for (int i = 0; i < RANKS; i++) wk_comm_region.abort(k[i].comm);
    for (int i = 0; i < RANKS; i++)
        while (!wk_comm_region.aborted(k[i].comm))
            assert_int_equal(eventfd_read(k[i].told, &count), 0);
    assert_int_equal(held(), 0);
}

TEST(ranks_sum_and_share_and_free_what_an_epoch_made)
{
    static struct rank k[RANKS];
    for (enum wk_sum_type type = WK_SUM_FP32; type <= WK_SUM_BF16; type++) {
        for (uint32_t i = 0; i < RANKS; i++) open_rank(&k[i], i, type);
        for (int epoch = 0; epoch < 2; epoch++) one_epoch(k, type);
        for (int i = 0; i < RANKS; i++) {
            wk_comm_destroy(k[i].comm);
            close(k[i].told);
        }
    }
}

// The thread does not sleep for calls that finish after a few polls.
TEST(calls_that_go_on_for_a_moment_cost_no_sleep)
{
    setenv("LH_FAKE_NCCL_ASKS", "20", 1);
    ranks_sum_and_share_and_free_what_an_epoch_made();
    unsetenv("LH_FAKE_NCCL_ASKS");
}

TEST(a_rank_takes_the_device_of_its_number)
{
    static const uint32_t rank[] = {3, 11}; // there are eight devices
    for (size_t i = 0; i < LH_COUNT(rank); i++) {
        const struct wk_comm_nccl_conf conf = {.library = NCCL_FAKE,
                                               .plugin = NCCL_FAKE,
                                               .interface = "lo",
                                               .log_file = "",
                                               .rank = rank[i]};
        struct rank k = {.told = eventfd(0, EFD_CLOEXEC)};
        struct wk_nccl_id id;
        eventfd_t count;
        assert_int_equal(wk_comm_nccl_create(&conf, &k.comm), LH_OK);
        wk_comm_bind(k.comm, &(struct wk_comm_arrays){.sums = 0}, k.told);
        assert_int_equal(wk_comm_region.unique_id(k.comm, &id), LH_OK);
        wk_comm_region.init(k.comm, &id, 1, 0);
        while (wk_comm_region.poll(k.comm) == WK_REGION_BUSY)
            assert_int_equal(eventfd_read(k.told, &count), 0);
        assert_int_equal(wk_comm_region.poll(k.comm), WK_REGION_OK);
        assert_int_equal(asked("fake_used"), 3);
        wk_comm_destroy(k.comm);
        close(k.told);
    }
}
