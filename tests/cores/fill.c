// Fill: once a session, after its first push, a worker sends a far server bytes without meaning
// (worker/push/fill.c).
#include <string.h>

#include "tests/cores/life.h"
#include "tests/world/transport_mem_core.h"
#include "worker/push/fill.h"
#include "worker/push/session.h"

enum { TIMES = 16 }; // bytes of a fill for each byte of the session's first push

static struct {
    unsigned fills, pushes;
    size_t bytes; // bytes of the last fill
    size_t push;  // bytes of the session's first push
} seen;

static void fill_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    (void)self;
    seen.bytes += msg->len;
    lh_call_finish(call, LH_OK, NULL);
}

static void nothing(void *self, struct lh_call *call)
{
    (void)self;
    (void)call;
}

static void closed(void *self, struct lh_call *call, lh_err status, const char *text)
{
    (void)self;
    (void)call;
    (void)status;
    (void)text;
}

static const struct lh_call_ops fill_ops = {fill_message, nothing, nothing, closed};

static bool hears(struct life *l, enum lh_rpc rpc, struct lh_call *call,
                  const struct lh_call_ops **ops, void **self)
{
    if (rpc == LH_RPC_PUSH && !seen.pushes++) {
        const struct wk_entry *e = wk_outbox_undecided(&l->worker->shard[0].outbox);
        seen.push = e->bytes;
    }
    if (rpc != LH_RPC_HEALTH_CHECK) return false;
    assert_int_not_equal(seen.pushes, 0); // not before the first push
    seen.fills++;
    seen.bytes = 0;
    *ops = &fill_ops;
    *self = l;
    lh_call_read(call);
    return true;
}

// Makes so many cuts, with this round trip to the server.
static void cut(struct life *l, unsigned cuts, int64_t trip_ns)
{
    struct wk_shard *s = &l->worker->shard[0];
    l->worker->conf.fill_trip_ns = WK_FILL_TRIP_NS;
    for (uint64_t until = s->progress.cut_count + cuts; s->progress.cut_count < until;) {
        if (s->session.link)
            ((struct mem_link *)s->session.link)->trip = (struct lh_trip){.mean_ns = trip_ns};
        life_run(l, LH_MS);
    }
}

static struct life *begin(void)
{
    struct life *l = life_open(5, 1);
    memset(&seen, 0, sizeof seen);
    l->on_call = hears;
    rig_run(l->rig, LH_SECOND);
    life_start(l);
    return l;
}

// Makes four cuts in one session: only the first push is followed by a fill.
static void check_session(struct life *l, unsigned fills)
{
    seen.pushes = 0;
    cut(l, 4, 90 * LH_MS);
    assert_int_equal(seen.fills, fills);
    assert_true(seen.bytes >= TIMES * seen.push && seen.bytes < TIMES * seen.push + 64);
}

TEST(a_far_path_is_filled_once_a_session)
{
    struct life *l = begin();
    check_session(l, 1);
    life_rest(l);
    wk_session_lost(&l->worker->shard[0]);
    check_session(l, 2);
    life_kill(l);
    life_start(l);
    check_session(l, 3);
    life_rest(l);
    life_mass(l);
    life_end(l);
}

TEST(a_near_path_is_not)
{
    struct life *l = begin();
    cut(l, 4, WK_FILL_TRIP_NS - 1);
    assert_int_equal(seen.fills, 0);
    assert_int_not_equal(seen.pushes, 0);
    life_end(l);
}
