// A standby, and an owner played by hand that sends any state: the standby keeps what it confirmed,
// and pauses between its requests (server/docs/0000-protocol.md#rule-26, #rule-27, #rule-29).
#include <stdio.h>
#include <string.h>

#include "server/recovery/epoch.h"
#include "server/recovery/identity.h"
#include "server/recovery/owner_stream.h"
#include "tests/head.h"
#include "server/core.h"
#include "server/push/group_commit.h"
#include "tests/cores/image.h"

enum { OLD = 4, HEAD = 9 };

// Plays the owner at the server's address.
struct owner {
    struct rig *r;
    struct lh_service service;
    struct lh_blob *old, *head;  // fold states of these versions
    const struct lh_blob *gives; // NULL: its call brings nothing
    uint64_t misnamed;           // the seal's version is so much higher than the state's
    uint32_t asked;              // snapshot requests
};

static const struct lh_ledger *held(const struct rig *r)
{
    return &r->standby->shard[0]->replica.ledger;
}

// Sends the state as requested: unsealed, or sealed with the job key.
static lh_err give(struct owner *o, struct lh_call *call, const struct lh_snapshot_request *m)
{
    const struct rig *r = o->r;
    const struct lh_blob *state = o->gives;
    struct lh_ledger l = {.shards = 1};
    struct lh_cursor at = lh_cursor(lh_blob_span(state));
    struct lh_state_seal seal;
    struct lh_part_head part = {.total = state->len};
    if (!m->challenge.len)
        return lh_send_bulk(call, LH_MESSAGE(part_head, &part), (struct lh_blob *)(uintptr_t)state,
                            0, state->len);
    LH_TRY(lh_ledger_read(&l, &at));
    LH_TRY(lh_state_seal_init(&seal, LH_SEAL_SNAPSHOT, r->keys, r->coordinator->conf.job,
                              &r->manifest.hash, 0, m->challenge));
    lh_state_seal_begin(&seal, r->s.env, LH_CIPHER_XCHACHA20, 1, l.epoch, l.version + o->misnamed,
                        &l.chain, state->len);
    lh_ledger_free(&l);
    part.has_seal = true;
    part.seal = lh_state_seal_head(&seal);
    struct lh_span plain = lh_blob_span(state);
    struct lh_blob *piece = lh_blob_new(state->len + LH_SEAL_TAG_BYTES);
    assert_non_null(piece);
    LH_TRY(lh_state_seal_piece(&seal, &plain, 1, piece->data));
    lh_err err = lh_send_bulk(call, LH_MESSAGE(part_head, &part), piece, 0, piece->len);
    lh_blob_release(piece);
    return err;
}

static void on_asked(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct owner *o = self;
    struct lh_got m;
    assert_int_equal(lh_take(msg, &lh_wire_snapshot_request, &m), LH_OK);
    if (++o->asked > 1000) fail_msg("asked without a pause"); // virtual time would not pass
    if (o->gives) {
        assert_int_equal(give(o, call, m.message), LH_OK);
        lh_call_finish(call, LH_OK, "");
    }
    lh_got_free(&m);
}

static const struct lh_call_ops owner_ops = {on_asked, rig_on_nothing, rig_on_nothing, rig_on_gone};

// Refuses to follow: a follower always has to ask for a snapshot.
static lh_err on_call(void *self, struct lh_call *call, enum lh_rpc rpc, const struct lh_peer *peer,
                      const struct lh_call_ops **ops, void **call_self)
{
    (void)peer;
    if (rpc == LH_RPC_FOLLOW) return LH_ERR_NOT_FOUND;
    if (rpc != LH_RPC_SNAPSHOT) return LH_ERR_UNAVAILABLE;
    *ops = &owner_ops;
    *call_self = self;
    lh_call_read(call);
    return LH_OK;
}

static struct lh_blob *state_of(const struct ps_server *s)
{
    struct lh_buf bytes = lh_buf(1 << 20);
    assert_int_equal(lk_replica_save(&s->shard[0]->replica, &bytes), LH_OK);
    struct lh_blob *out = lh_blob_copy(lh_buf_span(&bytes));
    lh_buf_free(&bytes);
    assert_non_null(out);
    return out;
}

static void begin(struct rig *r, struct owner *o)
{
    *o = (struct owner){.r = r, .service = {o, on_call}};
    r->replicated = true;
    rig_start_coordinator(r);
    r->coordinator->conf.take_over_ns = 3600 * LH_SECOND;
    assert_int_equal(rig_start_server(r, false), LH_OK);
    rig_run(r, 3 * LH_SECOND);
    assert_int_equal(rig_start_standby(r), LH_OK);
    rig_run(r, 3 * LH_SECOND);
    for (uint64_t i = 1; i <= OLD; i++) rig_hello(r, 0, i << 32, 0, 1);
    rig_run(r, LH_SECOND);
    o->old = state_of(r->server);
}

static void go_on(struct rig *r, struct owner *o)
{
    for (uint64_t i = OLD + 1; i <= HEAD; i++) rig_hello(r, 0, i << 32, 0, 1);
    rig_run(r, LH_SECOND);
    o->head = state_of(r->server);
}

static void take_its_place(struct rig *r, struct owner *o)
{
    char bound[32];
    rig_kill_server(r, false);
    rig_boot_server(r);
    struct lh_transport *t = r->s.transport;
    assert_int_equal(t->ops->listen(t, r->s.address, &o->service, bound, sizeof bound), LH_OK);
}

static void end(struct owner *o)
{
    lh_blob_release(o->old);
    lh_blob_release(o->head);
}

static bool has_it_all(const struct rig *r)
{
    return held(r)->row && held(r)->row[0].incarnation.number >> 32 == HEAD;
}

// The owner has an older history: the standby keeps what it confirmed, and takes over with it.
static void keeps(struct rig *r)
{
    struct owner o;
    begin(r, &o);
    go_on(r, &o);
    uint64_t version = held(r)->version;
    assert_int_equal(r->coordinator->shard[0].standby, r->standby->standby.identity);
    o.gives = o.old;
    take_its_place(r, &o);
    for (int i = 0; i < 100; i++) {
        rig_run(r, 100 * LH_MS);
        assert_int_equal(held(r)->version, version);
        assert_true(has_it_all(r));
    }
    assert_in_range(o.asked, 2, 10 * LH_SECOND / r->standby->conf.report_ns + 1);
    r->coordinator->conf.take_over_ns = LH_SECOND;
    rig_run(r, 10 * LH_SECOND);
    assert_true(r->standby->phase == PS_SERVING && has_it_all(r));
    assert_int_equal(held(r)->epoch, 2);
    assert_int_equal(r->fatal_count, 0);
    end(&o);
}

RIG_TEST(a_confirmed_state_is_not_given_up_for_an_older_one, struct rig *r)
{
    keeps(r);
}

RIG_TEST(a_confirmed_state_is_not_given_up_for_an_unsealed_one, struct rig *r)
{
    r->unsealed = true;
    keeps(r);
}

// A state of the same version with another history, as if another standby had confirmed it.
RIG_TEST(a_confirmed_state_is_not_given_up_for_another_of_its_version, struct rig *r)
{
    struct owner o;
    r->unsealed = true;
    begin(r, &o);
    go_on(r, &o);
    struct lh_hash chain = held(r)->chain;
    o.gives = o.head;
    for (size_t i = 0; i + LH_HASH_BYTES <= o.head->len; i++) {
        bool here = !memcmp(o.head->data + i, chain.b, LH_HASH_BYTES);
        if (here) o.head->data[i] ^= 1;
    }
    take_its_place(r, &o);
    rig_run(r, 10 * LH_SECOND);
    assert_true(o.asked > 1);
    assert_memory_equal(held(r)->chain.b, chain.b, LH_HASH_BYTES);
    end(&o);
}

RIG_TEST(snapshots_that_nothing_follows_are_asked_for_with_a_pause, struct rig *r)
{
    struct owner o;
    begin(r, &o);
    go_on(r, &o);
    o.gives = o.head;
    take_its_place(r, &o);
    rig_run(r, 10 * LH_SECOND);
    assert_in_range(o.asked, 2, 10 * LH_SECOND / r->standby->conf.report_ns + 1);
    assert_true(has_it_all(r));
    end(&o);
}

RIG_TEST(a_snapshot_of_which_nothing_comes_is_asked_for_again, struct rig *r)
{
    struct owner o;
    begin(r, &o);
    go_on(r, &o);
    take_its_place(r, &o);
    rig_run(r, 10 * LH_SECOND);
    assert_int_equal(o.asked, 1);
    rig_run(r, 2 * LH_JOIN_SILENT_MS * LH_MS);
    assert_in_range(o.asked, 2, 3);
    end(&o);
}

// The seal names another version than the state's.
RIG_TEST(a_state_that_is_not_the_sealed_one_is_not_taken, struct rig *r)
{
    struct owner o;
    begin(r, &o);
    rig_kill_standby(r, false);
    go_on(r, &o);
    o.gives = o.head;
    o.misnamed = 1;
    take_its_place(r, &o);
    assert_int_equal(rig_start_standby(r), LH_OK);
    uint64_t version = held(r)->version;
    rig_run(r, 10 * LH_SECOND);
    assert_true(o.asked > 1);
    assert_int_equal(held(r)->version, version);
    o.misnamed = 0;
    rig_run(r, 10 * LH_SECOND);
    assert_true(has_it_all(r));
    end(&o);
}

static const struct lh_transport_ops *real;
static unsigned dialled;

static lh_err count_dials(struct lh_transport *t, const char *address, enum lh_role role,
                          enum lh_line line, struct lh_link **out)
{
    dialled++;
    return real->dial(t, address, role, line, out);
}

// An address comes from the network, but only so many bytes of it can be kept.
RIG_TEST(an_owner_whose_address_is_too_long_is_not_called, struct rig *r)
{
    struct owner o;
    char address[LH_ADDRESS_BYTES + 1];
    begin(r, &o);
    real = r->t.transport->ops;
    struct lh_transport_ops counting = *real;
    counting.dial = count_dials;
    r->t.transport->ops = &counting;
    memset(address, 'x', sizeof address);
    for (size_t len = LH_ADDRESS_BYTES; len >= LH_ADDRESS_BYTES - 1; len--) {
        address[len] = 0;
        dialled = 0;
        ps_owner_stream_owner(r->standby->shard[0]->owner_stream, address);
        assert_int_equal(dialled, len < LH_ADDRESS_BYTES);
    }
    r->t.transport->ops = real;
    end(&o);
}

// Asks for the standby's state, as a server that can't go on with its own log does; returns the
// answer's status.
static lh_err ask_for_its_state(struct rig *r)
{
    static const uint8_t challenge[LH_STATE_RANDOM_BYTES];
    Longhaul__V1__SnapshotRequest m = LONGHAUL__V1__SNAPSHOT_REQUEST__INIT;
    struct lh_transport *t = r->s.transport;
    struct rig_call c = {0};
    struct lh_link *link;
    lh_head_run(r->standby->conf.job, &r->manifest.hash, &m.job, &m.manifest);
    m.standby = r->standby->standby.identity;
    m.challenge = (ProtobufCBinaryData){sizeof challenge, (uint8_t *)(uintptr_t)challenge};
    assert_int_equal(t->ops->dial(t, r->t.address, LH_S, LH_LINE_FIRST, &link), LH_OK);
    assert_int_equal(lh_call_open(link, LH_RPC_SNAPSHOT, 0, &rig_call_ops, &c, &c.call), LH_OK);
    assert_int_equal(pb_send(c.call, &m.base), LH_OK);
    lh_call_read(c.call);
    rig_run(r, 200 * LH_MS);
    if (!c.over) {
        lh_call_cancel(c.call);
        rig_run(r, LH_MS);
    }
    link->transport_ops->hangup(link);
    return c.status;
}

// The standby was down, and its disk is full when the newer state arrives.
static void fill(struct rig *r, struct owner *o)
{
    begin(r, o);
    rig_kill_standby(r, false);
    go_on(r, o);
    o->gives = o->head;
    take_its_place(r, o);
    assert_int_equal(rig_start_standby(r), LH_OK);
    const struct ps_shard *s = r->standby->shard[0];
    uint64_t checkpointed = s->checkpointed, digested = s->digested;
    size_t indexed = s->index_count;
    assert_true(indexed > 0);
    lh_fake_disk_limit(r->t.env, lh_fake_disk_used(r->t.env) + 64);
    rig_run(r, 10 * LH_SECOND);
    assert_true(r->standby->standby.unwritten);
    assert_int_equal(s->checkpointed, checkpointed); // only what the disk has
    assert_int_equal(s->digested, digested);
    assert_int_equal(s->index_count, indexed);
    assert_int_equal(ask_for_its_state(r), LH_ERR_NOT_OWNER); // not on its disk yet
}

// Records that a full disk did not take are written when there is space, and before anything relies
// on them.
RIG_TEST(unwritten_records_are_written_before_serving, struct rig *r)
{
    struct owner o;
    fill(r, &o);
    r->coordinator->shard[0].standby = r->standby->standby.identity; // the only one left
    r->coordinator->conf.take_over_ns = LH_MS;
    rig_run(r, 2 * LH_SECOND);
    assert_true(r->standby->standby.taking && r->standby->phase != PS_SERVING);
    lh_fake_disk_limit(r->t.env, 0);
    for (int i = 0; i < 10000 && r->standby->phase != PS_SERVING; i++) rig_run(r, LH_MS);
    assert_true(r->standby->phase == PS_SERVING && has_it_all(r));
    rig_kill_standby(r, true);
    assert_int_equal(rig_start_standby(r), LH_OK);
    assert_true(has_it_all(r));
    end(&o);
}

RIG_TEST(unwritten_records_are_gone_after_a_power_cut, struct rig *r)
{
    struct owner o;
    fill(r, &o);
    lh_fake_disk_limit(r->t.env, 0);
    rig_kill_standby(r, true);
    assert_int_equal(rig_start_standby(r), LH_OK);
    assert_int_equal(held(r)->row[0].incarnation.number >> 32, OLD);
    rig_run(r, 10 * LH_SECOND);
    assert_true(has_it_all(r));
    end(&o);
}

// As when the standby's log was set aside, and a full disk has not taken a new one yet: the next
// group and the next mark wait for the new log.
RIG_TEST(one_without_a_log_waits_for_it, struct rig *r)
{
    struct owner o;
    begin(r, &o);
    rig_hello(r, 0, (OLD + 1ull) << 32, 0, 1);
    struct ps_server *s = r->standby;
    for (int i = 0; i < 1000 && (!ps_at_rest(s) || !s->mark_timer); i++) rig_run(r, LH_MS);
    struct ps_wal *log = s->wal;
    assert_true(log && s->mark_timer && ps_wal_mark(log));
    ps_raise(s, PS_WISHED);
    s->wal = NULL;
    ps_raise(s, PS_WISHED);
    rig_run(r, 3 * s->conf.mark_ns);
    assert_true(s->mark_timer && s->phase != PS_STOPPED && !s->committing);
    s->wal = log;
    for (uint64_t i = OLD + 2; i <= HEAD; i++) rig_hello(r, 0, i << 32, 0, 1);
    rig_run(r, LH_SECOND);
    assert_true(has_it_all(r));
    assert_int_equal(r->server->shard[0]->insync.state, PS_IN_SYNC);
    assert_int_equal(ps_wal_group_bytes(log), 0);
    end(&o);
}

static bool unheard(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                    struct lh_fate *fate)
{
    const struct rig *r = arg;
    (void)to;
    (void)fate;
    return rpc != LH_RPC_REPORT || strcmp(from, r->t.self.name) != 0;
}

// The standby lost records that it had confirmed, cut its log, and is killed before it reports
// this: the next start reports it.
RIG_TEST(a_torn_tail_is_told_of_by_a_later_start, struct rig *r)
{
    struct owner o;
    begin(r, &o);
    uint64_t name = r->standby->standby.identity;
    r->standby->conf.mark_ns = 600 * LH_SECOND; // no mark says that the last group was durable
    go_on(r, &o);
    assert_int_equal(r->coordinator->shard[0].standby, name);
    rig_kill_server(r, false); // no owner strikes the standby out
    rig_kill_standby(r, false);
    image_damage_tail(&r->t);
    lh_fabric_fates(r->fabric, unheard, r);
    assert_int_equal(rig_start_standby(r), LH_OK);
    assert_true(r->standby->log.torn);
    rig_run(r, LH_SECOND);
    assert_int_equal(r->standby->standby.identity, name);
    rig_kill_standby(r, false);
    lh_fabric_fates(r->fabric, NULL, NULL);
    r->coordinator->conf.take_over_ns = LH_SECOND;
    assert_int_equal(rig_start_standby(r), LH_OK);
    assert_false(r->standby->log.torn);
    rig_run(r, 10 * LH_SECOND);
    assert_int_not_equal(r->standby->standby.identity, name);
    assert_int_equal(r->coordinator->shard[0].standby, 0);
    assert_false(r->standby->phase == PS_SERVING);
    name = r->standby->standby.identity; // from here on its identity stays
    rig_kill_standby(r, false);
    assert_int_equal(rig_start_standby(r), LH_OK);
    rig_run(r, LH_SECOND);
    assert_int_equal(r->standby->standby.identity, name);
    end(&o);
}

// A standby with a damaged epoch file begins anew only once, as the file is then written again.
RIG_TEST(a_damaged_file_of_a_standby_costs_its_state_once, struct rig *r)
{
    char path[64];
    rig_begin_in_sync(r);
    snprintf(path, sizeof path, "%s/epoch-0000", r->t.dir);
    rig_kill_standby(r, false);
    lh_fake_boot(r->t.env);
    assert_int_equal(ps_epoch_write(r->t.env, r->t.dir, 0, 1, 5), LH_OK);
    assert_int_equal(lh_fake_flip(r->t.env, path, 8, 1), LH_OK);
    lh_fake_kill(r->t.env, false);
    for (int start = 0; start < 2; start++) {
        assert_int_equal(rig_start_standby(r), LH_OK);
        assert_int_equal(r->standby->log.damaged, !start);
        rig_run(r, 10 * LH_SECOND);
        assert_int_equal(r->standby->shard[0]->replica.ledger.version,
                         r->server->shard[0]->replica.ledger.version);
        rig_kill_standby(r, false);
    }
}

// Otherwise the standby would be in sync, and could take over, under an identity that its next
// process would not have.
RIG_TEST(a_name_that_found_no_room_is_not_taken, struct rig *r)
{
    rig_begin_in_sync(r);
    uint64_t was = r->standby->standby.identity;
    lh_fake_fail_at(r->t.env, 0, LH_ERR_DISK_FULL);
    assert_int_equal(ps_identity_renew(r->standby), LH_ERR_DISK_FULL);
    lh_fake_fail_at(r->t.env, -1, LH_OK);
    assert_int_equal(r->standby->standby.identity, was);
    assert_int_equal(ps_identity_renew(r->standby), LH_OK);
    assert_int_not_equal(r->standby->standby.identity, was);
}

// ---------------------------------------------------------------- a standby in sync

static const struct lh_transport_ops *inner;
static struct lh_transport_ops dials; // the standby's; its links fail on request
static struct lh_transport_ops fails;
static int confirms_lost;
static unsigned follows;

static lh_err open_call(struct lh_link *link, enum lh_rpc rpc, int64_t deadline_ns,
                        const struct lh_call_ops *ops, void *self, struct lh_call **out)
{
    follows += rpc == LH_RPC_FOLLOW;
    if (rpc != LH_RPC_CONFIRM || !confirms_lost)
        return inner->open(link, rpc, deadline_ns, ops, self, out);
    confirms_lost--;
    return lh_fail(LH_ERR_UNAVAILABLE, "no call can be opened now");
}

static lh_err dial(struct lh_transport *t, const char *address, enum lh_role role,
                   enum lh_line line, struct lh_link **out)
{
    LH_TRY(inner->dial(t, address, role, line, out));
    (*out)->transport_ops = &fails;
    return LH_OK;
}

// The standby follows the server over links that the test can make fail.
static void begin_followed(struct rig *r)
{
    confirms_lost = 0;
    follows = 0;
    r->replicated = true;
    rig_serve(r, LH_SECOND);
    assert_int_equal(rig_start_standby(r), LH_OK);
    inner = r->t.transport->ops;
    dials = fails = *inner;
    dials.dial = dial;
    fails.open = open_call;
    r->t.transport->ops = &dials; // the standby has dialled only the coordinator so far
    for (uint64_t i = 1; i <= OLD; i++) {
        rig_run(r, 2 * LH_SECOND);
        rig_hello(r, 0, i << 32, 0, 1);
    }
    rig_run(r, LH_SECOND);
    assert_true(follows > 0);
    assert_int_equal(r->server->shard[0]->insync.state, PS_IN_SYNC);
}

// The standby sends the confirm again at the next mark of its log.
RIG_TEST(a_confirm_that_could_not_be_sent_is_sent_again, struct rig *r)
{
    begin_followed(r);
    uint64_t changes = r->coordinator->shard[0].changes;
    confirms_lost = 1;
    rig_greet(r, 0, (uint64_t)(OLD + 1) << 32, 0, 1);
    rig_run(r, 5 * LH_SECOND);
    assert_int_equal(confirms_lost, 0);
    assert_int_equal(rig_fenced(r, r->server, 0), OLD + 1);
    assert_int_equal(r->server->shard[0]->insync.state, PS_IN_SYNC);
    assert_int_equal(r->coordinator->shard[0].changes, changes); // it was not struck out either
}

// Severs the link while the standby writes a checkpoint; returns whether it asked to follow again
// before the checkpoint was written.
static bool follows_beside_a_checkpoint(struct rig *r, uint64_t *next)
{
    struct ps_server *t = r->standby;
    struct ps_shard *s = t->shard[0];
    for (int i = 0; i < 60000; i++) {
        if (s->checkpointer && !t->committing && !t->group && !t->queue) break;
        if (i % 1000 == 0 && !s->checkpointer) rig_greet(r, 0, (*next)++ << 32, 0, 1);
        rig_run(r, LH_MS);
    }
    unsigned before = follows;
    lh_fabric_sever(r->fabric, r->s.self.name, r->t.self.name);
    while (s->checkpointer && follows == before) rig_run(r, LH_MS);
    return s->checkpointer && follows > before;
}

RIG_TEST(a_checkpoint_under_way_keeps_no_standby_from_following, struct rig *r)
{
    uint64_t next = OLD + 1;
    bool seen = false;
    begin_followed(r);
    lh_fake_slow(r->t.env, 10 * LH_SECOND); // makes checkpoints slow, by random times
    for (int i = 0; i < 20 && !seen; i++) seen = follows_beside_a_checkpoint(r, &next);
    assert_true(seen);
}
