// A worker that only pushes: measures how much a server takes of several at once, without folding,
// cutting or training on the same processors. Dense fp32 frames of one shard, sealed with the job
// key, sent and answered like those of any worker (worker/push/session.c), one after another.
//
//   bench_pusher CA CERT KEY JOB_KEYS MANIFEST SHARD ADDRESS
//
// For each line of its input: `seal` makes the next frame and prints `sealed BYTES`; `push` sends
// it and prints `admitted` after the durable answer. Any error ends it with a message.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/limits.h"
#include "common/net/rpc.h"
#include "tests/e2e/client.h"

struct pusher {
    struct client client;
    struct lh_buf plain; // the same payload in every frame
    struct lh_blob *frame;
    struct lh_digest digest;
    struct lh_call *call;
    size_t at; // sent so far
    bool decided, over;
};

static void must(lh_err err)
{
    if (!err) return;
    fprintf(stderr, "bench_pusher: %s: %s\n", lh_err_name(err), lh_err_text(err));
    exit(1);
}

// ---------------------------------------------------------------- the frame

static void make_payload(struct pusher *p)
{
    const struct lk_codec codec = {LK_INDEX_DENSE, LK_VALUE_FP32, 1};
    p->plain = lh_buf(lk_payload_max(&codec, p->client.layout));
    must(client_encode(&p->client, &codec, 1e-6f, 1000, &p->plain));
}

static void seal(struct pusher *p)
{
    p->client.head.step++;
    must(client_seal(&p->client, lh_buf_span(&p->plain), &p->frame));
    p->digest = lh_frame_digest(lh_blob_span(p->frame), &p->client.head);
}

// ---------------------------------------------------------------- the push

static void send_part(struct pusher *p, size_t n)
{
    struct lh_push_head head = client_push_head(&p->client, p->frame, &p->digest);
    head.from = p->at;
    head.probe = n == 0;
    must(lh_send_bulk(p->call, LH_MESSAGE(push_head, &head), p->frame, p->at, n));
    p->at += n;
}

static void send_next(struct pusher *p)
{
    size_t left = p->frame->len - p->at;
    if (!left) return;
    send_part(p, left < LH_PART_BYTES ? left : LH_PART_BYTES);
    if (p->at == p->frame->len) lh_call_finish(p->call, LH_OK, NULL);
}

static void on_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct pusher *p = self;
    struct lh_got reply;
    must(lh_take(msg, &lh_wire_push_reply, &reply));
    const struct lh_push_reply *m = reply.message;
    for (int i = 0; m->has_resume && i < LH_CALL_SENDS_MAX; i++)
        send_next(p); // there is space for it
    if (!m->has_resume && !m->admitted) must(lh_fail((lh_err)m->reason, "the push was refused"));
    p->decided |= m->admitted;
    lh_got_free(&reply);
    lh_call_read(call);
}

static void on_sent(void *self, struct lh_call *call)
{
    (void)call;
    struct pusher *p = self;
    if (p->at) send_next(p); // the message before the first part was the offer
}

static void on_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    (void)call;
    struct pusher *p = self;
    if (!p->decided) must(lh_fail(status ? status : LH_ERR_PROTOCOL, "not decided: %s", text));
    p->over = true;
    lh_env_real_stop(p->client.env);
}

static const struct lh_call_ops push_ops = {on_message, client_half_closed, on_sent, on_close};

static void push(struct pusher *p)
{
    p->at = 0;
    p->decided = p->over = false;
    must(lh_call_open(p->client.link, LH_RPC_PUSH, 0, &push_ops, p, &p->call));
    lh_call_read(p->call);
    send_part(p, 0);
    while (!p->over) lh_env_real_run(p->client.env);
}

int main(int argc, char **argv)
{
    struct pusher p = {0};
    char word[8];
    if (argc != CLIENT_ARGS) {
        fputs("usage: bench_pusher " CLIENT_USAGE "\n", stderr);
        return 2;
    }
    must(client_open(&p.client, argv));
    make_payload(&p);
    must(client_greet(&p.client));
    while (fgets(word, sizeof word, stdin)) {
        if (!strcmp(word, "seal\n")) {
            seal(&p);
            printf("sealed %zu\n", p.frame->len);
        } else if (!strcmp(word, "push\n") && p.frame) {
            push(&p);
            puts("admitted");
        }
        fflush(stdout);
    }
    client_close(&p.client);
    lh_blob_release(p.frame);
    lh_buf_free(&p.plain);
    return 0;
}
