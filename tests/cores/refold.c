// An operator takes running shards back (server/docs/0000-protocol.md#rule-33): a refusal changes
// nothing, a process that is killed goes on with the order, and no standby serves the former
// history.
#include <stdlib.h>
#include <string.h>

#include "tests/head.h"
#include "server/coordinator/owners/move.h"
#include "server/coordinator/owners/owner.h"
#include "server/coordinator/owners/refold.h"
#include "server/coordinator/watch/expelled.h"
#include "server/push/insync.h"
#include "tests/cores/rig.h"

enum { HEAD = 12, BACK = 7, OPERATIONS_MAX = 200 };

static const struct ps_shard *shard(const struct rig *r)
{
    return r->server->shard[0];
}

static lh_err order(struct rig *r, const struct lh_refold_request *m, struct lh_refold_reply *out)
{
    *out = (struct lh_refold_reply){.why = ""};
    lh_err err = ps_co_refold(r->coordinator, &r->c.self, m, out);
    rig_settle(r);
    return err;
}

static struct lh_refold_request back_to(uint64_t version)
{
    struct lh_refold_request m = {.name = "", .region = ""};
    m.to = version;
    return m;
}

static lh_err order_back(struct rig *r, struct lh_refold_request m, struct lh_refold_reply *out)
{
    return order(r, &m, out);
}

static struct lh_refold_request without(const struct rig *r, uint32_t w)
{
    struct lh_refold_request m = {.name = "", .region = ""};
    m.name = r->w[w].self.name;
    m.region = r->w[w].self.region;
    return m;
}

// Repeats the order as the operator's command does; restarts a server that stops for it.
static lh_err follow(struct rig *r, struct lh_refold_request m, struct lh_refold_reply *out)
{
    uint32_t stopped = r->fatal_count;
    for (int i = 0; i < 400; i++) {
        lh_err err = order(r, &m, out);
        if (err || out->over) return err;
        m.number = out->number;
        rig_run(r, 100 * LH_MS);
        if (r->fatal_count == stopped) continue;
        assert_non_null(strstr(r->fatal_text, "takes the shards back"));
        stopped = r->fatal_count;
        rig_kill_server(r, false);
        assert_int_equal(rig_start_server(r, false), LH_OK);
    }
    fail_msg("the order is not over");
    return LH_ERR_INTERNAL;
}

static struct rig *begun(uint64_t seed)
{
    struct rig *r = rig_new(seed);
    lh_fake_folders_apart(r->s.env);
    rig_serve(r, LH_SECOND);
    rig_log(r, 1, HEAD);
    rig_run(r, LH_SECOND);
    return r;
}

static struct lh_hash chain_at(const struct rig *r, uint64_t version)
{
    struct lh_hash chain;
    assert_int_equal(ps_shard_chain(shard(r), version, &chain), LH_OK);
    return chain;
}

// Checks that the shard went on from BACK of its former history, in a later epoch.
static void went_back(struct rig *r, const struct lh_hash *chain, uint64_t epoch)
{
    rig_run(r, 2 * LH_SECOND);
    const struct lh_ledger *l = &shard(r)->replica.ledger;
    assert_int_equal(r->server->phase, PS_SERVING);
    assert_true(l->version > BACK && l->epoch > epoch);
    assert_int_equal(r->server->refold.stage, PS_REFOLD_DONE);
    assert_false(r->server->log.rewound);
    assert_int_equal(r->coordinator->refold.stage, PS_CO_REFOLD_OVER);
    assert_false(ps_co_refold_goes(r->coordinator, 0));
    const struct lh_point *last = &r->coordinator->shard[0].begun[0];
    bool found = false;
    for (size_t i = 0; i < r->coordinator->shard[0].epochs; i++)
        found |= last[i].version == BACK && lh_hash_equal(&last[i].chain, chain);
    assert_true(found); // an epoch began there
    uint64_t version = l->version;
    rig_hello(r, 0, UINT64_C(100) << 32, 0, 1); // it takes records
    assert_true(shard(r)->replica.ledger.version > version);
}

TEST(the_run_goes_on_from_an_earlier_version)
{
    struct rig *r = begun(1);
    struct lh_hash chain = chain_at(r, BACK);
    uint64_t epoch = shard(r)->replica.ledger.epoch;
    struct lh_refold_reply out;
    for (uint64_t times = 1; times <= 2; times++) {
        assert_int_equal(follow(r, back_to(BACK), &out), LH_OK);
        assert_int_equal(out.done, 1);
        assert_int_equal(out.kept, 0);
        if (times == 1) went_back(r, &chain, epoch);
        rig_run(r, LH_SECOND);
        assert_int_equal(shard(r)->replica.ledger.epoch, epoch + times);
    }
    rig_free(r);
}

// ---------------------------------------------------------------- kills

// Runs until the order is accepted and under way.
static void until_it_goes(struct rig *r)
{
    struct lh_refold_reply out;
    assert_int_equal(order_back(r, back_to(BACK), &out), LH_OK);
    for (int i = 0; i < 4000 && r->coordinator->refold.stage != PS_CO_REFOLD_GOES; i++)
        rig_run(r, LH_MS);
    assert_int_equal(r->coordinator->refold.stage, PS_CO_REFOLD_GOES);
}

// Cuts the server's power at its n-th file operation after the order goes; `life` 1: after the
// start that carries it out. Returns whether that operation was reached.
static bool dies_at(uint64_t seed, int life, int n)
{
    struct rig *r = begun(seed);
    struct lh_hash chain = chain_at(r, BACK);
    uint64_t epoch = shard(r)->replica.ledger.epoch;
    struct lh_env *env = r->s.env;
    lh_err err = LH_OK;
    until_it_goes(r);
    if (life == 0) lh_fake_crash_at(env, n, true);
    for (int i = 0; i < 4000 && lh_fake_alive(env) && !r->fatal_count; i++) rig_run(r, LH_MS);
    if (life == 1) {
        rig_kill_server(r, false);
        r->crash_at = n + 1;
        err = rig_start_server(r, false);
        for (int i = 0; i < 2000 && !err && lh_fake_alive(env); i++) {
            rig_run(r, LH_MS);
            if (r->server->refold.stage == PS_REFOLD_DONE) break;
        }
    }
    bool died = !lh_fake_alive(env);
    lh_fake_crash_at(env, -1, false);
    if (died || life == 0) {
        if (err) r->server = NULL;
        rig_kill_server(r, true);
        assert_int_equal(rig_start_server(r, false), LH_OK);
    }
    struct lh_refold_reply out;
    assert_int_equal(follow(r, back_to(BACK), &out), LH_OK);
    went_back(r, &chain, epoch);
    rig_free(r);
    return died;
}

TEST(a_server_that_dies_anywhere_goes_on_with_it)
{
    for (int life = 0; life < 2; life++) {
        int n = 0;
        while (dies_at(1 + (uint64_t)n, life, n)) assert_true(++n < OPERATIONS_MAX);
        assert_true(n >= (life ? 50 : 4));
    }
}

TEST(a_coordinator_that_dies_goes_on_with_it)
{
    struct rig *r = begun(3);
    struct lh_hash chain = chain_at(r, BACK);
    uint64_t epoch = shard(r)->replica.ledger.epoch;
    struct lh_refold_reply out;
    until_it_goes(r);
    lh_fake_kill(r->c.env, true);
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
    assert_int_equal(r->coordinator->refold.stage, PS_CO_REFOLD_GOES);
    assert_int_equal(order_back(r, back_to(BACK - 1), &out),
                     LH_ERR_BUSY); // a different order
    assert_int_equal(follow(r, back_to(BACK), &out), LH_OK);
    went_back(r, &chain, epoch);
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
    assert_int_equal(r->coordinator->refold.stage, PS_CO_REFOLD_OVER);
    rig_free(r);
}

// ---------------------------------------------------------------- refusals

static void refused(struct rig *r, struct lh_refold_request m, lh_err err, const char *word)
{
    struct lh_point was = r->coordinator->shard[0].head;
    uint32_t fatal = r->fatal_count;
    struct lh_refold_reply out;
    assert_int_equal(follow(r, m, &out), err);
    assert_non_null(strstr(lh_err_text(err), word));
    rig_run(r, LH_SECOND);
    assert_int_equal(r->fatal_count, fatal);
    assert_int_equal(r->coordinator->shard[0].head.epoch, was.epoch);
}

TEST(a_refusal_changes_nothing_and_says_from_where)
{
    struct rig *r = rig_new(5);
    r->segment_bytes = 512;
    rig_start_coordinator(r);
    struct lh_refold_reply out;
    assert_int_equal(order_back(r, back_to(2), &out), LH_ERR_BUSY);
    assert_non_null(strstr(lh_err_text(LH_ERR_BUSY), "no server"));
    assert_int_equal(rig_start_server(r, false), LH_OK);
    rig_run(r, LH_SECOND);
    for (uint64_t i = 1; i <= 40; i++) rig_hello(r, 0, i << 32, 0, 1);
    rig_run(r, 2 * LH_SECOND);
    assert_true(shard(r)->index[0].version > 3); // trimmed
    struct lh_shard_version one = {0};
    struct lh_refold_request m = back_to(0);
    refused(r, m, LH_ERR_INVALID, "which version of shard 0");
    one.shard = 1;
    one.version = 1;
    m.shards = &one;
    m.n_shards = 1;
    refused(r, m, LH_ERR_INVALID, "no shard 1");
    refused(r, back_to(1000), LH_ERR_NOT_FOUND, "no version 1000 yet");
    refused(r, back_to(2), LH_ERR_NOT_FOUND, "the first possible one is");
    refused(r, without(r, 0), LH_ERR_NOT_FOUND, "no push of"); // it only raised incarnations
    refused(r, without(r, 1), LH_ERR_NOT_FOUND, "no push of");
    r->coordinator->shard[0].move.target = 7;
    refused(r, back_to(38), LH_ERR_BUSY, "is being moved");
    r->coordinator->shard[0].move.target = 0;
    uint8_t phase = r->coordinator->plan.phase;
    r->coordinator->plan.phase = LH_PHASE_CLOSE;
    refused(r, back_to(38), LH_ERR_INVALID, "closing or over");
    r->coordinator->plan.phase = phase;
    assert_int_equal(follow(r, back_to(38), &out), LH_OK);
    rig_free(r);
}

TEST(a_version_that_takes_no_push_is_refused)
{
    struct rig *r = begun(6);
    struct ps_shard *s = r->server->shard[0];
    struct lh_plan *closes = malloc(sizeof *closes);
    assert_non_null(closes);
    *closes = s->head->plan;
    closes->number++;
    closes->phase = LH_PHASE_CLOSE;
    s->plan = closes;
    ps_raise(r->server, PS_WISHED);
    const struct lh_ledger *l = &s->replica.ledger;
    for (int i = 0; i < 1000 && l->plan.phase != LH_PHASE_CLOSE; i++) rig_run(r, LH_MS);
    assert_int_equal(l->plan.phase, LH_PHASE_CLOSE);
    uint64_t version = l->version;
    rig_run(r, LH_SECOND); // the coordinator hears of it
    refused(r, back_to(version), LH_ERR_INVALID, "takes no push any more");
    rig_free(r);
}

// The directory no longer has what the order needs when it goes: the shard keeps its history.
TEST(a_shard_that_cant_after_all_is_named)
{
    struct rig *r = begun(7);
    struct lh_refold_reply out;
    until_it_goes(r);
    for (int i = 0; i < 4000 && !r->fatal_count; i++) rig_run(r, LH_MS);
    assert_int_equal(r->fatal_count, 1);
    rig_kill_server(r, false);
    lh_fake_disk_wipe(r->s.env);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    assert_int_equal(follow(r, back_to(BACK), &out), LH_OK);
    assert_int_equal(out.done, 0);
    assert_int_equal(out.kept, 1);
    assert_non_null(strstr(out.why, "shard 0"));
    rig_free(r);
}

// The order's file is damaged when the order goes: the answer says so.
TEST(a_damaged_order_is_named)
{
    struct rig *r = begun(8);
    char path[LH_PATH_BYTES];
    struct lh_refold_reply out;
    until_it_goes(r);
    for (int i = 0; i < 4000 && !r->fatal_count; i++) rig_run(r, LH_MS);
    rig_kill_server(r, false);
    assert_int_equal(lh_path(path, sizeof path, r->s.dir, "refold-0000"), LH_OK);
    assert_int_equal(lh_fake_flip(r->s.env, path, 9, 1), LH_OK);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    assert_int_equal(follow(r, back_to(BACK), &out), LH_OK);
    assert_int_equal(out.kept, 1);
    assert_non_null(strstr(out.why, "refold-0000 is damaged"));
    rig_free(r);
}

// Two servers have a shard each: both must be heard before the order goes, and at its end.
TEST(every_shard_has_to_be_heard_of)
{
    static const enum ps_co_refold_stage stage[] = {PS_CO_REFOLD_ASKED, PS_CO_REFOLD_GOES,
                                                    PS_CO_REFOLD_OVER};
    struct rig *r = rig_new(10);
    struct lh_refold_reply out;
    rig_two_shards(r);
    rig_serve(r, LH_SECOND);
    for (r->shard = RIG_SHARDS; r->shard--;) rig_log(r, 1, HEAD);
    rig_run(r, LH_SECOND);
    rig_kill_server(r, false);
    assert_int_equal(order_back(r, back_to(BACK), &out), LH_OK);
    struct lh_shard_report said = {0};
    struct lh_report_request m = {.n_shards = 1, .shards = &said, .has_refold = true};
    m.refold = (struct lh_refold_state){.number = out.number, .why = ""};
    for (int i = 0; i < 2; i++, m.refold.done = true) {
        for (said.head.shard = 0; said.head.shard < RIG_SHARDS; said.head.shard++) {
            assert_int_equal(r->coordinator->refold.stage, stage[i]);
            assert_int_equal(ps_co_refold_heard(r->coordinator, &m), LH_OK);
        }
        assert_int_equal(r->coordinator->refold.stage, stage[i + 1]);
    }
    rig_settle(r);
    rig_free(r);
}

// ---------------------------------------------------------------- a standby

TEST(no_standby_serves_the_former_history)
{
    struct rig *r = rig_new(9);
    rig_begin_in_sync(r);
    uint64_t owner = r->coordinator->shard[0].owner, last = shard(r)->replica.ledger.version;
    struct lh_refold_reply out;
    assert_int_equal(order_back(r, back_to(3), &out), LH_OK);
    for (int i = 0; i < 4000 && !r->fatal_count; i++) rig_run(r, LH_MS);
    assert_int_equal(r->fatal_count, 1);
    assert_int_equal(r->coordinator->shard[0].standby, 0);
    rig_kill_server(r, false);
    rig_run(r, 20 * LH_SECOND); // far longer than a take-over
    assert_int_equal(r->coordinator->shard[0].owner, owner);
    uint32_t shards;
    assert_int_equal(ps_co_move(r->coordinator, r->t.self.name, &shards), LH_ERR_BUSY);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    rig_run(r, 4 * LH_SECOND);
    assert_true(shard(r)->replica.ledger.version < last);
    assert_int_equal(shard(r)->insync.state, PS_IN_SYNC);
    rig_hello(r, 0, UINT64_C(100) << 32, 0, 1);
    rig_run(r, LH_SECOND);
    assert_true(lh_hash_equal(&r->standby->shard[0]->replica.ledger.chain,
                              &shard(r)->replica.ledger.chain));
    rig_free(r);
}

// Reports in the owner's name that it can't carry out the order.
static void refuse_by_hand(struct rig *r, struct lh_link *link)
{
    const struct lh_ledger *l = &shard(r)->replica.ledger;
    Longhaul__V1__ReportRequest m = LONGHAUL__V1__REPORT_REQUEST__INIT;
    Longhaul__V1__ShardReport said = LONGHAUL__V1__SHARD_REPORT__INIT, *list[] = {&said};
    Longhaul__V1__RefoldState state = LONGHAUL__V1__REFOLD_STATE__INIT;
    Longhaul__V1__Point head = lh_head_point(0, l->epoch, l->version, &l->chain);
    Longhaul__V1__Wire wire = lh_head_wire();
    m.wire = &wire;
    lh_head_run(r->coordinator->conf.job, &r->manifest.hash, &m.job, &m.manifest);
    m.address = r->s.address;
    m.process = r->server->process;
    m.number = UINT64_MAX;
    m.standby = r->coordinator->shard[0].owner;
    m.shards = list;
    m.n_shards = 1;
    said.head = &head;
    said.in_sync = r->coordinator->shard[0].standby;
    said.changes = r->coordinator->shard[0].changes;
    state.number = r->coordinator->refold.number;
    state.refused = true;
    state.why = (char *)(uintptr_t) "I would rather not";
    m.refold = &state;
    assert_int_equal(rig_say(r, link, LH_RPC_REPORT, &m.base), LH_OK);
}

// A server's refusal ends the order, and is named in the answer. An operator expels the server, and
// the standby carries out the next order.
TEST(the_standby_of_a_server_that_refuses_does_it)
{
    struct rig *r = rig_new(9);
    struct lh_link *link;
    struct lh_refold_reply out;
    rig_begin_in_sync(r);
    assert_int_equal(
        r->s.transport->ops->dial(r->s.transport, r->c.address, LH_C, LH_LINE_FIRST, &link), LH_OK);
    struct lh_refold_request m = back_to(3);
    assert_int_equal(order_back(r, m, &out), LH_OK);
    assert_non_null(strstr(out.waits, r->s.self.name));
    m.number = out.number;
    refuse_by_hand(r, link);
    assert_int_equal(order_back(r, m, &out), LH_ERR_INVALID);
    assert_non_null(strstr(lh_err_text(LH_ERR_INVALID), r->s.self.name));
    assert_non_null(strstr(lh_err_text(LH_ERR_INVALID), "I would rather not"));
    link->transport_ops->hangup(link);

    struct lh_expel_request who = {.name = r->s.self.name, .region = "", .server = true};
    struct ps_co_expelled expelled;
    bool changed;
    assert_int_equal(ps_co_expel(r->coordinator, &r->c.self, &who, &expelled, &changed), LH_OK);
    rig_settle(r);
    for (int i = 0; i < 2000 && r->standby->phase != PS_SERVING; i++) rig_run(r, 10 * LH_MS);
    assert_int_equal(r->standby->phase, PS_SERVING);
    rig_run(r, 2 * LH_SECOND);
    uint32_t fatal = r->fatal_count;
    assert_int_equal(order_back(r, back_to(3), &out), LH_OK);
    for (int i = 0; i < 4000 && r->fatal_count == fatal; i++) rig_run(r, LH_MS);
    assert_non_null(strstr(r->fatal_text, "takes the shards back"));
    assert_int_equal(r->coordinator->refold.stage, PS_CO_REFOLD_GOES);
    rig_free(r);
}

// ---------------------------------------------------------------- without a worker

TEST(a_workers_pushes_are_taken_out_and_come_again)
{
    struct rig *r = rig_new(11);
    struct rig_life life = {0};
    rig_serve(r, LH_SECOND);
    struct wk_conf conf = rig_life_conf(r, &life, 50);
    rig_life_start(&life, &conf);
    uint64_t id = lh_worker_id(&r->w[1].self);
    const struct lh_ledger *l = &shard(r)->replica.ledger;
    for (int i = 0; i < 1000 && l->tokens < 200; i++) rig_run(r, 100 * LH_MS);
    assert_true(l->tokens >= 200);
    rig_life_end(r, &life, false);
    uint64_t pushes = lh_ledger_row(l, id)->admitted;
    struct lh_refold_reply out;
    assert_int_equal(follow(r, without(r, 1), &out), LH_OK);
    assert_int_equal(out.left_out, pushes);
    l = &shard(r)->replica.ledger;
    assert_int_equal(l->tokens, 0);
    assert_int_equal(lh_ledger_row(l, id)->admitted, 0);
    for (size_t i = 0; i < l->credit_bytes; i++) assert_int_equal(l->credit[i], 0);
    for (uint64_t i = 0; i < r->manifest.values; i++)
        assert_true(shard(r)->replica.theta[i] == r->initial[i]);
    rig_boot_worker(r, 1);
    conf = rig_life_conf(r, &life, 50);
    rig_life_start(&life, &conf);
    for (int i = 0; i < 1000 && !lh_ledger_row(l, id)->admitted; i++) rig_run(r, 100 * LH_MS);
    assert_true(lh_ledger_row(l, id)->admitted > 0);
    rig_life_end(r, &life, false);
    rig_free(r);
}
