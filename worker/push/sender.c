// Sender: the parts of one push on their way to the server.
#include "worker/push/sender.h"

#include "common/net/rpc.h"
#include "longhaul/v1/shard.pb-c.h"

void wk_sender_stop(struct wk_shard *s)
{
    struct lh_call *call = s->session.sender.call;
    lh_blob_release(s->session.sender.frame);
    s->session.sender = (struct wk_sender){0};
    if (call) lh_call_cancel(call);
}

lh_err wk_sender_parts(struct wk_shard *s)
{
    struct wk_sender *p = &s->session.sender;
    while (p->call && !p->probing && p->sending < LH_CALL_SENDS_MAX && p->at < p->frame->len) {
        size_t n = p->frame->len - p->at;
        if (n > LH_PART_BYTES) n = LH_PART_BYTES;
        Longhaul__V1__PushHead head = LONGHAUL__V1__PUSH_HEAD__INIT;
        head.shard = s->id;
        head.worker = s->worker->id;
        head.process = s->session.process;
        head.frame_bytes = p->frame->len;
        head.from = p->at;
        head.digest = (ProtobufCBinaryData){LH_DIGEST_BYTES, p->entry->digest.b};
        LH_TRY(lh_rpc_send_bulk(p->call, &head.base, p->frame, p->at, n));
        p->at += n;
        p->sending++;
    }
    if (p->call && !p->finished && p->at == p->frame->len) {
        p->finished = true;
        lh_call_finish(p->call, LH_OK, NULL);
    }
    return LH_OK;
}

lh_err wk_sender_probe(struct wk_shard *s)
{
    struct wk_sender *p = &s->session.sender;
    Longhaul__V1__PushHead head = LONGHAUL__V1__PUSH_HEAD__INIT;
    head.shard = s->id;
    head.worker = s->worker->id;
    head.process = s->session.process;
    head.frame_bytes = p->frame->len;
    head.probe = true;
    head.digest = (ProtobufCBinaryData){LH_DIGEST_BYTES, p->entry->digest.b};
    p->sending++;
    return lh_rpc_send_bulk(p->call, &head.base, p->frame, 0, 0);
}
