// Implements state_rig.h: a state on the device beside one on the host.
#include "tests/gpu/state_rig.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/view.h"
#include "worker/train/host.h"

static const char *const names[] = {"first", "long", "tiny", "last"};
static const uint64_t shapes[][5] = {{5000, 0}, {4097, 0}, {1, 0}, {70, 60, 0}};

int rig_run(void)
{
    const char *only = getenv("LH_TEST_ONLY");
    if (only) cmocka_set_test_filter(only);
    return test_run(NULL, NULL);
}

const char *rig_variable(const char *name)
{
    const char *value = getenv(name);
    assert_non_null(value);
    return value;
}

uint64_t rig_draw(struct rig *r, uint64_t below)
{
    r->random = r->random * 6364136223846793005u + 1442695040888963407u;
    return (r->random >> 33) % below;
}

void rig_make_up(struct rig *r, float *out, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        out[i] = rig_draw(r, 9)
                     ? ldexpf((float)rig_draw(r, 1 << 20) - (1 << 19), -30 + (int)rig_draw(r, 9))
                     : 0;
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

struct wk_device_state_conf rig_device_conf(struct rig *r)
{
    return (struct wk_device_state_conf){.trainer = r->there,
                                         .failed = note_failure,
                                         .arg = r,
                                         .layout = r->layout,
                                         .codec = r->codec,
                                         .counts = &r->counts,
                                         .outward = &r->outward};
}

static void open_states(struct rig *r)
{
    const struct wk_shard_state_conf conf = {&r->trainer.base, r->layout, 0.25f};
    const struct wk_device_state_conf device = rig_device_conf(r);
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

void rig_open(struct rig *r, const char *plugin, const char *codec)
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
    r->transfer = *r->table.transfer;
    r->table.transfer = &r->transfer;
    r->memory = *r->table.memory;
    r->table.memory = &r->memory;
    assert_int_equal(lk_outward_open(&r->outward, &r->table, SLOTS, SLOT_BYTES), 0);
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
    r->there =
        (struct wk_device_lent){.gpu = &r->table, .value = there, .name = "an emulated device"};
    assert_int_equal(r->table.streams->create(&r->there.stream), 0);
    r->payload = lh_buf(1 << 20);
    r->theirs = lh_buf(1 << 20);
    open_states(r);
}

void rig_close(struct rig *r)
{
    close_states(r);
    lk_outward_close(&r->outward);
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

void rig_seed(struct rig *r, uint64_t number)
{
    void *symbol = dlsym(r->gpu.library, "simt_seed");
    void (*set)(uint64_t seed);
    assert_non_null(symbol);
    memcpy(&set, &symbol, sizeof set);
    set(number);
    r->random = number;
}

// ---------------------------------------------------------------- a worker's operations

struct wk_shard_state_of rig_of(const struct rig *r)
{
    return (struct wk_shard_state_of){&r->replica, r->residual, r->number};
}

void rig_train(struct rig *r)
{
    const float by = 1.0f + 0.001f * (float)(rig_draw(r, 8) + 1);
    uint64_t n = r->manifest.values;
    float *v = r->there.value;
    const struct lk_gpu_arrays arrays = {v, v, v, v, by, n}; // v = by * v + (v - v)
    for (uint64_t i = 0; i < n; i++) r->trainer.value[i] = by * r->trainer.value[i] + 0.0f;
    assert_int_equal(r->table.kernels->each(LK_GPU_VIEW_DELTA, &arrays, r->there.stream), 0);
}

bool rig_same_parameters(struct rig *r)
{
    size_t bytes = r->layout->values * sizeof *r->pinned;
    const float *there = r->there.value + r->layout->first;
    assert_int_equal(r->table.memory->copy_out(r->pinned, there, bytes, r->there.stream), 0);
    assert_int_equal(r->gpu.backend->streams->wait(r->there.stream), 0);
    return memcmp(r->pinned, r->trainer.value + r->layout->first, bytes) == 0;
}

void rig_start(struct rig *r)
{
    const struct wk_shard_state_of is = rig_of(r);
    uint64_t n = r->manifest.values;
    memset(r->trainer.value, 0, n * sizeof(float)); // the other shard's values stay zero
    assert_int_equal(r->gpu.backend->optimizer->zero(r->there.value, n, r->there.stream), 0);
    r->host->ops->start(r->host, &is);
    r->device->ops->start(r->device, &is);
}

static void new_chain(struct rig *r, struct lh_hash *before)
{
    *before = r->replica.ledger.chain;
    for (int i = 0; i < 8; i++) r->replica.ledger.chain.b[i] = (uint8_t)rig_draw(r, 256);
}

void rig_fold(struct rig *r)
{
    struct wk_shard_state_folded f = {.admitted = rig_draw(r, 4) != 0, .scale = 0.7f};
    struct lh_buf payload = lh_buf(1 << 20);
    struct lk_payload_info info;
    uint64_t words = 0;
    while (lk_codec_word(words)) words++;
    assert_int_equal(lk_codec_parse(lk_codec_word(rig_draw(r, words)), &f.codec), LH_OK);
    f.codec.density = f.codec.index == LK_INDEX_DENSE ? 1 : 100.0f / 4096;
    if (r->own_codec) f.codec = r->codec;
    rig_make_up(r, r->got, r->layout->values);
    assert_int_equal(lk_encode(&f.codec, r->layout, r->got, &payload, &info), LH_OK);
    f.plain = lh_buf_span(&payload);
    if (f.admitted)
        assert_int_equal(lk_fold(&f.codec, r->layout, f.plain, f.scale, r->replica.theta), LH_OK);
    new_chain(r, &f.before);
    const struct wk_shard_state_of is = rig_of(r);
    r->device->ops->fold(r->device, &is, &f);
    memset(payload.data, 0xa5, payload.len); // must not be read any more
    lh_buf_free(&payload);
}

bool rig_renew(struct rig *r)
{
    const struct wk_shard_state_of is = rig_of(r);
    r->host->ops->make(r->host, &is);
    r->host->ops->renew(r->host, &is);
    r->device->ops->renew(r->device, &is);
    if (rig_draw(r, 2)) rig_train(r);
    return rig_same_parameters(r);
}

bool rig_same_replica(struct rig *r)
{
    assert_int_equal(wk_device_state_read(r->device, r->got), LH_OK);
    return memcmp(r->got, r->replica.theta, r->layout->values * sizeof(float)) == 0;
}

bool rig_digest(struct rig *r)
{
    struct lh_hash is = lk_replica_digest(&r->replica);
    const struct lh_record record = {.kind = LH_DIGEST_RECORD, .body = lh_span(is.b, sizeof is.b)};
    const struct wk_shard_state_of now = rig_of(r);
    return r->device->ops->agrees(r->device, &now, &record);
}

struct lane { // Encodes a push beside the loop.
    struct rig *r;
    bool by_host; // from the delta that the device returns, as for another density
    struct wk_shard_state_of of;
    struct lk_payload_info info;
    lh_err err;
    char text[256];
};

static void *encode(void *arg)
{
    struct lane *lane = arg;
    struct rig *r = lane->r;
    if (lane->by_host) {
        lane->err = r->device->ops->delta(r->device, &lane->of, 0.9f, r->left);
        if (!lane->err)
            lane->err = lk_encode(&r->codec, r->layout, r->left, &r->theirs, &lane->info);
    } else {
        lane->err =
            r->device->ops->encode(r->device, &lane->of, 0.9f, r->left, &r->theirs, &lane->info);
    }
    if (lane->err) snprintf(lane->text, sizeof lane->text, "%s", lh_err_text(lane->err));
    return NULL;
}

static void encode_beside(struct rig *r, struct lane *lane)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, encode, lane), 0);
    for (uint64_t n = rig_draw(r, 4); n > 0; n--) rig_fold(r);
    if (rig_draw(r, 2)) assert_true(rig_digest(r));
    pthread_join(thread, NULL);
}

// Between a cut's copy and its encoding, at random: nothing (encode() then does all), begin(), a
// read of the delta after it, or a second copy that replaces the first.
static void begin(struct rig *r, const struct wk_shard_state_of *is)
{
    uint64_t how = rig_draw(r, 6), filled = atomic_load(&r->counts.filled);
    if (!how) return;
    r->device->ops->begin(r->device, is, 0.9f);
    assert_int_equal(atomic_load(&r->counts.filled), filled); // the loop waits for nothing
    if (how == 1) {
        assert_int_equal(r->host->ops->delta(r->host, is, 0, r->spare), LH_OK);
        assert_int_equal(r->device->ops->delta(r->device, is, 0, r->got), LH_OK);
        assert_memory_equal(r->got, r->spare, r->layout->values * sizeof *r->got);
    }
    if (how != 2) return;
    rig_train(r);
    r->host->ops->copy(r->host);
    r->device->ops->copy(r->device);
    if (rig_draw(r, 2)) r->device->ops->begin(r->device, is, 0.9f);
}

bool rig_cut(struct rig *r)
{
    const struct wk_shard_state_of is = rig_of(r);
    struct lk_payload_info a = {0};
    struct lane lane = {.r = r, .of = is, .by_host = !rig_draw(r, 5)};
    size_t bytes = r->layout->values * sizeof *r->spare;
    uint64_t filled = atomic_load(&r->counts.filled);
    lh_buf_clear(&r->payload);
    lh_buf_clear(&r->theirs);
    r->host->ops->copy(r->host);
    r->device->ops->copy(r->device);
    begin(r, &is);
    rig_train(r);
    if (rig_draw(r, 2)) rig_fold(r);
    assert_int_equal(r->host->ops->delta(r->host, &is, 0.9f, r->spare), LH_OK);
    assert_int_equal(lk_encode(&r->codec, r->layout, r->spare, &r->payload, &a), LH_OK);
    if (r->beside)
        encode_beside(r, &lane);
    else
        encode(&lane);
    if (lane.err) fail_msg("%s", lane.text);
    if (r->same) assert_int_equal(atomic_load(&r->counts.filled), filled);
    r->same = !lane.by_host;
    if (r->payload.len != r->theirs.len ||
        memcmp(r->payload.data, r->theirs.data, r->payload.len) ||
        memcmp(r->spare, r->left, bytes) || a.values != lane.info.values ||
        a.chunks != lane.info.chunks ||
        memcmp(&a.sum_squares, &lane.info.sum_squares, sizeof(double)))
        return false;
    if (!rig_draw(r, 4)) return true; // not committed, as if the disk were full
    memcpy(r->residual, r->spare, bytes);
    r->number++;
    const struct wk_shard_state_of next = rig_of(r);
    r->host->ops->committed(r->host, &next);
    r->device->ops->committed(r->device, &next);
    if (rig_draw(r, 3)) return true;
    r->number++; // the push is refused: its mass comes back
    r->same = false;
    assert_int_equal(lk_payload_add(&r->codec, r->layout, lh_buf_span(&r->payload), r->residual),
                     LH_OK);
    return true;
}

// Installs a new state, as after a rollback of the log or when this worker lags behind.
static void roll_back(struct rig *r)
{
    struct lh_hash before;
    rig_make_up(r, r->replica.theta, r->layout->values);
    new_chain(r, &before);
}

// Puts another optimizer in force for some records.
static void other_optimizer(struct rig *r)
{
    r->replica.outer.kind = LH_OPT_DELAYED_NESTEROV;
    rig_fold(r);
    rig_make_up(r, r->replica.theta, 100);
    rig_fold(r);
    r->replica.outer.kind = LH_OPT_SGD;
    rig_fold(r);
}

static void restart(struct rig *r)
{
    r->same = false;
    close_states(r);
    open_states(r);
    rig_start(r);
}

const char *rig_live(struct rig *r, uint64_t number)
{
    rig_seed(r, number);
    rig_make_up(r, r->replica.theta, r->layout->values);
    rig_make_up(r, r->residual, r->layout->values);
    r->number++;
    r->same = false;
    roll_back(r);
    rig_start(r);
    for (int i = 0; i < TURNS; i++) {
        switch (rig_draw(r, 12)) {
        case 0: roll_back(r); break;
        case 1: restart(r); break;
        case 2: other_optimizer(r); break;
        case 3:
        case 4: rig_train(r); break;
        case 5:
        case 6:
            if (!rig_cut(r)) return "a push";
            break;
        case 7:
            if (!rig_digest(r)) return "a digest";
            break;
        case 8:
            if (!rig_renew(r)) return "a view";
            if (!rig_same_replica(r)) return "a replica";
            break;
        default:
            for (uint64_t n = rig_draw(r, 4); n > 0; n--)
                rig_fold(r); // the first may still be under way
            rig_fold(r);
            break;
        }
    }
    if (!rig_renew(r)) return "a view";
    if (!rig_same_replica(r)) return "a replica";
    return rig_digest(r) ? NULL : "a digest";
}
