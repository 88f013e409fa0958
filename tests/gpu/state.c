// A shard's state on the emulated device, beside one on the host (worker/state). Over random runs
// parameters, pushes, residuals and replicas have the same bits, in any order of the device's
// streams; a missing wait, and a record that is not folded, are found.
#include "tests/gpu/state_rig.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

TEST(lives_have_the_same_bits)
{
    for (size_t i = 0; lk_codec_word(i); i++) {
        struct rig r;
        uint64_t seeds = strcmp(lk_codec_word(i), "topk-sign") ? 1 : SEEDS;
        rig_open(&r, rig_variable("LH_TEST_EMULATED_PLUGIN"), lk_codec_word(i));
        for (uint64_t s = 1; s <= seeds; s++) {
            const char *what = rig_live(&r, s);
            if (what) fail_msg("%s differs: %s, seed %d", what, lk_codec_word(i), (int)s);
        }
        assert_true(atomic_load(&r.counts.folded) && atomic_load(&r.counts.encoded));
        assert_true(atomic_load(&r.counts.compared) && !atomic_load(&r.counts.differed));
        assert_int_equal(r.failures, 0);
        rig_close(&r);
    }
}

TEST(records_come_while_a_push_is_encoded)
{
    struct rig r;
    rig_open(&r, rig_variable("LH_TEST_EMULATED_PLUGIN"), "topk-sign");
    r.beside = true;
    for (uint64_t s = 1; s <= 3; s++) {
        const char *what = rig_live(&r, s);
        if (what) fail_msg("%s differs: seed %d", what, (int)s);
    }
    assert_true(atomic_load(&r.counts.folded) && atomic_load(&r.counts.encoded));
    rig_close(&r);
}

// ---------------------------------------------------------------- planted mistakes

static int no_follow(lk_gpu_stream stream, lk_gpu_event event)
{
    (void)stream, (void)event;
    return 0;
}

static int always_done(lk_gpu_event event, int *done)
{
    (void)event;
    *done = 1;
    return 0;
}

static void is_found(void (*plant)(struct rig *r), const char *name)
{
    struct rig r;
    const char *what = NULL;
    rig_open(&r, rig_variable("LH_TEST_EMULATED_PLUGIN"), "topk-sign");
    plant(&r);
    for (uint64_t s = 1; s <= SEEDS && !what; s++) what = rig_live(&r, s);
    if (!what) fail_msg("nobody found it: %s", name);
    rig_close(&r);
}

static void plant_no_follow(struct rig *r)
{
    r->streams.event_follow = no_follow;
}

// The same codec for all records: an overwritten payload of another codec would be read past its
// end.
static void plant_always_done(struct rig *r)
{
    r->own_codec = true;
    r->streams.event_done = always_done;
}

TEST(missing_waits_are_found)
{
    is_found(plant_no_follow, "streams that don't wait for each other");
    is_found(plant_always_done, "a payload's memory that is written too early");
}

static struct lk_gpu_kernels planted;
static int skipped;

static int skip_fold(struct lk_gpu_shard *shard, const struct lk_gpu_record *record,
                     uint32_t records, uint64_t below, float *device_to, lk_gpu_stream stream)
{
    if (skipped++ == 1) return 0;
    return planted.fold(shard, record, records, below, device_to, stream);
}

// The device does not fold one record: the next digest record reports it, and the renewal after it
// restores the host's parameters.
TEST(a_digest_finds_what_was_not_folded)
{
    struct rig r;
    rig_open(&r, rig_variable("LH_TEST_EMULATED_PLUGIN"), "topk-sign");
    rig_seed(&r, 7);
    planted = r.kernels;
    skipped = 0;
    rig_make_up(&r, r.replica.theta, r.layout->values);
    rig_start(&r);
    r.kernels.fold = skip_fold;
    while (skipped < 1) rig_fold(&r);
    assert_true(rig_digest(&r) && rig_same_replica(&r));
    while (skipped < 3) rig_fold(&r);
    assert_false(rig_same_replica(&r));
    assert_false(rig_digest(&r));
    assert_int_equal(atomic_load(&r.counts.differed), 1);
    assert_true(rig_digest(&r)); // not compared until the state is filled again
    assert_true(rig_renew(&r) && rig_same_replica(&r) && rig_digest(&r));
    assert_int_equal(atomic_load(&r.counts.differed), 1);
    rig_close(&r);
}

// The digest also covers the optimizer's arrays, which the device does not have. The record that
// ends such an optimizer may change more than its payload says.
TEST(another_optimizer_is_not_compared)
{
    struct rig r;
    rig_open(&r, rig_variable("LH_TEST_EMULATED_PLUGIN"), "topk-sign");
    rig_seed(&r, 5);
    rig_make_up(&r, r.replica.theta, r.layout->values);
    rig_start(&r);
    struct lk_outer *outer = &r.replica.outer;
    assert_int_equal(lk_outer_allocate(outer, LH_OPT_DELAYED_NESTEROV, r.layout->values), LH_OK);
    outer->kind = LH_OPT_DELAYED_NESTEROV;
    memset(outer->u, 0, r.layout->values * sizeof *outer->u);
    memset(outer->m, 0, r.layout->values * sizeof *outer->m);
    rig_fold(&r);
    assert_true(rig_renew(&r) && rig_same_replica(&r));
    assert_true(rig_digest(&r));
    assert_int_equal(atomic_load(&r.counts.compared) + atomic_load(&r.counts.differed), 0);
    outer->kind = LH_OPT_SGD;
    rig_make_up(&r, r.replica.theta, 100);
    rig_fold(&r);
    assert_true(rig_renew(&r) && rig_same_replica(&r) && rig_digest(&r));
    rig_close(&r);
}

// ---------------------------------------------------------------- failures

// A non-finite value gives the CPU's error message, and the next cuts succeed.
TEST(not_finite)
{
    struct rig r;
    struct lk_payload_info info;
    rig_open(&r, rig_variable("LH_TEST_EMULATED_PLUGIN"), "topk-sign");
    rig_seed(&r, 3);
    rig_start(&r);
    r.residual[7] = NAN;
    r.number++;
    const struct wk_shard_state_of is = rig_of(&r);
    r.device->ops->copy(r.device);
    assert_int_equal(r.device->ops->encode(r.device, &is, 1, r.spare, &r.theirs, &info),
                     LH_ERR_NON_FINITE);
    assert_true(r.theirs.len == 0);
    r.residual[7] = 1;
    r.number++;
    for (int i = 0; i < 3; i++) assert_true(rig_cut(&r));
    rig_close(&r);
}

// The device fails at the third push, which returns the error.
TEST(a_device_that_fails)
{
    struct rig r;
    struct lk_payload_info info;
    setenv("LH_FAKE_PLUGIN", "later", 1);
    rig_open(&r, rig_variable("LH_TEST_FAKE_PLUGIN"), "topk-sign");
    rig_start(&r);
    const struct wk_shard_state_of is = rig_of(&r);
    for (int i = 0; i < 2; i++) {
        r.device->ops->copy(r.device);
        assert_int_equal(r.device->ops->encode(r.device, &is, 1, r.spare, &r.theirs, &info), LH_OK);
    }
    r.device->ops->copy(r.device);
    assert_int_equal(r.device->ops->encode(r.device, &is, 1, r.spare, &r.theirs, &info), LH_ERR_IO);
    const char *text = lh_err_text(LH_ERR_IO);
    if (!strstr(text,
                "state on the GPU, an emulated device, shard 1: encoding: the device fell off"))
        fail_msg("it says: %s", text);
    assert_int_equal(r.failures, 0);
    rig_close(&r);
}

static int follow_fails(lk_gpu_stream stream, lk_gpu_event event)
{
    (void)stream, (void)event;
    return 3;
}

// A failure between two steps is reported to the trainer; the next push fails.
TEST(a_failure_between_steps)
{
    struct rig r;
    struct lk_payload_info info;
    rig_open(&r, rig_variable("LH_TEST_EMULATED_PLUGIN"), "topk-sign");
    rig_start(&r);
    r.streams.event_follow = follow_fails;
    r.device->ops->copy(r.device);
    assert_int_equal(r.failures, 1);
    const struct wk_shard_state_of is = rig_of(&r);
    assert_int_equal(r.device->ops->encode(r.device, &is, 1, r.spare, &r.theirs, &info), LH_ERR_IO);
    rig_close(&r);
}

int main(void)
{
    return rig_run();
}
