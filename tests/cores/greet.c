// A server that was killed is found again at once: its door opens before it reads its log, and a
// greeting whose answer came at the wrong moment is said again when that is over, not at random.
#include "tests/cores/rig.h"
#include "tests/sim/synthetic.h"

enum { TRIES = 20, RECORDS = 3 }; // tries after which a worker waits half a minute

struct late { // the server's port, as another process finds it while the log is replayed
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

static void the_door_is_open_while_the_log_is_read(void **state)
{
    struct rig *r = *state;
    assert_int_equal(rig_start_server(r, true), LH_OK);
    for (uint64_t v = 1; v <= RECORDS; v++) rig_hello(r, 0, v << 32, 0, 1);
    rig_kill_server(r, false);
    late = (struct late){.rig = r};
    r->folded = look;
    assert_int_equal(rig_start_server(r, true), LH_OK);
    assert_int_equal(late.looked, RECORDS);
    assert_int_equal(late.taken, RECORDS);
}

static void on_fatal(void *arg, lh_err err, const char *text)
{
    (void)arg;
    fail_msg("the worker ends with %s: %s", lh_err_name(err), text);
}

static void live(struct rig *r, struct wk_worker **worker, struct wk_trainer **trainer)
{
    const struct rig_node *n = &r->w[1];
    struct setup all = rig_common(r, n);
    all.listen = "";
    all.fatal = on_fatal;
    *trainer = sim_trainer_new(n->env, r->manifest.values, 500);
    struct wk_conf conf = setup_worker(&all, *trainer);
    conf.lease_ns = 500 * LH_MS;
    conf.retry_base_ns = 100 * LH_MS;
    conf.retry_max_ns = 30 * LH_SECOND;
    conf.reconnect_max_ns = LH_SECOND;
    conf.deadline_ns = 3 * LH_SECOND;
    assert_int_equal(wk_worker_start(&conf, worker), LH_OK);
}

static void a_greeting_that_met_a_cut_is_said_again_after_it(void **state)
{
    struct rig *r = *state;
    struct ps_coordinator *c = NULL;
    struct ps_server *server = NULL;
    struct wk_worker *w;
    struct wk_trainer *trainer;
    rig_start_coordinator(r);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    rig_run(r, LH_SECOND);
    live(r, &w, &trainer);
    struct wk_shard *s = &w->shard[0];
    for (int i = 0; i < 1000 && !s->process; i++) rig_run(r, 10 * LH_MS);
    assert_true(s->process && !s->cuts);
    wk_session_lost(s);
    lh_cancel(w->conf.env, &s->session_timer);
    s->greet_after_cut = true;
    for (int i = 0; i < 1000 && !s->cuts; i++) rig_run(r, 10 * LH_MS);
    rig_run(r, 100 * LH_MS);
    assert_true(s->cuts && s->process); // the cut's end said it

    rig_kill_server(r, false);
    for (int i = 0; i < 1000 && (s->process || s->cut); i++) rig_run(r, 10 * LH_MS);
    assert_true(!s->process && !s->cut);
    s->cut = (struct wk_cut *)s; // one that takes long; nobody looks into it
    s->session_tries = TRIES;
    assert_int_equal(rig_start_server(r, false), LH_OK);
    for (int i = 0; i < 1000 && !s->greet_after_cut; i++) rig_run(r, 10 * LH_MS);
    rig_run(r, 5 * LH_SECOND);
    assert_true(s->greet_after_cut && !s->process && !s->session_timer); // however long it takes
    s->cut = NULL;
    wk_session_cut(w);
    rig_run(r, 100 * LH_MS);
    assert_true(s->process != 0);
    rig_kill_worker(r, 1, false);
    setup_stop(&c, &server, &w, &trainer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_door_is_open_while_the_log_is_read, rig_set_up,
                                        rig_tear_down),
        cmocka_unit_test_setup_teardown(a_greeting_that_met_a_cut_is_said_again_after_it,
                                        rig_set_up, rig_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
