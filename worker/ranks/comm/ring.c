// A ring's operations. See ring.h.
//
// Invariants: 1. Segments of a kind are sent and received in order, so a count identifies one. 2. A
// partial sum is made in the array itself; the result overwrites it only after it was sent, because
// the result depends on it. 3. With bf16 on the wire, each segment is converted as it leaves and
// enters the array. 4. Received data is read before a wait for send space, so no two neighbours
// wait for each other.
#include "worker/ranks/comm/ring.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/check.h"
#include "kernels/convert.h"

static const uint32_t magic = 0x47455357;
enum kind { PARTIAL = 1, RESULT = 2 };

struct transfer { // one segment in flight
    enum kind kind;
    uint8_t head[WK_RING_HEAD_BYTES];
    size_t done; // bytes of head and segment together
    bool busy;
};

struct operation {
    struct wk_ring *ring;
    uint8_t *data;
    size_t bytes;            // on the wire; `data` has twice as many with `narrow`
    uint32_t segments, root; // root: the rank at which results begin
    bool sums, narrow;       // narrow: fp32 in `data`, bf16 on the wire
    // Segments by kind: ready to send, sent, received.
    uint32_t ready[3], sent[3], come[3];
    struct transfer in, out;
};

// Distance in the ring from one rank to another.
static uint32_t distance(const struct wk_ring *r, uint32_t from, uint32_t to)
{
    return (to + r->ranks - from) % r->ranks;
}

static uint32_t to_send(const struct operation *o, enum kind kind)
{
    bool sends = kind == PARTIAL ? o->sums && o->ring->rank + 1 < o->ring->ranks
                                 : distance(o->ring, o->root, o->ring->rank) + 1 < o->ring->ranks;
    return sends ? o->segments : 0;
}

static uint32_t to_come(const struct operation *o, enum kind kind)
{
    bool comes = kind == PARTIAL ? o->sums && o->ring->rank > 0 : o->ring->rank != o->root;
    return comes ? o->segments : 0;
}

// A segment's address in the array, and its bytes on the wire.
static uint8_t *segment(const struct operation *o, uint32_t n, size_t *bytes)
{
    size_t at = (size_t)n * WK_RING_SEGMENT_BYTES, left = o->bytes - at;
    *bytes = left < WK_RING_SEGMENT_BYTES ? left : WK_RING_SEGMENT_BYTES;
    return o->data + (o->narrow ? 2 * at : at);
}

static uint8_t *outgoing(const struct operation *o)
{
    return o->ring->scratch + WK_RING_SEGMENT_BYTES;
}

// ---------------------------------------------------------------- sending

static void begin_sending(struct operation *o)
{
    enum kind kind = RESULT;
    if (o->sent[kind] == o->ready[kind] || o->sent[kind] == to_send(o, kind)) kind = PARTIAL;
    if (o->sent[kind] == o->ready[kind] || o->sent[kind] == to_send(o, kind)) return;
    struct lh_buf head = lh_buf_over(o->out.head, sizeof o->out.head);
    o->out.busy = true;
    o->out.kind = kind;
    o->out.done = 0;
    lh_put_u32(&head, magic);
    lh_put_u32(&head, (uint32_t)kind);
    lh_put_u32(&head, o->ring->operations);
    lh_put_u32(&head, o->sent[kind]);
    if (!o->narrow) return;
    size_t bytes;
    const float *x = (const float *)(const void *)segment(o, o->sent[kind], &bytes);
    lk_bf16_of_fp32(x, (uint16_t *)(void *)outgoing(o), bytes / sizeof(uint16_t));
}

static LH_MUST lh_err lost(const struct wk_ring *r, const char *which, int failed)
{
    return lh_fail(LH_ERR_UNAVAILABLE, "rank %u of %u: the rank %s it in the ring is gone%s%s",
                   r->rank, r->ranks, which, failed ? ": " : "", failed ? strerror(failed) : "");
}

// Sends without blocking.
static LH_MUST lh_err send_some(struct operation *o)
{
    struct transfer *t = &o->out;
    for (;;) {
        size_t bytes;
        if (!t->busy) begin_sending(o);
        if (!t->busy) return LH_OK;
        uint8_t *body = segment(o, o->sent[t->kind], &bytes);
        bool head = t->done < WK_RING_HEAD_BYTES;
        size_t at = head ? t->done : t->done - WK_RING_HEAD_BYTES;
        const uint8_t *from = head ? t->head + at : (o->narrow ? outgoing(o) : body) + at;
        ssize_t n = wk_stream_send(o->ring->after, from, (head ? WK_RING_HEAD_BYTES : bytes) - at,
                                   head && bytes);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return LH_OK;
        if (n < 0) return lost(o->ring, "after", errno);
        t->done += (size_t)n;
        if (t->done < WK_RING_HEAD_BYTES + bytes) continue;
        t->busy = false;
        o->sent[t->kind]++;
    }
}

// ---------------------------------------------------------------- receiving

static LH_MUST lh_err check_head(struct operation *o)
{
    struct transfer *t = &o->in;
    struct lh_cursor c = lh_cursor(lh_span(t->head, sizeof t->head));
    uint32_t is = lh_get_u32(&c), kind = lh_get_u32(&c);
    uint32_t operation = lh_get_u32(&c), number = lh_get_u32(&c);
    bool known = is == magic && (kind == PARTIAL || kind == RESULT);
    if (!known || operation != o->ring->operations ||
        o->come[kind] == to_come(o, (enum kind)kind) || number != o->come[kind])
        return lh_fail(LH_ERR_MALFORMED, "rank %u of %u: a segment that is not the one to come",
                       o->ring->rank, o->ring->ranks);
    t->kind = (enum kind)kind;
    return LH_OK;
}

static void take(struct operation *o, uint8_t *to, size_t bytes)
{
    float *x = (float *)(void *)to;
    const float *lower = (const float *)(const void *)o->ring->scratch;
    const uint16_t *narrow = (const uint16_t *)(const void *)o->ring->scratch;
    if (o->narrow && o->in.kind == PARTIAL)
        lk_bf16_add(narrow, x, bytes / sizeof *narrow);
    else if (o->narrow)
        lk_fp32_of_bf16(narrow, x, bytes / sizeof *narrow);
    else if (o->in.kind == PARTIAL)
        for (size_t i = 0; i < bytes / sizeof *x; i++) x[i] = lower[i] + x[i];
    uint32_t n = ++o->come[o->in.kind];
    o->ready[o->in.kind] = n;
    if (o->in.kind == PARTIAL && o->ring->rank == o->root) o->ready[RESULT] = n;
    o->in.busy = false;
}

static bool expects(const struct operation *o)
{
    return o->come[PARTIAL] < to_come(o, PARTIAL) || o->come[RESULT] < to_come(o, RESULT);
}

// Reads this operation's available data.
static LH_MUST lh_err receive_some(struct operation *o)
{
    struct transfer *t = &o->in;
    while (expects(o)) {
        size_t bytes = 0;
        if (!t->busy) *t = (struct transfer){.busy = true};
        bool head = t->done < WK_RING_HEAD_BYTES;
        uint8_t *body = head ? NULL : segment(o, o->come[t->kind], &bytes);
        bool aside = t->kind == PARTIAL || o->narrow;
        uint8_t *to = head ? t->head + t->done
                           : (aside ? o->ring->scratch : body) + t->done - WK_RING_HEAD_BYTES;
        size_t left = WK_RING_HEAD_BYTES + bytes - t->done;
        ssize_t n = wk_stream_recv(o->ring->before, to, left);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return LH_OK;
        if (n <= 0) return lost(o->ring, "before", n < 0 ? errno : 0);
        t->done += (size_t)n;
        if (head && t->done == WK_RING_HEAD_BYTES) LH_TRY(check_head(o));
        if (!head && t->done == WK_RING_HEAD_BYTES + bytes) take(o, body, bytes);
    }
    return LH_OK;
}

// ---------------------------------------------------------------- both

static bool sends(const struct operation *o)
{
    return o->out.busy ||
           (o->sent[PARTIAL] < to_send(o, PARTIAL) && o->sent[PARTIAL] < o->ready[PARTIAL]) ||
           (o->sent[RESULT] < to_send(o, RESULT) && o->sent[RESULT] < o->ready[RESULT]);
}

static bool over(const struct operation *o)
{
    return !expects(o) && o->sent[PARTIAL] == to_send(o, PARTIAL) &&
           o->sent[RESULT] == to_send(o, RESULT);
}

static LH_MUST lh_err wait_for(const struct operation *o)
{
    struct pollfd p[] = {{o->ring->bell, POLLIN, 0},
                         {expects(o) ? o->ring->before->fd : -1, POLLIN, 0},
                         {o->ring->after->fd, sends(o) ? POLLOUT : 0, 0}};
    if (poll(p, LH_COUNT(p), -1) < 0) return LH_OK;
    if (p[0].revents) return lh_fail(LH_ERR_CANCELLED, "the communicator is aborted");
    if (p[2].revents & (POLLERR | POLLHUP)) return lost(o->ring, "after", 0);
    return LH_OK;
}

static LH_MUST lh_err run(struct wk_ring *r, struct operation o)
{
    o.ring = r;
    o.segments = (uint32_t)((o.bytes + WK_RING_SEGMENT_BYTES - 1) / WK_RING_SEGMENT_BYTES);
    if (r->rank == (o.sums ? 0 : o.root)) o.ready[o.sums ? PARTIAL : RESULT] = o.segments;
    LH_ASSERT(r->ranks > 1 && r->rank < r->ranks);
    for (;;) {
        LH_TRY(receive_some(&o));
        LH_TRY(send_some(&o));
        if (over(&o)) break;
        LH_TRY(wait_for(&o));
    }
    r->operations++;
    return LH_OK;
}

// The sum begins at rank 0 and is complete at the last rank, which sends it on to all others.
lh_err wk_ring_sum(struct wk_ring *r, float *x, uint64_t n, enum wk_sum_type type)
{
    return run(r, (struct operation){.data = (uint8_t *)x,
                                     .bytes = (size_t)n * wk_sum_bytes(type),
                                     .root = r->ranks - 1,
                                     .sums = true,
                                     .narrow = type == WK_SUM_BF16});
}

lh_err wk_ring_share(struct wk_ring *r, void *data, size_t bytes)
{
    return run(r, (struct operation){.data = data, .bytes = bytes, .root = 0});
}
