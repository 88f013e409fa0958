// One rank of the NCCL at argv[1] on the first device of the plugin at argv[2]. A communicator
// shares and sums buckets, in fp32 and bf16, is aborted, and is made again; the sum of one rank is
// its own values, in bf16 rounded. That shows calls and waits, not that bytes moved, since a
// bucket's sum lies where the bucket lay. So AllReduce is called once more by itself, from one
// array of the device to another with other values.
// Exit status 77, with a line that says so: something is missing.
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/check.h"
#include "kernels/convert.h"
#include "kernels/cuda/loader.h"
#include "worker/ranks/comm/comm_nccl.h"

enum { VALUES = 300007, BUCKET_BYTES = 256 << 10, EPOCHS = 2, SKIPPED = 77 };

static float x[VALUES];

static int complain(const char *what, const char *why)
{
    fprintf(stderr, "nccl.one: %s: %s\n", what, why);
    return 1;
}

// Waits for the operation under way.
static int over(struct wk_comm *c, int told, const char *what)
{
    eventfd_t count;
    while (wk_comm_region.poll(c) == WK_REGION_BUSY)
        if (eventfd_read(told, &count)) return complain(what, "its bell");
    return wk_comm_region.poll(c) == WK_REGION_OK ? 0 : complain(what, wk_comm_region.why(c));
}

static float value_of(uint32_t v)
{
    return (float)(v % 1000) - 499.5f;
}

static float sum_of(uint32_t v, enum wk_sum_type type)
{
    float is = value_of(v);
    uint16_t narrow;
    if (type == WK_SUM_FP32) return is;
    lk_bf16_of_fp32(&is, &narrow, 1);
    lk_fp32_of_bf16(&narrow, &is, 1);
    return is;
}

static int check(enum wk_sum_type type, const char *what)
{
    for (uint32_t v = 0; v < VALUES; v++)
        if (x[v] != sum_of(v, type)) return complain(what, "another value than it had");
    return 0;
}

static int epoch(struct wk_comm *c, int told, enum wk_sum_type type)
{
    struct wk_nccl_id id;
    eventfd_t count;
    lh_err err = wk_comm_region.unique_id(c, &id);
    if (err) return complain("an id", lh_err_text(err));
    wk_comm_region.init(c, &id, 1, 0);
    if (over(c, told, "a communicator")) return 1;
    for (uint32_t v = 0; v < VALUES; v++) x[v] = value_of(v);
    wk_comm_region.share(c, WK_REGION_SHARE_ALL);
    if (over(c, told, "Broadcast") || check(WK_SUM_FP32, "Broadcast")) return 1;
    wk_comm_region.reduce(c, UINT64_MAX);
    if (over(c, told, "AllReduce") || check(type, "AllReduce")) return 1;
    wk_comm_region.abort(c);
    while (!wk_comm_region.aborted(c))
        if (eventfd_read(told, &count)) return complain("an abort", "its bell");
    return 0;
}

static int rank_of(const char *library, const char *plugin, enum wk_sum_type type)
{
    const struct wk_comm_nccl_conf conf = {
        .library = library, .plugin = plugin, .interface = "lo", .log_file = ""};
    const struct wk_comm_arrays arrays = {
        .part = {{x, sizeof x}},
        .parts = 1,
        .sum = x,
        .sums = VALUES,
        .bucket_bytes = BUCKET_BYTES,
        .type = type,
    };
    struct wk_comm *c;
    lh_err err = wk_comm_nccl_create(&conf, &c);
    if (err) {
        printf("not run: %s\n", lh_err_text(err));
        return SKIPPED;
    }
    int told = eventfd(0, EFD_CLOEXEC), failed = told < 0;
    wk_comm_bind(c, &arrays, told);
    for (int e = 0; e < EPOCHS && !failed; e++) failed = epoch(c, told, type);
    if (!failed)
        printf("%s: %d epochs, %llu buckets, the values that it had\n", wk_sum_word(type), EPOCHS,
               (unsigned long long)wk_comm_counts(c).buckets);
    wk_comm_destroy(c);
    close(told);
    return failed;
}

// ---- AllReduce from array to array

struct arrays {
    struct wk_nccl nccl;
    struct lk_gpu gpu;
    wk_nccl_comm comm;
    lk_gpu_stream stream;
    void *from, *to; // on the device
    void *pinned;    // two buckets: sent, received
};

static int settle(struct arrays *a, int result)
{
    while (result == WK_NCCL_IN_PROGRESS) {
        poll(NULL, 0, 1);
        int asked = a->nccl.api.async_error(a->comm, &result);
        if (asked) result = asked;
    }
    return result;
}

static int move(struct arrays *a)
{
    const struct lk_gpu_memory *m = a->gpu.backend->memory;
    const struct lk_gpu_streams *streams = a->gpu.backend->streams;
    float *in = a->pinned, *out = in + BUCKET_BYTES / sizeof(float);
    for (uint32_t v = 0; v < BUCKET_BYTES / sizeof(float); v++) {
        in[v] = value_of(v);
        out[v] = -1e9f;
    }
    if (m->copy_in(a->from, in, BUCKET_BYTES, a->stream) ||
        m->copy_in(a->to, out, BUCKET_BYTES, a->stream) || streams->wait(a->stream))
        return complain("a copy", "to the device");
    int result = settle(a, a->nccl.api.all_reduce(a->from, a->to, BUCKET_BYTES / sizeof(float),
                                                  WK_NCCL_FP32, WK_NCCL_SUM, a->comm, a->stream));
    if (result) return complain("AllReduce", a->nccl.api.error_text(result));
    if (m->copy_out(out, a->to, BUCKET_BYTES, a->stream) || streams->wait(a->stream))
        return complain("a copy", "from the device");
    for (uint32_t v = 0; v < BUCKET_BYTES / sizeof(float); v++)
        if (out[v] != in[v]) return complain("AllReduce", "its values did not come");
    return 0;
}

// After a failure nothing is freed: the process ends.
static int array_to_array(const char *library, const char *plugin)
{
    static struct arrays a;
    struct wk_nccl_config config = WK_NCCL_CONFIG;
    struct wk_nccl_id id;
    lh_err err = wk_nccl_open(library, &a.nccl);
    if (!err) err = lk_gpu_open(plugin, &a.gpu);
    if (err) return complain("opened again", lh_err_text(err));
    const struct lk_gpu_backend *b = a.gpu.backend;
    if (b->use(0) || b->streams->create(&a.stream) || b->memory->alloc(&a.from, BUCKET_BYTES) ||
        b->memory->alloc(&a.to, BUCKET_BYTES) ||
        b->memory->pinned_alloc(&a.pinned, 2 * (size_t)BUCKET_BYTES))
        return complain("the device", "memory or a stream");
    int result = a.nccl.api.unique_id(&id);
    if (!result) result = settle(&a, a.nccl.api.init(&a.comm, 1, id, 0, &config));
    if (result) return complain("a communicator", a.nccl.api.error_text(result));
    int failed = move(&a);
    (void)a.nccl.api.abort(a.comm);
    b->memory->release(a.from);
    b->memory->release(a.to);
    b->memory->pinned_release(a.pinned);
    b->streams->destroy(a.stream);
    lk_gpu_close(&a.gpu);
    if (!failed) printf("AllReduce from array to array: the values came\n");
    return failed;
}

int main(int argc, char **argv)
{
    if (argc != 3) return complain("usage", "nccl_one LIBRARY PLUGIN");
    int status = rank_of(argv[1], argv[2], WK_SUM_FP32);
    if (!status) status = rank_of(argv[1], argv[2], WK_SUM_BF16);
    return status ? status : array_to_array(argv[1], argv[2]);
}
