// A made-up device's arrays copied through the host: after an error nothing stays open, and the
// next call tries again.
#include "tests/test.h"
#include "worker/ranks/comm/comm_host.h"

#include <stdlib.h>
#include <string.h>

enum { VALUES = 100 };

static struct {
    int calls, fails; // calls: opening calls so far; fails: number of the call that fails, 0: none
    int streams, pinned;
} device;

static int fails(void)
{
    return ++device.calls == device.fails;
}

static int use(int index)
{
    (void)index;
    return fails();
}

static int create(lk_gpu_stream *out)
{
    if (fails()) return 1;
    device.streams++;
    *out = &device;
    return 0;
}

static void destroy(lk_gpu_stream stream)
{
    (void)stream;
    device.streams--;
}

static int done(lk_gpu_stream stream)
{
    (void)stream;
    return 0;
}

static int follow(lk_gpu_stream stream, lk_gpu_event event)
{
    (void)stream, (void)event;
    return 0;
}

static int pinned_alloc(void **host, size_t bytes)
{
    if (fails()) return 1;
    *host = malloc(bytes);
    device.pinned++;
    return *host ? 0 : 1;
}

static void pinned_release(void *host)
{
    free(host);
    device.pinned--;
}

static int copy(void *to, const void *from, size_t bytes, lk_gpu_stream stream)
{
    (void)stream;
    memcpy(to, from, bytes);
    return 0;
}

static const char *text(int err)
{
    return err ? "made up" : "fine";
}

static int event_create(lk_gpu_event *out)
{
    *out = malloc(1);
    return *out ? 0 : 1;
}

static int event_record(lk_gpu_event event, lk_gpu_stream stream)
{
    (void)event, (void)stream;
    return 0;
}

static const struct lk_gpu_streams streams = {.create = create,
                                              .destroy = destroy,
                                              .wait = done,
                                              .event_create = event_create,
                                              .event_destroy = free,
                                              .event_record = event_record,
                                              .event_follow = follow};
static const struct lk_gpu_memory memory = {.pinned_alloc = pinned_alloc,
                                            .pinned_release = pinned_release,
                                            .copy_in = copy,
                                            .copy_out = copy};
static const struct lk_gpu_backend gpu = {
    .streams = &streams, .memory = &memory, .use = use, .error_text = text};

TEST(an_error_leaves_nothing_open)
{
    float x[VALUES];
    for (int i = 0; i < VALUES; i++) x[i] = (float)i;
    // opening the device, its stream or its memory fails
    for (int failing = 1; failing <= 3; failing++) {
        struct wk_comm_device d = {.gpu = &gpu};
        assert_int_equal(wk_ready_create(&gpu, &d.ready), LH_OK);
        assert_int_equal(wk_ready_record(d.ready, NULL, WK_READY_ALL), 0);
        struct wk_comm c = {.arrays = {.sum = x, .sums = VALUES, .device = &d}};
        float *out = NULL;
        device.calls = 0;
        device.fails = failing;
        assert_int_equal(wk_comm_host_fetch(&c, 0, VALUES, &out), LH_ERR_IO);
        assert_true(device.calls >= failing);
        assert_null(c.host);
        assert_int_equal(device.streams + device.pinned, 0);
        device.fails = 0;
        assert_int_equal(wk_comm_host_fetch(&c, 0, VALUES, &out), LH_OK);
        assert_memory_equal(out, x, sizeof x);
        wk_comm_host_free(&c);
        assert_int_equal(device.streams + device.pinned, 0);
        wk_ready_destroy(d.ready);
    }
}
