// A push's way off the emulated device (worker/state, kernels/cuda/crossing.h): pushes of several
// shards are encoded beside each other's copies, pieces are copied while the one before is taken,
// and full slots hold back only the next copy. The tests check the order of calls, never their
// times.
#include "tests/gpu/state_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOG_MAX = 4000, OTHER = 0 };

// The device's calls in order: E an encoding, c a copy into a slot, f a copy that found none free,
// t a slot that was waited for, g one that was given back.
static struct {
    struct lk_gpu_kernels kernels;
    struct lk_gpu_transfer transfer;
    struct rig *rig; // its trainer takes a step at each wait
    char log[LOG_MAX];
    size_t n;
    int taken, taken_most, fails_at; // slots; the take that fails, from 1
    int takes;
} watch;

static void note(char what)
{
    assert_true(watch.n + 1 < LOG_MAX);
    watch.log[watch.n++] = what;
    watch.log[watch.n] = 0;
}

static int encode(struct lk_gpu_shard *shard, const struct lk_gpu_encode *in, lk_gpu_stream stream)
{
    note('E');
    return watch.kernels.encode(shard, in, stream);
}

static int copy(struct lk_gpu_slots *slots, const void *device, uint64_t bytes, lk_gpu_event after,
                int32_t *slot)
{
    int err = watch.transfer.copy(slots, device, bytes, after, slot);
    note(*slot < 0 ? 'f' : 'c');
    watch.taken += *slot >= 0;
    if (watch.taken > watch.taken_most) watch.taken_most = watch.taken;
    return err;
}

// The trainer's stream goes on while the slots are full.
static void train(void)
{
    rig_train(watch.rig);
    assert_int_equal(watch.rig->streams.wait(watch.rig->there.stream), 0);
}

static int take(struct lk_gpu_slots *slots, int32_t slot, const uint8_t **bytes)
{
    note('t');
    if (watch.rig) train();
    if (++watch.takes == watch.fails_at) return 3;
    return watch.transfer.take(slots, slot, bytes);
}

static void give_back(struct lk_gpu_slots *slots, int32_t slot)
{
    note('g');
    watch.taken--;
    watch.transfer.give_back(slots, slot);
}

static void begin_log(void)
{
    watch.n = 0;
    watch.log[0] = 0;
    watch.takes = 0;
}

static void open_watched(struct rig *r, uint64_t number)
{
    rig_open(r, rig_variable("LH_TEST_EMULATED_PLUGIN"), "topk-sign");
    rig_seed(r, number);
    memset(&watch, 0, sizeof watch);
    watch.kernels = r->kernels;
    watch.transfer = r->transfer;
    r->kernels.encode = encode;
    r->transfer.copy = copy;
    r->transfer.take = take;
    r->transfer.give_back = give_back;
    rig_make_up(r, r->residual, r->layout->values);
    rig_make_up(r, r->replica.theta, r->layout->values);
    rig_start(r);
}

static lh_err encode_push(struct rig *r)
{
    const struct wk_shard_state_of is = rig_of(r);
    struct lk_payload_info info;
    lh_buf_clear(&r->theirs);
    return r->device->ops->encode(r->device, &is, 0.9f, r->left, &r->theirs, &info);
}

// Compares with the host's push of the same cut, and its residual.
static void assert_is_right(struct rig *r)
{
    const struct wk_shard_state_of is = rig_of(r);
    struct lk_payload_info info;
    lh_buf_clear(&r->payload);
    assert_int_equal(r->host->ops->delta(r->host, &is, 0.9f, r->spare), LH_OK);
    assert_int_equal(lk_encode(&r->codec, r->layout, r->spare, &r->payload, &info), LH_OK);
    assert_int_equal(r->payload.len, r->theirs.len);
    assert_memory_equal(r->payload.data, r->theirs.data, r->payload.len);
    assert_memory_equal(r->spare, r->left, r->layout->values * sizeof *r->spare);
}

static void cut(struct rig *r)
{
    const struct wk_shard_state_of is = rig_of(r);
    r->host->ops->copy(r->host);
    r->device->ops->copy(r->device);
    r->device->ops->begin(r->device, &is, 0.9f);
}

// The model's other shard, whose state is on the same device.
struct other {
    struct lk_replica replica;
    struct wk_shard_state *device;
    float *residual, *left;
    struct lh_buf payload;
};

static struct wk_shard_state_of of_other(const struct other *o)
{
    return (struct wk_shard_state_of){&o->replica, o->residual, 1};
}

static void open_other(struct rig *r, struct other *o)
{
    const uint8_t job[LH_JOB_BYTES] = {0};
    const struct lh_shard_layout *layout = &r->manifest.shard[OTHER];
    struct wk_device_state_conf conf = rig_device_conf(r);
    conf.layout = layout;
    assert_int_equal(lk_replica_create(&o->replica, job, &r->manifest, OTHER, NULL), LH_OK);
    assert_int_equal(wk_device_state_create(&conf, &o->device), LH_OK);
    o->device->conf = (struct wk_shard_state_conf){&r->trainer.base, layout, 0.25f};
    o->residual = calloc(2 * layout->values, sizeof *o->residual);
    assert_non_null(o->residual);
    o->left = o->residual + layout->values;
    o->payload = lh_buf(1 << 20);
    rig_make_up(r, o->residual, layout->values);
    const struct wk_shard_state_of of = of_other(o);
    o->device->ops->start(o->device, &of);
}

static void close_other(struct other *o)
{
    o->device->ops->destroy(o->device);
    lk_replica_free(&o->replica);
    lh_buf_free(&o->payload);
    free(o->residual);
}

// Two shards are cut at one step: both encodings are queued before anybody waits for the first
// residual, and none later.
TEST(pushes_of_two_shards_go_side_by_side)
{
    struct rig r;
    struct other o;
    struct lk_payload_info info;
    open_watched(&r, 11);
    open_other(&r, &o);
    const struct wk_shard_state_of other = of_other(&o);
    begin_log();
    cut(&r); // both at a boundary
    o.device->ops->copy(o.device);
    o.device->ops->begin(o.device, &other, 0.9f);
    rig_train(&r);
    assert_string_equal(watch.log, "EE");
    assert_int_equal(encode_push(&r), LH_OK); // on the encode lane, one after the other
    assert_int_equal(o.device->ops->encode(o.device, &other, 0.9f, o.left, &o.payload, &info),
                     LH_OK);
    if (strchr(watch.log + 2, 'E')) fail_msg("it was encoded later: %s", watch.log);
    assert_is_right(&r);
    close_other(&o);
    rig_close(&r);
}

static size_t count(const char *log, size_t n, char what)
{
    size_t sum = 0;
    for (size_t i = 0; i < n && log[i]; i++) sum += log[i] == what;
    return sum;
}

// A shard larger than all slots: whenever a piece is waited for, all other slots are being filled
// already, as long as there are pieces. No more slots are taken than exist, and the trainer goes on
// meanwhile.
TEST(pieces_are_copied_while_others_are_taken)
{
    struct rig r;
    open_watched(&r, 12);
    cut(&r);
    begin_log();
    watch.rig = &r;
    assert_int_equal(encode_push(&r), LH_OK);
    watch.rig = NULL;
    const char *log = watch.log;
    size_t all = count(log, watch.n, 'c'), took = 0;
    assert_true(all > 2 * SLOTS && count(log, watch.n, 't') == all);
    for (size_t i = 0; i < watch.n; i++) {
        if (log[i] != 't') continue;
        size_t ahead = took + SLOTS < all ? took + SLOTS : all;
        if (count(log, i, 'c') < ahead) fail_msg("take %zu waits for the next copy: %s", took, log);
        took++;
    }
    assert_true(strchr(log, 'f') && watch.taken_most == SLOTS && watch.taken == 0);
    assert_is_right(&r);
    rig_close(&r);
}

// One slot, smaller than a chunk's record, is slower and gives the same bytes.
TEST(one_small_slot_will_do)
{
    struct rig r;
    rig_open(&r, rig_variable("LH_TEST_EMULATED_PLUGIN"), "topk-sign");
    lk_outward_close(&r.outward);
    assert_int_equal(lk_outward_open(&r.outward, &r.table, 1, 50), 0);
    for (uint64_t s = 1; s <= 2; s++) {
        const char *what = rig_live(&r, s);
        if (what) fail_msg("%s differs: seed %d", what, (int)s);
    }
    assert_true(atomic_load(&r.counts.encoded) > 0);
    rig_close(&r);
}

// A copy that fails in the middle leaves no slot taken, and the next push succeeds.
TEST(a_failed_copy_gives_its_slots_back)
{
    struct rig r;
    open_watched(&r, 13);
    for (int at = 1; at <= 5; at += 2) {
        cut(&r);
        begin_log();
        watch.fails_at = at;
        assert_int_equal(encode_push(&r), LH_ERR_IO);
        assert_int_equal(watch.taken, 0);
        watch.fails_at = 0;
        cut(&r);
        begin_log();
        assert_int_equal(encode_push(&r), LH_OK);
        assert_is_right(&r);
    }
    rig_close(&r);
}

// begin() does nothing if it would have to wait for the host's residual: the encode lane does it.
TEST(a_begin_waits_for_nothing)
{
    struct rig r;
    open_watched(&r, 14);
    r.number++; // a refused push came back and changed the residual
    rig_make_up(&r, r.residual, r.layout->values);
    begin_log();
    uint64_t filled = atomic_load(&r.counts.filled);
    cut(&r);
    assert_string_equal(watch.log, "");
    assert_int_equal(atomic_load(&r.counts.filled), filled);
    assert_int_equal(encode_push(&r), LH_OK);
    assert_int_equal(atomic_load(&r.counts.filled), filled + 1);
    assert_is_right(&r);
    rig_close(&r);
}

// The way in: an array larger than the two halves of the buffer, overwritten once the call returns.
TEST(an_array_crosses_in_halves)
{
    struct rig r;
    struct lk_inward in;
    open_watched(&r, 15);
    size_t n = r.layout->values, bytes = n * sizeof *r.got;
    assert_int_equal(lk_inward_open(&in, &r.table, 1200), 0);
    for (uint64_t s = 1; s <= 5; s++) {
        rig_seed(&r, s);
        rig_make_up(&r, r.left, n);
        memcpy(r.got, r.left, bytes);
        assert_int_equal(lk_inward_copy(&in, r.there.value, r.got, bytes, r.there.stream), 0);
        memset(r.got, 0xa5, bytes);
        assert_int_equal(r.table.memory->copy_out(r.pinned, r.there.value, bytes, r.there.stream),
                         0);
        assert_int_equal(r.streams.wait(r.there.stream), 0);
        assert_memory_equal(r.pinned, r.left, bytes);
    }
    lk_inward_close(&in);
    rig_close(&r);
}

int main(void)
{
    return rig_run();
}
