// A shard's state on the emulated device beside one on the host (worker/state): over made-up runs
// parameters, pushes, residuals and replicas have the same bits, whatever order the device's
// streams take; a wait that is missing, and a record that is not folded, are found.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/loader.h"
#include "kernels/view.h"
#include "worker/state/state_device.h"
#include "worker/train/host.h"

enum { TURNS = 40, SEEDS = 12, SHARD = 1 };

static const char *const names[] = {"first", "long", "tiny", "last"};
static const uint64_t shapes[][5] = {{5000, 0}, {4097, 0}, {1, 0}, {70, 60, 0}};

struct host_trainer {
    struct wk_trainer base;
    float *value; // all of the model's
};

struct rig {
    struct lk_gpu gpu;
    struct lk_gpu_backend table; // what the states call; a test exchanges parts of it
    struct lk_gpu_kernels kernels;
    struct lk_gpu_streams streams;
    struct lh_manifest manifest;
    const struct lh_shard_layout *layout;
    struct lk_replica replica;
    struct lk_codec codec;
    struct host_trainer trainer;
    struct wk_device_lent there;
    struct wk_device_counts counts;
    struct wk_shard_state *host, *device;
    float *residual, *spare, *got, *left, *pinned;
    bool beside; // records come while another thread encodes, as on a worker's disk lane
    struct lh_buf payload, theirs;
    uint64_t number, random;
    bool same; // the device has the host's residual: no push takes it from the host
    int failures;
};

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    assert_non_null(value);
    return value;
}

static uint64_t draw(struct rig *r, uint64_t below)
{
    r->random = r->random * 6364136223846793005u + 1442695040888963407u;
    return (r->random >> 33) % below;
}

static void make_up(struct rig *r, float *out, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        out[i] =
            draw(r, 9) ? ldexpf((float)draw(r, 1 << 20) - (1 << 19), -30 + (int)draw(r, 9)) : 0;
}

static void host_copy(struct wk_trainer *t, uint64_t first, uint64_t values, float *slot)
{
    wk_host_copy(((struct host_trainer *)(void *)t)->value, first, values, slot);
}

static void host_renew(struct wk_trainer *t, const struct wk_renewal *renewal)
{
    wk_host_renew(((struct host_trainer *)(void *)t)->value, renewal);
}

static const struct wk_trainer_ops trainer_ops = {.copy = host_copy, .renew = host_renew};

static void note_failure(void *arg, int err)
{
    struct rig *r = arg;
    assert_true(err != 0);
    r->failures++;
}

static struct wk_device_state_conf device_conf(struct rig *r)
{
    return (struct wk_device_state_conf){.trainer = r->there,
                                         .failed = note_failure,
                                         .arg = r,
                                         .layout = r->layout,
                                         .codec = r->codec,
                                         .counts = &r->counts};
}

static void open_states(struct rig *r)
{
    const struct wk_shard_state_conf conf = {&r->trainer.base, r->layout, 0.25f};
    const struct wk_device_state_conf device = device_conf(r);
    assert_int_equal(wk_shard_state_host(&conf, &r->host), LH_OK);
    lh_err err = wk_device_state_create(&device, &r->device);
    if (err) fail_msg("%s", lh_err_text(err));
    r->device->conf = conf;
}

static void close_states(struct rig *r)
{
    r->host->ops->destroy(r->host);
    r->device->ops->destroy(r->device);
}

static void open_rig(struct rig *r, const char *plugin, const char *codec)
{
    const uint8_t job[LH_JOB_BYTES] = {0};
    void *there = NULL, *here = NULL;
    memset(r, 0, sizeof *r);
    lh_err err = lk_gpu_open(plugin, &r->gpu);
    if (err) fail_msg("%s", lh_err_text(err));
    r->table = *r->gpu.backend;
    r->kernels = *r->table.kernels;
    r->streams = *r->table.streams;
    r->table.kernels = &r->kernels;
    r->table.streams = &r->streams;
    assert_int_equal(lh_manifest_build(&r->manifest, 4, names, shapes, 2, NULL), LH_OK);
    r->layout = &r->manifest.shard[SHARD];
    assert_true(r->layout->first > 0 && r->layout->values > LH_CHUNK);
    assert_int_equal(lk_replica_create(&r->replica, job, &r->manifest, SHARD, NULL), LH_OK);
    assert_int_equal(lk_codec_parse(codec, &r->codec), LH_OK);
    r->codec.density = r->codec.index == LK_INDEX_DENSE ? 1 : 64.0f / 4096;
    uint64_t n = r->layout->values, all = r->manifest.values;
    r->trainer = (struct host_trainer){{&trainer_ops}, calloc(all, sizeof(float))};
    r->residual = calloc(4 * n, sizeof *r->residual);
    assert_true(r->trainer.value && r->residual);
    r->spare = r->residual + n;
    r->got = r->spare + n;
    r->left = r->got + n;
    assert_int_equal(r->table.memory->alloc(&there, all * sizeof(float)), 0);
    assert_int_equal(r->table.memory->pinned_alloc(&here, all * sizeof(float)), 0);
    r->pinned = here;
    r->there = (struct wk_device_lent){&r->table, 0, there, NULL, "an emulated device"};
    assert_int_equal(r->table.streams->create(&r->there.stream), 0);
    r->payload = lh_buf(1 << 20);
    r->theirs = lh_buf(1 << 20);
    open_states(r);
}

static void close_rig(struct rig *r)
{
    close_states(r);
    assert_int_equal(r->gpu.backend->streams->wait(r->there.stream), 0);
    r->table.memory->release(r->there.value);
    r->table.memory->pinned_release(r->pinned);
    r->gpu.backend->streams->destroy(r->there.stream);
    lk_replica_free(&r->replica);
    lh_manifest_free(&r->manifest);
    lh_buf_free(&r->payload);
    lh_buf_free(&r->theirs);
    free(r->trainer.value);
    free(r->residual);
    lk_gpu_close(&r->gpu);
}

static void seed(struct rig *r, uint64_t number)
{
    void *symbol = dlsym(r->gpu.library, "simt_seed");
    void (*set)(uint64_t seed);
    assert_non_null(symbol);
    memcpy(&set, &symbol, sizeof set);
    set(number);
    r->random = number;
}

// ---------------------------------------------------------------- what a worker does

static struct wk_shard_state_of of(const struct rig *r)
{
    return (struct wk_shard_state_of){&r->replica, r->residual, r->number};
}

// A step of both trainers, queued on the device: each value is scaled.
static void train(struct rig *r)
{
    const float by = 1.0f + 0.001f * (float)(draw(r, 8) + 1);
    uint64_t n = r->manifest.values;
    const struct lk_gpu_arrays arrays = {.x = r->there.value, .s = by, .n = n};
    for (uint64_t i = 0; i < n; i++) r->trainer.value[i] *= by;
    assert_int_equal(r->table.kernels->each(LK_GPU_SCALE, &arrays, r->there.stream), 0);
}

static bool same_parameters(struct rig *r)
{
    size_t bytes = r->layout->values * sizeof *r->pinned;
    const float *there = r->there.value + r->layout->first;
    assert_int_equal(r->table.memory->copy_out(r->pinned, there, bytes, r->there.stream), 0);
    assert_int_equal(r->gpu.backend->streams->wait(r->there.stream), 0);
    return memcmp(r->pinned, r->trainer.value + r->layout->first, bytes) == 0;
}

static void start(struct rig *r)
{
    const struct wk_shard_state_of is = of(r);
    uint64_t n = r->manifest.values;
    memset(r->trainer.value, 0, n * sizeof(float)); // the other shard's: zeros that stay
    assert_int_equal(r->gpu.backend->optimizer->zero(r->there.value, n, r->there.stream), 0);
    r->host->ops->start(r->host, &is);
    r->device->ops->start(r->device, &is);
}

static void new_chain(struct rig *r, struct lh_hash *before)
{
    *before = r->replica.ledger.chain;
    for (int i = 0; i < 8; i++) r->replica.ledger.chain.b[i] = (uint8_t)draw(r, 256);
}

// A record of some worker's, with any codec.
static void fold(struct rig *r)
{
    struct wk_shard_state_folded f = {.admitted = draw(r, 4) != 0, .scale = 0.7f};
    struct lh_buf payload = lh_buf(1 << 20);
    struct lk_payload_info info;
    uint64_t words = 0;
    while (lk_codec_word(words)) words++;
    assert_int_equal(lk_codec_parse(lk_codec_word(draw(r, words)), &f.codec), LH_OK);
    f.codec.density = f.codec.index == LK_INDEX_DENSE ? 1 : 100.0f / 4096;
    make_up(r, r->got, r->layout->values);
    assert_int_equal(lk_encode(&f.codec, r->layout, 1, NULL, r->got, &payload, &info), LH_OK);
    f.plain = lh_buf_span(&payload);
    if (f.admitted)
        assert_int_equal(lk_fold(&f.codec, r->layout, f.plain, f.scale, r->replica.theta), LH_OK);
    new_chain(r, &f.before);
    const struct wk_shard_state_of is = of(r);
    r->device->ops->fold(r->device, &is, &f);
    memset(payload.data, 0xa5, payload.len); // nobody reads it any more
    lh_buf_free(&payload);
}

static bool renew(struct rig *r)
{
    const struct wk_shard_state_of is = of(r);
    r->host->ops->make(r->host, &is);
    r->host->ops->renew(r->host, &is);
    r->device->ops->renew(r->device, &is);
    if (draw(r, 2)) train(r);
    return same_parameters(r);
}

static bool same_replica(struct rig *r)
{
    assert_int_equal(wk_device_state_read(r->device, r->got), LH_OK);
    return memcmp(r->got, r->replica.theta, r->layout->values * sizeof(float)) == 0;
}

static bool digest(struct rig *r)
{
    struct lh_hash is = lk_replica_digest(&r->replica);
    const struct lh_record record = {.kind = LH_DIGEST_RECORD, .body = lh_span(is.b, sizeof is.b)};
    const struct wk_shard_state_of now = of(r);
    return r->device->ops->agrees(r->device, &now, &record);
}

struct lane { // A push is encoded here, beside the loop.
    struct rig *r;
    struct wk_shard_state_of of;
    struct lk_payload_info info;
    lh_err err;
    char text[256];
};

static void *encode(void *arg)
{
    struct lane *lane = arg;
    struct rig *r = lane->r;
    lane->err =
        r->device->ops->encode(r->device, &lane->of, 0.9f, r->left, &r->theirs, &lane->info);
    if (lane->err) snprintf(lane->text, sizeof lane->text, "%s", lh_err_text(lane->err));
    return NULL;
}

static void encode_beside(struct rig *r, struct lane *lane)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, encode, lane), 0);
    for (uint64_t n = draw(r, 4); n > 0; n--) fold(r);
    if (draw(r, 2)) assert_true(digest(r));
    pthread_join(thread, NULL);
}

// A cut, beside which training goes on and records come; committed, refused later, or given up.
static bool cut(struct rig *r)
{
    const struct wk_shard_state_of is = of(r);
    struct lk_payload_info a = {0};
    struct lane lane = {.r = r, .of = is};
    size_t bytes = r->layout->values * sizeof *r->spare;
    uint64_t filled = atomic_load(&r->counts.filled);
    lh_buf_clear(&r->payload);
    lh_buf_clear(&r->theirs);
    r->host->ops->copy(r->host);
    r->device->ops->copy(r->device);
    train(r);
    if (draw(r, 2)) fold(r);
    assert_int_equal(r->host->ops->delta(r->host, &is, 0.9f, r->spare), LH_OK);
    assert_int_equal(lk_encode(&r->codec, r->layout, 1, NULL, r->spare, &r->payload, &a), LH_OK);
    if (r->beside)
        encode_beside(r, &lane);
    else
        encode(&lane);
    if (lane.err) fail_msg("%s", lane.text);
    if (r->same) assert_int_equal(atomic_load(&r->counts.filled), filled);
    r->same = true;
    if (r->payload.len != r->theirs.len ||
        memcmp(r->payload.data, r->theirs.data, r->payload.len) ||
        memcmp(r->spare, r->left, bytes) || a.values != lane.info.values ||
        a.chunks != lane.info.chunks ||
        memcmp(&a.sum_squares, &lane.info.sum_squares, sizeof(double)))
        return false;
    if (!draw(r, 4)) return true; // the disk is full
    memcpy(r->residual, r->spare, bytes);
    r->number++;
    const struct wk_shard_state_of next = of(r);
    r->host->ops->committed(r->host, &next);
    r->device->ops->committed(r->device, &next);
    if (draw(r, 3)) return true;
    r->number++; // it is refused: its mass comes back
    r->same = false;
    assert_int_equal(lk_payload_add(&r->codec, r->layout, lh_buf_span(&r->payload), r->residual),
                     LH_OK);
    return true;
}

// A whole state arrives: the log was rolled back, or this worker lagged behind.
static void roll_back(struct rig *r)
{
    struct lh_hash before;
    make_up(r, r->replica.theta, r->layout->values);
    new_chain(r, &before);
}

// Another optimizer is in force for some records.
static void other_optimizer(struct rig *r)
{
    r->replica.outer.kind = LH_OPT_BUFFERED;
    fold(r);
    make_up(r, r->replica.theta, 100);
    fold(r);
    r->replica.outer.kind = LH_OPT_SGD;
    fold(r);
}

static void restart(struct rig *r)
{
    r->same = false;
    close_states(r);
    open_states(r);
    start(r);
}

// One made-up life; NULL, or what differed first.
static const char *live(struct rig *r, uint64_t number)
{
    seed(r, number);
    make_up(r, r->replica.theta, r->layout->values);
    make_up(r, r->residual, r->layout->values);
    r->number++;
    r->same = false;
    roll_back(r);
    start(r);
    for (int i = 0; i < TURNS; i++) {
        switch (draw(r, 12)) {
        case 0: roll_back(r); break;
        case 1: restart(r); break;
        case 2: other_optimizer(r); break;
        case 3:
        case 4: train(r); break;
        case 5:
        case 6:
            if (!cut(r)) return "a push";
            break;
        case 7:
            if (!digest(r)) return "a digest";
            break;
        case 8:
            if (!renew(r)) return "a view";
            if (!same_replica(r)) return "a replica";
            break;
        default: fold(r); break;
        }
    }
    if (!renew(r)) return "a view";
    if (!same_replica(r)) return "a replica";
    return digest(r) ? NULL : "a digest";
}

static void lives_have_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; lk_codec_word(i); i++) {
        struct rig r;
        uint64_t seeds = strcmp(lk_codec_word(i), "topk-sign") ? 1 : SEEDS;
        open_rig(&r, variable("LH_TEST_EMULATED_PLUGIN"), lk_codec_word(i));
        for (uint64_t s = 1; s <= seeds; s++) {
            const char *what = live(&r, s);
            if (what) fail_msg("%s differs: %s, seed %d", what, lk_codec_word(i), (int)s);
        }
        assert_true(atomic_load(&r.counts.folded) && atomic_load(&r.counts.encoded));
        assert_true(atomic_load(&r.counts.compared) && !atomic_load(&r.counts.differed));
        assert_int_equal(r.failures, 0);
        close_rig(&r);
    }
}

static void records_come_while_a_push_is_encoded(void **state)
{
    struct rig r;
    (void)state;
    open_rig(&r, variable("LH_TEST_EMULATED_PLUGIN"), "topk-sign");
    r.beside = true;
    for (uint64_t s = 1; s <= 3; s++) {
        const char *what = live(&r, s);
        if (what) fail_msg("%s differs: seed %d", what, (int)s);
    }
    assert_true(atomic_load(&r.counts.folded) && atomic_load(&r.counts.encoded));
    close_rig(&r);
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
    open_rig(&r, variable("LH_TEST_EMULATED_PLUGIN"), "topk-sign");
    plant(&r);
    for (uint64_t s = 1; s <= SEEDS && !what; s++) what = live(&r, s);
    if (!what) fail_msg("nobody found it: %s", name);
    close_rig(&r);
}

static void plant_no_follow(struct rig *r)
{
    r->streams.event_follow = no_follow;
}

static void plant_always_done(struct rig *r)
{
    r->streams.event_done = always_done;
}

static void missing_waits_are_found(void **state)
{
    (void)state;
    is_found(plant_no_follow, "streams that don't wait for each other");
    is_found(plant_always_done, "a payload's memory that is written too early");
}

static struct lk_gpu_kernels planted;
static int skipped;

static int skip_fold(struct lk_gpu_shard *shard, const struct lk_gpu_record *record,
                     uint32_t records, enum lk_gpu_use use, uint64_t below, float *device_to,
                     lk_gpu_stream stream)
{
    if (skipped++ == 1) return 0;
    return planted.fold(shard, record, records, use, below, device_to, stream);
}

// A record that the device did not fold: the next digest record says so, and the renewal after it
// gives the host's parameters.
static void a_digest_finds_what_was_not_folded(void **state)
{
    struct rig r;
    (void)state;
    open_rig(&r, variable("LH_TEST_EMULATED_PLUGIN"), "topk-sign");
    seed(&r, 7);
    planted = r.kernels;
    skipped = 0;
    make_up(&r, r.replica.theta, r.layout->values);
    start(&r);
    r.kernels.fold = skip_fold;
    while (skipped < 1) fold(&r);
    assert_true(digest(&r) && same_replica(&r));
    while (skipped < 3) fold(&r);
    assert_false(same_replica(&r));
    assert_false(digest(&r));
    assert_int_equal(atomic_load(&r.counts.differed), 1);
    assert_true(digest(&r)); // it is not compared until it is filled
    assert_true(renew(&r) && same_replica(&r) && digest(&r));
    assert_int_equal(atomic_load(&r.counts.differed), 1);
    close_rig(&r);
}

// The digest is of the optimizer's arrays, too, which the device does not have. And the record that
// ends it may change more than its payload says.
static void another_optimizer_is_not_compared(void **state)
{
    struct rig r;
    (void)state;
    open_rig(&r, variable("LH_TEST_EMULATED_PLUGIN"), "topk-sign");
    seed(&r, 5);
    make_up(&r, r.replica.theta, r.layout->values);
    start(&r);
    struct lk_outer *outer = &r.replica.outer;
    assert_int_equal(lk_outer_allocate(outer, LH_OPT_BUFFERED, r.layout->values), LH_OK);
    outer->kind = LH_OPT_BUFFERED;
    memset(outer->u, 0, r.layout->values * sizeof *outer->u);
    memset(outer->m, 0, r.layout->values * sizeof *outer->m);
    fold(&r);
    assert_true(renew(&r) && same_replica(&r));
    assert_true(digest(&r));
    assert_int_equal(atomic_load(&r.counts.compared) + atomic_load(&r.counts.differed), 0);
    outer->kind = LH_OPT_SGD;
    make_up(&r, r.replica.theta, 100);
    fold(&r);
    assert_true(renew(&r) && same_replica(&r) && digest(&r));
    close_rig(&r);
}

// ---------------------------------------------------------------- failures

// A value that is not finite is told of in the CPU's words, and the cut after it is as ever.
static void not_finite(void **state)
{
    struct rig r;
    struct lk_payload_info info;
    (void)state;
    open_rig(&r, variable("LH_TEST_EMULATED_PLUGIN"), "topk-sign");
    seed(&r, 3);
    start(&r);
    r.residual[7] = NAN;
    r.number++;
    const struct wk_shard_state_of is = of(&r);
    r.device->ops->copy(r.device);
    assert_int_equal(r.device->ops->encode(r.device, &is, 1, r.spare, &r.theirs, &info),
                     LH_ERR_NON_FINITE);
    assert_true(r.theirs.len == 0);
    r.residual[7] = 1;
    r.number++;
    for (int i = 0; i < 3; i++) assert_true(cut(&r));
    close_rig(&r);
}

// The device fails at the third push: it says so, and no step follows.
static void a_device_that_fails(void **state)
{
    struct rig r;
    struct lk_payload_info info;
    (void)state;
    setenv("LH_FAKE_PLUGIN", "later", 1);
    open_rig(&r, variable("LH_TEST_FAKE_PLUGIN"), "topk-sign");
    start(&r);
    const struct wk_shard_state_of is = of(&r);
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
    close_rig(&r);
}

static int follow_fails(lk_gpu_stream stream, lk_gpu_event event)
{
    (void)stream, (void)event;
    return 3;
}

// A failure between two steps is the trainer's to tell; the cut that follows is none.
static void a_failure_between_steps(void **state)
{
    struct rig r;
    struct lk_payload_info info;
    (void)state;
    open_rig(&r, variable("LH_TEST_EMULATED_PLUGIN"), "topk-sign");
    start(&r);
    r.streams.event_follow = follow_fails;
    r.device->ops->copy(r.device);
    assert_int_equal(r.failures, 1);
    const struct wk_shard_state_of is = of(&r);
    assert_int_equal(r.device->ops->encode(r.device, &is, 1, r.spare, &r.theirs, &info), LH_ERR_IO);
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lives_have_the_same_bits),
        cmocka_unit_test(records_come_while_a_push_is_encoded),
        cmocka_unit_test(missing_waits_are_found),
        cmocka_unit_test(a_digest_finds_what_was_not_folded),
        cmocka_unit_test(another_optimizer_is_not_compared),
        cmocka_unit_test(not_finite),
        cmocka_unit_test(a_device_that_fails),
        cmocka_unit_test(a_failure_between_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
