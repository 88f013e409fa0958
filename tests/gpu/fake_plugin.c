// A CUDA plugin that is broken in the way that $LH_FAKE_PLUGIN names. The rest is the emulated
// plugin's ($LH_FAKE_PLUGIN_REAL), with single calls replaced.
//
//   abi      does not speak the ABI it is asked for
//   renamed  answers with a table of another ABI
//   short    answers with a table that lacks its end
//   driver   its devices() fails: no driver
//   none     the driver sees no device
//   memory   the device has no memory
//   tight    reports 1 MiB of free memory, and refuses every allocation
//   small    reports 1 KiB of free memory
//   arrays   reports 1 KiB of free memory from the second question on
//   folds    folds nothing
//   skips    of every four folds, does only the first two
//   still    computes deltas as if nothing had been trained
//   later    the third encoding and all after it fail
//   second   there is a second device, which has no memory
//   layers   a gradient of its layers is wrong
//   scores   attention's scores get no gradient
//   lazy     its optimizer does nothing
//   sums     its sums of squares are zero
//   step     the fourth step of the optimizer and all after it fail; the first is the self-check's
//   counts   nothing is broken: fake_held() counts the memory not released yet
//   bytes    its payloads differ from the CPU's in one bit
#include "kernels/cuda/plugin.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { NO_DRIVER = 1, NO_MEMORY = 2, BROKEN = 3 };

static struct lk_gpu_backend table;
static struct lk_gpu_memory memory;
static struct lk_gpu_transfer transfer;
static struct lk_gpu_kernels kernels;
static struct lk_gpu_backward backward;
static struct lk_gpu_optimizer optimizer;
static const struct lk_gpu_backend *real;
static const char *how;
static int encodings, steps, folds, questions, current;

static int devices(int *count)
{
    *count = 0;
    if (!strcmp(how, "driver")) return NO_DRIVER;
    if (!strcmp(how, "none")) return 0;
    return real->devices(count);
}

static const char *error_text(int err)
{
    static const char *const text[] = {"fine", "this machine has no NVIDIA driver", "out of memory",
                                       "the device fell off the bus"};
    return text[err >= 0 && err <= BROKEN ? err : 0];
}

static void versions(struct lk_gpu_versions *out)
{
    *out = (struct lk_gpu_versions){0, 13000};
}

static int no_memory(void **device, size_t bytes)
{
    (void)bytes;
    *device = NULL;
    return NO_MEMORY;
}

static int tight(int index, struct lk_gpu_device *out)
{
    int err = real->device(index, out);
    out->free_bytes = 1 << 20;
    return err;
}

static int small(int index, struct lk_gpu_device *out)
{
    int err = real->device(index, out);
    out->free_bytes = 1 << 10;
    return err;
}

static int none_left(int index, struct lk_gpu_device *out)
{
    return questions++ ? small(index, out) : real->device(index, out);
}

static int skip(struct lk_gpu_shard *shard, const struct lk_gpu_record *record, uint32_t records,
                uint64_t below, float *device_to, lk_gpu_stream stream)
{
    if (folds++ % 4 / 2) return 0; // the first one is the self-check's
    return real->kernels->fold(shard, record, records, below, device_to, stream);
}

static int no_fold(struct lk_gpu_shard *shard, const struct lk_gpu_record *record, uint32_t records,
                   uint64_t below, float *device_to, lk_gpu_stream stream)
{
    (void)shard, (void)record, (void)records, (void)below, (void)device_to, (void)stream;
    return 0;
}

static int use(int index)
{
    current = index;
    return real->use(0);
}

static int memory_of_the_first(void **device, size_t bytes)
{
    return current ? no_memory(device, bytes) : real->memory->alloc(device, bytes);
}

static int encode(struct lk_gpu_shard *shard, const struct lk_gpu_encode *in, lk_gpu_stream stream)
{
    if (++encodings > 2) return BROKEN;
    return real->kernels->encode(shard, in, stream);
}

static int no_delta(enum lk_gpu_op op, const struct lk_gpu_arrays *arrays, lk_gpu_stream stream)
{
    struct lk_gpu_arrays still = *arrays;
    if (op == LK_GPU_VIEW_DELTA) still.b = arrays->y;
    return real->kernels->each(op, &still, stream);
}

static int no_gradient(uint64_t rows, uint64_t width, const float *gate_up, const float *dy,
                       float *dgate_up, lk_gpu_stream stream)
{
    (void)rows, (void)width, (void)gate_up, (void)dy, (void)dgate_up, (void)stream;
    return 0;
}

static int no_scores(const struct lk_gpu_heads *h, const float *log_sum, const float *dot, float *p,
                     float *dp, lk_gpu_stream stream)
{
    uint64_t values = h->sequences * h->heads * h->length * h->length;
    int err = real->backward->scores(h, log_sum, dot, p, dp, stream);
    return err ? err : real->optimizer->zero(dp, values, stream);
}

static int no_step(const struct lk_gpu_adamw *c, const struct lk_gpu_piece *piece, uint64_t pieces,
                   const struct lk_gpu_adamw_arrays *arrays, lk_gpu_stream stream)
{
    (void)c, (void)piece, (void)pieces, (void)arrays, (void)stream;
    return 0;
}

static int no_sums(const struct lk_gpu_piece *piece, uint64_t pieces, const float *a,
                   const float *b, double *out, lk_gpu_stream stream)
{
    (void)piece, (void)a, (void)b;
    return real->optimizer->zero((float *)(void *)out, 2 * pieces, stream);
}

static int adamw(const struct lk_gpu_adamw *c, const struct lk_gpu_piece *piece, uint64_t pieces,
                 const struct lk_gpu_adamw_arrays *arrays, lk_gpu_stream stream)
{
    if (++steps > 3) return BROKEN;
    return real->optimizer->adamw(c, piece, pieces, arrays, stream);
}

static int flip(void *host, const void *device, size_t bytes, lk_gpu_stream stream)
{
    int err = real->memory->copy_out(host, device, bytes, stream);
    if (!err) err = real->streams->wait(stream);
    if (!err && bytes > 100) ((unsigned char *)host)[bytes / 2] ^= 1;
    return err;
}

static int flip_slot(struct lk_gpu_slots *slots, const void *device, uint64_t bytes,
                     lk_gpu_event after, int32_t *slot)
{
    const uint8_t *there;
    int err = real->transfer->copy(slots, device, bytes, after, slot);
    if (err || *slot < 0 || bytes <= 100) return err;
    err = real->transfer->take(slots, *slot, &there);
    if (!err) ((uint8_t *)(uintptr_t)there)[bytes / 2] ^= 1;
    return err;
}

// ---------------------------------------------------------------- allocations

static int held;
int fake_held(void); // trainer.c looks it up by name

__attribute__((visibility("default"))) int fake_held(void)
{
    return held;
}

static int taken(int err)
{
    held += !err;
    return err;
}

static int count_alloc(void **device, size_t bytes)
{
    return taken(real->memory->alloc(device, bytes));
}

static void count_release(void *device)
{
    held -= device != NULL;
    real->memory->release(device);
}

static int count_pinned(void **host, size_t bytes)
{
    return taken(real->memory->pinned_alloc(host, bytes));
}

static void count_pinned_release(void *host)
{
    held -= host != NULL;
    real->memory->pinned_release(host);
}

static void count_memory(void)
{
    memory.alloc = count_alloc;
    memory.release = count_release;
    memory.pinned_alloc = count_pinned;
    memory.pinned_release = count_pinned_release;
}

static void borrow(void)
{
    const char *path = getenv("LH_FAKE_PLUGIN_REAL");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL, *symbol;
    lk_gpu_query_function *query;
    if (!library || !(symbol = dlsym(library, LK_GPU_QUERY))) abort();
    memcpy(&query, &symbol, sizeof query);
    real = query(LK_GPU_ABI);
    table = *real;
    memory = *real->memory;
    transfer = *real->transfer;
    kernels = *real->kernels;
    backward = *real->backward;
    optimizer = *real->optimizer;
}

__attribute__((visibility("default"))) const struct lk_gpu_backend *lk_gpu_query(uint32_t abi)
{
    how = getenv("LH_FAKE_PLUGIN");
    if (!how || !strcmp(how, "abi")) return NULL;
    if (strcmp(how, "driver") != 0) borrow();
    table.abi = abi + !strcmp(how, "renamed");
    table.bytes = (uint32_t)(sizeof table - (!strcmp(how, "short") ? sizeof(void *) : 0));
    table.devices = devices;
    table.error_text = error_text;
    table.versions = versions;
    if (!strcmp(how, "memory") || !strcmp(how, "tight")) memory.alloc = no_memory;
    if (!strcmp(how, "counts")) count_memory();
    if (!strcmp(how, "tight")) table.device = tight;
    if (!strcmp(how, "small")) table.device = small;
    if (!strcmp(how, "arrays")) table.device = none_left;
    if (!strcmp(how, "skips")) kernels.fold = skip;
    if (!strcmp(how, "folds")) kernels.fold = no_fold;
    if (!strcmp(how, "second")) table.use = use;
    if (!strcmp(how, "second")) memory.alloc = memory_of_the_first;
    if (!strcmp(how, "still")) kernels.each = no_delta;
    if (!strcmp(how, "later")) kernels.encode = encode;
    if (!strcmp(how, "bytes")) memory.copy_out = flip;
    if (!strcmp(how, "layers")) backward.swiglu = no_gradient;
    if (!strcmp(how, "scores")) backward.scores = no_scores;
    if (!strcmp(how, "lazy")) optimizer.adamw = no_step;
    if (!strcmp(how, "sums")) optimizer.sum_squares = no_sums;
    if (!strcmp(how, "step")) optimizer.adamw = adamw;
    if (!strcmp(how, "bytes")) transfer.copy = flip_slot;
    table.memory = &memory;
    table.transfer = &transfer;
    table.backward = &backward;
    table.optimizer = &optimizer;
    table.kernels = &kernels;
    return &table;
}
