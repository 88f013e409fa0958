// Copies arrays between host and device in pieces through pinned memory: the device never gets
// pageable memory. A piece is transferred while the host copies the previous one.
//
// Results are codes of the backend; 0: success. A struct of zeros may be closed.
#ifndef LK_CUDA_CROSSING_H
#define LK_CUDA_CROSSING_H

#include "kernels/cuda/plugin.h"

enum {
    LK_CROSSING_SLOTS = 4,
    LK_CROSSING_SLOTS_MAX = 16,
    LK_CROSSING_BYTES = 4 << 20, // size of a slot, or of an inward half
};

// To the host: a ring of slots with its own stream. One thread at a time.
struct lk_outward {
    const struct lk_gpu_backend *b;
    struct lk_gpu_slots *slots;
    uint64_t bytes; // size of a slot
};
// `count` slots, at most LK_CROSSING_SLOTS_MAX; `bytes`: the size of each. Borrows the backend.
int lk_outward_open(struct lk_outward *o, const struct lk_gpu_backend *b, uint32_t count,
                    uint64_t bytes);
void lk_outward_close(struct lk_outward *o);

// An array to copy to the host.
struct lk_way {
    const void *device;
    void *host; // any memory
    uint64_t bytes;
};
// Copies arrays to the host, one after the other. The first piece begins behind the work recorded
// in `after`. Full slots delay the next copy and no other stream. Returns when all data is there,
// or with the first error; then no slot is in use.
int lk_outward_copy(struct lk_outward *o, lk_gpu_event after, const struct lk_way *way,
                    uint32_t ways);

// To the device: two halves of pinned memory, used in turn. One thread at a time.
struct lk_inward {
    const struct lk_gpu_backend *b;
    uint8_t *half[2];
    lk_gpu_event crossed[2];
    uint32_t turn;
    uint64_t bytes; // size of a half
};
int lk_inward_open(struct lk_inward *in, const struct lk_gpu_backend *b, uint64_t bytes);
// The streams of its queued copies must be idle.
void lk_inward_close(struct lk_inward *in);
// Queues a copy of the host's array on that stream. Waits only for a half that an earlier copy
// still reads, not for the last copies. The array may change once it returns.
int lk_inward_copy(struct lk_inward *in, void *device, const void *host, uint64_t bytes,
                   lk_gpu_stream stream);

#endif
