// Payloads on their way to the host: a ring of slots, each a device buffer and pinned memory.
//
// Invariants: 1. a copy begins only after the encoding that it is of; 2. a slot is taken again only
// after it was given back, so that nobody reads what is written then. Where it was given back
// unread its last copy may still be under way: that one's bytes are nobody's, and the next one
// comes after it, because all copies go through one stream.
#include "kernels/cuda/internal.cuh"

#include <stdlib.h>

#define LK_TRY(call)                                                                               \
    do {                                                                                           \
        int lk_err_ = lk_gpu_settle((int)(call));                                                  \
        if (lk_err_) return lk_err_;                                                               \
    } while (0)

struct lk_slot {
    uint8_t *device, *host;
    struct lk_gpu_result *device_result, *host_result;
    cudaEvent_t encoded, copied;
    bool taken;
};

struct lk_gpu_slots {
    struct lk_slot *slot;
    uint32_t count, next;
    uint64_t bytes;
    cudaStream_t stream; // the copies' own
};

static void lk_slots_destroy(struct lk_gpu_slots *s)
{
    if (!s) return;
    if (s->stream) (void)cudaStreamSynchronize(s->stream);
    for (uint32_t i = 0; i < s->count; i++) {
        struct lk_slot *slot = &s->slot[i];
        if (slot->device) (void)cudaFree(slot->device);
        if (slot->device_result) (void)cudaFree(slot->device_result);
        if (slot->host) (void)cudaFreeHost(slot->host);
        if (slot->host_result) (void)cudaFreeHost(slot->host_result);
        if (slot->encoded) (void)cudaEventDestroy(slot->encoded);
        if (slot->copied) (void)cudaEventDestroy(slot->copied);
    }
    if (s->stream) (void)cudaStreamDestroy(s->stream);
    free(s->slot);
    free(s);
}

static int lk_slot_create(struct lk_gpu_slots *s, struct lk_slot *slot)
{
    LK_TRY(cudaMalloc((void **)&slot->device, s->bytes));
    LK_TRY(cudaMalloc((void **)&slot->device_result, sizeof *slot->device_result));
    LK_TRY(cudaMallocHost((void **)&slot->host, s->bytes));
    LK_TRY(cudaMallocHost((void **)&slot->host_result, sizeof *slot->host_result));
    LK_TRY(cudaEventCreateWithFlags(&slot->encoded, cudaEventDisableTiming));
    LK_TRY(cudaEventCreateWithFlags(&slot->copied, cudaEventDisableTiming));
    LK_TRY(cudaMemsetAsync(slot->device, 0, s->bytes, s->stream)); // copies take all of it
    return lk_gpu_settle((int)cudaEventRecord(slot->copied, s->stream));
}

static int lk_slots_create(const struct lk_gpu_shard *shard, uint32_t count,
                           struct lk_gpu_slots **out)
{
    struct lk_gpu_slots *s = (struct lk_gpu_slots *)calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return (int)cudaErrorMemoryAllocation;
    s->slot = (struct lk_slot *)calloc(count, sizeof *s->slot);
    s->count = s->slot ? count : 0;
    s->bytes = shard->bytes_max;
    int err = s->slot ? 0 : (int)cudaErrorMemoryAllocation;
    if (!err)
        err = lk_gpu_settle((int)cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking));
    for (uint32_t i = 0; !err && i < count; i++) err = lk_slot_create(s, &s->slot[i]);
    if (err)
        lk_slots_destroy(s);
    else
        *out = s;
    return err;
}

// The copies of a slot whose encoding is queued.
static int lk_slot_copy(struct lk_gpu_slots *s, struct lk_slot *slot, cudaStream_t stream)
{
    LK_TRY(cudaEventRecord(slot->encoded, stream));
    LK_TRY(cudaStreamWaitEvent(s->stream, slot->encoded, 0));
    LK_TRY(cudaMemcpyAsync(slot->host_result, slot->device_result, sizeof *slot->host_result,
                           cudaMemcpyDeviceToHost, s->stream));
    LK_TRY(cudaMemcpyAsync(slot->host, slot->device, s->bytes, cudaMemcpyDeviceToHost, s->stream));
    return lk_gpu_settle((int)cudaEventRecord(slot->copied, s->stream));
}

static int lk_slots_encode(struct lk_gpu_slots *s, struct lk_gpu_shard *shard,
                           const struct lk_gpu_encode *in, lk_gpu_stream stream, int32_t *number)
{
    struct lk_slot *slot = &s->slot[s->next % s->count];
    struct lk_gpu_encode own = *in;
    *number = -1;
    if (slot->taken) return 0;
    own.device_payload = slot->device;
    own.device_result = slot->device_result;
    LK_TRY(lk_gpu_encode_queue(shard, &own, (cudaStream_t)stream));
    LK_TRY(lk_slot_copy(s, slot, (cudaStream_t)stream));
    slot->taken = true;
    *number = (int32_t)(s->next++ % s->count);
    return 0;
}

static int lk_slots_take(struct lk_gpu_slots *s, int32_t number, struct lk_gpu_result *result,
                         const uint8_t **payload)
{
    struct lk_slot *slot = &s->slot[number];
    LK_TRY(cudaEventSynchronize(slot->copied));
    *result = *slot->host_result;
    *payload = slot->host;
    return 0;
}

static void lk_slots_give_back(struct lk_gpu_slots *s, int32_t number)
{
    s->slot[number].taken = false;
}

const struct lk_gpu_transfer lk_gpu_transfer_table = {
    lk_slots_create, lk_slots_destroy, lk_slots_encode, lk_slots_take, lk_slots_give_back,
};
