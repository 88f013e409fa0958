// A faulty worker: greets a server and pushes one frame that it should not send.
// e2e_push CA CERT KEY JOB_KEYS MANIFEST SHARD ADDRESS KIND
//
//   good         a small update
//   altered      a byte of the sealed payload is changed
//   altered-head a byte of the header is changed, the announced digest fits it
//   truncated    the last 40 bytes are missing, and the announced length agrees
//   short        the stream ends inside the frame
//   index        sealed well; the last index of the first chunk lies outside of it
//   nan          sealed well; the first value is no number
//
// Prints `admitted` or `refused CODE: TEXT`. If the push is not decided, prints the error to stderr
// and exits with its code. Every frame's step is the one after the last decided step.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/exit.h"
#include "common/net/rpc.h"
#include "tests/e2e/client.h"

struct rogue {
    struct client client;
    struct lh_blob *frame;
    const char *kind;
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
    if (!r->decided) r->err = err ? lh_fail(err, "%s", text) : LH_OK;
    lh_env_real_stop(r->client.env);
}

// ---------------------------------------------------------------- the frame

// kernels/docs/0001-payload.md: 24 bytes of header, 2 for each group of 16 chunks; then chunk 0: k
// fields of b bits (byte 3 is b), k values of 4 bytes.
static void spoil(const struct rogue *r, uint8_t *plain)
{
    const struct lh_extent *first = &r->client.layout->extent[0];
    size_t len = first->len < LH_CHUNK ? first->len : LH_CHUNK;
    size_t k = (size_t)lrint(0.1 * (double)len), b = plain[3];
    size_t fields = 24 + 2 * ((r->client.layout->chunks + 15) / 16),
           values = fields + (k * b + 7) / 8;
    for (size_t bit = (k - 1) * b; is(r, "index") && bit < k * b; bit++)
        plain[fields + bit / 8] |= (uint8_t)(1 << bit % 8);
    if (is(r, "nan")) memset(plain + values, 0x7f, 4), plain[values + 2] = 0xc0;
}

// Values rise along the shard, so that the last ones of a chunk are selected: all gaps but the
// first are 0, and a larger gap leads out of the chunk.
static LH_MUST lh_err make_frame(struct rogue *r)
{
    const struct lk_codec codec = {LK_INDEX_RICE, LK_VALUE_FP32, 0.1f};
    struct lh_buf plain = lh_buf(LH_FRAME_BYTES_MAX);
    r->client.head.step++;
    lh_err err = client_encode(&r->client, &codec, 1e-7f, UINT64_MAX, &plain);
    if (!err) spoil(r, plain.data);
    if (!err) err = client_seal(&r->client, lh_buf_span(&plain), &r->frame);
    lh_buf_free(&plain);
    if (err) return err;
    if (is(r, "altered")) r->frame->data[LH_FRAME_HEADER_BYTES + 5] ^= 1;
    if (is(r, "altered-head")) r->frame->data[96] ^= 1; // tokens
    if (is(r, "truncated")) r->frame->len -= 40;
    return LH_OK;
}

// ---------------------------------------------------------------- the push

static void on_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct rogue *r = self;
    struct lh_got reply;
    lh_err err = lh_take(msg, &lh_wire_push_reply, &reply);
    if (err) {
        end(r, err, lh_err_text(err));
        return;
    }
    const struct lh_push_reply *m = reply.message;
    if (m->admitted)
        puts("admitted");
    else
        printf("refused %s: %s\n", lh_err_name((lh_err)m->reason), lh_err_text((lh_err)m->reason));
    r->decided = true;
    lh_got_free(&reply);
    lh_call_read(call);
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

static const struct lh_call_ops push_ops = {on_message, client_half_closed, on_sent, on_close};

static LH_MUST lh_err push(struct rogue *r)
{
    struct lh_digest digest = lh_frame_digest(lh_blob_span(r->frame), &r->client.head);
    struct lh_push_head head = client_push_head(&r->client, r->frame, &digest);
    LH_TRY(lh_call_open(r->client.link, LH_RPC_PUSH, 20 * LH_SECOND, &push_ops, r, &r->call));
    lh_call_read(r->call);
    size_t n = is(r, "short") ? r->frame->len / 2 : r->frame->len;
    LH_TRY(lh_send_bulk(r->call, LH_MESSAGE(push_head, &head), r->frame, 0, n));
    lh_env_real_run(r->client.env);
    return r->err;
}

int main(int argc, char **argv)
{
    if (argc != CLIENT_ARGS + 1) return LH_EXIT_USAGE;
    struct rogue r = {.kind = argv[CLIENT_ARGS]};
    lh_err err = client_open(&r.client, argv);
    if (!err) err = client_greet(&r.client);
    if (!err) err = make_frame(&r);
    if (!err) err = push(&r);
    if (err) fprintf(stderr, "%s: %s\n", lh_err_name(err), lh_err_text(err));
    client_close(&r.client);
    lh_blob_release(r.frame);
    return (int)lh_exit_of(err);
}
