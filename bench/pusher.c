// A worker that only pushes: what a server takes of several at once, when nobody's folding, cutting
// or training shares the processors with it. Dense fp32 frames of one shard, sealed with the job
// key, sent and answered as those of any worker (worker/session.c), one after another.
//
//   bench_pusher CA CERT KEY JOB_KEYS MANIFEST SHARD ADDRESS
//
// For each line of its input: `seal` makes the next frame and prints `sealed BYTES`; `push` sends
// it and prints `admitted` after the durable answer. Whatever goes wrong ends it with a message.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/certs.h"
#include "common/head.h"
#include "common/limits.h"
#include "common/node.h"
#include "common/rpc.h"
#include "common/transport_grpc.h"
#include "kernels/codec.h"
#include "longhaul/v1/shard.pb-c.h"

struct pusher {
    struct lh_env *env;
    struct lh_link *link;
    struct lh_keyring *keys;
    struct lh_manifest manifest;
    struct lh_frame head; // of the frame
    struct lh_buf plain;  // the same payload in every frame
    struct lh_blob *frame;
    struct lh_digest digest;
    uint64_t process;
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

static void run_until(const struct pusher *p, const bool *done)
{
    while (!*done) lh_env_real_run(p->env);
}

// ---------------------------------------------------------------- the frame

static void make_payload(struct pusher *p)
{
    const struct lh_shard_layout *layout = &p->manifest.shard[p->head.shard];
    const struct lk_codec codec = {LK_INDEX_DENSE, LK_VALUE_FP32, 1};
    struct lk_payload_info info;
    float *e = malloc(layout->values * sizeof *e);
    if (!e) must(LH_ERR_NO_MEMORY);
    for (uint64_t i = 0; i < layout->values; i++) e[i] = 1e-6f * (float)(i % 1000 + 1);
    p->plain = lh_buf(lk_payload_max(&codec, layout));
    must(lk_encode(&codec, layout, 1, NULL, e, &p->plain, &info));
    free(e);
    p->head.index_code = codec.index;
    p->head.value_code = codec.value;
    p->head.density = codec.density;
    p->head.values = info.values;
    p->head.plain_bytes = (uint32_t)p->plain.len;
}

static void seal(struct pusher *p)
{
    struct lh_frame *f = &p->head;
    struct lh_buf head = lh_buf(LH_FRAME_HEADER);
    f->step++;
    lh_random(p->env, f->nonce, LH_NONCE);
    const struct lh_seal_context context = {f->worker, f->incarnation.number, f->incarnation.random,
                                            f->shard, LH_SEAL_FRAME};
    lh_frame_write_head(f, &head);
    must(lh_buf_err(&head));
    if (!p->frame) p->frame = lh_blob_new(lh_frame_bytes(f));
    if (!p->frame) must(LH_ERR_NO_MEMORY);
    memcpy(p->frame->data, head.data, head.len);
    must(lh_seal(p->keys, f->cipher, f->key_id, &context, lh_buf_span(&head), f->nonce,
                 lh_buf_span(&p->plain), p->frame->data + head.len));
    lh_buf_free(&head);
    p->digest = lh_frame_digest(lh_blob_span(p->frame), f);
}

// ---------------------------------------------------------------- the push

static void send_part(struct pusher *p, size_t n)
{
    Longhaul__V1__PushHead head = LONGHAUL__V1__PUSH_HEAD__INIT;
    head.shard = p->head.shard;
    head.worker = p->head.worker;
    head.process = p->process;
    head.frame_bytes = p->frame->len;
    head.from = p->at;
    head.probe = n == 0;
    head.digest = (ProtobufCBinaryData){LH_DIGEST, p->digest.b};
    must(lh_rpc_send_bulk(p->call, &head.base, p->frame, p->at, n));
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
    ProtobufCMessage *base;
    must(lh_rpc_parse(msg, &longhaul__v1__push_reply__descriptor, &base));
    const Longhaul__V1__PushReply *m = (const Longhaul__V1__PushReply *)base;
    for (int i = 0; m->resume && i < LH_CALL_SENDS_MAX; i++) send_next(p); // there is room for it
    if (!m->resume && !m->admitted) must(lh_fail((lh_err)m->reason, "the push was refused"));
    p->decided |= m->admitted != 0;
    protobuf_c_message_free_unpacked(base, NULL);
    lh_call_read(call);
}

static void on_half_close(void *self, struct lh_call *call)
{
    (void)self;
    (void)call;
}

static void on_sent(void *self, struct lh_call *call)
{
    (void)call;
    struct pusher *p = self;
    if (p->at) send_next(p); // else it was the question
}

static void on_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    (void)call;
    struct pusher *p = self;
    if (!p->decided) must(lh_fail(status ? status : LH_ERR_PROTOCOL, "not decided: %s", text));
    p->over = true;
    lh_env_real_stop(p->env);
}

static const struct lh_call_ops push_ops = {on_message, on_half_close, on_sent, on_close};

static void push(struct pusher *p)
{
    p->at = 0;
    p->decided = p->over = false;
    must(lh_call_open(p->link, LH_RPC_PUSH, 0, &push_ops, p, &p->call));
    lh_call_read(p->call);
    send_part(p, 0);
    run_until(p, &p->over);
}

// ---------------------------------------------------------------- the session

static void on_hello(void *self, lh_err err, const ProtobufCMessage *answer)
{
    struct pusher *p = self;
    const Longhaul__V1__HelloReply *m = (const Longhaul__V1__HelloReply *)answer;
    must(err);
    if (!m->session) must(lh_fail(LH_ERR_CONFLICT, "no session: who else is this worker?"));
    p->process = m->process;
    p->head.step = m->last_step;
    p->over = true;
    lh_env_real_stop(p->env);
}

static void greet(struct pusher *p)
{
    struct lh_unary *call;
    Longhaul__V1__HelloRequest m = LONGHAUL__V1__HELLO_REQUEST__INIT;
    Longhaul__V1__Wire wire = lh_head_wire();
    m.wire = &wire;
    lh_head_run(p->head.job, &p->manifest.hash, &m.job, &m.manifest);
    m.shard = p->head.shard;
    m.worker = p->head.worker;
    m.incarnation = p->head.incarnation.number;
    m.incarnation_random = p->head.incarnation.random;
    m.next = 1;
    must(lh_unary_start(p->link, LH_RPC_HELLO, 20 * LH_SECOND, &m.base,
                        &longhaul__v1__hello_reply__descriptor, on_hello, p, &call));
    run_until(p, &p->over);
}

// ---------------------------------------------------------------- start

static void prepare(struct pusher *p, char **argv, struct lh_certs_info *info)
{
    struct lh_buf json = lh_buf(LH_SMALL_BYTES);
    must(lh_env_real_create(&p->env));
    must(lh_certs_inspect(argv[2], info));
    must(lh_keyring_create(&p->keys));
    must(lh_keyring_load(p->keys, argv[4]));
    must(lh_file_load(p->env, argv[5], &json));
    must(lh_manifest_parse(&p->manifest, lh_buf_span(&json)));
    lh_buf_free(&json);
    p->head = (struct lh_frame){.cipher = LH_CIPHER_XCHACHA20,
                                .key_id = 1,
                                .shard = (uint32_t)strtoul(argv[6], NULL, 10),
                                .worker = lh_worker_id(&info->peer),
                                .incarnation = {(uint64_t)1 << 32, 1},
                                .base_others = UINT32_MAX, // never stale
                                .tokens = 1,
                                .steps = 1,
                                .manifest = p->manifest.hash};
    lh_job_id(info->peer.domain, info->peer.run, p->head.job);
    if (p->head.shard >= p->manifest.shards) must(lh_fail(LH_ERR_INVALID, "no such shard"));
    make_payload(p);
}

int main(int argc, char **argv)
{
    struct pusher p = {0};
    struct lh_transport *t;
    struct lh_certs_info info;
    char word[8];
    if (argc != 8) {
        fputs("usage: bench_pusher CA CERT KEY JOB_KEYS MANIFEST SHARD ADDRESS\n", stderr);
        return 2;
    }
    prepare(&p, argv, &info);
    const struct lh_grpc_conf conf = {.env = p.env,
                                      .ca = argv[1],
                                      .cert = argv[2],
                                      .key = argv[3],
                                      .domain = info.peer.domain,
                                      .run = info.peer.run};
    must(lh_transport_grpc_create(&conf, &t));
    must(t->ops->dial(t, argv[7], LH_S, &p.link));
    greet(&p);
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
    lh_transport_grpc_destroy(t);
    lh_env_real_destroy(p.env);
    lh_blob_release(p.frame);
    lh_buf_free(&p.plain);
    lh_keyring_destroy(p.keys);
    lh_manifest_free(&p.manifest);
    return 0;
}
