// Arrays between host and device, in pieces through pinned memory: pageable memory is never given
// to the device. A piece crosses while the host copies the one before it.
//
// Results are codes of the backend; 0: fine. A struct of zeros may be closed.
#ifndef LK_CUDA_CROSSING_H
#define LK_CUDA_CROSSING_H

#include "kernels/cuda/plugin.h"

enum {
    LK_CROSSING_SLOTS = 4,
    LK_CROSSING_SLOTS_MAX = 16,
    LK_CROSSING_BYTES = 4 << 20, // A slot's, or an inward half's.
};

// To the host: a ring of slots with a stream of its own. One thread at a time.
struct lk_outward {
    const struct lk_gpu_backend *b;
    struct lk_gpu_slots *slots;
    uint64_t bytes; // A slot's.
};
// `count` slots, LK_CROSSING_SLOTS_MAX at most; `bytes`: the size of each. The backend is borrowed.
int lk_outward_open(struct lk_outward *o, const struct lk_gpu_backend *b, uint32_t count,
                    uint64_t bytes);
void lk_outward_close(struct lk_outward *o);

// An array that crosses to the host.
struct lk_way {
    const void *device;
    void *host; // any memory
    uint64_t bytes;
};
// Copies arrays to the host, one behind the other. The first piece begins after what `after` was
// recorded behind. Slots that are full hold back the next copy and no other stream. Returns when
// all is there, or with the first error; no slot is taken then.
int lk_outward_copy(struct lk_outward *o, lk_gpu_event after, const struct lk_way *way,
                    uint32_t ways);

// To the device: two halves of pinned memory, taken in turn. One thread at a time.
struct lk_inward {
    const struct lk_gpu_backend *b;
    uint8_t *half[2];
    lk_gpu_event crossed[2];
    uint32_t turn;
    uint64_t bytes; // A half's.
};
int lk_inward_open(struct lk_inward *in, const struct lk_gpu_backend *b, uint64_t bytes);
// The streams that it queued copies on are at rest.
void lk_inward_close(struct lk_inward *in);
// Queues a copy of the host's array on that stream. It waits for a half that an earlier copy still
// reads, and not for the last copies. The array may change as soon as it returns.
int lk_inward_copy(struct lk_inward *in, void *device, const void *host, uint64_t bytes,
                   lk_gpu_stream stream);

#endif
