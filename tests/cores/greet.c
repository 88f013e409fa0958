// A server that was killed is found again at once: it listens before it reads its log, and a
// greeting whose answer arrives during a cut is repeated when the cut is over, not at a random
// time.
#include "tests/cores/rig.h"
#include "worker/push/session.h"

enum { TRIES = 20, RECORDS = 3 }; // tries after which a worker waits half a minute

struct late { // tries the server's port, as another process, while the log is replayed
    struct rig *rig;
    int looked, taken;
};

static struct late late;

static void look(void *arg, uint32_t shard, const struct lh_record *record)
{
    const struct rig *r = arg;
    struct lh_transport *other = r->w[0].transport;
    struct lh_service nobody = {0};
    char bound[32];
    (void)shard;
    (void)record;
    late.looked++;
    late.taken += other->ops->listen(other, r->s.address, &nobody, bound, sizeof bound) != LH_OK;
}

RIG_TEST(the_door_is_open_while_the_log_is_read, struct rig *r)
{
    assert_int_equal(rig_start_server(r, true), LH_OK);
    for (uint64_t v = 1; v <= RECORDS; v++) rig_hello(r, 0, v << 32, 0, 1);
    rig_kill_server(r, false);
    late = (struct late){.rig = r};
    r->folded = look;
    assert_int_equal(rig_start_server(r, true), LH_OK);
    assert_int_equal(late.looked, RECORDS);
    assert_int_equal(late.taken, RECORDS);
}

RIG_TEST(a_greeting_that_met_a_cut_is_said_again_after_it, struct rig *r)
{
    struct rig_life l;
    rig_serve(r, LH_SECOND);
    struct wk_conf conf = rig_life_conf(r, &l, 500);
    conf.retry_max_ns = 30 * LH_SECOND;
    rig_life_start(&l, &conf);
    struct wk_worker *w = l.worker;
    struct wk_shard *s = &w->shard[0];
    for (int i = 0; i < 1000 && !s->session.process; i++) rig_run(r, 10 * LH_MS);
    assert_true(s->session.process);
    uint64_t before = s->progress.cut_count;
    wk_session_lost(s);
    lh_cancel(w->conf.env, &s->session.timer);
    s->session.after_cut = true;
    for (int i = 0; i < 1000 && s->progress.cut_count == before; i++) rig_run(r, 10 * LH_MS);
    rig_run(r, 100 * LH_MS);
    assert_true(s->progress.cut_count > before && s->session.process); // repeated at the cut's end

    rig_kill_server(r, false);
    for (int i = 0; i < 1000 && (s->session.process || s->cut); i++) rig_run(r, 10 * LH_MS);
    assert_true(!s->session.process && !s->cut);
    s->cut = (struct wk_cut *)s; // a cut that takes long; nobody reads it
    s->session.tries = TRIES;
    assert_int_equal(rig_start_server(r, false), LH_OK);
    for (int i = 0; i < 1000 && !s->session.after_cut; i++) rig_run(r, 10 * LH_MS);
    rig_run(r, 5 * LH_SECOND);
    assert_true(s->session.after_cut && !s->session.process &&
                !s->session.timer); // however long it takes
    s->cut = NULL;
    wk_session_changed(w);
    rig_run(r, 100 * LH_MS);
    assert_true(s->session.process != 0);
    rig_life_end(r, &l, false);
}

static const struct lh_transport_ops *real;
static unsigned refused;

static lh_err refuse_a_push(struct lh_link *link, enum lh_rpc rpc, int64_t deadline_ns,
                            const struct lh_call_ops *ops, void *self, struct lh_call **out)
{
    if (rpc != LH_RPC_PUSH || refused) return real->open(link, rpc, deadline_ns, ops, self, out);
    refused++;
    return lh_fail(LH_ERR_BUSY, "no call now");
}

RIG_TEST(a_push_that_cant_be_begun_is_sent_after_another_greeting, struct rig *r)
{
    struct rig_life l;
    rig_serve(r, LH_SECOND);
    struct wk_conf conf = rig_life_conf(r, &l, 500);
    rig_life_start(&l, &conf);
    struct wk_shard *s = &l.worker->shard[0];
    for (int i = 0; i < 1000 && !s->session.process; i++) rig_run(r, 10 * LH_MS);
    real = s->session.link->transport_ops;
    struct lh_transport_ops refusing = *real;
    refusing.open = refuse_a_push;
    refused = 0;
    s->session.link->transport_ops = &refusing;
    for (int i = 0; i < 1000 && !refused; i++) rig_run(r, 10 * LH_MS);
    assert_int_equal(refused, 1);
    s->session.link->transport_ops = real;
    uint64_t admitted = l.worker->count.admitted;
    for (int i = 0; i < 1000 && l.worker->count.admitted == admitted; i++) rig_run(r, 10 * LH_MS);
    assert_true(l.worker->count.admitted > admitted);
    rig_life_end(r, &l, false);
}

// Roles start in any order. The wait is logged at once, and as a warning when it takes long.
RIG_TEST(a_coordinator_that_is_not_there_yet_is_no_warning, struct rig *r)
{
    lh_fake_boot(r->t.env);
    struct lh_log *log = rig_log_lines(r);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    r->server->conf.log = log;
    rig_run(r, 2 * LH_SECOND);
    assert_int_equal(rig_said(r, "INFO rig start.waiting"), 1);
    assert_int_equal(rig_said(r, "WARN"), 0);
    rig_run(r, 30 * LH_SECOND);
    assert_int_equal(rig_said(r, "INFO rig start.waiting"), 1);
    assert_int_equal(rig_said(r, "WARN rig start.waiting"), 1);
    rig_start_coordinator(r);
    rig_run(r, 3 * LH_SECOND);
    assert_true(r->server->phase == PS_SERVING);
    r->server->conf.log = NULL;
    lh_log_close(log);
}

static lh_err believed(void *self, struct lh_call *call, enum lh_rpc rpc,
                       const struct lh_peer *peer, const struct lh_call_ops **ops, void **call_self)
{
    (void)call, (void)rpc, (void)peer, (void)ops, (void)call_self;
    ++*(int *)self;
    return LH_ERR_BUSY;
}

// Another server of the run, with a good certificate, answers at the address of a shard's server.
RIG_TEST(another_server_at_the_address_is_not_greeted, struct rig *r)
{
    struct rig_life l;
    int calls = 0;
    const struct lh_service service = {&calls, believed};
    char bound[64];
    rig_serve(r, LH_SECOND);
    struct wk_conf conf = rig_life_conf(r, &l, 500);
    rig_life_start(&l, &conf);
    struct wk_shard *s = &l.worker->shard[0];
    for (int i = 0; i < 1000 && !s->session.process; i++) rig_run(r, 10 * LH_MS);
    assert_true(s->session.process);
    rig_kill_server(r, false);
    rig_boot_standby(r);
    struct lh_transport *other = r->t.transport;
    assert_int_equal(other->ops->listen(other, r->s.address, &service, bound, sizeof bound), LH_OK);
    rig_run(r, 5 * LH_SECOND);
    assert_int_equal(calls, 0);
    s->session.link->transport_ops->expect(s->session.link, 0); // without this check it is greeted
    wk_session_lost(s);
    for (int i = 0; i < 1000 && !calls; i++) rig_run(r, 10 * LH_MS);
    assert_true(calls > 0);
    rig_life_end(r, &l, false);
}
