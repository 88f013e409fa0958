// The suites on the plugin that is found (kernels/cuda/loader.h) in place of the emulator. Device
// memory is poisoned when it is allocated, so that a value that a kernel fails to write is not
// right by chance. LH_PARITY_POISON=0 leaves memory as the device gives it, for compute-sanitizer's
// initcheck: poisoned memory counts as written, and no read of it would be found. Without a plugin
// or a device the program says why and ends with 77.
#include "tests/parity/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/loader.h"

enum { NOT_HERE = 77, PIECE = 1 << 20 };

static struct {
    struct lk_gpu gpu;
    struct lk_gpu_backend table;
    struct lk_gpu_memory memory;
    lk_gpu_stream stream;
    uint8_t *poison; // pinned, PIECE bytes; NULL: memory is left as it is
} real;

static int poisoned_alloc(void **device, size_t bytes)
{
    const struct lk_gpu_memory *m = real.gpu.backend->memory;
    int err = m->alloc(device, bytes);
    for (size_t at = 0, n; !err && at < bytes; at += n) {
        n = bytes - at < PIECE ? bytes - at : PIECE;
        err = m->copy_in((uint8_t *)*device + at, real.poison, n, real.stream);
    }
    return err ? err : real.gpu.backend->streams->wait(real.stream);
}

static void poison_memory(void)
{
    const struct lk_gpu_backend *b = real.gpu.backend;
    const char *asked = getenv("LH_PARITY_POISON");
    void *poison = NULL;
    if (asked && !strcmp(asked, "0")) {
        printf("parity: memory as the device gives it\n");
        return;
    }
    int err = b->streams->create(&real.stream);
    if (!err) err = b->memory->pinned_alloc(&poison, PIECE);
    must(!err, "the device: %s", b->error_text(err));
    real.poison = poison;
    memset(real.poison, 0xa5, PIECE);
    real.memory.alloc = poisoned_alloc;
}

static void open_real(void)
{
    if (lk_gpu_open(NULL, &real.gpu)) {
        fprintf(stderr, "parity: %s\n", lh_err_text(LH_ERR_UNSUPPORTED));
        exit(NOT_HERE);
    }
    real.memory = *real.gpu.backend->memory;
    real.table = *real.gpu.backend;
    real.table.memory = &real.memory;
    poison_memory();
}

const struct lk_gpu_backend *lk_gpu_query(uint32_t abi)
{
    if (!real.gpu.library) open_real();
    return abi == LK_GPU_ABI ? &real.table : NULL;
}

void simt_seed(uint64_t seed) // a real device has an order of its own
{
    (void)seed;
}

struct simt_counts simt_counted(void)
{
    return (struct simt_counts){0};
}
