// Arrays in transit to the host: a ring of slots, pinned memory of one size each, and a separate
// stream for the copies.
//
// Invariants: 1. A copy begins only after the work before the caller's event. 2. A slot is reused
// only after it was given back, so no reader sees it change. If it was given back unread, its last
// copy may still be running: its bytes are discarded, and the next copy follows it, because all
// copies use one stream.
#include "kernels/cuda/internal.cuh"

#include <stdlib.h>

#define LK_TRY(call)                                                                               \
    do {                                                                                           \
        int lk_err_ = lk_gpu_settle((int)(call));                                                  \
        if (lk_err_) return lk_err_;                                                               \
    } while (0)

struct lk_slot {
    uint8_t *host;
    cudaEvent_t copied;
    bool taken;
};

struct lk_gpu_slots {
    struct lk_slot *slot;
    uint32_t count, next;
    uint64_t bytes;
    cudaStream_t stream; // the stream of the copies
};

static void lk_slots_destroy(struct lk_gpu_slots *s)
{
    if (!s) return;
    if (s->stream) (void)cudaStreamSynchronize(s->stream);
    for (uint32_t i = 0; i < s->count; i++) {
        struct lk_slot *slot = &s->slot[i];
        if (slot->host) (void)cudaFreeHost(slot->host);
        if (slot->copied) (void)cudaEventDestroy(slot->copied);
    }
    if (s->stream) (void)cudaStreamDestroy(s->stream);
    free(s->slot);
    free(s);
}

static int lk_slot_create(const struct lk_gpu_slots *s, struct lk_slot *slot)
{
    LK_TRY(cudaMallocHost((void **)&slot->host, s->bytes));
    return lk_gpu_settle((int)cudaEventCreateWithFlags(&slot->copied, cudaEventDisableTiming));
}

static int lk_slots_create(uint32_t count, uint64_t bytes, struct lk_gpu_slots **out)
{
    struct lk_gpu_slots *s = (struct lk_gpu_slots *)calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return (int)cudaErrorMemoryAllocation;
    s->slot = (struct lk_slot *)calloc(count, sizeof *s->slot);
    s->count = s->slot ? count : 0;
    s->bytes = bytes;
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

static int lk_slots_copy(struct lk_gpu_slots *s, const void *device, uint64_t bytes,
                         lk_gpu_event after, int32_t *number)
{
    struct lk_slot *slot = &s->slot[s->next % s->count];
    *number = -1;
    if (slot->taken) return 0;
    if (bytes > s->bytes) return (int)cudaErrorInvalidValue;
    LK_TRY(cudaStreamWaitEvent(s->stream, (cudaEvent_t)after, 0));
    LK_TRY(cudaMemcpyAsync(slot->host, device, bytes, cudaMemcpyDeviceToHost, s->stream));
    LK_TRY(cudaEventRecord(slot->copied, s->stream));
    slot->taken = true;
    *number = (int32_t)(s->next++ % s->count);
    return 0;
}

static int lk_slots_take(struct lk_gpu_slots *s, int32_t number, const uint8_t **bytes)
{
    struct lk_slot *slot = &s->slot[number];
    LK_TRY(cudaEventSynchronize(slot->copied));
    *bytes = slot->host;
    return 0;
}

static void lk_slots_give_back(struct lk_gpu_slots *s, int32_t number)
{
    s->slot[number].taken = false;
}

const struct lk_gpu_transfer lk_gpu_transfer_table = {
    lk_slots_create, lk_slots_destroy, lk_slots_copy, lk_slots_take, lk_slots_give_back,
};
