// Implements pb.h.
#include "tests/world/pb.h"

#include <stdlib.h>

#include "common/base/limits.h"
#include "common/net/rpc.h"

lh_err pb_send(struct lh_call *call, const ProtobufCMessage *message)
{
    struct lh_buf b = lh_buf(LH_SMALL_BYTES);
    lh_err err = lh_rpc_pack(message, &b);
    if (!err) err = lh_call_send(call, &(struct lh_out){.head = lh_buf_span(&b)});
    lh_buf_free(&b);
    return err;
}

static void put_varint(struct lh_buf *b, uint64_t v)
{
    for (; v >= 128; v >>= 7) lh_put_u8(b, (uint8_t)(v | 128));
    lh_put_u8(b, (uint8_t)v);
}

lh_err pb_send_bulk(struct lh_call *call, const ProtobufCMessage *head, struct lh_blob *bulk,
                    size_t at, size_t n)
{
    struct lh_buf b = lh_buf(LH_HEAD_BYTES);
    lh_err err = lh_rpc_pack(head, &b);
    put_varint(&b, 15 << 3 | 2);
    put_varint(&b, n);
    if (!err) err = lh_buf_err(&b);
    if (!err)
        err = lh_call_send(
            call, &(struct lh_out){.head = lh_buf_span(&b), .bulk = bulk, .at = at, .n = n});
    lh_buf_free(&b);
    return err;
}

lh_err pb_parse(const struct lh_msg *msg, const ProtobufCMessageDescriptor *type,
                ProtobufCMessage **out)
{
    uint8_t *bytes = malloc(msg->len + 1);
    if (!bytes) return LH_ERR_NO_MEMORY;
    bool whole = lh_msg_copy(msg, 0, bytes, msg->len);
    *out = whole ? protobuf_c_message_unpack(type, NULL, msg->len, bytes) : NULL;
    free(bytes);
    return *out ? LH_OK : lh_fail(LH_ERR_MALFORMED, "a %s that can't be read", type->name);
}

// ---------------------------------------------------------------- one request, one answer

struct question {
    struct lh_call *call;
    const ProtobufCMessageDescriptor *type;
    pb_done_fn done; // NULL: the request did not go
    void *self;
    ProtobufCMessage *answer;
    lh_err bad;
};

static void on_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct question *q = self;
    if (q->answer || q->bad) return;
    q->bad = pb_parse(msg, q->type, &q->answer);
    if (q->bad)
        lh_call_cancel(call);
    else
        lh_call_read(call); // the status follows the last message
}

static void on_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    (void)call;
    struct question *q = self;
    lh_err err = q->bad ? q->bad : status;
    if (!err && !q->answer)
        err = lh_fail(LH_ERR_MALFORMED, "an empty answer");
    else if (err && !q->bad)
        err = lh_fail(err, "%s", text);
    if (q->done) q->done(q->self, err, err ? NULL : q->answer);
    if (q->answer) protobuf_c_message_free_unpacked(q->answer, NULL);
    free(q);
}

static const struct lh_call_ops question_ops = {on_message, lh_call_nothing, lh_call_nothing,
                                                on_close};

lh_err pb_ask(struct lh_link *link, enum lh_rpc rpc, int64_t deadline_ns,
              const ProtobufCMessage *request, const ProtobufCMessageDescriptor *answer,
              pb_done_fn done, void *self)
{
    struct question *q = malloc(sizeof *q);
    if (!q) return LH_ERR_NO_MEMORY;
    *q = (struct question){.type = answer, .done = done, .self = self};
    lh_err err = lh_call_open(link, rpc, deadline_ns, &question_ops, q, &q->call);
    if (err) free(q);
    LH_TRY(err);
    err = pb_send(q->call, request);
    if (err) { // on_close() frees it
        q->done = NULL;
        lh_call_cancel(q->call);
        return err;
    }
    lh_call_finish(q->call, LH_OK, NULL);
    lh_call_read(q->call);
    return LH_OK;
}
