// A state crosses sealed with the job key, or not at all (server/docs/0003-sealed-states.md): who
// has a certificate and no key neither reads one nor is believed.
#include <string.h>

#include "common/head.h"
#include "tests/cores/rig.h"
#include "tests/sim/synthetic.h"

// ---------------------------------------------------------------- a follower made by hand

struct pull {
    bool over, sealed;
    lh_err status;
    char text[256];
    uint64_t total;
    size_t bytes;
    struct lh_state_seal seal;
    lh_err opened;
    uint8_t out[LH_PART_BYTES];
};

static void on_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct pull *p = self;
    ProtobufCMessage *m;
    size_t at;
    assert_int_equal(lh_rpc_parse_bulk(msg, &longhaul__v1__part_head__descriptor, &m, &at), LH_OK);
    const Longhaul__V1__PartHead *head = (const Longhaul__V1__PartHead *)m;
    if (!p->bytes) {
        p->total = head->total;
        p->sealed = head->seal != NULL;
        if (p->sealed)
            assert_int_equal(lh_state_open_begin(&p->seal, head->seal, head->total), LH_OK);
    }
    p->bytes += msg->len - at;
    if (p->sealed && !p->opened) p->opened = lh_state_open_piece(&p->seal, msg, at, p->out);
    rig_free_message(m);
    lh_call_read(call);
}

static void nothing(void *self, struct lh_call *call)
{
    (void)self;
    (void)call;
}

static void on_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    struct pull *p = self;
    (void)call;
    p->over = true;
    p->status = status;
    snprintf(p->text, sizeof p->text, "%s", text ? text : "");
}

static const struct lh_call_ops pull_ops = {on_message, nothing, nothing, on_close};

// Asks for a snapshot; `keys`: with this ring, sealed; NULL: as a peer before there was a seal.
static struct pull *pull(struct rig *r, const struct lh_keyring *keys)
{
    static struct pull p;
    static uint8_t challenge[LH_STATE_RANDOM] = "what nobody said";
    struct lh_call *call;
    Longhaul__V1__SnapshotRequest m = LONGHAUL__V1__SNAPSHOT_REQUEST__INIT;
    memset(&p, 0, sizeof p);
    lh_head_run(r->server->conf.job, &r->manifest.hash, &m.job, &m.manifest);
    if (keys) {
        assert_int_equal(lh_state_seal_init(&p.seal, LH_SEAL_SNAPSHOT, keys, r->server->conf.job,
                                            &r->manifest.hash, 0,
                                            lh_span(challenge, sizeof challenge)),
                         LH_OK);
        m.challenge = (ProtobufCBinaryData){sizeof challenge, challenge};
    }
    assert_int_equal(lh_call_open(r->to_s[0], LH_RPC_SNAPSHOT, 0, &pull_ops, &p, &call), LH_OK);
    assert_int_equal(lh_rpc_send(call, &m.base), LH_OK);
    lh_call_finish(call, LH_OK, NULL);
    lh_call_read(call);
    for (int i = 0; i < 600 && !p.over; i++) rig_run(r, 10 * LH_MS);
    assert_true(p.over);
    return &p;
}

static struct lh_keyring *stranger(void)
{
    const struct lh_seal_key key = {{9, 9, 9}};
    struct lh_keyring *keys;
    assert_int_equal(lh_keyring_create(&keys), LH_OK);
    assert_int_equal(lh_keyring_add(keys, 1, &key), LH_OK);
    return keys;
}

static void a_server_seals_what_it_gives(void **state)
{
    struct rig *r = *state;
    struct lh_keyring *others = stranger();
    assert_int_equal(rig_start_server(r, true), LH_OK);
    const struct pull *p = pull(r, r->keys);
    assert_int_equal(p->status, LH_OK);
    assert_true(p->sealed && !p->opened && !lh_state_seal_next(&p->seal));
    assert_int_equal(p->bytes, p->total + LH_SEAL_TAG_BYTES);
    assert_int_equal(p->seal.epoch, r->server->shard[0]->replica.ledger.epoch);
    p = pull(r, others); // it has a certificate: it gets bytes that say nothing
    assert_int_equal(p->status, LH_OK);
    assert_int_equal(p->opened, LH_ERR_UNSEAL);
    p = pull(r, NULL);
    assert_int_equal(p->status, LH_ERR_DENIED);
    assert_int_equal(p->bytes, 0);
    assert_non_null(strstr(p->text, "seal.snapshots"));
    lh_keyring_destroy(others);
}

static void a_server_that_may_give_unsealed_gives_what_is_asked_for(void **state)
{
    struct rig *r = *state;
    r->unsealed = true;
    assert_int_equal(rig_start_server(r, true), LH_OK);
    const struct pull *p = pull(r, NULL);
    assert_int_equal(p->status, LH_OK);
    assert_false(p->sealed);
    assert_int_equal(p->bytes, p->total);
    p = pull(r, r->keys);
    assert_true(p->sealed && !p->opened && !lh_state_seal_next(&p->seal));
}

// ---------------------------------------------------------------- a worker

struct life {
    struct wk_worker *worker;
    struct wk_trainer *trainer;
};

static void on_fatal(void *arg, lh_err err, const char *text)
{
    (void)arg;
    fail_msg("the worker ends with %s: %s", lh_err_name(err), text);
}

static struct life live(struct rig *r, struct lh_keyring *keys, bool unsealed)
{
    const struct rig_node *n = &r->w[1];
    struct life l;
    struct setup all = rig_common(r, n);
    all.listen = "";
    all.fatal = on_fatal;
    all.keys = keys;
    l.trainer = sim_trainer_new(n->env, r->manifest.values, 500);
    struct wk_conf conf = setup_worker(&all, l.trainer);
    conf.lease_ns = 500 * LH_MS;
    conf.retry_base_ns = 100 * LH_MS;
    conf.retry_max_ns = conf.reconnect_max_ns = LH_SECOND;
    conf.deadline_ns = 3 * LH_SECOND;
    conf.unsealed_states = unsealed;
    assert_int_equal(wk_worker_start(&conf, &l.worker), LH_OK);
    return l;
}

static bool joins(struct rig *r, const struct life *l)
{
    const struct wk_shard *s = &l->worker->shard[0];
    for (int i = 0; i < 1000 && !s->ready; i++) rig_run(r, 10 * LH_MS);
    return s->ready;
}

static void leave(struct rig *r, struct life *l)
{
    struct ps_coordinator *c = NULL;
    struct ps_server *s = NULL;
    rig_kill_worker(r, 1, false);
    setup_stop(&c, &s, &l->worker, &l->trainer);
    rig_boot_worker(r, 1);
}

static void start(struct rig *r)
{
    rig_start_coordinator(r);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    rig_run(r, LH_SECOND);
}

static void only_who_has_the_job_key_joins(void **state)
{
    struct rig *r = *state;
    struct lh_keyring *others = stranger();
    start(r);
    struct life l = live(r, others, false);
    assert_false(joins(r, &l));
    leave(r, &l);
    l = live(r, r->keys, true); // it asks for an unsealed one
    assert_false(joins(r, &l));
    leave(r, &l);
    l = live(r, r->keys, false);
    assert_true(joins(r, &l));
    leave(r, &l);
    lh_keyring_destroy(others);
}

// ---------------------------------------------------------------- a server made by hand

// It has a server's certificate, and gives this state without a seal: as servers before there was
// one, or as one that made it up.
struct giver {
    struct lh_blob *state;
    int asked;
};

static void give(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct giver *g = self;
    Longhaul__V1__PartHead head = LONGHAUL__V1__PART_HEAD__INIT;
    (void)msg;
    g->asked++;
    head.process = 77;
    head.total = g->state->len;
    assert_int_equal(lh_rpc_send_bulk(call, &head.base, g->state, 0, g->state->len), LH_OK);
    lh_call_finish(call, LH_OK, "");
}

static void given(void *self, struct lh_call *call, lh_err status, const char *text)
{
    (void)self;
    (void)call;
    (void)status;
    (void)text;
}

static const struct lh_call_ops give_ops = {give, nothing, nothing, given};

static lh_err on_call(void *self, struct lh_call *call, enum lh_rpc rpc, const struct lh_peer *peer,
                      const struct lh_call_ops **ops, void **call_self)
{
    (void)peer;
    if (rpc != LH_RPC_SNAPSHOT) return LH_ERR_UNAVAILABLE;
    *ops = &give_ops;
    *call_self = self;
    lh_call_read(call);
    return LH_OK;
}

static void an_unsealed_state_is_taken_only_where_that_is_allowed(void **state)
{
    struct rig *r = *state;
    struct lh_buf bytes = lh_buf(1 << 20);
    char bound[32];
    start(r); // so that the coordinator knows its address
    assert_int_equal(lk_replica_save(&r->server->shard[0]->replica, &bytes), LH_OK);
    struct giver g = {.state = lh_blob_copy(lh_buf_span(&bytes))};
    const struct lh_service service = {&g, on_call};
    rig_kill_server(r, false);
    rig_boot_server(r);
    struct lh_transport *t = r->s.transport;
    assert_int_equal(t->ops->listen(t, r->s.address, &service, bound, sizeof bound), LH_OK);
    struct life l = live(r, r->keys, false);
    assert_false(joins(r, &l));
    assert_true(g.asked > 1); // it comes again, in case the server is upgraded
    leave(r, &l);
    l = live(r, r->keys, true);
    assert_true(joins(r, &l));
    leave(r, &l);
    lh_blob_release(g.state);
    lh_buf_free(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_server_seals_what_it_gives, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(a_server_that_may_give_unsealed_gives_what_is_asked_for,
                                        rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(only_who_has_the_job_key_joins, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(an_unsealed_state_is_taken_only_where_that_is_allowed,
                                        rig_set_up, rig_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
