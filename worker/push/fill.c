// Fill: once a session, bytes that mean nothing, so that TCP learns the path's rate.
//
// BBR sends at 2.9 times the best rate that it has seen. A push is small and has a pause before and
// behind it, so the best rate seen is its bytes over a round trip and the time that they took: each
// push takes 0.53 round trips longer than the path, whatever its size and the path's rate. A longer
// transfer once shows BBR more, and it forgets no rate because of pauses. To workers a server sends
// a snapshot at the start; to a server nothing is as long.
//
// 1. The bytes go behind the session's first decided push, in the pause until the next one.
// 2. They are FILL times the push, at most one message: a health check, which every server answers
//    and in which it skips a field that it does not know.
// 3. A near server gets none. A failure does not matter: the next push is slower.
#include "worker/push/fill.h"

#include <string.h>

#include "common/net/rpc.h"
#include "common/net/wire_admin.h"

enum { FILL = 16, BYTES_MAX = LH_SMALL_BYTES - 1024 };
static const int64_t PATIENCE_NS = 30 * LH_SECOND;

static void on_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    (void)self;
    (void)msg;
    lh_call_read(call);
}

static void nothing(void *self, struct lh_call *call)
{
    (void)self;
    (void)call;
}

static void on_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    (void)self;
    (void)call;
    (void)status;
    (void)text;
}

static const struct lh_call_ops fill_ops = {on_message, nothing, nothing, on_close};

static LH_MUST lh_err send(struct lh_link *link, struct lh_blob *zeros)
{
    const struct lh_health_check_request m = {.service = ""};
    struct lh_call *call;
    LH_TRY(lh_call_open(link, LH_RPC_HEALTH_CHECK, PATIENCE_NS, &fill_ops, NULL, &call));
    lh_err err = lh_send_bulk(call, LH_MESSAGE(health_check_request, &m), zeros, 0, zeros->len);
    lh_call_finish(call, LH_OK, NULL);
    lh_call_read(call);
    if (err) lh_call_cancel(call);
    return err;
}

void wk_fill(struct wk_shard *s, uint64_t push_bytes)
{
    struct lh_link *link = s->session.link;
    int64_t far_ns = s->worker->conf.fill_trip_ns;
    if (s->session.filled || !far_ns || !link || lh_link_trip(link).mean_ns < far_ns) return;
    s->session.filled = true;
    uint64_t n = push_bytes < BYTES_MAX / FILL ? FILL * push_bytes : BYTES_MAX;
    struct lh_blob *zeros = lh_blob_new((size_t)n);
    if (!zeros) return;
    memset(zeros->data, 0, zeros->len);
    lh_err err = send(link, zeros);
    lh_blob_release(zeros);
    lh_logf(s->worker->conf.log, LH_DEBUG, "path.filled", "shard %u: %llu bytes%s%s", s->id,
            (unsigned long long)n, err ? ": " : "", err ? lh_err_text(err) : "");
}
