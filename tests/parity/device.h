// One device for the parity tests: the plugin's table on the emulator, arrays that are copied there
// and back, and comparisons that say what differs.
#ifndef LH_TESTS_PARITY_DEVICE_H
#define LH_TESTS_PARITY_DEVICE_H

#include "tests/simt/control.h"
#include "tests/unit/kernels/codec_case.h"

#include "common/base/buf.h"
#include "common/base/check.h"
#include "kernels/cuda/plan.h"
#include "kernels/view.h"

struct device {
    const struct lk_gpu_backend *b;
    lk_gpu_stream stream;
};

struct device device_create(void);
void device_destroy(struct device *d);
void *device_room(const struct device *d, size_t bytes);
// Copies `host` into a device array of exactly this size; NULL gives NULL.
void *device_put(const struct device *d, const void *host, size_t bytes);
// Waits for everything, then reads.
void device_get(const struct device *d, void *host, const void *device, size_t bytes);
void device_free(const struct device *d, void *device);

// Ends the program with a line when they differ.
void must_equal(const void *is, const void *should, size_t bytes, const char *what, ...)
    __attribute__((format(printf, 4, 5)));
// The same for sums that are taken in another order: the distance is at most `most` of the norm,
// and at each place of the largest value. If `should` is all zero, so must `is` be.
void must_near(const float *is, const float *should, size_t n, double most, const char *what, ...)
    __attribute__((format(printf, 5, 6)));
void must(bool holds, const char *what, ...) __attribute__((format(printf, 2, 3)));
void must_succeed(const struct device *d, int err, const char *call);

// A case's name for messages, valid until the next call.
const char *case_name(const struct lk_codec *codec, int kind, uint64_t seed);

// Values of a kind. $LH_PARITY_SEED, a number, gives others than the usual ones.
float *made(enum case_kind kind, uint64_t n, uint64_t seed);

// How many seeds to run: half as many with LH_TEST_QUICK.
uint64_t seeds_of(uint64_t seeds);

// lk_view_make() and lk_view_move() on the host: `local` moves to the new view, which becomes
// `base`.
void host_view_move(const float *theta, float kappa, const float *residual, float *local,
                    float *base, uint64_t n);

// The suites, one ctest entry each.
void parity_encode(void);
void parity_dense(void);
void parity_guard(void);
void parity_fold(void);
void parity_each(void);
void parity_transfer(void);
void parity_layers(void);
void parity_optimizer(void);
void parity_large(void);

#endif
