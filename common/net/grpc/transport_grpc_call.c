// A call, either side: messages, flow control, end. See transport_grpc_core.h for the threads.
//
//  1. on_close is called exactly once and last: when gRPC has reported the end and every batch of
//     the call has returned, so no received message is lost; or at once when the owner's link or
//     transport is destroyed, and then gRPC's half ends silently.
//  2. gRPC takes one send batch at a time; up to LH_CALL_SENDS_MAX messages wait in a ring.
//     Headers, a message and the end share a batch if available together, so a unary call is one
//     write.
//  3. A message is received only when the owner asked for it, so a side that does not read fills
//     gRPC's window and then its peer's ring.
//  4. We copy no byte of a bulk: outgoing, its slice points into the shared blob; incoming, the
//     parts are gRPC's slices.
//  5. Callbacks run on the loop in a consistent state: an owner may send, finish, cancel, hang up
//     or destroy inside any of them.
#include "common/net/grpc/transport_grpc_core.h"

#include <grpc/byte_buffer_reader.h>
#include <grpc/support/alloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"

static bool alive(const struct lh_grpc_call *c) // its owner may get messages
{
    return c->ops && !c->closed && !c->cancelled;
}

// ---------------------------------------------------------------- life

struct lh_grpc_call *lh_grpc_call_new(struct lh_grpc *t, bool server)
{
    struct lh_grpc_call *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->base.transport_ops = &lh_grpc_ops;
    c->t = t;
    c->server = server;
    c->details = grpc_empty_slice();
    c->op_started = (struct lh_grpc_op){.owner = c, .event = LH_GRPC_STARTED};
    c->op_sent = (struct lh_grpc_op){.owner = c, .event = LH_GRPC_SENT};
    c->op_received = (struct lh_grpc_op){.owner = c, .event = LH_GRPC_RECEIVED};
    c->op_closed = (struct lh_grpc_op){.owner = c, .event = LH_GRPC_CLOSED};
    grpc_metadata_array_init(&c->initial);
    grpc_metadata_array_init(&c->trailing);
    c->next = t->calls;
    if (c->next) c->next->previous = c;
    t->calls = c;
    c->holds = 1; // the list's reference
    return c;
}

void lh_grpc_call_hold(struct lh_grpc_call *c)
{
    LH_ASSERT(c->holds > 0); // a freed call cannot be held
    c->holds++;
}

void lh_grpc_call_drop(struct lh_grpc_call *c)
{
    LH_ASSERT(c->holds > 0);
    if (--c->holds) return;
    LH_ASSERT(c->closed && !c->core && c->pending == 0);
    grpc_metadata_array_destroy(&c->initial);
    grpc_metadata_array_destroy(&c->trailing);
    grpc_slice_unref(c->details);
    free(c);
}

static void unlist(struct lh_grpc_call *c)
{
    if (c->previous)
        c->previous->next = c->next;
    else
        c->t->calls = c->next;
    if (c->next) c->next->previous = c->previous;
    c->previous = c->next = NULL;
}

static void drop_out(struct lh_grpc_call *c)
{
    grpc_byte_buffer_destroy(c->out[c->out_first]);
    c->out_first = (c->out_first + 1) % LH_CALL_SENDS_MAX;
    c->out_count--;
}

// Releases gRPC's call once closed and without pending batches.
static void release_core(struct lh_grpc_call *c)
{
    if (!c->closed || c->pending || !c->core) return;
    while (c->out_count) drop_out(c);
    grpc_call_unref(c->core);
    c->core = NULL;
    if (c->server) c->t->served--;
}

void lh_grpc_call_over(struct lh_grpc_call *c, lh_err status, const char *text)
{
    char copy[LH_GRPC_TEXT_BYTES]; // `text` may be c->text
    snprintf(copy, sizeof copy, "%s", text ? text : "");
    memcpy(c->text, copy, sizeof copy);
    c->status = status;
    c->over = true;
}

void lh_grpc_call_close(struct lh_grpc_call *c, lh_err status, const char *text)
{
    struct lh_grpc *t = c->t;
    if (c->closed) return;
    c->closed = true;
    c->link = NULL; // the link may be freed before gRPC reports the call's end
    unlist(c);
    if (c->core && !c->over) grpc_call_cancel(c->core, NULL);
    if (c->ops) {
        lh_grpc_enter(t);
        c->ops->on_close(c->self, &c->base, status, text);
        release_core(c);
        lh_grpc_call_drop(c);
        lh_grpc_leave(t);
        return;
    }
    release_core(c);
    lh_grpc_call_drop(c);
}

void lh_grpc_call_settle(struct lh_grpc_call *c)
{
    lh_grpc_call_hold(c);
    if (c->over && c->pending == 0 && c->cancelled)
        lh_grpc_call_close(c, LH_ERR_CANCELLED, "cancelled");
    else if (c->over && c->pending == 0)
        lh_grpc_call_close(c, c->status, c->text);
    release_core(c);
    lh_grpc_call_drop(c);
}

// ---------------------------------------------------------------- sending

static void release_blob(void *blob)
{
    lh_blob_release(blob); // on any gRPC thread
}

grpc_byte_buffer *lh_grpc_message(const struct lh_out *m)
{
    grpc_slice slice[2];
    size_t n = 0;
    slice[n++] = grpc_slice_from_copied_buffer((const char *)m->head.data, m->head.len);
    if (m->bulk && m->n) {
        LH_ASSERT(m->at <= m->bulk->len && m->n <= m->bulk->len - m->at);
        struct lh_blob *blob = lh_blob_share(m->bulk);
        // The slice has (start, length, owner): bytes inside the blob, with the blob as owner.
        slice[n++] = grpc_slice_new_with_user_data(blob->data + m->at, m->n, release_blob, blob);
    }
    grpc_byte_buffer *out = grpc_raw_byte_buffer_create(slice, n);
    for (size_t i = 0; i < n; i++) grpc_slice_unref(slice[i]); // the buffer has its own references
    return out;
}

lh_err lh_grpc_send(struct lh_call *call, const struct lh_out *m)
{
    struct lh_grpc_call *c = (struct lh_grpc_call *)call;
    if (c->closed || c->over || c->cancelled) return lh_fail(LH_ERR_CANCELLED, "the call is over");
    LH_ASSERT(!c->finish);
    if (c->out_count == LH_CALL_SENDS_MAX)
        return lh_fail(LH_ERR_BUSY, "%d messages wait to be sent; wait for on_sent",
                       LH_CALL_SENDS_MAX);
    size_t n = m->bulk ? m->n : 0;
    if (m->head.len > LH_GRPC_MESSAGE_BYTES_MAX || n > LH_GRPC_MESSAGE_BYTES_MAX - m->head.len)
        return lh_fail(LH_ERR_TOO_LARGE, "a message of more than %d bytes",
                       LH_GRPC_MESSAGE_BYTES_MAX);
    c->out[(c->out_first + c->out_count++) % LH_CALL_SENDS_MAX] = lh_grpc_message(m);
    lh_grpc_touch(c);
    return LH_OK;
}

// Starts the end of our side. A server sends its status twice: as gRPC's code for any client, and
// as our code's name for our clients (lh_grpc_err).
static void start_end(struct lh_grpc_call *c, grpc_op *op, grpc_metadata *name, grpc_slice *text)
{
    c->finished = true;
    if (!c->server) {
        op->op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
        return;
    }
    *text = grpc_slice_from_copied_string(c->text);
    *name = (grpc_metadata){.key = grpc_slice_from_static_string(lh_grpc_err_key),
                            .value = grpc_slice_from_static_string(lh_err_name(c->status))};
    op->op = GRPC_OP_SEND_STATUS_FROM_SERVER;
    op->data.send_status_from_server.status = lh_grpc_code(c->status);
    op->data.send_status_from_server.status_details = text;
    op->data.send_status_from_server.trailing_metadata = name;
    op->data.send_status_from_server.trailing_metadata_count = c->status ? 1 : 0;
}

// Gives the metadata of this side's headers: a server's number as leader, a client's trace. False:
// none.
static bool make_header(const struct lh_grpc_call *c, grpc_metadata *out)
{
    char number[24], trace[LH_TRACE_TEXT_BYTES];
    if (c->server && c->t->leads) {
        snprintf(number, sizeof number, "%llu", (unsigned long long)c->t->leads);
        out->key = grpc_slice_from_static_string(lh_grpc_leader_key);
        out->value = grpc_slice_from_copied_string(number);
        return true;
    }
    if (c->server || !c->base.trace.id[0]) return false;
    lh_trace_text(&c->base.trace, trace);
    out->key = grpc_slice_from_static_string(lh_grpc_trace_key);
    out->value = grpc_slice_from_copied_string(trace);
    return true;
}

static void start_sending(struct lh_grpc_call *c)
{
    bool message = c->out_count > 0, end = c->finish && !c->finished && c->out_count <= 1;
    bool headers = !c->started && (!c->server || message || end);
    if (c->sending || !(headers || message || end)) return;
    grpc_op op[3] = {0};
    grpc_metadata name, header = {0};
    grpc_slice text = grpc_empty_slice();
    size_t n = 0;
    bool with_header = headers && make_header(c, &header);
    if (headers) {
        if (with_header) {
            op[n].data.send_initial_metadata.count = 1;
            op[n].data.send_initial_metadata.metadata = &header;
        }
        op[n++].op = GRPC_OP_SEND_INITIAL_METADATA;
    }
    if (message) {
        op[n].op = GRPC_OP_SEND_MESSAGE;
        op[n++].data.send_message.send_message = c->out[c->out_first];
    }
    if (end) start_end(c, &op[n++], &name, &text);
    c->started = c->sending = true;
    c->op_sent.carries_message = message;
    lh_grpc_start(c, &c->op_sent, op, n);
    if (with_header) grpc_slice_unref(header.value);
    grpc_slice_unref(text);
}

static void on_sent(struct lh_grpc_call *c, const struct lh_grpc_op *op)
{
    c->sending = false;
    if (!op->carries_message) return;
    drop_out(c);
    if (op->ok && alive(c)) c->ops->on_sent(c->self, &c->base);
}

// ---------------------------------------------------------------- receiving

bool lh_grpc_parts(grpc_byte_buffer *in, struct lh_span *part, size_t max, struct lh_msg *out)
{
    grpc_byte_buffer_reader reader;
    grpc_slice *slice;
    *out = (struct lh_msg){.part = part};
    if (!grpc_byte_buffer_reader_init(&reader, in)) return false;
    bool ok = true;
    while (ok && grpc_byte_buffer_reader_peek(&reader, &slice)) {
        ok = out->parts < max;
        if (!ok) break;
        part[out->parts++] = lh_span(GRPC_SLICE_START_PTR(*slice), GRPC_SLICE_LENGTH(*slice));
        out->len += GRPC_SLICE_LENGTH(*slice);
    }
    grpc_byte_buffer_reader_destroy(&reader);
    return ok;
}

static void start_receiving(struct lh_grpc_call *c)
{
    if (!c->want || c->receiving || c->ended) return;
    c->want = false;
    c->receiving = true;
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &c->in;
    lh_grpc_start(c, &c->op_received, &op, 1);
}

static void deliver(struct lh_grpc_call *c, grpc_byte_buffer *in)
{
    struct lh_msg msg;
    if (lh_grpc_parts(in, c->t->part, LH_GRPC_PARTS_MAX, &msg)) {
        c->ops->on_message(c->self, &c->base, &msg);
        return;
    }
    lh_log_peer(c->t->log, LH_WARN, "net.refused",
                "a message in more than %d pieces: call cancelled", LH_GRPC_PARTS_MAX);
    grpc_call_cancel_with_status(c->core, GRPC_STATUS_INVALID_ARGUMENT, "message in tiny pieces",
                                 NULL);
}

static void on_received(struct lh_grpc_call *c, const struct lh_grpc_op *op)
{
    grpc_byte_buffer *in = c->in;
    c->in = NULL;
    c->receiving = false;
    if (in) {
        lh_grpc_client_heard(c);
        if (alive(c) && !lh_grpc_client_refuses(c)) deliver(c, in);
        grpc_byte_buffer_destroy(in);
        return;
    }
    c->ended = true; // half closed by the client, or broken: only the former is reported
    bool graceful = op->ok && !c->over && !grpc_call_failed_before_recv_message(c->core);
    if (c->server && graceful && alive(c)) c->ops->on_half_close(c->self, &c->base);
}

// ---------------------------------------------------------------- events and orders

void lh_grpc_call_event(struct lh_grpc_call *c, struct lh_grpc_op *op)
{
    c->pending--;
    switch (op->event) {
    case LH_GRPC_SENT: on_sent(c, op); break;
    case LH_GRPC_RECEIVED: on_received(c, op); break;
    case LH_GRPC_CLOSED:
        if (c->server)
            lh_grpc_server_closed(c);
        else
            lh_grpc_client_closed(c);
        break;
    default: break; // STARTED: the server's headers are read with its first message
    }
    lh_grpc_call_settle(c);
    if (!c->closed) lh_grpc_touch(c);
    lh_grpc_call_drop(c); // the batch's reference
}

static void start_client(struct lh_grpc_call *c)
{
    grpc_op op = {.op = GRPC_OP_RECV_INITIAL_METADATA};
    op.data.recv_initial_metadata.recv_initial_metadata = &c->initial;
    lh_grpc_start(c, &c->op_started, &op, 1);
    op = (grpc_op){.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    op.data.recv_status_on_client.trailing_metadata = &c->trailing;
    op.data.recv_status_on_client.status = &c->code;
    op.data.recv_status_on_client.status_details = &c->details;
    lh_grpc_start(c, &c->op_closed, &op, 1);
}

void lh_grpc_call_pump(struct lh_grpc_call *c)
{
    if (c->closed || c->over) return;
    bool first = !c->server && !c->started;
    if (c->cancelled) { // gRPC does not know the call yet: we report its end
        if (first) lh_grpc_call_over(c, LH_ERR_CANCELLED, "cancelled");
        return;
    }
    start_sending(c);
    if (first) start_client(c);
    start_receiving(c);
}

void lh_grpc_read(struct lh_call *call)
{
    struct lh_grpc_call *c = (struct lh_grpc_call *)call;
    c->want = true;
    if (!c->closed) lh_grpc_touch(c);
}

void lh_grpc_finish(struct lh_call *call, lh_err status, const char *text)
{
    struct lh_grpc_call *c = (struct lh_grpc_call *)call;
    if (c->closed || c->over || c->cancelled || c->finish) return;
    c->finish = true;
    c->status = status;
    snprintf(c->text, sizeof c->text, "%s", text ? text : "");
    if (c->server) lh_grpc_server_finishes(c);
    lh_grpc_touch(c);
}

void lh_grpc_cancel(struct lh_call *call)
{
    struct lh_grpc_call *c = (struct lh_grpc_call *)call;
    if (c->closed || c->cancelled) return;
    c->cancelled = true;
    if (!c->over && (c->server || c->started))
        grpc_call_cancel_with_status(c->core, GRPC_STATUS_CANCELLED, "cancelled", NULL);
    lh_grpc_touch(c);
}
