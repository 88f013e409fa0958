// Blocking calls to an engine. See engine.h.
//
// Each engine has a completion queue of its own, from which only the calling thread takes. A call
// ends by its deadline at the latest, so that no wait here is without a bound.
#include "common/net/grpc/engine.h"

#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"

enum {
    ANSWER_BYTES_MAX = 64 << 20, // an answer of many values
    BACKOFF_MS = 100,
    BACKOFF_MS_MAX = 1000,
    CONNECT_MS = 2000,
    KEEPALIVE_MS = 10000, // a silent connection is probed while a call waits on it
    KEEPALIVE_WAIT_MS = 3000,
    TEXT_BYTES = 300,
};

struct lh_engine {
    char address[LH_ADDRESS_BYTES];
    grpc_completion_queue *queue;
    grpc_channel *channel;
};

static grpc_arg integer(const char *key, int value)
{
    return (grpc_arg){
        .type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)key, .value.integer = value};
}

static grpc_channel_credentials *credentials_of(const struct lh_engine_conf *conf)
{
    if (!conf->ca) return grpc_insecure_credentials_create();
    grpc_ssl_pem_key_cert_pair pair = {conf->key, conf->cert};
    return grpc_ssl_credentials_create(conf->ca, conf->cert ? &pair : NULL, NULL, NULL);
}

lh_err lh_engine_dial(const struct lh_engine_conf *conf, struct lh_engine **out)
{
    struct lh_engine *e = calloc(1, sizeof *e);
    if (!e) return LH_ERR_NO_MEMORY;
    snprintf(e->address, sizeof e->address, "%s", conf->address);
    grpc_arg args[] = {
        integer(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, ANSWER_BYTES_MAX),
        integer(GRPC_ARG_ENABLE_RETRIES, 0),
        integer(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1),
        integer(GRPC_ARG_ENABLE_HTTP_PROXY, 0), // ignore http_proxy
        integer(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1),
        integer(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, BACKOFF_MS_MAX),
        integer(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, CONNECT_MS),
        integer(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, BACKOFF_MS),
        integer(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, BACKOFF_MS_MAX),
        integer(GRPC_ARG_KEEPALIVE_TIME_MS, KEEPALIVE_MS),
        integer(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, KEEPALIVE_WAIT_MS),
    };
    const grpc_channel_args all = {.num_args = LH_COUNT(args), .args = args};
    grpc_init();
    grpc_channel_credentials *credentials = credentials_of(conf);
    if (credentials) e->channel = grpc_channel_create(e->address, credentials, &all);
    if (credentials) grpc_channel_credentials_release(credentials);
    e->queue = grpc_completion_queue_create_for_pluck(NULL);
    *out = e;
    if (e->channel) return LH_OK;
    lh_engine_close(e);
    return lh_fail(LH_ERR_CONFIG, "%s: its certificates can't be used", conf->address);
}

void lh_engine_close(struct lh_engine *e)
{
    if (!e) return;
    if (e->channel) grpc_channel_destroy(e->channel);
    grpc_completion_queue_shutdown(e->queue);
    while (grpc_completion_queue_pluck(e->queue, NULL, gpr_inf_future(GPR_CLOCK_REALTIME), NULL)
               .type != GRPC_QUEUE_SHUTDOWN) {
    }
    grpc_completion_queue_destroy(e->queue);
    grpc_shutdown();
    free(e);
}

static gpr_timespec after(int64_t ns)
{
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(ns, GPR_TIMESPAN));
}

void lh_engine_wait(struct lh_engine *e, int64_t ns)
{
    (void)grpc_completion_queue_pluck(e->queue, e, after(ns), NULL); // nothing has this tag
}

// ---------------------------------------------------------------- a call

// gRPC fills this in while a call is under way.
struct told {
    grpc_metadata_array first, last;
    grpc_byte_buffer *answer;
    grpc_status_code status;
    grpc_slice text;
};

static LH_MUST lh_err result_of(const struct lh_engine *e, const char *path, const struct told *t)
{
    char text[TEXT_BYTES];
    size_t n = GRPC_SLICE_LENGTH(t->text);
    if (n >= sizeof text) n = sizeof text - 1;
    memcpy(text, GRPC_SLICE_START_PTR(t->text), n);
    text[n] = 0;
    lh_err err = LH_ERR_UNAVAILABLE;
    switch (t->status) {
    case GRPC_STATUS_OK: return LH_OK;
    case GRPC_STATUS_DEADLINE_EXCEEDED: err = LH_ERR_DEADLINE; break;
    case GRPC_STATUS_UNAUTHENTICATED: err = LH_ERR_UNAUTHENTICATED; break;
    case GRPC_STATUS_PERMISSION_DENIED: err = LH_ERR_DENIED; break;
    case GRPC_STATUS_INVALID_ARGUMENT:
    case GRPC_STATUS_OUT_OF_RANGE: err = LH_ERR_INVALID; break;
    case GRPC_STATUS_NOT_FOUND: err = LH_ERR_NOT_FOUND; break;
    case GRPC_STATUS_FAILED_PRECONDITION:
    case GRPC_STATUS_UNIMPLEMENTED: err = LH_ERR_CONFIG; break;
    case GRPC_STATUS_RESOURCE_EXHAUSTED:
        err = strstr(text, "space exceeded") ? LH_ERR_DISK_FULL : LH_ERR_BUSY;
        break;
    default: break; // a broken connection, or a member that can't serve now
    }
    return lh_fail(err, "%s%s: %s", e->address, path, text[0] ? text : "no reason was given");
}

static LH_MUST lh_err read_answer(grpc_byte_buffer *bytes, struct lh_buf *out)
{
    grpc_byte_buffer_reader reader;
    grpc_slice slice;
    if (!bytes || !grpc_byte_buffer_reader_init(&reader, bytes))
        return lh_fail(LH_ERR_UNAVAILABLE, "an answer without a message");
    while (grpc_byte_buffer_reader_next(&reader, &slice)) {
        lh_put(out, GRPC_SLICE_START_PTR(slice), GRPC_SLICE_LENGTH(slice));
        grpc_slice_unref(slice);
    }
    grpc_byte_buffer_reader_destroy(&reader);
    return lh_buf_err(out);
}

static void run(struct lh_engine *e, grpc_call *call, const char *token, struct lh_span request,
                struct told *t)
{
    grpc_metadata sent[] = {
        {.key = grpc_slice_from_static_string("hasleader"), // a member without a leader refuses
         .value = grpc_slice_from_static_string("true")},
        {.key = grpc_slice_from_static_string("token"),
         .value = grpc_slice_from_copied_string(token)},
    };
    grpc_slice slice = grpc_slice_from_copied_buffer((const char *)request.data, request.len);
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(&slice, 1);
    const grpc_op ops[] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA,
         .data.send_initial_metadata = {.count = token[0] ? 2 : 1, .metadata = sent}},
        {.op = GRPC_OP_SEND_MESSAGE, .data.send_message = {message}},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
        {.op = GRPC_OP_RECV_INITIAL_METADATA, .data.recv_initial_metadata = {&t->first}},
        {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message = {&t->answer}},
        {.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
         .data.recv_status_on_client = {.trailing_metadata = &t->last,
                                        .status = &t->status,
                                        .status_details = &t->text}},
    };
    grpc_call_error refused = grpc_call_start_batch(call, ops, LH_COUNT(ops), t, NULL);
    LH_ASSERT(refused == GRPC_CALL_OK);
    (void)grpc_completion_queue_pluck(e->queue, t, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    grpc_byte_buffer_destroy(message);
    grpc_slice_unref(slice);
    grpc_slice_unref(sent[1].value);
}

lh_err lh_engine_call(struct lh_engine *e, const char *path, const char *token,
                      struct lh_span request, int64_t timeout_ns, struct lh_buf *answer)
{
    struct told t = {.status = GRPC_STATUS_UNKNOWN, .text = grpc_empty_slice()};
    grpc_metadata_array_init(&t.first);
    grpc_metadata_array_init(&t.last);
    grpc_slice method = grpc_slice_from_copied_string(path);
    grpc_call *call = grpc_channel_create_call(e->channel, NULL, GRPC_PROPAGATE_DEFAULTS, e->queue,
                                               method, NULL, after(timeout_ns), NULL);
    run(e, call, token, request, &t);
    grpc_call_unref(call);
    lh_err err = result_of(e, path, &t);
    if (!err) err = read_answer(t.answer, answer);
    if (t.answer) grpc_byte_buffer_destroy(t.answer);
    grpc_metadata_array_destroy(&t.first);
    grpc_metadata_array_destroy(&t.last);
    grpc_slice_unref(t.text);
    grpc_slice_unref(method);
    return err;
}
