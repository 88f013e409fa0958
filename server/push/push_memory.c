// Push memory: limits the memory of the pushes under way and queues the ones that wait for it.
//
// A push reserves memory for its frame before it stores the first part, and for its payload when it
// is unsealed. Both are given back together (ps_item_free), or the frame alone if its stream breaks
// for good. A push that gets no memory waits in the order of arrival without reading: backpressure
// to the sender. A small frame passes a large one that waits; where that waits for memory, only
// for LH_PUSH_SLOW_MS: small ones without end would keep it waiting for ever. While any waits,
// pushes whose bytes do not come are ended (receive.c).
//
// Large frames are received one after another. If they came together, all would complete only at
// the end: until then nothing could be unsealed or written, afterwards there would be no memory for
// more, and the link would be idle. The next frame is let in one round trip before the current one
// is nearly complete; the round trip is the time that the current one's first bytes took. A push
// loses its turn if its first bytes do not come within LH_TURN_MS, or if it is not nearly complete
// LH_TURN_MS after that.
//
// On a fast link the memory is kept for the next pushes. On a slow link it goes back to the system
// at once, because gRPC's read-ahead needs the space.
//
// Invariants: 1. frames + the largest frame <= bytes_max, unless there is only one frame. So memory
// for one payload is always left, and a received push can be unsealed. 2. frames + payloads <=
// bytes_max, unless there is only one payload.
#include "server/push/push_memory.h"

#include "common/base/limits.h"
#include "server/core.h"

lh_err ps_push_memory_open(struct ps_server *s)
{
    struct ps_push_memory *r = &s->push_memory;
    r->bytes_max = s->conf.push_bytes_max ? s->conf.push_bytes_max : LH_PUSH_BYTES;
    r->last = &r->first;
    r->pool = lh_pool_create((size_t)r->bytes_max);
    return r->pool ? LH_OK : LH_ERR_NO_MEMORY;
}

static void memory_again(struct ps_server *s)
{
    if (s->push_memory.first || s->received) ps_raise(s, PS_FREED);
}

static void look_again(void *arg)
{
    struct ps_server *s = arg;
    s->push_memory.slow_timer = 0;
    memory_again(s);
    ps_push_memory_waited(s);
}

void ps_push_memory_waited(struct ps_server *s)
{
    struct ps_push_memory *r = &s->push_memory;
    if (!r->first) r->passed_ns = 0; // the large one that lacked memory is gone
    if (r->first && !r->slow_timer)
        r->slow_timer = lh_after(s->conf.env, LH_PUSH_SLOW_MS / 4 * LH_MS, look_again, s);
}

// ---------------------------------------------------------------- turns

static bool is_large(const struct ps_push_memory *r, uint64_t bytes)
{
    return bytes > r->bytes_max / LH_TURN_SHARE;
}

bool ps_push_memory_turn(const struct ps_server *s, uint64_t bytes)
{
    return !s->push_memory.arriving || !is_large(&s->push_memory, bytes);
}

// A small one need not wait for a large one's turn, nor, for a while, for the memory of a large
// one.
bool ps_push_memory_passes(struct ps_server *s, uint64_t bytes, uint64_t first)
{
    struct ps_push_memory *r = &s->push_memory;
    int64_t now = lh_now(s->conf.env);
    bool waits_for_turn = r->arriving != NULL;
    if (is_large(r, bytes) || !(waits_for_turn || is_large(r, first))) return false;
    if (!waits_for_turn && !r->passed_ns) r->passed_ns = now;
    return waits_for_turn || now - r->passed_ns < LH_PUSH_SLOW_MS * LH_MS;
}

static void keep_memory(struct ps_push_memory *r, bool fast)
{
    lh_pool_keep(r->pool, fast ? (size_t)r->bytes_max : 0);
}

static void turn_over(void *arg)
{
    struct ps_server *s = arg;
    s->push_memory.turn_timer = 0;
    keep_memory(&s->push_memory, false);
    ps_push_memory_arrived(s, s->push_memory.arriving);
}

static void time_turn(struct ps_server *s)
{
    lh_cancel(s->conf.env, &s->push_memory.turn_timer);
    s->push_memory.turn_timer = lh_after(s->conf.env, LH_TURN_MS * LH_MS, turn_over, s);
}

void ps_push_memory_arrives(struct ps_server *s, const struct ps_push *p, uint64_t bytes)
{
    struct ps_push_memory *r = &s->push_memory;
    if (!is_large(r, bytes)) return;
    r->arriving = p;
    r->let_in_at = lh_now(s->conf.env);
    r->begun_at = -1;
    time_turn(s);
}

void ps_push_memory_arriving(struct ps_server *s, const struct ps_push *p, uint64_t have,
                             uint64_t left)
{
    struct ps_push_memory *r = &s->push_memory;
    if (r->arriving != p) return;
    int64_t now = lh_now(s->conf.env);
    if (r->begun_at < 0) {
        r->begun_at = now;
        r->begun_with = have;
        time_turn(s);
    }
    int64_t trip = r->begun_at - r->let_in_at, since = now - r->begun_at;
    uint64_t came = have - r->begun_with;
    uint64_t in_a_trip = since > 0 ? came * (uint64_t)trip / (uint64_t)since : 0;
    if (left > LH_ASK_BYTES + in_a_trip) return;
    keep_memory(r, (double)came * LH_SECOND >= (double)since * LH_KEEP_RATE);
    ps_push_memory_arrived(s, p);
}

void ps_push_memory_arrived(struct ps_server *s, const struct ps_push *p)
{
    struct ps_push_memory *r = &s->push_memory;
    if (!p || r->arriving != p) return;
    r->arriving = NULL;
    lh_cancel(s->conf.env, &r->turn_timer);
    memory_again(s);
}

// ---------------------------------------------------------------- memory

static bool frame_fits(const struct ps_push_memory *r, uint64_t bytes)
{
    uint64_t largest = bytes > r->largest ? bytes : r->largest;
    return !r->frames || r->frames + bytes + largest <= r->bytes_max;
}

bool ps_push_memory_frame(struct ps_server *s, uint64_t bytes, struct lh_blob **out)
{
    struct ps_push_memory *r = &s->push_memory;
    if (!frame_fits(r, bytes)) return false;
    if (is_large(r, bytes)) r->passed_ns = 0;
    *out = lh_pool_blob(r->pool, (size_t)bytes);
    if (!*out) return true;
    r->frames += bytes;
    if (bytes > r->largest) r->largest = bytes;
    return true;
}

void ps_push_memory_give_frame(struct ps_server *s, struct lh_blob *frame)
{
    struct ps_push_memory *r = &s->push_memory;
    if (!frame) return;
    r->frames -= frame->len;
    if (!r->frames) r->largest = 0;
    lh_blob_release(frame);
    memory_again(s);
}

bool ps_push_memory_payload(struct ps_server *s, uint64_t bytes)
{
    struct ps_push_memory *r = &s->push_memory;
    if (r->payloads && r->frames + r->payloads + bytes > r->bytes_max) return false;
    r->payloads += bytes;
    return true;
}

void ps_push_memory_give_payload(struct ps_server *s, uint64_t bytes)
{
    if (!bytes) return;
    s->push_memory.payloads -= bytes;
    memory_again(s);
}
