// Compares a device's state with a host's, on made-up values. See state_check.h.
#include "worker/state/state_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "worker/train/host.h"

enum { CHECK_VALUES = 9001, SEED_THETA = 1, SEED_RESIDUAL, SEED_STEP };
enum { SLOTS = 2, SLOT_BYTES = 8 << 10 }; // too small together for one push, which the check needs

struct host_trainer {
    struct wk_trainer base;
    float *value;
};

struct check {
    const struct wk_device_lent *there;
    const struct lk_codec *codec;
    struct lh_manifest manifest;
    struct lk_replica replica;
    struct host_trainer trainer;
    struct wk_shard_state *host, *device;
    struct wk_device_counts counts;
    struct lk_outward outward;
    struct wk_device_lent own;        // untrained parameters
    float *value, *mass, *left, *got; // on the host, [CHECK_VALUES] each; mass: the residual
    struct lh_buf ours, theirs;
    float *pinned;
};

static void copy(struct wk_trainer *t, uint64_t first, uint64_t values, float *slot)
{
    wk_host_copy(((struct host_trainer *)(void *)t)->value, first, values, slot);
}

static void renew(struct wk_trainer *t, const struct wk_renewal *r)
{
    wk_host_renew(((struct host_trainer *)(void *)t)->value, r);
}

static const struct wk_trainer_ops trainer_ops = {.copy = copy, .renew = renew};

// Makes values with ties, zeros and many magnitudes.
static void make_up(float *out, uint64_t seed)
{
    for (size_t i = 0; i < CHECK_VALUES; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        out[i] = i % 11 ? ldexpf((float)((int)(seed >> 40 & 31) - 15), (int)(seed >> 60) - 16) : 0;
    }
}

static lh_err differs(const struct check *c, const char *what)
{
    return lh_fail(LH_ERR_UNSUPPORTED, "%s: %s of test values differs from the host's",
                   c->there->name, what);
}

static lh_err gone(const struct check *c, int err)
{
    return lh_fail(LH_ERR_UNSUPPORTED, "%s: %s", c->there->name, c->there->gpu->error_text(err));
}

static struct wk_shard_state_of of(const struct check *c, uint64_t number)
{
    return (struct wk_shard_state_of){&c->replica, c->mass, number};
}

// Makes the same step of both trainers' parameters.
static lh_err train(struct check *c)
{
    const struct lk_gpu_backend *b = c->there->gpu;
    make_up(c->got, SEED_STEP);
    for (size_t i = 0; i < CHECK_VALUES; i++)
        if (i % 3) c->value[i] += 0.01f * c->got[i];
    memcpy(c->pinned, c->value, CHECK_VALUES * sizeof *c->value);
    int err =
        b->memory->copy_in(c->own.value, c->pinned, CHECK_VALUES * sizeof *c->value, c->own.stream);
    if (!err) err = b->streams->wait(c->own.stream); // the memory will be reused by another copy
    return err ? gone(c, err) : LH_OK;
}

static lh_err compare_parameters(struct check *c)
{
    const struct lk_gpu_backend *b = c->there->gpu;
    size_t bytes = CHECK_VALUES * sizeof *c->value;
    int err = b->memory->copy_out(c->pinned, c->own.value, bytes, c->own.stream);
    if (!err) err = b->streams->wait(c->own.stream);
    if (err) return gone(c, err);
    return memcmp(c->pinned, c->value, bytes) ? differs(c, "a view") : LH_OK;
}

static lh_err cut(struct check *c)
{
    const struct wk_shard_state_of is = of(c, 1);
    struct lk_payload_info a = {0}, b = {0};
    c->host->ops->copy(c->host);
    c->device->ops->copy(c->device);
    c->device->ops->begin(c->device, &is, 0.9f);
    LH_TRY(c->host->ops->delta(c->host, &is, 0.9f, c->left));
    LH_TRY(lk_encode(c->codec, c->replica.layout, c->left, &c->ours, &a));
    if (c->device->ops->encode(c->device, &is, 0.9f, c->got, &c->theirs, &b))
        return lh_fail(LH_ERR_UNSUPPORTED, "%s", lh_err_text(LH_ERR_IO));
    bool same = c->ours.len == c->theirs.len &&
                !memcmp(c->ours.data, c->theirs.data, c->ours.len) &&
                !memcmp(c->left, c->got, CHECK_VALUES * sizeof *c->left) && a.values == b.values &&
                a.chunks == b.chunks && !memcmp(&a.sum_squares, &b.sum_squares, sizeof(double));
    if (!same) return differs(c, "a push");
    memcpy(c->mass, c->left, CHECK_VALUES * sizeof *c->left);
    const struct wk_shard_state_of next = of(c, 2);
    c->host->ops->committed(c->host, &next);
    c->device->ops->committed(c->device, &next);
    return LH_OK;
}

static lh_err fold(struct check *c)
{
    const struct wk_shard_state_of is = of(c, 2);
    const struct wk_shard_state_folded folded = {.before = c->replica.ledger.chain,
                                                 .admitted = true,
                                                 .codec = *c->codec,
                                                 .plain = lh_buf_span(&c->ours),
                                                 .scale = 0.7f};
    LH_TRY(lk_fold(c->codec, c->replica.layout, folded.plain, folded.scale, c->replica.theta));
    c->replica.ledger.chain.b[0] ^= 1;
    c->device->ops->fold(c->device, &is, &folded);
    c->host->ops->make(c->host, &is);
    c->host->ops->renew(c->host, &is);
    c->device->ops->renew(c->device, &is);
    return compare_parameters(c);
}

static lh_err compare_digests(struct check *c)
{
    const struct wk_shard_state_of is = of(c, 2);
    struct lh_hash digest;
    LH_TRY(lk_replica_digest_try(&c->replica, &digest));
    const struct lh_record record = {.kind = LH_DIGEST_RECORD,
                                     .body = lh_span(digest.b, sizeof digest.b)};
    if (!c->device->ops->agrees(c->device, &is, &record) || !atomic_load(&c->counts.compared) ||
        !atomic_load(&c->counts.folded))
        return differs(c, "the replica");
    return LH_OK;
}

static lh_err run(struct check *c)
{
    const struct wk_shard_state_of is = of(c, 1);
    make_up(c->replica.theta, SEED_THETA);
    make_up(c->mass, SEED_RESIDUAL);
    c->host->ops->start(c->host, &is);
    c->device->ops->start(c->device, &is);
    LH_TRY(compare_parameters(c));
    LH_TRY(train(c));
    LH_TRY(cut(c));
    LH_TRY(train(c));
    LH_TRY(fold(c));
    return compare_digests(c);
}

static lh_err open_trainers(struct check *c)
{
    const struct lk_gpu_backend *b = c->there->gpu;
    size_t bytes = CHECK_VALUES * sizeof *c->value;
    void *there = NULL, *here = NULL;
    c->own = *c->there;
    c->own.value = NULL;
    c->own.stream = NULL;
    int err = b->use(c->there->index);
    if (!err) err = b->streams->create(&c->own.stream);
    if (!err) err = b->memory->alloc(&there, bytes);
    c->own.value = there;
    if (!err) err = b->memory->pinned_alloc(&here, bytes);
    c->pinned = here;
    if (err) return gone(c, err);
    c->value = calloc(4 * CHECK_VALUES, sizeof *c->value);
    if (!c->value) return LH_ERR_NO_MEMORY;
    c->mass = c->value + CHECK_VALUES;
    c->left = c->mass + CHECK_VALUES;
    c->got = c->left + CHECK_VALUES;
    c->trainer = (struct host_trainer){{&trainer_ops}, c->value};
    return LH_OK;
}

static lh_err open_states(struct check *c)
{
    static const char *const names[] = {"made-up"};
    static const uint64_t shapes[][5] = {{CHECK_VALUES, 0}};
    const uint8_t job[LH_JOB_BYTES] = {0};
    LH_TRY(lh_manifest_build(&c->manifest, 1, names, shapes, 1, NULL));
    LH_TRY(lk_replica_create(&c->replica, job, &c->manifest, 0, NULL));
    const struct wk_shard_state_conf conf = {&c->trainer.base, c->replica.layout, 0.25f};
    const struct wk_device_state_conf device = {.trainer = c->own,
                                                .layout = c->replica.layout,
                                                .codec = *c->codec,
                                                .counts = &c->counts,
                                                .outward = &c->outward};
    const struct lk_gpu_backend *b = c->there->gpu;
    int failed = lk_outward_open(&c->outward, b, SLOTS, SLOT_BYTES);
    if (failed) return gone(c, failed);
    LH_TRY(wk_shard_state_host(&conf, &c->host));
    LH_TRY(wk_device_state_create(&device, &c->device));
    c->device->conf = conf;
    return LH_OK;
}

static void close(struct check *c)
{
    const struct lk_gpu_backend *b = c->there->gpu;
    if (c->host) c->host->ops->destroy(c->host);
    if (c->device) c->device->ops->destroy(c->device);
    lk_outward_close(&c->outward);
    if (c->own.stream) (void)b->streams->wait(c->own.stream);
    if (c->own.value) b->memory->release(c->own.value);
    if (c->pinned) b->memory->pinned_release(c->pinned);
    if (c->own.stream) b->streams->destroy(c->own.stream);
    lk_replica_free(&c->replica);
    lh_manifest_free(&c->manifest);
    lh_buf_free(&c->ours);
    lh_buf_free(&c->theirs);
    free(c->value);
}

lh_err wk_state_check(const struct wk_device_lent *there, const struct lk_codec *codec)
{
    struct check c = {.there = there,
                      .codec = codec,
                      .ours = lh_buf(8 * CHECK_VALUES),
                      .theirs = lh_buf(8 * CHECK_VALUES)};
    lh_err err = open_trainers(&c);
    if (!err) err = open_states(&c);
    if (!err) err = run(&c);
    close(&c);
    return err;
}
