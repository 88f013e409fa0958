// Receive: the push stream (DESIGN.md#section-5 steps 8-9; hello.c opens its session).
//
// A push arrives as messages of up to 1 MiB whose bulk is copied once, from the transport's slices
// into the frame's blob. A broken stream leaves its partial frame behind, one per worker and shard;
// the next attempt asks for its length (probe). A complete frame is queued for the next group.
//
// No worker can block others: one that brings no full part for LH_PUSH_SILENT_MS must send its push
// again later; if others wait, also one slower than LH_PUSH_SLOW_BYTES_PER_S. A worker's newer
// stream replaces older ones. Where all places are taken, the worker with the most streams loses
// one to a worker with fewer. Partial frames are dropped when a stream needs their memory.
#include <stdlib.h>
#include <string.h>

#include "common/net/rpc.h"
#include "common/net/wire_shard.h"
#include "server/core.h"
#include "server/push/push_memory.h"
#include "server/push/receive.h"
#include "server/push/unseal.h"

struct ps_push {
    struct ps_push *previous, *next;
    struct ps_server *server;
    struct ps_shard *shard; // NULL until the first message
    struct lh_call *call;
    uint64_t peer_worker;
    char trace[sizeof((struct lh_trace *)0)->id]; // its worker's; "": none
    uint64_t bytes;                               // bytes of the frame
    struct lh_blob *frame;                        // NULL: no memory yet, or moved to the item
    size_t have;
    bool taking;                  // this call has brought bytes of it
    struct ps_push *next_waiting; // the next push in the queue for memory
    bool waiting, first_is_probe;
    struct lh_buf first; // the first message's part, while it waits
    struct lh_digest digest;
    struct ps_item *item; // queued or in a group; it points back
    bool parked;          // no call: a partial frame kept for the next attempt
    bool over;            // answered; further messages are ignored
    int64_t heard_ns;     // time of the last full part, or of being let in
    int64_t memory_ns;    // time when it got memory
    size_t had;           // bytes of the frame then
};

// ---------------------------------------------------------------- push

static void stop_waiting(struct ps_push *p)
{
    struct ps_push_memory *r = &p->server->push_memory;
    struct ps_push **at = &r->first;
    if (!p->waiting) return;
    while (*at != p) at = &(*at)->next_waiting;
    *at = p->next_waiting;
    if (!*at) r->last = at;
    p->waiting = false;
}

static void unlist(struct ps_push *p)
{
    if (p->previous)
        p->previous->next = p->next;
    else
        p->server->pushes = p->next;
    if (p->next) p->next->previous = p->previous;
    p->server->push_count--;
    stop_waiting(p);
    ps_push_memory_arrived(p->server, p);
    ps_push_memory_give_frame(p->server, p->frame);
    lh_buf_free(&p->first);
    free(p);
}

static void fail_push(struct ps_push *p, lh_err err)
{
    struct ps_server *s = p->server;
    s->count.not_final++;
    if (lh_err_class(err) == LH_CLASS_REJECT)
        lh_log_peer_traced(s->conf.log, LH_WARN, p->trace, "push.rejected",
                           "shard %u, worker %016llx: %s", p->shard ? p->shard->id : 0,
                           (unsigned long long)p->peer_worker, lh_err_text(err));
    if (p->item) p->item->push = NULL;
    p->item = NULL;
    p->over = true;
    stop_waiting(p);
    lh_call_finish(p->call, err, lh_err_text(err));
}

static void answer_push(struct ps_push *p, const struct ps_item *item)
{
    const struct lh_row *row = lh_ledger_row(&p->shard->replica.ledger, item->worker);
    struct lh_push_reply out = {.process = p->server->process,
                                .incarnation = item->head.incarnation.number,
                                .step = item->head.step,
                                .digest = item->digest};
    if (item->appended) {
        out.version = item->record.version;
        out.admitted = item->record.kind == LH_ADMIT;
        out.reason = out.admitted ? 0 : item->record.reason;
        out.scale = item->record.scale;
        out.staleness = item->decision.staleness;
    } else if (item->decision.verdict ==
               PS_DECIDED_NOW) { // a planted bug: refused without a record
        out.reason = (uint32_t)item->decision.error;
    } else {
        // A late duplicate may share a group with the step after it; its sender already knew the
        // outcome.
        if (!row || row->last_step != item->head.step ||
            !lh_incarnation_equal(row->last, item->head.incarnation)) {
            fail_push(p, lh_fail(LH_ERR_PROTOCOL, "step %llu is older than the last decided one",
                                 (unsigned long long)item->head.step));
            return;
        }
        out.version = row->last_version;
        out.admitted = !row->last_reason;
        out.reason = row->last_reason;
    }
    p->item = NULL;
    p->over = true;
    lh_err err = lh_send(p->call, LH_MESSAGE(push_reply, &out));
    lh_call_finish(p->call, err, err ? lh_err_text(err) : "");
}

static void push_done(struct ps_item *i, enum ps_outcome outcome)
{
    struct ps_server *s = i->shard->server;
    if (outcome == PS_STOPPING) return;
    if (outcome == PS_TAKEN_BACK || i->decision.verdict == PS_NOT_FINAL) {
        lh_err err = i->decision.error;
        if (outcome == PS_TAKEN_BACK) err = lh_fail(LH_ERR_BUSY, "the server's disk is full");
        if (i->push) fail_push(i->push, err);
        return;
    }
    if (!i->appended)
        s->count.repeated++;
    else if (i->record.kind == LH_ADMIT)
        s->count.admitted++;
    else
        s->count.refused++;
    if (i->push) answer_push(i->push, i);
}

static struct ps_push *parked_part(const struct ps_push *p)
{
    for (struct ps_push *k = p->server->pushes; k; k = k->next)
        if (k->parked && k->shard == p->shard && k->peer_worker == p->peer_worker) return k;
    return NULL;
}

// The push still brings messages or the rest of its frame.
static bool is_coming(const struct ps_push *p)
{
    return !p->parked && !p->over && !p->item;
}

// Ends a push whose frame has not come, and frees its memory before its peer takes notice.
static void break_off(struct ps_push *p, lh_err err)
{
    ps_push_memory_arrived(p->server, p);
    ps_push_memory_give_frame(p->server, p->frame);
    p->frame = NULL;
    fail_push(p, err);
}

// Ends earlier attempts of this worker and shard, and takes over their partial frame. A worker has
// one push per shard at a time, so an earlier stream is of a broken connection.
static void resume(struct ps_push *p)
{
    for (struct ps_push *k = p->server->pushes, *next; k; k = next) {
        next = k->next;
        bool same = k != p && k->shard == p->shard && k->peer_worker == p->peer_worker;
        if (!same || !(k->parked || is_coming(k))) continue;
        if (!p->frame && k->bytes == p->bytes && lh_digest_equal(&k->digest, &p->digest)) {
            p->frame = k->frame;
            p->have = p->had = k->have;
            p->memory_ns = lh_now(p->server->conf.env);
            k->frame = NULL;
        }
        if (k->parked)
            unlist(k);
        else
            break_off(k, lh_fail(LH_ERR_BUSY, "this worker sends a later push to this shard"));
    }
}

static lh_err begin(struct ps_push *p, const struct lh_push_head *m)
{
    struct ps_server *s = p->server;
    if (m->worker != p->peer_worker)
        return lh_fail(LH_ERR_DENIED, "the worker id is not that of the certificate");
    if (m->process != s->process && !LH_BUG("no_hello"))
        return lh_fail(LH_ERR_NEED_HELLO, "not the process that said hello");
    p->shard = ps_server_shard(s, m->shard);
    if (!p->shard)
        return lh_fail(LH_ERR_NOT_OWNER, "shard %u is owned by another server", m->shard);
    size_t most = lk_frame_bytes_max(p->shard->replica.layout);
    if (m->frame_bytes > most || m->frame_bytes < LH_FRAME_HEADER_BYTES + LH_SEAL_TAG_BYTES)
        return lh_fail(LH_ERR_TOO_LARGE, "a frame of %llu bytes; this shard takes %d to %zu",
                       (unsigned long long)m->frame_bytes,
                       LH_FRAME_HEADER_BYTES + LH_SEAL_TAG_BYTES, most);
    p->digest = m->digest;
    p->bytes = m->frame_bytes;
    resume(p);
    lh_log_traced(s->conf.log, LH_DEBUG, p->trace, "push.begun", "shard %u: %llu bytes",
                  p->shard->id, (unsigned long long)p->bytes);
    return LH_OK;
}

static lh_err answer_probe(struct ps_push *p)
{
    struct lh_push_reply out = {
        .has_resume = true, .resume = {.have = p->have}, .process = p->server->process};
    return lh_send(p->call, LH_MESSAGE(push_reply, &out));
}

static lh_err complete(struct ps_push *p)
{
    struct lh_frame f;
    struct lh_frame_parts parts;
    LH_TRY(lh_frame_parse(lh_blob_span(p->frame), &f, &parts));
    struct lh_digest digest = lh_frame_digest(lh_blob_span(p->frame), &f);
    if (!lh_digest_equal(&digest, &p->digest))
        return lh_fail(LH_ERR_MALFORMED, "the frame's digest differs from the announced one");
    if (f.worker != p->peer_worker || f.shard != p->shard->id)
        return lh_fail(LH_ERR_DENIED, "the frame names another worker or shard than its push");
    struct ps_item *i = ps_item_new(PS_ITEM_PUSH, p->shard);
    if (!i) return lh_fail(LH_ERR_BUSY, "no memory for this push now");
    i->push = p;
    i->done = push_done;
    i->frame = p->frame;
    p->frame = NULL;
    i->head = f;
    i->digest = digest;
    i->worker = f.worker;
    p->item = i;
    memcpy(i->trace, p->trace, sizeof i->trace);
    lh_log_traced(p->server->conf.log, LH_DEBUG, p->trace, "push.received", "shard %u: %llx/%llu",
                  f.shard, (unsigned long long)f.incarnation.number, (unsigned long long)f.step);
    ps_unseal(i);
    return LH_OK;
}

static lh_err take_bytes(struct ps_push *p, bool probe, uint64_t from, const struct lh_msg *msg,
                         size_t at)
{
    if (probe) return answer_probe(p);
    size_t n = msg->len - at;
    if (from == 0 && !p->taking) p->have = 0; // an attempt from the start
    p->taking = true;
    if (from != p->have || n > p->frame->len - p->have)
        return lh_fail(LH_ERR_MALFORMED, "bytes from %llu on where %zu were received",
                       (unsigned long long)from, p->have);
    if (!lh_msg_copy(msg, at, p->frame->data + p->have, n)) return LH_ERR_INTERNAL;
    p->have += n;
    p->server->count.bytes_in += n;
    if (n == LH_PART_BYTES) p->heard_ns = lh_now(p->server->conf.env);
    ps_push_memory_arriving(p->server, p, p->have, p->frame->len - p->have);
    return p->have == p->frame->len ? complete(p) : LH_OK;
}

// Drops the oldest partial frame without a stream: its next attempt starts anew.
static bool drop_a_part(struct ps_server *s)
{
    struct ps_push *oldest = NULL;
    for (struct ps_push *p = s->pushes; p; p = p->next)
        if (p->parked) oldest = p;
    if (oldest) unlist(oldest);
    return oldest != NULL;
}

// Ends the push that keeps the most memory for bytes that do not come, or come too slowly.
static bool drop_slowest(struct ps_server *s)
{
    struct ps_push *slowest = NULL;
    for (struct ps_push *p = s->pushes; p; p = p->next) {
        int64_t ms = (lh_now(s->conf.env) - p->memory_ns) / LH_MS;
        uint64_t due = (uint64_t)ms * LH_PUSH_SLOW_BYTES_PER_S / 1000;
        if (!is_coming(p) || !p->frame || ms < LH_PUSH_SLOW_MS || p->have - p->had >= due) continue;
        if (!slowest || p->bytes - p->have > slowest->bytes - slowest->have) slowest = p;
    }
    if (!slowest) return false;
    lh_log_peer_traced(s->conf.log, LH_WARN, slowest->trace, "push.silent",
                       "shard %u, worker %016llx: %zu of %zu bytes of its push have come, and "
                       "others wait for the memory; it has to send the push again",
                       slowest->shard->id, (unsigned long long)slowest->peer_worker, slowest->have,
                       slowest->frame->len);
    break_off(slowest, lh_fail(LH_ERR_BUSY, "it comes too slowly while others wait for memory"));
    return true;
}

// Waits for its turn and for frame memory; true: settled, with *err as the result.
static bool let_in(struct ps_push *p, lh_err *err)
{
    const struct ps_push *first = p->server->push_memory.first;
    *err = LH_OK;
    if (p->frame) return true;
    bool behind = first && p != first;
    if (behind && !ps_push_memory_passes(p->server, p->bytes, first->bytes)) return false;
    if (!ps_push_memory_turn(p->server, p->bytes)) return false;
    while (!ps_push_memory_frame(p->server, p->bytes, &p->frame))
        if (!drop_a_part(p->server) && !drop_slowest(p->server)) return false;
    p->memory_ns = lh_now(p->server->conf.env);
    if (p->frame)
        ps_push_memory_arrives(p->server, p, p->bytes);
    else
        *err = lh_fail(LH_ERR_BUSY, "no memory for this frame now");
    return true;
}

// Stores the first message's bytes; reads nothing more until there is memory.
static lh_err wait_for_memory(struct ps_push *p, bool probe, const struct lh_msg *msg, size_t at)
{
    struct ps_push_memory *r = &p->server->push_memory;
    p->first_is_probe = probe;
    p->first = lh_buf(LH_MESSAGE_BYTES);
    size_t n = msg->len - at;
    uint8_t *to = lh_buf_grow(&p->first, n);
    if (n && (!to || !lh_msg_copy(msg, at, to, n))) return LH_ERR_BUSY;
    p->waiting = true;
    p->next_waiting = NULL;
    *r->last = p;
    r->last = &p->next_waiting;
    ps_push_memory_waited(p->server);
    return LH_OK;
}

static lh_err take_part(struct ps_push *p, const struct lh_msg *msg)
{
    struct lh_got head;
    size_t at;
    LH_TRY(lh_take_bulk(msg, &lh_wire_push_head, &head, &at));
    const struct lh_push_head *m = head.message;
    bool probe = m->probe, first = !p->shard;
    uint64_t from = m->from;
    lh_err err = first ? begin(p, m) : LH_OK;
    lh_got_free(&head);
    if (err) return err;
    if (first && !p->frame && !probe && from)
        return lh_fail(LH_ERR_MALFORMED, "bytes from %llu on where none were received",
                       (unsigned long long)from);
    if (!let_in(p, &err)) return wait_for_memory(p, probe, msg, at);
    return err ? err : take_bytes(p, probe, from, msg, at);
}

// Fails the push on an error; else reads on if more bytes are to come.
static void go_on(struct ps_push *p, lh_err err)
{
    if (err)
        fail_push(p, err);
    else if (!p->item && !p->waiting)
        lh_call_read(p->call);
}

void ps_receive_waiting(struct ps_server *s)
{
    for (struct ps_push *p = s->push_memory.first, *next; p; p = next) {
        lh_err err;
        next = p->next_waiting; // a small one may pass
        if (!let_in(p, &err)) continue;
        stop_waiting(p);
        p->heard_ns = lh_now(s->conf.env);
        struct lh_buf first = p->first;
        p->first = (struct lh_buf){0};
        struct lh_span part = lh_buf_span(&first);
        struct lh_msg msg = {&part, 1, part.len};
        go_on(p, err ? err : take_bytes(p, p->first_is_probe, 0, &msg, 0));
        lh_buf_free(&first);
        next = s->push_memory.first;
    }
}

static void push_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    (void)call;
    struct ps_push *p = self;
    if (p->over) return;
    bool over = p->item || (p->shard && !p->frame);
    go_on(p,
          over ? lh_fail(LH_ERR_MALFORMED, "bytes after the end of the frame") : take_part(p, msg));
}

static void push_half_close(void *self, struct lh_call *call)
{
    (void)call;
    struct ps_push *p = self;
    if (!p->item && !p->over)
        fail_push(p, lh_fail(LH_ERR_MALFORMED, "the stream ended inside the frame"));
}

static void push_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    (void)call;
    (void)status;
    (void)text;
    struct ps_push *p = self;
    if (p->item) p->item->push = NULL;
    bool park = p->frame && p->have && p->have < p->frame->len && !p->item &&
                p->server->phase != PS_STOPPED;
    struct ps_push *older = park ? parked_part(p) : NULL;
    if (older) unlist(older);
    p->call = NULL;
    p->item = NULL;
    p->parked = park;
    ps_push_memory_arrived(p->server, p);
    if (!park) unlist(p);
}

static const struct lh_call_ops push_ops = {push_message, push_half_close, lh_call_nothing,
                                            push_close};

// ---------------------------------------------------------------- streams that say nothing

bool ps_receive_look(struct ps_server *s)
{
    int64_t now = lh_now(s->conf.env);
    bool again = false;
    for (struct ps_push *p = s->pushes; p; p = p->next) {
        if (!is_coming(p)) continue;
        again = true;
        if (p->waiting || now - p->heard_ns < LH_PUSH_SILENT_MS * LH_MS) continue;
        lh_log_peer_traced(s->conf.log, LH_WARN, p->trace, "push.silent",
                           "shard %u, worker %016llx: no part of its push came for %d s; it has to "
                           "send the push again. Is its link slower than %d bytes in that time?",
                           p->shard ? p->shard->id : 0, (unsigned long long)p->peer_worker,
                           LH_PUSH_SILENT_MS / 1000, LH_PART_BYTES);
        fail_push(p, lh_fail(LH_ERR_DEADLINE, "no part of this push came for too long"));
    }
    return again;
}

void ps_receive_expel(struct ps_server *s)
{
    for (struct ps_push *p = s->pushes; p; p = p->next)
        if (is_coming(p) && ps_expelled(s, p->peer_worker))
            fail_push(p, lh_fail(LH_ERR_EXPELLED, "this worker was expelled from the run"));
}

// A worker has one push per shard at a time. Streams of a broken connection linger, and so does a
// stream whose answer the worker does not read.
static void make_way(struct ps_server *s, uint64_t worker)
{
    uint32_t later = 0;
    for (struct ps_push *p = s->pushes; p; p = p->next) {
        if (p->parked || p->peer_worker != worker) continue;
        if (++later < LH_STREAMS_A_SHARD * s->conf.shard_count) continue;
        if (p->over)
            lh_call_cancel(p->call);
        else
            fail_push(p, lh_fail(LH_ERR_BUSY, "this worker has opened %u later pushes", later));
    }
    while (s->push_count >= LH_DECIDE_QUEUE_MAX && drop_a_part(s)) continue;
}

static uint32_t calls_of(const struct ps_server *s, uint64_t worker)
{
    uint32_t n = 0;
    for (const struct ps_push *p = s->pushes; p; p = p->next)
        n += !p->parked && p->peer_worker == worker;
    return n;
}

// Ends the push that has been silent longest of the worker that has the most, if these are more
// than the `mine` of one that waits. False: there is none.
static bool make_place(struct ps_server *s, uint32_t mine)
{
    struct ps_push *found = NULL;
    uint32_t most = mine;
    for (struct ps_push *p = s->pushes; p; p = p->next) {
        uint32_t n = p->parked || p->item ? 0 : calls_of(s, p->peer_worker);
        if (n < most || n <= mine || (n == most && p->heard_ns >= found->heard_ns)) continue;
        found = p;
        most = n;
    }
    if (found && found->over)
        lh_call_cancel(found->call);
    else if (found)
        fail_push(found, lh_fail(LH_ERR_BUSY,
                                 "this worker sends %u pushes, and another one waits "
                                 "to send fewer",
                                 most));
    return found != NULL;
}

lh_err ps_push_accept(struct ps_server *s, struct lh_call *call, const struct lh_peer *peer,
                      const struct lh_call_ops **ops, void **self)
{
    uint64_t worker = lh_worker_id(peer);
    make_way(s, worker);
    if (s->push_count >= LH_DECIDE_QUEUE_MAX && !make_place(s, calls_of(s, worker) + 1))
        return lh_fail(LH_ERR_BUSY, "%u pushes are being received; try again", s->push_count);
    struct ps_push *p = calloc(1, sizeof *p);
    if (!p) return LH_ERR_NO_MEMORY;
    p->server = s;
    p->call = call;
    memcpy(p->trace, call->trace.id, sizeof p->trace);
    p->peer_worker = worker;
    p->heard_ns = lh_now(s->conf.env);
    p->next = s->pushes;
    if (p->next) p->next->previous = p;
    s->pushes = p;
    s->push_count++;
    *ops = &push_ops;
    *self = p;
    lh_call_read(call);
    return LH_OK;
}

void ps_receive_free(struct ps_server *s)
{
    while (s->pushes) unlist(s->pushes);
}
