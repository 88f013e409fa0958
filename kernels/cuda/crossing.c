// Arrays between host and device, in pieces. See crossing.h.
//
// Invariants: 1. Pieces are taken in the order in which they were queued. 2. No more are queued
// than there are slots, and each is given back, even after a failure. 3. A half is written only
// after the copy that last read it.
#include "kernels/cuda/crossing.h"

#include <string.h>

#include "common/base/check.h"

// ---------------------------------------------------------------- to the host

int lk_outward_open(struct lk_outward *o, const struct lk_gpu_backend *b, uint32_t count,
                    uint64_t bytes)
{
    *o = (struct lk_outward){.b = b, .bytes = bytes};
    LH_ASSERT(count > 0 && count <= LK_CROSSING_SLOTS_MAX && bytes > 0);
    return b->transfer->create(count, bytes, &o->slots);
}

void lk_outward_close(struct lk_outward *o)
{
    if (o->slots) o->b->transfer->destroy(o->slots);
    o->slots = NULL;
}

struct place { // walks over the pieces of all arrays
    const struct lk_way *way, *end;
    uint64_t at;
};

// The piece that begins here; false: there is none.
static bool piece_at(struct place *p, uint64_t most, struct lk_way *piece)
{
    while (p->way < p->end && p->at >= p->way->bytes) {
        p->way++;
        p->at = 0;
    }
    if (p->way == p->end) return false;
    uint64_t left = p->way->bytes - p->at;
    *piece = (struct lk_way){(const uint8_t *)p->way->device + p->at,
                             (uint8_t *)p->way->host + p->at, left < most ? left : most};
    return true;
}

struct ring { // slots in use; the oldest is number[taken % LK_CROSSING_SLOTS_MAX]
    int32_t number[LK_CROSSING_SLOTS_MAX];
    uint64_t queued, taken;
};

// Queues pieces until the slots are full.
static int queue_pieces(struct lk_outward *o, lk_gpu_event after, struct place *ahead,
                        struct ring *r)
{
    struct lk_way piece;
    while (piece_at(ahead, o->bytes, &piece)) {
        int32_t *number = &r->number[r->queued % LK_CROSSING_SLOTS_MAX], got;
        int err = o->b->transfer->copy(o->slots, piece.device, piece.bytes, after, &got);
        if (err || got < 0) return err;
        *number = got;
        r->queued++;
        ahead->at += piece.bytes;
    }
    return 0;
}

// Copies the oldest piece to its destination; after an error only gives it back.
static int take_piece(struct lk_outward *o, struct place *behind, struct ring *r, int err)
{
    int32_t number = r->number[r->taken++ % LK_CROSSING_SLOTS_MAX];
    const uint8_t *bytes;
    struct lk_way piece;
    if (!err) err = o->b->transfer->take(o->slots, number, &bytes);
    if (!err && piece_at(behind, o->bytes, &piece)) {
        memcpy(piece.host, bytes, piece.bytes);
        behind->at += piece.bytes;
    }
    o->b->transfer->give_back(o->slots, number);
    return err;
}

int lk_outward_copy(struct lk_outward *o, lk_gpu_event after, const struct lk_way *way,
                    uint32_t ways)
{
    struct place ahead = {way, way + ways, 0}, behind = ahead;
    struct lk_way rest;
    struct ring r = {.queued = 0};
    int err = queue_pieces(o, after, &ahead, &r);
    while (r.taken < r.queued) {
        err = take_piece(o, &behind, &r, err);
        if (!err) err = queue_pieces(o, after, &ahead, &r);
    }
    LH_ASSERT(err || !piece_at(&ahead, o->bytes, &rest)); // another user has the slots
    return err;
}

// ---------------------------------------------------------------- to the device

int lk_inward_open(struct lk_inward *in, const struct lk_gpu_backend *b, uint64_t bytes)
{
    int err = 0;
    *in = (struct lk_inward){.b = b, .bytes = bytes};
    for (int i = 0; !err && i < 2; i++) {
        void *half = NULL;
        err = b->memory->pinned_alloc(&half, bytes);
        in->half[i] = half;
        if (!err) err = b->streams->event_create(&in->crossed[i]);
    }
    return err;
}

void lk_inward_close(struct lk_inward *in)
{
    for (int i = 0; i < 2; i++) {
        if (in->half[i]) in->b->memory->pinned_release(in->half[i]);
        if (in->crossed[i]) in->b->streams->event_destroy(in->crossed[i]);
        in->half[i] = NULL;
        in->crossed[i] = NULL;
    }
}

int lk_inward_copy(struct lk_inward *in, void *device, const void *host, uint64_t bytes,
                   lk_gpu_stream stream)
{
    int err = 0;
    for (uint64_t at = 0, n; !err && at < bytes; at += n) {
        uint32_t i = in->turn++ % 2;
        n = bytes - at < in->bytes ? bytes - at : in->bytes;
        err = in->b->streams->event_wait(in->crossed[i]); // a never recorded event is done
        if (err) break;
        memcpy(in->half[i], (const uint8_t *)host + at, n);
        err = in->b->memory->copy_in((uint8_t *)device + at, in->half[i], n, stream);
        if (!err) err = in->b->streams->event_record(in->crossed[i], stream);
    }
    return err;
}
