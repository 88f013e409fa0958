// A standby that is in sync for one of its server's two shards, and not for the other, takes over
// neither. Their owner, which lost its log or can't go on with it, fetches from the standby what
// that one alone holds (server/docs/0000-protocol.md#rule-21).
#include <stdio.h>
#include <string.h>

#include "tests/head.h"
#include "server/coordinator/owners/owner.h"
#include "server/coordinator/stable.h"
#include "server/recovery/rebuilding.h"
#include "tests/cores/image.h"
#include "tests/cores/offer.h"

enum { ACKNOWLEDGED = 9 };

static int two_shards(void **state)
{
    struct rig *r = rig_new(1);
    *state = r;
    rig_two_shards(r);
    r->replicated = true;
    return 0;
}

static struct ps_co_shard *row(struct rig *r, uint32_t shard)
{
    return &r->coordinator->shard[shard];
}

static void start(struct rig *r)
{
    assert_int_equal(rig_start_server(r, false), LH_OK);
    r->server->conf.mark_ns = 600 * LH_SECOND; // no mark says that the last group is durable
}

static void begin_in_sync(struct rig *r)
{
    rig_start_coordinator(r);
    start(r);
    rig_run(r, LH_SECOND);
    assert_int_equal(rig_start_standby(r), LH_OK);
    rig_run(r, 2 * LH_SECOND);
    for (uint64_t i = 1; i <= ACKNOWLEDGED; i++)
        for (r->shard = RIG_SHARDS; r->shard--;) rig_hello(r, 0, i << 32, 0, 1);
    rig_run(r, LH_SECOND);
    for (uint32_t k = 0; k < RIG_SHARDS; k++)
        assert_int_equal(row(r, k)->standby, r->standby->standby.identity);
}

// The owner is down, its log lacks the last record, and its standby is not in sync for shard 1.
static void part(struct rig *r)
{
    rig_kill_server(r, false);
    image_damage_tail(&r->s);
    row(r, 1)->standby = 0;
    row(r, 1)->changes++;
    assert_int_equal(ps_co_store_insync(r->coordinator, 1), LH_OK);
    rig_settle(r);
}

// The lost record is of shard 0 and was acknowledged, and the standby has it.
static void begin_apart(struct rig *r)
{
    begin_in_sync(r);
    part(r);
}

static void assert_gone_on(struct rig *r, uint64_t epoch)
{
    rig_run(r, 20 * LH_SECOND);
    assert_true(r->server->phase == PS_SERVING);
    assert_int_equal(r->fatal_count, 0);
    assert_int_equal(rig_fenced(r, r->server, 0), ACKNOWLEDGED);
    assert_in_range(rig_fenced(r, r->server, 1), ACKNOWLEDGED - 1, ACKNOWLEDGED);
    for (uint32_t k = 0; k < RIG_SHARDS; k++) {
        assert_int_equal(row(r, k)->owner, 0);
        assert_int_equal(row(r, k)->standby, r->standby->standby.identity); // again, or still
        r->shard = k;
        rig_hello(r, 0, (uint64_t)(ACKNOWLEDGED + 1) << 32, 0, 1);
    }
    assert_int_equal(r->server->shard[0]->replica.ledger.epoch, epoch);
}

#define HELD(name, parameter) TEST_WITH(name, parameter, two_shards, rig_tear_down)

HELD(the_owner_goes_on_with_what_its_standby_holds, struct rig *r)
{
    begin_apart(r);
    start(r);
    assert_true(r->server->log.torn);
    assert_gone_on(r, 2);
}

// Between the new epoch and its installation only the standby's disk has that record, so the
// standby is not struck out before.
HELD(a_server_that_dies_before_it_serves_goes_on_with_that_state, struct rig *r)
{
    begin_apart(r);
    start(r);
    for (int i = 0; i < 20000 && ps_co_epoch(row(r, 0)) < 2; i++) rig_run(r, LH_MS / 10);
    assert_int_equal(ps_co_epoch(row(r, 0)), 2);
    assert_false(r->server->phase == PS_SERVING);
    rig_kill_server(r, false);
    rig_settle(r);
    assert_int_equal(row(r, 0)->standby, r->standby->standby.identity);
    start(r);
    assert_gone_on(r, 3);
}

// The owner's records beyond that state were acknowledged to nobody, but need not be lost.
HELD(a_log_that_goes_on_from_that_state_stays, struct rig *r)
{
    begin_in_sync(r);
    rig_kill_standby(r, false);
    for (uint64_t i = 1; i <= 2; i++) {
        r->shard = 0;
        rig_greet(r, 0, (ACKNOWLEDGED + i) << 32, 0, 1);
        rig_run(r, 10 * LH_MS);
    }
    assert_int_equal(rig_fenced(r, r->server, 0), ACKNOWLEDGED + 2);
    part(r);
    assert_int_equal(rig_start_standby(r), LH_OK);
    start(r);
    rig_run(r, 20 * LH_SECOND);
    assert_true(r->server->phase == PS_SERVING);
    assert_int_equal(rig_fenced(r, r->server, 0), ACKNOWLEDGED + 1);
    assert_int_equal(r->server->shard[0]->replica.ledger.epoch, 2);
}

static bool neither_struck_out_nor_followed(void *arg, const char *from, const char *to,
                                            enum lh_rpc rpc, struct lh_fate *fate)
{
    (void)arg;
    (void)from;
    (void)to;
    (void)fate;
    return rpc != LH_RPC_INSYNC && rpc != LH_RPC_FOLLOW;
}

// Both directories are gone, or damaged: only an operator can declare lost what the standby alone
// held (seed 3139 of all,standby). The setting may go when the shards are served.
HELD(where_that_state_is_gone_an_operator_lets_the_owner_go_on, struct rig *r)
{
    begin_in_sync(r);
    uint64_t gone = r->standby->standby.identity;
    rig_kill_standby(r, true);
    lh_fake_disk_wipe(r->t.env);
    rig_kill_server(r, false);
    image_damage_tail(&r->s);
    assert_int_equal(rig_start_standby(r), LH_OK);
    start(r);
    rig_run(r, 20 * LH_SECOND);
    assert_int_not_equal(r->standby->standby.identity, gone);
    for (uint32_t k = 0; k < RIG_SHARDS; k++) {
        const struct ps_rebuild *b = r->server->shard[k]->rebuild;
        assert_non_null(b);
        assert_int_equal(b->told_of, gone); // the standby that it waits for is in its log
        assert_int_equal(row(r, k)->standby, gone);
    }
    for (int word = 1; word >= 0; word--) {
        rig_kill_server(r, false);
        r->below_stable = word;
        start(r);
        rig_run(r, 20 * LH_SECOND);
        assert_true(r->server->phase == PS_SERVING);
        assert_in_range(rig_fenced(r, r->server, 0), ACKNOWLEDGED - 1, ACKNOWLEDGED);
        for (uint32_t k = 0; k < RIG_SHARDS; k++) assert_int_not_equal(row(r, k)->standby, gone);
    }
}

// An epoch that began with that state, and was served before the standby was struck out, goes on
// from it, even if the log was trimmed beyond its beginning (seed 1257 of all,standby).
HELD(an_epoch_that_began_there_goes_on_from_its_log, struct rig *r)
{
    enum { MORE = 14 };
    begin_apart(r);
    lh_fabric_fates(r->fabric, neither_struck_out_nor_followed, NULL);
    start(r);
    for (int i = 0; i < 20000 && r->server->phase != PS_SERVING; i++) rig_run(r, LH_MS);
    assert_true(r->server->phase == PS_SERVING);
    rig_kill_standby(r, false);
    for (uint64_t i = 1; i <= MORE; i++) {
        r->shard = 0;
        rig_greet(r, 0, (ACKNOWLEDGED + i) << 32, 0, 1);
        rig_run(r, 50 * LH_MS);
    }
    assert_int_equal(rig_fenced(r, r->server, 0), ACKNOWLEDGED + MORE);
    assert_int_equal(row(r, 0)->standby, row(r, 0)->held_by);
    rig_kill_server(r, false);
    image_damage_tail(&r->s);
    assert_int_equal(rig_start_standby(r), LH_OK);
    start(r);
    assert_true(r->server->log.torn);
    struct lh_hash chain;
    struct lh_point *base = &row(r, 0)->begun[row(r, 0)->epochs - 1];
    assert_int_equal(ps_shard_chain(r->server->shard[0], base->version, &chain), LH_ERR_NOT_FOUND);
    for (int i = 0; i < 20000 && r->server->phase != PS_SERVING; i++) rig_run(r, LH_MS);
    assert_true(r->server->phase == PS_SERVING);
    assert_int_equal(rig_fenced(r, r->server, 0), ACKNOWLEDGED + MORE - 1);
    lh_fabric_fates(r->fabric, NULL, NULL);
}

// A snapshot made a version stable that the standby never had, and the owner's disk is lost: the
// state of a follower, which goes on from the standby's, is taken.
HELD(where_more_is_stable_it_comes_from_followers, struct rig *r)
{
    struct lh_buf bytes = lh_buf(1 << 20);
    r->unsealed = true;
    begin_in_sync(r);
    for (uint32_t w = 0; w < RIG_WORKERS; w++) rig_join(r, w, 11, 0);
    rig_kill_standby(r, false);
    r->shard = 0;
    rig_greet(r, 0, (uint64_t)(ACKNOWLEDGED + 1) << 32, 0, 1);
    rig_run(r, 10 * LH_MS);
    const struct lk_replica *replica = &r->server->shard[0]->replica;
    const struct lh_ledger *l = &replica->ledger;
    struct lh_hash chain = l->chain;
    r->held_digest = lk_replica_digest(replica);
    Longhaul__V1__Point at = lh_head_point(0, l->epoch, l->version, &chain);
    assert_int_equal(lk_replica_save(replica, &bytes), LH_OK);
    struct lh_blob *held = lh_blob_copy(lh_buf_span(&bytes));
    lh_buf_free(&bytes);
    row(r, 0)->stable = (struct lh_point){l->epoch, l->version, l->chain};
    assert_int_equal(ps_co_store_point(r->coordinator, 0), LH_OK);
    part(r);
    lh_fake_disk_wipe(r->s.env);
    assert_int_equal(rig_start_standby(r), LH_OK);
    start(r);
    bool wanted = false;
    for (int i = 0; i < 100 && !wanted; i++) {
        rig_run(r, 100 * LH_MS);
        wanted = offer_say(r, 0, &at);
    }
    assert_true(wanted);
    assert_int_equal(offer_bring(r, 0, &at, held), LH_OK);
    lh_blob_release(held);
    rig_run(r, 10 * LH_SECOND);
    assert_true(r->server->phase == PS_SERVING);
    assert_int_equal(rig_fenced(r, r->server, 0), ACKNOWLEDGED + 1);
    assert_int_equal(r->fatal_count, 0);
}

// A standby in another directory may lack what the first one confirmed, so it must not give the
// rest.
HELD(nothing_is_fetched_from_a_directory_of_another_name, struct rig *r)
{
    begin_apart(r);
    row(r, 0)->standby ^= 1; // as if the standby had lost the directory that was in sync
    start(r);
    for (int i = 0; i < 10; i++) {
        rig_run(r, LH_SECOND);
        row(r, 0)->held_by = row(r, 0)->standby;
        snprintf(row(r, 0)->held_at, sizeof row(r, 0)->held_at, "%s", r->standby->address);
    }
    assert_false(r->server->phase == PS_SERVING);
    assert_int_equal(ps_co_epoch(row(r, 0)), 1);
    assert_int_equal(r->fatal_count, 0);
}

static bool not_heard(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                      struct lh_fate *fate)
{
    const struct rig *r = arg;
    (void)to;
    (void)fate;
    return rpc != LH_RPC_REPORT || strcmp(from, r->t.self.name) != 0;
}

// An older coordinator names no address, like one that has not heard the standby. The owner opens
// no epoch meanwhile, logs that it waits, and goes on once the standby is named.
HELD(where_no_place_is_named_the_owner_waits, struct rig *r)
{
    begin_apart(r);
    lh_fabric_fates(r->fabric, not_heard, r);
    rig_run(r, LH_SECOND); // messages under way have arrived
    row(r, 0)->held_by = 0;
    struct lh_log *log = rig_log_lines(r);
    start(r);
    r->server->conf.log = log;
    rig_run(r, 20 * LH_SECOND);
    assert_false(r->server->phase == PS_SERVING);
    assert_int_equal(ps_co_epoch(row(r, 0)), 1);
    assert_int_equal(rig_said(r, "standby.awaited"), 1);
    r->server->conf.log = NULL;
    lh_log_close(log);
    lh_fabric_fates(r->fabric, NULL, NULL);
    assert_gone_on(r, 2);
}

// The standby took over, its former owner is its standby, and the directory that has the shards is
// lost while the former owner is in sync for shard 0 alone (seeds 139 and 220 of all,standby).
static void lose_the_new_owner(struct rig *r)
{
    begin_in_sync(r);
    rig_kill_server(r, false);
    for (int i = 0; i < 10000 && r->standby->phase != PS_SERVING; i++) rig_run(r, LH_MS);
    assert_true(r->standby->phase == PS_SERVING);
    r->stands_by = true;
    start(r);
    rig_run(r, 5 * LH_SECOND);
    for (uint32_t k = 0; k < RIG_SHARDS; k++)
        assert_int_equal(row(r, k)->standby, r->server->standby.identity);
    rig_kill_standby(r, false);
    lh_fake_disk_wipe(r->t.env);
    row(r, 1)->standby = 0;
    row(r, 1)->changes++;
    assert_int_equal(ps_co_store_insync(r->coordinator, 1), LH_OK);
    rig_settle(r);
}

HELD(an_owner_without_its_directory_goes_on_with_what_its_standby_holds, struct rig *r)
{
    lose_the_new_owner(r);
    uint64_t lost = row(r, 0)->owner, held = row(r, 0)->standby;
    assert_int_equal(rig_start_standby(r), LH_OK);
    for (int i = 0; i < 10000 && row(r, 0)->owner == lost; i++) rig_run(r, LH_MS);
    assert_int_equal(row(r, 0)->owner, r->standby->standby.identity);
    assert_int_equal(row(r, 1)->owner, r->standby->standby.identity);
    assert_int_equal(row(r, 0)->standby, held); // nobody else has the acknowledged records
    rig_run(r, 10 * LH_SECOND);
    assert_true(r->standby->phase == PS_SERVING);
    assert_int_equal(r->fatal_count, 0);
    const struct lh_ledger *l = &r->standby->shard[0]->replica.ledger;
    const struct lh_row *last = lh_ledger_row(l, lh_worker_id(&r->w[0].self));
    assert_non_null(last);
    assert_int_equal(last->incarnation.number >> 32, ACKNOWLEDGED);
    // The server is in sync again.
    assert_int_equal(row(r, 0)->standby, r->server->standby.identity);
}

// A standby that is in sync for all shards takes them over.
HELD(a_take_over_loses_nothing_acknowledged, struct rig *r)
{
    lose_the_new_owner(r);
    row(r, 1)->standby = row(r, 0)->standby;
    assert_int_equal(rig_start_standby(r), LH_OK);
    rig_run(r, 10 * LH_SECOND);
    assert_true(r->server->phase == PS_SERVING);
    assert_false(r->standby->phase == PS_SERVING);
    for (uint32_t k = 0; k < RIG_SHARDS; k++)
        assert_int_equal(row(r, k)->owner, r->server->standby.identity);
    assert_int_equal(rig_fenced(r, r->server, 0), ACKNOWLEDGED);
    assert_int_equal(rig_fenced(r, r->server, 1), ACKNOWLEDGED);
}

// Nothing is fetched from a standby whose own log is damaged: it may have lost what it confirmed.
HELD(nothing_is_fetched_from_a_damaged_log, struct rig *r)
{
    begin_apart(r);
    r->standby->log.damaged = true;
    start(r);
    rig_run(r, 10 * LH_SECOND);
    assert_false(r->server->phase == PS_SERVING);
    assert_int_equal(r->fatal_count, 0);
    r->standby->log.damaged = false;
    assert_gone_on(r, 2);
}

// A server in the standby's place, with its certificate but without the job key.
struct giver {
    struct lh_blob *state; // NULL: it sends nothing
    uint64_t total;        // bytes that it announces
    unsigned asked, words;
    bool says_nothing; // sends empty messages, one after the other
};

static void say_nothing(void *self, struct lh_call *call)
{
    struct giver *g = self;
    Longhaul__V1__PartHead head = LONGHAUL__V1__PART_HEAD__INIT;
    struct lh_blob *none = lh_blob_new(0);
    assert_non_null(none);
    head.total = 1000;
    g->words++;
    assert_int_equal(pb_send_bulk(call, &head.base, none, 0, 0), LH_OK);
    lh_blob_release(none);
}

static void give(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct giver *g = self;
    Longhaul__V1__PartHead head = LONGHAUL__V1__PART_HEAD__INIT;
    (void)msg;
    g->asked++;
    if (g->says_nothing) say_nothing(self, call);
    if (!g->state) return;
    head.total = g->total;
    assert_int_equal(pb_send_bulk(call, &head.base, g->state, 0, g->state->len), LH_OK);
    lh_call_finish(call, LH_OK, "");
}

static void go_on(void *self, struct lh_call *call)
{
    struct giver *g = self;
    if (g->says_nothing) say_nothing(self, call);
}

static const struct lh_call_ops give_ops = {give, rig_on_nothing, go_on, rig_on_gone};

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

static void take_its_place(struct rig *r, struct lh_service *service)
{
    char bound[32];
    rig_kill_standby(r, false);
    rig_boot_standby(r);
    struct lh_transport *t = r->t.transport;
    assert_int_equal(t->ops->listen(t, r->t.address, service, bound, sizeof bound), LH_OK);
}

static void name_it(struct rig *r)
{
    row(r, 0)->held_by = row(r, 0)->standby;
    snprintf(row(r, 0)->held_at, sizeof row(r, 0)->held_at, "%s", r->t.address);
}

// The peer is asked again. That the owner itself hung up counts neither as the peer's error nor as
// an end from which anything is decided.
static void is_asked_anew(struct rig *r, struct giver *g)
{
    struct lh_service service = {g, on_call};
    begin_apart(r);
    take_its_place(r, &service);
    struct lh_log *log = rig_log_lines(r);
    start(r);
    r->server->conf.log = log;
    for (int i = 0; i < 10; i++) {
        rig_run(r, LH_SECOND);
        name_it(r);
    }
    assert_true(g->asked > 2);
    assert_int_equal(rig_said(r, "standby.awaited"), 1);
    assert_int_equal(rig_said(r, "held."), 0); // neither broken nor refused
    r->server->conf.log = NULL;
    lh_log_close(log);
}

HELD(one_that_says_nothing_is_asked_anew, struct rig *r)
{
    struct giver g = {0};
    is_asked_anew(r, &g);
}

static bool takes_its_time(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                           struct lh_fate *fate)
{
    (void)arg;
    (void)from;
    (void)to;
    if (rpc == LH_RPC_SNAPSHOT) fate->delay_ns = 10 * LH_MS;
    return true;
}

// An empty message is no progress (server/docs/0000-protocol.md#rule-29).
HELD(empty_messages_keep_no_giver, struct rig *r)
{
    r->unsealed = true;
    lh_fabric_fates(r->fabric, takes_its_time, NULL);
    struct giver g = {.says_nothing = true};
    is_asked_anew(r, &g);
    assert_true(g.words > 10 * g.asked);
    lh_fabric_fates(r->fabric, NULL, NULL);
}

HELD(an_unsealed_state_is_not_taken_however_large_it_says_it_is, struct rig *r)
{
    struct giver g = {0};
    struct lh_service service = {&g, on_call};
    struct lh_buf bytes = lh_buf(1 << 20);
    begin_apart(r);
    assert_int_equal(lk_replica_save(&r->standby->shard[0]->replica, &bytes), LH_OK);
    g.state = lh_blob_copy(lh_buf_span(&bytes));
    lh_buf_free(&bytes);
    take_its_place(r, &service);
    start(r);
    const uint64_t totals[] = {g.state->len, UINT64_C(1) << 40};
    for (int k = 0; k < 2; k++) {
        g.total = totals[k];
        g.asked = 0;
        for (int i = 0; i < 10; i++) {
            rig_run(r, LH_SECOND);
            name_it(r);
        }
        assert_true(g.asked > 0);
        assert_false(r->server->phase == PS_SERVING);
        assert_int_equal(ps_co_epoch(row(r, 0)), 1);
    }
    assert_int_equal(r->fatal_count, 0);
    lh_blob_release(g.state);
}
