// A worker that sends what no worker should: greets a server and pushes one made-up frame.
// e2e_push CA CERT KEY JOB_KEYS MANIFEST SHARD ADDRESS KIND
//
//   good         a small update
//   altered      a byte of the sealed payload is another one
//   altered-head a byte of the header is another one, the announced digest fits it
//   truncated    the last 40 bytes are missing, and so the message says
//   short        the stream ends inside the frame
//   index        sealed well; the last index of the first chunk lies outside of it
//   nan          sealed well; the first value is no number
//
// Prints `admitted` or `refused CODE: TEXT`; where the push is not decided, the error goes to
// stderr and its exit code is ours. Every step of this worker is the one after its last decided.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/certs.h"
#include "common/check.h"
#include "common/exit.h"
#include "common/node.h"
#include "common/head.h"
#include "common/rpc.h"
#include "common/transport_grpc.h"
#include "kernels/codec.h"
#include "longhaul/v1/shard.pb-c.h"

struct rogue {
    struct lh_env *env;
    struct lh_link *link;
    struct lh_keyring *keys;
    struct lh_manifest manifest;
    const struct lh_shard_layout *layout;
    struct lh_frame head;
    struct lh_blob *frame;
    const char *kind;
    uint64_t process;
    struct lh_call *call;
    bool decided;
    lh_err err;
};

static bool is(const struct rogue *r, const char *kind)
{
    return strcmp(r->kind, kind) == 0;
}

static void end(struct rogue *r, lh_err err, const char *text)
{
    if (err && !r->decided) fprintf(stderr, "%s: %s\n", lh_err_name(err), text);
    if (!r->decided) r->err = err;
    lh_env_real_stop(r->env);
}

// ---------------------------------------------------------------- the frame

// Values that rise along the shard, so that a chunk's last ones are carried: all gaps but the first
// are 0, and one that is not leads out of the chunk.
static lh_err encode(struct rogue *r, struct lh_buf *plain)
{
    const struct lk_codec codec = {LK_INDEX_RICE, LK_VALUE_FP32, 0.1f};
    struct lk_payload_info info;
    float *e = malloc(r->layout->values * sizeof *e);
    if (!e) return LH_ERR_NO_MEMORY;
    for (uint64_t i = 0; i < r->layout->values; i++) e[i] = 1e-7f * (float)(i + 1);
    lh_err err = lk_encode(&codec, r->layout, 1, NULL, e, plain, &info);
    free(e);
    r->head.index_code = codec.index;
    r->head.value_code = codec.value;
    r->head.density = codec.density;
    r->head.values = info.values;
    return err;
}

// kernels/docs/0001-payload.md: 24 bytes of header, 2 for each group of 16 chunks; then chunk 0: k
// fields of b bits (b stands in byte 3), k values of 4 bytes.
static void spoil(const struct rogue *r, uint8_t *plain)
{
    const struct lh_extent *first = &r->layout->extent[0];
    size_t len = first->len < LH_CHUNK ? first->len : LH_CHUNK;
    size_t k = (size_t)lrint(0.1 * (double)len), b = plain[3];
    size_t fields = 24 + 2 * ((r->layout->chunks + 15) / 16), values = fields + (k * b + 7) / 8;
    for (size_t bit = (k - 1) * b; is(r, "index") && bit < k * b; bit++)
        plain[fields + bit / 8] |= (uint8_t)(1 << bit % 8);
    if (is(r, "nan")) memset(plain + values, 0x7f, 4), plain[values + 2] = 0xc0;
}

static lh_err seal(struct rogue *r, struct lh_span plain)
{
    struct lh_frame *f = &r->head;
    const struct lh_seal_context context = {f->worker, f->incarnation.number, f->incarnation.random,
                                            f->shard, LH_SEAL_FRAME};
    struct lh_buf head = lh_buf(LH_FRAME_HEADER);
    f->plain_bytes = (uint32_t)plain.len;
    lh_random(r->env, f->nonce, LH_NONCE);
    lh_frame_write_head(f, &head);
    lh_err err = lh_buf_err(&head);
    r->frame = err ? NULL : lh_blob_new(lh_frame_bytes(f));
    if (!err && !r->frame) err = LH_ERR_NO_MEMORY;
    if (!err) {
        memcpy(r->frame->data, head.data, head.len);
        err = lh_seal(r->keys, LH_CIPHER_XCHACHA20, f->key_id, &context, lh_buf_span(&head),
                      f->nonce, plain, r->frame->data + head.len);
    }
    lh_buf_free(&head);
    return err;
}

static lh_err make_frame(struct rogue *r, uint64_t step)
{
    struct lh_buf plain = lh_buf(LH_FRAME_BYTES_MAX);
    r->head.step = step;
    lh_err err = encode(r, &plain);
    if (!err) spoil(r, plain.data);
    if (!err) err = seal(r, lh_buf_span(&plain));
    lh_buf_free(&plain);
    if (err) return err;
    if (is(r, "altered")) r->frame->data[LH_FRAME_HEADER + 5] ^= 1;
    if (is(r, "altered-head")) r->frame->data[96] ^= 1; // tokens
    if (is(r, "truncated")) r->frame->len -= 40;
    return LH_OK;
}

// ---------------------------------------------------------------- the push

static void on_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct rogue *r = self;
    ProtobufCMessage *base;
    lh_err err = lh_rpc_parse(msg, &longhaul__v1__push_reply__descriptor, &base);
    if (err) {
        end(r, err, lh_err_text(err));
        return;
    }
    const Longhaul__V1__PushReply *m = (const Longhaul__V1__PushReply *)base;
    if (m->admitted)
        puts("admitted");
    else
        printf("refused %s: %s\n", lh_err_name((lh_err)m->reason), lh_err_text((lh_err)m->reason));
    r->decided = true;
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
    (void)self;
    lh_call_finish(call, LH_OK, NULL);
}

static void on_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    (void)call;
    struct rogue *r = self;
    end(r, status, text);
}

static const struct lh_call_ops push_ops = {on_message, on_half_close, on_sent, on_close};

static lh_err push(struct rogue *r)
{
    struct lh_digest digest = lh_frame_digest(lh_blob_span(r->frame), &r->head);
    Longhaul__V1__PushHead head = LONGHAUL__V1__PUSH_HEAD__INIT;
    head.shard = r->head.shard;
    head.worker = r->head.worker;
    head.process = r->process;
    head.frame_bytes = r->frame->len;
    head.digest = (ProtobufCBinaryData){LH_DIGEST, digest.b};
    LH_TRY(lh_call_open(r->link, LH_RPC_PUSH, 20 * LH_SECOND, &push_ops, r, &r->call));
    lh_call_read(r->call);
    size_t n = is(r, "short") ? r->frame->len / 2 : r->frame->len;
    return lh_rpc_send_bulk(r->call, &head.base, r->frame, 0, n);
}

static void on_hello(void *self, lh_err err, const ProtobufCMessage *answer)
{
    struct rogue *r = self;
    const Longhaul__V1__HelloReply *m = (const Longhaul__V1__HelloReply *)answer;
    if (!err && !m->session) err = lh_fail(LH_ERR_CONFLICT, "no session: who else is this worker?");
    if (!err) {
        r->process = m->process;
        err = make_frame(r, m->last_step + 1);
    }
    if (!err) err = push(r);
    if (err) end(r, err, lh_err_text(err));
}

static lh_err hello(struct rogue *r)
{
    struct lh_unary *call;
    Longhaul__V1__HelloRequest m = LONGHAUL__V1__HELLO_REQUEST__INIT;
    Longhaul__V1__Wire wire = lh_head_wire();
    m.wire = &wire;
    lh_head_run(r->head.job, &r->manifest.hash, &m.job, &m.manifest);
    m.shard = r->head.shard;
    m.worker = r->head.worker;
    m.incarnation = r->head.incarnation.number;
    m.incarnation_random = r->head.incarnation.random;
    m.next = UINT32_MAX; // whatever was decided in an earlier life of this program is ours
    return lh_unary_start(r->link, LH_RPC_HELLO, 20 * LH_SECOND, &m.base,
                          &longhaul__v1__hello_reply__descriptor, on_hello, r, &call);
}

// ---------------------------------------------------------------- start

static lh_err prepare(struct rogue *r, char **argv, struct lh_certs_info *info)
{
    struct lh_buf json = lh_buf(1 << 20);
    LH_TRY(lh_certs_inspect(argv[2], info));
    LH_TRY(lh_keyring_create(&r->keys));
    LH_TRY(lh_keyring_load(r->keys, argv[4]));
    lh_err err = lh_file_load(r->env, argv[5], &json);
    if (!err) err = lh_manifest_parse(&r->manifest, lh_buf_span(&json));
    lh_buf_free(&json);
    if (err) return err;
    r->head = (struct lh_frame){.cipher = LH_CIPHER_XCHACHA20,
                                .key_id = 1,
                                .shard = (uint32_t)strtoul(argv[6], NULL, 10),
                                .worker = lh_worker_id(&info->peer),
                                .incarnation = {(uint64_t)1 << 32, 1},
                                .base_others = UINT32_MAX, // never stale
                                .tokens = 1,
                                .steps = 1,
                                .manifest = r->manifest.hash};
    lh_job_id(info->peer.domain, info->peer.run, r->head.job);
    if (r->head.shard >= r->manifest.shards) return lh_fail(LH_ERR_INVALID, "no such shard");
    r->layout = &r->manifest.shard[r->head.shard];
    return LH_OK;
}

int main(int argc, char **argv)
{
    if (argc != 9) return LH_EXIT_USAGE;
    struct rogue r = {.kind = argv[8]};
    struct lh_transport *t = NULL;
    struct lh_certs_info info;
    lh_err err = lh_env_real_create(&r.env);
    if (err) return LH_EXIT_FAILED;
    err = prepare(&r, argv, &info);
    const struct lh_grpc_conf conf = {.env = r.env,
                                      .ca = argv[1],
                                      .cert = argv[2],
                                      .key = argv[3],
                                      .domain = info.peer.domain,
                                      .run = info.peer.run};
    if (!err) err = lh_transport_grpc_create(&conf, &t);
    if (!err) err = t->ops->dial(t, argv[7], LH_S, &r.link);
    if (!err) err = hello(&r);
    if (err)
        fprintf(stderr, "%s: %s\n", lh_err_name(err), lh_err_text(err));
    else
        lh_env_real_run(r.env);
    lh_transport_grpc_destroy(t);
    lh_env_real_destroy(r.env);
    lh_blob_release(r.frame);
    lh_keyring_destroy(r.keys);
    lh_manifest_free(&r.manifest);
    return (int)lh_exit_of(err ? err : r.err);
}
