// A worker that trains nothing. See client.h.
#include "tests/e2e/client.h"

#include <stdlib.h>
#include <string.h>

#include "common/app/node.h"
#include "common/base/limits.h"
#include "common/net/grpc/transport_grpc.h"
#include "common/net/rpc.h"
#include "common/security/certs.h"

// ---------------------------------------------------------------- open, close

static LH_MUST lh_err load_manifest(struct client *c, const char *path)
{
    struct lh_buf json = lh_buf(LH_SMALL_BYTES);
    lh_err err = lh_file_load(c->env, path, &json);
    if (!err) err = lh_manifest_parse(&c->manifest, lh_buf_span(&json));
    lh_buf_free(&json);
    return err;
}

lh_err client_open(struct client *c, char **argv)
{
    struct lh_certs_info info;
    *c = (struct client){0};
    LH_TRY(lh_env_real_create(&c->env));
    LH_TRY(lh_certs_inspect(argv[2], &info));
    LH_TRY(lh_keyring_create(&c->keys));
    LH_TRY(lh_keyring_load(c->keys, argv[4]));
    LH_TRY(load_manifest(c, argv[5]));
    c->head = (struct lh_frame){.cipher = LH_CIPHER_XCHACHA20,
                                .key_id = 1,
                                .shard = (uint32_t)strtoul(argv[6], NULL, 10),
                                .worker = lh_worker_id(&info.peer),
                                .incarnation = {(uint64_t)1 << 32, 1},
                                .base_others = UINT32_MAX, // never stale
                                .tokens = 1,
                                .steps = 1,
                                .manifest = c->manifest.hash};
    lh_job_id(info.peer.domain, info.peer.run, c->head.job);
    if (c->head.shard >= c->manifest.shards) return lh_fail(LH_ERR_INVALID, "no such shard");
    c->layout = &c->manifest.shard[c->head.shard];
    const struct lh_grpc_conf conf = {.env = c->env,
                                      .ca = argv[1],
                                      .cert = argv[2],
                                      .key = argv[3],
                                      .domain = info.peer.domain,
                                      .run = info.peer.run};
    LH_TRY(lh_transport_grpc_create(&conf, &c->transport));
    return c->transport->ops->dial(c->transport, argv[7], LH_S, LH_LINE_FIRST, &c->link);
}

void client_close(struct client *c)
{
    if (c->transport) lh_transport_grpc_destroy(c->transport);
    if (c->env) lh_env_real_destroy(c->env);
    lh_keyring_destroy(c->keys);
    lh_manifest_free(&c->manifest);
}

// ---------------------------------------------------------------- the session

static void on_hello(void *self, lh_err err, const void *answer)
{
    struct client *c = self;
    const struct lh_hello_reply *m = answer;
    if (!err && !m->session) err = lh_fail(LH_ERR_CONFLICT, "no session: who else is this worker?");
    if (!err) {
        c->process = m->process;
        c->head.step = m->last_step;
    }
    c->err = err;
    c->greeted = true;
    lh_env_real_stop(c->env);
}

lh_err client_greet(struct client *c)
{
    struct lh_unary *call;
    struct lh_hello_request m = {
        .wire = lh_versions_ours(),
        .run = lh_run_of(c->head.job, &c->manifest.hash),
        .shard = c->head.shard,
        .worker = c->head.worker,
        .incarnation = c->head.incarnation,
        .next = UINT32_MAX, // all steps decided in an earlier process of this program count as ours
    };
    LH_TRY(lh_ask(c->link, LH_RPC_HELLO, 20 * LH_SECOND, LH_MESSAGE(hello_request, &m), on_hello, c,
                  &call));
    while (!c->greeted) lh_env_real_run(c->env);
    return c->err;
}

// ---------------------------------------------------------------- frames

lh_err client_encode(struct client *c, const struct lk_codec *codec, float step, uint64_t period,
                     struct lh_buf *plain)
{
    struct lk_payload_info info;
    float *e = malloc(c->layout->values * sizeof *e);
    if (!e) return LH_ERR_NO_MEMORY;
    for (uint64_t i = 0; i < c->layout->values; i++) e[i] = step * (float)(i % period + 1);
    lh_err err = lk_encode(codec, c->layout, e, plain, &info);
    free(e);
    c->head.index_code = codec->index;
    c->head.value_code = codec->value;
    c->head.density = codec->density;
    c->head.values = info.values;
    c->head.plain_bytes = (uint32_t)plain->len;
    return err;
}

lh_err client_seal(struct client *c, struct lh_span plain, struct lh_blob **frame)
{
    struct lh_frame *f = &c->head;
    const struct lh_seal_context context = {f->worker, f->incarnation.number, f->incarnation.random,
                                            f->shard, LH_SEAL_FRAME};
    uint8_t bytes[LH_FRAME_HEADER_BYTES];
    struct lh_buf head = lh_buf_over(bytes, sizeof bytes);
    lh_random(c->env, f->nonce, LH_SEAL_NONCE_BYTES);
    lh_frame_write_head(f, &head);
    if (!*frame) *frame = lh_blob_new(lh_frame_bytes(f));
    if (!*frame) return LH_ERR_NO_MEMORY;
    memcpy((*frame)->data, head.data, head.len);
    return lh_seal(c->keys, f->cipher, f->key_id, &context, lh_buf_span(&head), f->nonce, plain,
                   (*frame)->data + head.len);
}

struct lh_push_head client_push_head(const struct client *c, const struct lh_blob *frame,
                                     const struct lh_digest *digest)
{
    return (struct lh_push_head){.shard = c->head.shard,
                                 .worker = c->head.worker,
                                 .process = c->process,
                                 .frame_bytes = frame->len,
                                 .digest = *digest};
}

void client_half_closed(void *self, struct lh_call *call)
{
    (void)self;
    (void)call;
}
