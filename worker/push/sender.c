// Sender: the parts of one push on their way to the server.
#include "worker/push/sender.h"

#include "common/net/rpc.h"
#include "common/net/wire_shard.h"

void wk_sender_stop(struct wk_shard *s)
{
    struct lh_call *call = s->session.sender.call;
    lh_blob_release(s->session.sender.frame);
    s->session.sender = (struct wk_sender){0};
    if (call) lh_call_cancel(call);
}

static struct lh_push_head head_of(const struct wk_shard *s)
{
    const struct wk_sender *p = &s->session.sender;
    return (struct lh_push_head){.shard = s->id,
                                 .worker = s->worker->id,
                                 .process = s->session.process,
                                 .frame_bytes = p->frame->len,
                                 .digest = p->entry->digest};
}

struct lh_trace wk_sender_trace(const struct wk_worker *w, uint32_t shard,
                                struct lh_incarnation incarnation, uint64_t step)
{
    return lh_trace_of_push(lh_span(w->conf.job, LH_JOB_BYTES), w->id, incarnation.number, step,
                            shard);
}

lh_err wk_sender_parts(struct wk_shard *s)
{
    struct wk_sender *p = &s->session.sender;
    while (p->call && !p->probing && p->sending < LH_CALL_SENDS_MAX && p->at < p->frame->len) {
        size_t n = p->frame->len - p->at;
        if (n > LH_PART_BYTES) n = LH_PART_BYTES;
        struct lh_push_head head = head_of(s);
        head.from = p->at;
        LH_TRY(lh_send_bulk(p->call, LH_MESSAGE(push_head, &head), p->frame, p->at, n));
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
    struct lh_push_head head = head_of(s);
    head.probe = true;
    p->sending++;
    return lh_send_bulk(p->call, LH_MESSAGE(push_head, &head), p->frame, 0, 0);
}
