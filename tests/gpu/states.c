// The states of all shards of a worker on the emulated device (worker/state/states.h): the budget
// equals the memory taken, and a refusal gives its reason.
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/loader.h"
#include "tests/test.h"
#include "worker/state/states.h"

static const char *const names[] = {"first", "long", "tiny", "last"};
static const uint64_t shapes[][5] = {{5000, 0}, {4097, 0}, {1, 0}, {70, 60, 0}};

struct rig { // a model of two shards whose parameters are on the device
    struct lk_gpu gpu;
    struct lh_manifest manifest;
    struct lk_codec codec;
    struct wk_trainer trainer;
    struct wk_device_lent there;
};

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    assert_non_null(value);
    return value;
}

static void open_rig(struct rig *r, const char *plugin, const char *codec)
{
    void *there = NULL;
    memset(r, 0, sizeof *r);
    lh_err err = lk_gpu_open(plugin, &r->gpu);
    if (err) fail_msg("%s", lh_err_text(err));
    assert_int_equal(lh_manifest_build(&r->manifest, 4, names, shapes, 2, NULL), LH_OK);
    assert_int_equal(lk_codec_parse(codec, &r->codec), LH_OK);
    r->codec.density = r->codec.index == LK_INDEX_DENSE ? 1 : 64.0f / 4096;
    const struct lk_gpu_backend *b = r->gpu.backend;
    assert_int_equal(b->memory->alloc(&there, r->manifest.values * sizeof(float)), 0);
    r->there = (struct wk_device_lent){.gpu = b, .value = there, .name = "an emulated device"};
    assert_int_equal(b->streams->create(&r->there.stream), 0);
}

static void close_rig(struct rig *r)
{
    assert_int_equal(r->gpu.backend->streams->wait(r->there.stream), 0);
    r->gpu.backend->memory->release(r->there.value);
    r->gpu.backend->streams->destroy(r->there.stream);
    lh_manifest_free(&r->manifest);
    lk_gpu_close(&r->gpu);
}

static struct wk_states_conf states_conf(struct rig *r)
{
    return (struct wk_states_conf){
        .trainer = r->there, .manifest = &r->manifest, .codec = r->codec};
}

static uint64_t free_bytes(const struct rig *r)
{
    struct lk_gpu_device is;
    assert_int_equal(r->gpu.backend->device(0, &is), 0);
    return is.free_bytes;
}

// The budget equals the memory taken, for every codec; its text gives bytes a parameter.
TEST(a_budget_is_what_is_taken)
{
    for (size_t i = 0; lk_codec_word(i); i++) {
        struct rig r;
        struct wk_states *s;
        struct wk_shard_state *one;
        open_rig(&r, variable("LH_TEST_EMULATED_PLUGIN"), lk_codec_word(i));
        const struct wk_states_conf conf = states_conf(&r);
        uint64_t before = free_bytes(&r);
        lh_err err = wk_states_open(&conf, &s);
        if (err) fail_msg("%s", lh_err_text(err));
        struct wk_states_budget b = wk_states_budget(s);
        assert_int_equal(b.left, before);
        assert_int_equal(b.arrays, 20 * r.manifest.values);
        assert_int_equal(before - free_bytes(&r), b.arrays + b.scratch);
        const struct wk_shard_state_conf shard = {&r.trainer, &r.manifest.shard[1], 0.25f};
        assert_int_equal(wk_states_give(s, &shard, &one), LH_OK);
        one->ops->destroy(one);
        assert_int_equal(wk_states_give(s, &shard, &one), LH_ERR_INVALID);
        wk_states_close(s);
        assert_int_equal(free_bytes(&r), before);
        close_rig(&r);
    }
    struct wk_states_budget b = {.values = 1000, .arrays = 20000, .scratch = 4500, .left = 5 << 20};
    char text[256];
    wk_states_budget_text(&b, text, sizeof text);
    assert_string_equal(text, "24.5 bytes a parameter (replica, residual and its spare, base and "
                              "cut 20.0, payloads and scratch 4.5), 1 MiB of 5 free");
}

// The budget counts memory for ranks' gradients.
TEST(a_budget_leaves_room_for_gradients)
{
    struct rig r;
    struct wk_states *s;
    open_rig(&r, variable("LH_TEST_EMULATED_PLUGIN"), "topk-sign");
    struct wk_states_conf conf = states_conf(&r);
    conf.beside = 3 << 20;
    lh_err err = wk_states_open(&conf, &s);
    if (err) fail_msg("%s", lh_err_text(err));
    assert_int_equal(wk_states_budget(s).beside, conf.beside);
    wk_states_close(s);
    conf.beside = free_bytes(&r) - 1000;
    assert_int_equal(wk_states_open(&conf, &s), LH_ERR_UNSUPPORTED);
    assert_non_null(strstr(lh_err_text(LH_ERR_UNSUPPORTED), " MiB for gradients between ranks"));
    close_rig(&r);
    struct wk_states_budget b = {.values = 1000, .arrays = 20000, .beside = 5000, .left = 5 << 20};
    char text[256];
    wk_states_budget_text(&b, text, sizeof text);
    assert_string_equal(text, "20.0 bytes a parameter (replica, residual and its spare, base and "
                              "cut 20.0, payloads and scratch 0.0), 1 MiB of 5 free, and 1 MiB for "
                              "gradients between ranks");
}

static uint64_t free_of(const struct rig *r, int index)
{
    struct lk_gpu_device is;
    assert_int_equal(r->gpu.backend->device(index, &is), 0);
    return is.free_bytes;
}

static const struct lk_gpu_backend *real;

// ---------------------------------------------------------------- calls that fail

// A backend whose `before`-th call from now fails. Counts the objects held.
static struct {
    struct lk_gpu_backend table;
    struct lk_gpu_memory memory;
    struct lk_gpu_streams streams;
    struct lk_gpu_kernels kernels;
    struct lk_gpu_transfer transfer;
    int before; // calls before the one that fails
    int held;
    bool used; // use() was the call that failed
} counting;

enum { NO_MEMORY = 2 };

static int taken(int err)
{
    if (!err) counting.held++;
    return err;
}

static bool fails(void)
{
    return counting.before-- == 0;
}

static int count_alloc(void **out, size_t bytes)
{
    return fails() ? NO_MEMORY : taken(real->memory->alloc(out, bytes));
}

static void count_release(void *memory)
{
    counting.held--;
    real->memory->release(memory);
}

static int count_pinned(void **out, size_t bytes)
{
    return fails() ? NO_MEMORY : taken(real->memory->pinned_alloc(out, bytes));
}

static void count_pinned_release(void *memory)
{
    if (memory) counting.held--;
    real->memory->pinned_release(memory);
}

static int count_stream(lk_gpu_stream *out)
{
    return fails() ? NO_MEMORY : taken(real->streams->create(out));
}

static void count_stream_destroy(lk_gpu_stream stream)
{
    if (stream) counting.held--;
    real->streams->destroy(stream);
}

static int count_event(lk_gpu_event *out)
{
    return fails() ? NO_MEMORY : taken(real->streams->event_create(out));
}

static void count_event_destroy(lk_gpu_event event)
{
    if (event) counting.held--;
    real->streams->event_destroy(event);
}

static int count_shard(const struct lk_gpu_plan *plan, struct lk_gpu_shard **out)
{
    return fails() ? NO_MEMORY : taken(real->kernels->shard_create(plan, out));
}

static void count_shard_destroy(struct lk_gpu_shard *shard)
{
    if (shard) counting.held--;
    real->kernels->shard_destroy(shard);
}

static int count_slots(uint32_t count, uint64_t bytes, struct lk_gpu_slots **out)
{
    return fails() ? NO_MEMORY : taken(real->transfer->create(count, bytes, out));
}

static void count_slots_destroy(struct lk_gpu_slots *slots)
{
    if (slots) counting.held--;
    real->transfer->destroy(slots);
}

static int count_device(int index, struct lk_gpu_device *out)
{
    return fails() ? NO_MEMORY : real->device(index, out);
}

static int count_use(int index)
{
    if (!fails()) return real->use(index);
    counting.used = true;
    return NO_MEMORY;
}

static const struct lk_gpu_backend *count_calls(const struct rig *r)
{
    real = r->gpu.backend;
    counting.table = *real;
    counting.memory = *real->memory;
    counting.streams = *real->streams;
    counting.kernels = *real->kernels;
    counting.transfer = *real->transfer;
    counting.memory.alloc = count_alloc;
    counting.memory.release = count_release;
    counting.memory.pinned_alloc = count_pinned;
    counting.memory.pinned_release = count_pinned_release;
    counting.streams.create = count_stream;
    counting.streams.destroy = count_stream_destroy;
    counting.streams.event_create = count_event;
    counting.streams.event_destroy = count_event_destroy;
    counting.kernels.shard_create = count_shard;
    counting.kernels.shard_destroy = count_shard_destroy;
    counting.transfer.create = count_slots;
    counting.transfer.destroy = count_slots_destroy;
    counting.table.device = count_device;
    counting.table.use = count_use;
    counting.table.memory = &counting.memory;
    counting.table.streams = &counting.streams;
    counting.table.kernels = &counting.kernels;
    counting.table.transfer = &counting.transfer;
    return &counting.table;
}

// Checks that this thread uses the trainer's device: an allocation comes from its memory.
static void uses_the_trainers(const struct rig *r)
{
    void *some = NULL;
    uint64_t before = free_of(r, 0);
    assert_int_equal(real->memory->alloc(&some, 4096), 0);
    assert_int_equal(before - free_of(r, 0), 4096);
    real->memory->release(some);
}

// For each call that can fail: nothing is kept, the error is one line, and the thread uses the
// trainer's device afterwards.
TEST(a_start_that_fails_keeps_nothing)
{
    struct rig r;
    struct wk_states *s;
    int calls = 0;
    open_rig(&r, variable("LH_TEST_EMULATED_PLUGIN"), "topk-sign");
    struct wk_states_conf conf = states_conf(&r);
    conf.trainer.gpu = count_calls(&r);
    for (bool over = false; !over; calls++) {
        counting.before = calls;
        counting.used = false;
        assert_int_equal(real->use(0), 0);
        lh_err err = wk_states_open(&conf, &s);
        over = counting.before >= 0;
        if (over || counting.used) { // a use() that restores a device may fail unseen
            if (over) assert_int_equal(err, LH_OK);
            wk_states_close(s);
        } else {
            assert_int_equal(err, LH_ERR_UNSUPPORTED);
            assert_true(lh_err_text(err)[0] && !strchr(lh_err_text(err), '\n'));
            uses_the_trainers(&r);
        }
        if (counting.held) fail_msg("call %d failed, and %d are kept", calls, counting.held);
    }
    assert_true(calls > 20);
    assert_int_equal(real->use(0), 0);
    close_rig(&r);
}

static void refused(const char *how, const char *why)
{
    struct rig r;
    struct wk_states *s;
    open_rig(&r, variable("LH_TEST_EMULATED_PLUGIN"), "topk-sign");
    struct lk_gpu fake;
    setenv("LH_FAKE_PLUGIN", how, 1);
    assert_int_equal(lk_gpu_open(variable("LH_TEST_FAKE_PLUGIN"), &fake), LH_OK);
    struct wk_states_conf conf = states_conf(&r);
    conf.trainer.gpu = fake.backend;
    assert_int_equal(wk_states_open(&conf, &s), LH_ERR_UNSUPPORTED);
    assert_null(s);
    const char *text = lh_err_text(LH_ERR_UNSUPPORTED);
    if (!strstr(text, why) || strchr(text, '\n')) fail_msg("\"%s\" lacks \"%s\"", text, why);
    lk_gpu_close(&fake);
    close_rig(&r);
}

TEST(unusable_devices_give_the_reason)
{
    refused("small", "the state does not fit on an emulated device: ");
    refused("memory", "an emulated device: out of memory");
    refused("bytes", " of test values differs from the host's");
    refused("still", " of test values differs from the host's");
    refused("folds", " of test values differs from the host's");
}
