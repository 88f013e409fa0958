// A shard's state on a device beside one on the host, and a worker's operations on both over random
// lives.
#ifndef LH_TESTS_GPU_STATE_RIG_H
#define LH_TESTS_GPU_STATE_RIG_H

#include "kernels/cuda/loader.h"
#include "tests/test.h"
#include "worker/state/state_device.h"

enum { TURNS = 40, SEEDS = 7, SHARD = 1 };
enum { SLOTS = 3, SLOT_BYTES = 3000 }; // nine pieces a residual, split inside values

struct host_trainer {
    struct wk_trainer base;
    float *value; // the whole model's
};

struct rig {
    struct lk_gpu gpu;
    struct lk_gpu_backend table; // the states call it; a test replaces parts of it
    struct lk_gpu_kernels kernels;
    struct lk_gpu_streams streams;
    struct lk_gpu_memory memory;
    struct lk_gpu_transfer transfer;
    struct lk_outward outward;
    struct lh_manifest manifest;
    const struct lh_shard_layout *layout;
    struct lk_replica replica;
    struct lk_codec codec;
    struct host_trainer trainer;
    struct wk_device_lent there;
    struct wk_device_counts counts;
    struct wk_shard_state *host, *device;
    float *residual, *spare, *got, *left, *pinned;
    bool own_codec; // all records have the pushes' codec
    bool beside;    // records come while another thread encodes, as on a worker's encode lane
    struct lh_buf payload, theirs;
    uint64_t number, random;
    bool same; // the device has the host's residual: no push copies it from the host
    int failures;
};

// Runs the tests, or those that match the pattern in LH_TEST_ONLY.
int rig_run(void);
const char *rig_variable(const char *name);
uint64_t rig_draw(struct rig *r, uint64_t below);
void rig_make_up(struct rig *r, float *out, uint64_t n);
struct wk_device_state_conf rig_device_conf(struct rig *r);
void rig_open(struct rig *r, const char *plugin, const char *codec);
void rig_close(struct rig *r);
// Seeds the device's scheduling and the random values.
void rig_seed(struct rig *r, uint64_t number);
struct wk_shard_state_of rig_of(const struct rig *r);
// A step of both trainers, queued on the device: each value is scaled.
void rig_train(struct rig *r);
bool rig_same_parameters(struct rig *r);
void rig_start(struct rig *r);
// Folds a random worker's record, with any codec.
void rig_fold(struct rig *r);
bool rig_renew(struct rig *r);
bool rig_same_replica(struct rig *r);
bool rig_digest(struct rig *r);
// Cuts a push while training goes on and records come. The push is committed, refused or given up.
bool rig_cut(struct rig *r);
// Runs one random life. Returns NULL, or the name of the first difference.
const char *rig_live(struct rig *r, uint64_t number);

#endif
