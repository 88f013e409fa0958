// The owner of a shard that a standby took over: first the standby's directory, and after its loss
// another directory of the same server, unless somebody else may hold its acknowledged writes
// (server/docs/0000-protocol.md#rule-17, #rule-21).
#include <stdio.h>

#include "server/coordinator/owners/epochs.h"
#include "server/coordinator/owners/insync.h"
#include "server/coordinator/owners/owner.h"
#include "server/recovery/settle.h"
#include "tests/cores/offer.h"

enum { X = 5, Y = 7, Z = 9 }; // identities of directories
enum { SERVER = 100, OTHER = 101, EPOCH = 3 };

static struct ps_co_shard *shard(struct rig *r)
{
    return &r->coordinator->shard[0];
}

static void again(struct rig *r)
{
    rig_settle(r);
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
    r->coordinator->conf.take_over_ns = LH_SECOND;
}

// X, a directory of `server`, took the shard over; Z is in sync with it.
static void begin(struct rig *r, uint64_t server)
{
    bool opened;
    struct lh_point p = {.epoch = EPOCH};
    rig_start_coordinator(r);
    r->coordinator->conf.take_over_ns = LH_SECOND;
    assert_int_equal(ps_co_open_epoch(r->coordinator, 0, 0, &p, 1, 0, false, false, &opened),
                     LH_OK);
    shard(r)->standby = X;
    assert_false(rig_serves(r, X, server, false)); // its owner was heard just now
    rig_run(r, LH_SECOND);
    assert_true(rig_serves(r, X, server, false));
    shard(r)->standby = Z;
    assert_int_equal(ps_co_store_insync(r->coordinator, 0), LH_OK);
    again(r);
    assert_int_equal(shard(r)->owner, X);
    assert_int_equal(shard(r)->standby, Z);
}

RIG_TEST(a_server_with_another_directory_is_the_owner_again, struct rig *r)
{
    begin(r, SERVER);
    rig_run(r, LH_SECOND);
    assert_false(rig_serves(r, Y, SERVER, false)); // Z holds the acknowledged writes
    assert_false(rig_serves(r, Z, OTHER, true));   // Z lost them, and is struck out
    assert_true(rig_serves(r, Y, SERVER, false));
    again(r);
    assert_int_equal(shard(r)->owner, Y);
    assert_true(shard(r)->least > EPOCH); // Y's epoch is later than X's
    assert_int_equal(ps_co_check_owner(r->coordinator, 0, X), LH_ERR_FENCED);
    assert_true(rig_serves(r, Y, SERVER, false));
}

RIG_TEST(nobody_else_is_nor_while_it_lives, struct rig *r)
{
    begin(r, SERVER);
    shard(r)->standby = 0;
    assert_false(
        rig_serves(r, Y, SERVER, false)); // the restarted coordinator counts X as heard just now
    rig_run(r, LH_SECOND);
    assert_false(rig_serves(r, Y, OTHER, false));
    struct lh_point head = {.epoch = EPOCH};
    assert_int_equal(ps_co_heard_owner(r->coordinator, 0, X, SERVER, 1, &head), LH_OK);
    assert_false(rig_serves(r, Y, SERVER, false));
    rig_run(r, LH_SECOND);
    assert_true(rig_serves(r, Y, SERVER, false));
}

// The owner's certificate is unknown, so no other directory may replace it.
RIG_TEST(nobody_replaces_an_unknown_owner, struct rig *r)
{
    begin(r, 0);
    shard(r)->standby = 0;
    rig_run(r, LH_SECOND);
    assert_false(rig_serves(r, Y, SERVER, false));
    assert_false(rig_serves(r, Y, 0, false));
}

static unsigned asked;

static void on_insync(void *self, struct lh_request *rq, const void *request)
{
    const struct lh_in_sync_request *m = request;
    asked++;
    assert_true(m->has_head);
    assert_int_equal(m->epoch, m->head.at.epoch);
    ps_co_on_insync(self, rq, request);
}

static lh_err on_call(void *self, struct lh_call *call, enum lh_rpc rpc, const struct lh_peer *peer,
                      const struct lh_call_ops **ops, void **call_self)
{
    if (rpc != LH_RPC_INSYNC) return ps_coordinator_on_call(self, call, rpc, peer, ops, call_self);
    return lh_request_take(call, peer, &lh_wire_in_sync_request, on_insync, self, ops, call_self);
}

RIG_TEST(an_owner_asks_in_its_own_epoch, struct rig *r)
{
    asked = 0;
    r->replicated = true;
    rig_start_coordinator(r);
    r->coordinator->service.on_call = on_call;
    assert_int_equal(rig_start_server(r, false), LH_OK);
    rig_run(r, LH_SECOND);
    assert_int_equal(rig_start_standby(r), LH_OK);
    rig_run(r, 2 * LH_SECOND);
    rig_hello(r, 0, 1ull << 32, 0, 1);
    assert_int_equal(r->server->shard[0]->insync.state, PS_IN_SYNC);
    assert_true(asked > 0);
}

// DIR/replicated marks a directory that acknowledged with a standby. A server without this setting
// leaves no mark, so its next start need not ask for a standby.
RIG_TEST(a_server_that_had_no_standby_notes_none, struct rig *r)
{
    struct lh_buf b = lh_buf(64);
    char path[64];
    rig_start_coordinator(r);
    snprintf(path, sizeof path, "%s/replicated", r->s.dir);
    for (int with = 0; with < 2; with++) {
        r->replicated = with;
        assert_int_equal(rig_start_server(r, false), LH_OK);
        rig_run(r, 3 * LH_SECOND);
        assert_true(r->server->phase == PS_SERVING);
        assert_int_equal(lh_file_load(r->s.env, path, &b), with ? LH_OK : LH_ERR_NOT_FOUND);
        rig_kill_server(r, false);
    }
    lh_buf_free(&b);
}

// The server's directory is lost, and the followers hold less than the version at which the
// registered epoch begins. The server goes on with their state, although it would refuse a
// directory that held less.
RIG_TEST(a_state_from_followers_is_no_older_copy, struct rig *r)
{
    struct offer_held h;
    bool wanted = false;
    r->unsealed = true;
    offer_lose_directory(r, &h);
    struct lh_point begins = {h.at.epoch + 1, h.at.version + 5, {{1}}};
    assert_int_equal(ps_co_adopt_epoch(r->coordinator, 0, &begins), LH_OK);
    r->server->shard[0]->least_epoch = begins.epoch + 1; // as a move or a take-over sets it
    for (int i = 0; i < 100 && !wanted; i++) {
        rig_run(r, 100 * LH_MS);
        (void)offer_say(r, 1, &h.at);
        wanted = offer_say(r, 0, &h.at);
    }
    assert_int_equal(offer_bring(r, 0, &h.at, h.state), LH_OK);
    for (int i = 0; i < 100 && r->server->phase != PS_SERVING; i++) rig_run(r, 100 * LH_MS);
    assert_true(r->server->phase == PS_SERVING);
    assert_int_equal(r->fatal_count, 0);
    assert_int_equal(r->server->shard[0]->replica.ledger.epoch, begins.epoch + 1);
    assert_int_equal(r->server->shard[0]->replica.ledger.row[0].incarnation.number >> 32, 3);
    lh_blob_release(h.state);
}

// Fates for a server that opens a later epoch, and does not hear yet that it is open.
struct settling {
    bool slow;  // delays the coordinator's answers on epochs
    bool hears; // the coordinator hears of standbys
};

static bool settling_fate(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                          struct lh_fate *fate)
{
    const struct settling *p = arg;
    (void)from;
    (void)to;
    if (rpc == LH_RPC_EPOCH && p->slow) fate->delay_ns = LH_SECOND;
    return rpc != LH_RPC_INSYNC || p->hears;
}

// The server's request about its standby, of the epoch before, is refused: it goes on.
RIG_TEST(a_server_that_settles_is_not_fenced_by_what_it_asked_before, struct rig *r)
{
    struct settling p = {.hears = true};
    r->replicated = true;
    rig_start_coordinator(r);
    lh_fabric_fates(r->fabric, settling_fate, &p);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    rig_run(r, 3 * LH_SECOND);
    for (uint64_t i = 1; i <= 6; i++) rig_hello(r, 0, i << 32, 0, 1);
    p.hears = false;
    assert_int_equal(rig_start_standby(r), LH_OK);
    struct ps_shard *s = r->server->shard[0];
    for (int i = 0; i < 5000 && s->insync.state != PS_JOINING; i++) rig_run(r, LH_MS);
    assert_int_equal(s->insync.state, PS_JOINING);
    p.slow = true;
    s->least_epoch = s->replica.ledger.epoch + 1; // as after a move was given up
    assert_int_equal(ps_settle_in_room(r->server), LH_OK);
    for (int i = 0; i < 10000 && ps_co_epoch(shard(r)) < s->least_epoch; i++) rig_run(r, LH_MS);
    assert_int_equal(ps_co_epoch(shard(r)), s->least_epoch);
    assert_true(r->server->phase == PS_SETTLING);
    p.hears = true;
    rig_run(r, 800 * LH_MS); // it asks again
    assert_true(r->server->phase == PS_SETTLING);
    rig_run(r, 5 * LH_SECOND);
    assert_int_equal(r->fatal_count, 0);
    assert_true(r->server->phase == PS_SERVING);
    lh_fabric_fates(r->fabric, NULL, NULL);
}

// Naming the present owner takes nothing more away; naming another one makes it the owner.
RIG_TEST(an_operator_s_word_changes_what_is_otherwise, struct rig *r)
{
    begin(r, SERVER);
    rig_settle(r);
    assert_int_equal(shard(r)->owner, X);
    assert_int_equal(shard(r)->standby, Z);
    assert_int_equal(ps_co_give_up_owner(r->coordinator, 0, X, SERVER), LH_OK);
    assert_int_equal(shard(r)->standby, 0); // giving up all that Z alone held
    rig_settle(r);
    uint64_t changes = shard(r)->changes;
    assert_int_equal(ps_co_give_up_owner(r->coordinator, 0, X, SERVER), LH_OK);
    assert_int_equal(shard(r)->changes, changes);
    assert_int_equal(ps_co_give_up_owner(r->coordinator, 0, Y, OTHER), LH_OK);
    assert_int_equal(shard(r)->owner, Y);
    assert_int_equal(shard(r)->changes, changes + 1);
    again(r);
    assert_int_equal(shard(r)->owner, Y);
}
