// A server's shards go to its standby together, or none does
// (server/docs/0000-protocol.md#rule-22). While the standby has the records of only some of them,
// their owner keeps sending the others; if the move of one shard is given up, so are the others.
#include <string.h>

#include "server/coordinator/owners/insync.h"
#include "server/coordinator/owners/move.h"
#include "server/coordinator/owners/owner.h"
#include "server/core.h"
#include "server/recovery/epoch.h"
#include "server/recovery/move.h"
#include "server/recovery/standby.h"
#include "server/server.h"
#include "tests/cores/rig.h"

static int two_shards(void **state)
{
    struct rig *r = rig_new(1);
    *state = r;
    rig_two_shards(r);
    return 0;
}

static struct ps_co_shard *row(struct rig *r, uint32_t shard)
{
    return &r->coordinator->shard[shard];
}

static const struct lh_ledger *ledger(const struct ps_server *s, uint32_t shard)
{
    return &s->shard[shard]->replica.ledger;
}

static bool decides(const struct ps_server *s, uint32_t shard)
{
    return s->phase == PS_SERVING && !ps_shard_frozen(s->shard[shard]);
}

static void ask(struct rig *r)
{
    uint32_t shards;
    assert_int_equal(ps_co_move(r->coordinator, r->t.self.name, &shards), LH_OK);
    assert_int_equal(shards, RIG_SHARDS);
}

static void begin(struct rig *r)
{
    rig_serve(r, LH_SECOND);
    assert_int_equal(rig_start_standby(r), LH_OK);
    rig_run(r, 2 * LH_SECOND);
}

static unsigned streams; // snapshot requests so far
static unsigned heard;   // the request that is answered

// The standby asks for shard 0 first, then for shard 1; one of the two requests is dropped.
static bool one_stream(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                       struct lh_fate *fate)
{
    const struct rig *r = arg;
    (void)to;
    // Without a delay a peer that asks again at once would loop forever at one virtual time.
    fate->delay_ns = LH_MS;
    bool follows = rpc == LH_RPC_FOLLOW && strcmp(from, r->t.self.name) == 0;
    return !follows || streams++ == heard;
}

// The owner writes both records. The standby was killed meanwhile, and gets that of one shard only.
static void begin_half_of(struct rig *r, uint32_t shard)
{
    heard = shard;
    begin(r);
    ask(r);
    while (!r->server->shard[1]->head->move.epoch) rig_run(r, LH_MS / 1000);
    rig_kill_standby(r, true);
    rig_run(r, LH_SECOND);
    for (uint32_t k = 0; k < RIG_SHARDS; k++)
        assert_int_not_equal(ledger(r->server, k)->move.epoch, 0);
    streams = 0;
    lh_fabric_fates(r->fabric, one_stream, r);
    assert_int_equal(rig_start_standby(r), LH_OK);
    rig_run(r, 3 * LH_SECOND);
    assert_true(streams > 1);
    for (uint32_t k = 0; k < RIG_SHARDS; k++)
        assert_int_equal(ledger(r->standby, k)->move.epoch != 0, k == shard);
    assert_true(r->standby->phase == PS_STANDBY);
}

static void begin_half(struct rig *r)
{
    begin_half_of(r, 0);
}

static void assert_nothing_moved(struct rig *r)
{
    assert_int_equal(r->fatal_count, 0);
    for (uint32_t k = 0; k < RIG_SHARDS; k++) {
        assert_int_equal(row(r, k)->owner, 0);
        assert_int_not_equal(row(r, k)->move.target, 0);
    }
}

static void assert_moved(struct rig *r)
{
    for (uint32_t k = 0; k < RIG_SHARDS; k++) {
        assert_true(decides(r->standby, k));
        assert_int_equal(row(r, k)->owner, r->standby->standby.identity);
        assert_int_equal(row(r, k)->move.target, 0);
    }
    assert_true(r->server->phase == PS_STOPPED);
    assert_int_equal(r->fatal_count, 1);
}

#define TWO_SHARDS(name, parameter) TEST_WITH(name, parameter, two_shards, rig_tear_down)

TWO_SHARDS(the_owner_of_both_brings_the_record_of_the_other, struct rig *r)
{
    begin_half(r);
    assert_nothing_moved(r);
    rig_kill_standby(r, false);
    lh_fabric_fates(r->fabric, NULL, NULL);
    assert_int_equal(rig_start_standby(r), LH_OK);
    rig_run(r, 5 * LH_SECOND);
    assert_moved(r);
}

TWO_SHARDS(its_next_life_brings_the_record_of_the_other_too, struct rig *r)
{
    begin_half(r);
    rig_kill_server(r, false);
    rig_kill_standby(r, false);
    lh_fabric_fates(r->fabric, NULL, NULL);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    rig_run(r, 2 * LH_SECOND);
    assert_nothing_moved(r);
    assert_false(decides(r->server, 0) || decides(r->server, 1));
    assert_int_equal(rig_start_standby(r), LH_OK);
    rig_run(r, 5 * LH_SECOND);
    assert_moved(r);
}

static void assert_taken_back(struct rig *r)
{
    assert_int_equal(r->fatal_count, 0);
    for (uint32_t k = 0; k < RIG_SHARDS; k++) {
        assert_int_equal(row(r, k)->move.target, 0);
        assert_int_equal(row(r, k)->owner, 0);
        assert_true(decides(r->server, k));
        assert_true(ledger(r->server, k)->epoch > 2);
    }
}

static void assert_given_up(struct rig *r)
{
    row(r, 1)->unwanted = true; // as when the owner has to open an epoch of shard 1
    rig_run(r, 3 * LH_SECOND);
    assert_taken_back(r);
    rig_kill_standby(r, false);
    lh_fabric_fates(r->fabric, NULL, NULL);
    assert_int_equal(rig_start_standby(r), LH_OK);
    rig_run(r, 3 * LH_SECOND);
    ask(r);
    rig_run(r, 5 * LH_SECOND);
    assert_moved(r);
}

// The target has the record of one shard, but refuses its epoch too: it can't serve the other.
TWO_SHARDS(a_move_that_is_given_up_for_one_is_given_up_for_both, struct rig *first)
{
    for (uint32_t k = 0; k < RIG_SHARDS; k++) {
        struct rig *r = k ? rig_new(2) : first;
        if (k) rig_two_shards(r);
        begin_half_of(r, k);
        assert_given_up(r);
        if (k) rig_free(r);
    }
}

// The owner, which would ask the other shard back, is down: the coordinator does it.
TWO_SHARDS(both_are_given_up_while_the_owner_is_away, struct rig *first)
{
    for (uint32_t k = 0; k < RIG_SHARDS; k++) {
        struct rig *r = k ? rig_new(2) : first;
        if (k) rig_two_shards(r);
        begin_half(r);
        rig_kill_server(r, false);
        row(r, k)->unwanted = true;
        rig_run(r, 3 * LH_SECOND);
        for (uint32_t i = 0; i < RIG_SHARDS; i++) assert_int_equal(row(r, i)->move.target, 0);
        if (k) rig_free(r);
    }
}

// The target had both records, and its file says that it began the reserved epochs. Then its log
// lost its end from the record of shard 1 on.
TWO_SHARDS(both_are_given_up_if_the_target_lost_one_record, struct rig *r)
{
    begin_half(r);
    rig_kill_standby(r, false);
    lh_fake_boot(r->t.env);
    for (uint32_t k = 0; k < RIG_SHARDS; k++)
        assert_int_equal(ps_epoch_write(r->t.env, r->t.dir, k, 2, 77), LH_OK);
    lh_fake_kill(r->t.env, false);
    streams = 1; // the record of shard 1 is not sent again
    assert_int_equal(rig_start_standby(r), LH_OK);
    rig_run(r, LH_SECOND);
    for (uint32_t k = 0; k < RIG_SHARDS; k++) assert_int_equal(r->standby->shard[k]->begun, 2);
    assert_int_not_equal(ledger(r->standby, 0)->move.epoch, 0);
    assert_given_up(r);
}

// Damages the node's log from this place to its end.
static void damage_from(const struct rig_node *n, const struct ps_place *from)
{
    char path[LH_PATH_BYTES];
    struct lh_buf b = lh_buf(1 << 22);
    lh_fake_boot(n->env);
    assert_int_equal(
        lh_path(path, sizeof path, n->dir, "log/%016llx.seg", (unsigned long long)from->segment),
        LH_OK);
    assert_int_equal(lh_file_load(n->env, path, &b), LH_OK);
    size_t end = b.len;
    while (end > from->at && !b.data[end - 1]) end--;
    assert_true(end > from->at);
    for (size_t at = from->at; at < end; at += 8)
        assert_int_equal(lh_fake_flip(n->env, path, at, 1), LH_OK);
    lh_buf_free(&b);
    lh_fake_kill(n->env, false);
}

// Without a delay a server whose epoch is refused would ask forever at one virtual time.
static bool takes_time(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                       struct lh_fate *fate)
{
    (void)arg;
    (void)from;
    (void)to;
    (void)rpc;
    fate->delay_ns = LH_MS;
    return true;
}

// The target serves both, which nobody knows yet, and has a checkpoint of shard 0 in that epoch.
// Then it loses its log's end, and with it the record of shard 1.
static void begin_checkpoint_alone(struct rig *r)
{
    begin(r);
    r->shard = 0;
    rig_log(r, 1, 2); // DIGEST, MOVE and EPOCH make it five: a checkpoint is due
    ask(r);
    for (int i = 0; i < 50000 && !r->server->shard[1]->wish.epoch; i++) rig_run(r, LH_MS / 10);
    rig_kill_coordinator(r);
    rig_run(r, LH_SECOND);
    for (uint32_t k = 0; k < RIG_SHARDS; k++) {
        assert_true(decides(r->standby, k));
        assert_int_equal(ledger(r->standby, k)->epoch, 2);
    }
    const struct ps_shard *kept = r->standby->shard[0], *lost = r->standby->shard[1];
    assert_int_equal(kept->checkpointed, kept->replica.ledger.version);
    assert_int_equal(lost->checkpointed, 0);
    const struct ps_place *record = ps_shard_place(lost, lost->replica.ledger.version - 1);
    assert_non_null(record);
    struct ps_place from = *record;
    rig_kill_standby(r, false);
    damage_from(&r->t, &from);
    assert_int_equal(rig_start_standby(r), LH_OK);
    assert_int_equal(ledger(r->standby, 0)->epoch, 2);
    assert_true(ledger(r->standby, 1)->epoch < 2);
    assert_int_equal(ledger(r->standby, 1)->move.epoch, 0);
    for (uint32_t k = 0; k < RIG_SHARDS; k++) assert_int_equal(r->standby->shard[k]->begun, 3);
    lh_fabric_fates(r->fabric, takes_time, r);
    rig_start_coordinator(r);
}

// The target says that it served shard 0 in the reserved epoch, and refuses the epoch of shard 1
// (seed 6502981 of all,move,full_target).
TWO_SHARDS(both_are_given_up_if_only_a_checkpoint_shows_service, struct rig *r)
{
    begin_checkpoint_alone(r);
    rig_run(r, 3 * LH_SECOND);
    assert_taken_back(r);
    assert_true(r->standby->phase == PS_STANDBY);
    ask(r);
    rig_run(r, 5 * LH_SECOND);
    assert_moved(r);
}

// The target sent a report as the owner while it served. It arrives after the target has refused,
// and before the former owner has opened an epoch.
TWO_SHARDS(nothing_goes_to_a_target_that_refused_by_what_it_said_before, struct rig *r)
{
    begin_checkpoint_alone(r);
    for (int i = 0; i < 50000 && row(r, 1)->move.target; i++) rig_run(r, LH_MS / 10);
    for (uint32_t k = 0; k < RIG_SHARDS; k++) {
        struct lh_point head = {.epoch = 2, .version = 5};
        assert_int_equal(row(r, k)->move.target, 0);
        assert_int_equal(ps_co_epoch(row(r, k)), 1);
        assert_int_equal(ps_co_heard_owner(r->coordinator, k, r->standby->standby.identity,
                                           lh_worker_id(&r->t.self), 77, &head),
                         LH_ERR_FENCED);
    }
    rig_run(r, 3 * LH_SECOND);
    assert_taken_back(r);
}

// The owner has to open an epoch of shard 1 before it has written a record.
TWO_SHARDS(no_epoch_is_kept_for_one_shard_alone, struct rig *r)
{
    begin(r);
    ask(r);
    row(r, 1)->unwanted = true;
    rig_run(r, 3 * LH_SECOND);
    assert_int_equal(r->fatal_count, 0);
    for (uint32_t k = 0; k < RIG_SHARDS; k++) {
        assert_int_equal(row(r, k)->move.target, 0);
        assert_int_equal(r->standby->shard[k]->begun, 3);
        assert_true(decides(r->server, k));
    }
}

// Delivers a late answer that asks to give up the move of this shard.
static void told_to_refuse(struct rig *r, uint32_t shard)
{
    const struct lh_shard_move move = {.shard = shard, .epoch = 2};
    const struct lh_report_reply m = {.n_moves = 1, .moves = &move};
    ps_move_told(r->standby, &m);
}

// A target with both records may have served, so it says that it has them instead of refusing.
TWO_SHARDS(a_target_that_has_both_records_refuses_nothing, struct rig *r)
{
    begin(r);
    ask(r);
    for (int i = 0; i < 50000 && !ledger(r->standby, 1)->move.epoch; i++) rig_run(r, LH_MS / 10);
    assert_int_not_equal(ledger(r->standby, 0)->move.epoch, 0);
    rig_kill_standby(r, false);
    rig_kill_coordinator(r);
    assert_int_equal(rig_start_standby(r), LH_OK);
    told_to_refuse(r, 0);
    assert_in_range(r->standby->shard[0]->begun, 0, 2);
    rig_start_coordinator(r);
    rig_run(r, 5 * LH_SECOND);
    assert_moved(r);
}

// The standby hears that another server has an epoch, and then gets records that would give it that
// epoch, like those of an old move. It asks, and serves in a later one.
TWO_SHARDS(records_into_an_epoch_that_is_registered_do_not_give_it_again, struct rig *r)
{
    struct lh_shard_address owner[RIG_SHARDS];
    begin(r);
    for (uint32_t k = 0; k < RIG_SHARDS; k++) // a move reserves epoch 2 here
        owner[k] = (struct lh_shard_address){.shard = k, .address = r->s.address, .epoch = 2};
    const struct lh_report_reply m = {.n_owners = RIG_SHARDS, .owners = owner};
    ps_standby_told(r->standby, &m);
    ask(r);
    rig_run(r, 5 * LH_SECOND);
    for (uint32_t k = 0; k < RIG_SHARDS; k++) {
        assert_true(decides(r->standby, k));
        assert_int_equal(ledger(r->standby, k)->epoch, 3);
    }
}

static bool late_words(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                       struct lh_fate *fate)
{
    const struct rig *r = arg;
    bool words = rpc == LH_RPC_REPORT || rpc == LH_RPC_INSYNC;
    (void)to;
    if (words && strcmp(from, r->s.self.name) == 0) fate->delay_ns = 600 * LH_MS;
    return true;
}

// The owner's reports on the epoch that it gave up arrive after the next epoch was opened.
TWO_SHARDS(an_owner_that_takes_a_move_back_is_not_fenced_by_its_own_late_words, struct rig *r)
{
    r->replicated = true;
    begin(r);
    ask(r);
    for (uint32_t k = 0; k < RIG_SHARDS; k++) row(r, k)->unwanted = true;
    rig_run(r, 2 * LH_SECOND);
    for (uint32_t k = 0; k < RIG_SHARDS; k++) assert_int_equal(row(r, k)->move.target, 0);
    lh_fabric_fates(r->fabric, late_words, r);
    for (uint32_t k = 0; k < RIG_SHARDS; k++) { // told after it was given up
        struct ps_shard *s = r->server->shard[k];
        assert_int_equal(s->insync.state, PS_IN_SYNC);
        s->insync.settled = false; // it asks when its standby next reports
        row(r, k)->standby = 0;    // as when the standby reported a loss
        row(r, k)->changes++;
        assert_int_equal(ps_co_store_insync(r->coordinator, k), LH_OK);
        s->wish = (struct lh_move){2, r->standby->standby.identity};
    }
    ps_raise(r->server, PS_WISHED);
    rig_run(r, 300 * LH_MS);
    for (uint32_t k = 0; k < RIG_SHARDS; k++) {
        assert_int_not_equal(ledger(r->server, k)->move.epoch, 0);
        assert_non_null(r->server->shard[k]->insync.ask);
    }
    rig_run(r, 6 * LH_SECOND);
    lh_fabric_fates(r->fabric, NULL, NULL);
    assert_int_equal(r->fatal_count, 0);
    for (uint32_t k = 0; k < RIG_SHARDS; k++) {
        assert_true(decides(r->server, k));
        assert_int_equal(ledger(r->server, k)->epoch, 3);
    }
}

// Another server has the shards, and their former owner is down, with the logs of both.
static void begin_taken_over(struct rig *r)
{
    rig_serve(r, 2 * LH_SECOND);
    for (r->shard = RIG_SHARDS; r->shard--;) rig_hello(r, 0, 1ull << 32, 0, 1);
    rig_run(r, LH_SECOND);
    rig_kill_server(r, false);
    for (uint32_t k = 0; k < RIG_SHARDS; k++)
        assert_int_equal(
            ps_co_set_owner(r->coordinator, k, &(struct ps_co_owner){.identity = 77, .server = 7}),
            LH_OK);
    rig_settle(r);
}

// An operator lets the former owner go on (below_stable). Its log needs a new epoch for shard 0,
// but not for shard 1 (seed 5692 of all,move).
TWO_SHARDS(an_operators_word_is_for_all_shards_of_a_server, struct rig *r)
{
    begin_taken_over(r);
    lh_fake_boot(r->s.env);
    assert_int_equal(ps_epoch_write(r->s.env, r->s.dir, 0, 5, 9), LH_OK);
    lh_fake_kill(r->s.env, false);
    r->below_stable = true;
    assert_int_equal(rig_start_server(r, false), LH_OK);
    rig_run(r, 10 * LH_SECOND);
    assert_int_equal(r->fatal_count, 0);
    for (uint32_t k = 0; k < RIG_SHARDS; k++) {
        assert_true(decides(r->server, k));
        assert_int_equal(row(r, k)->owner, 0);
    }
}

// If no shard needs that setting, it takes none from the present owner: it may have been left in
// the settings.
TWO_SHARDS(a_word_that_is_not_needed_takes_no_shard, struct rig *r)
{
    begin_taken_over(r);
    r->below_stable = true;
    assert_int_equal(rig_start_server(r, false), LH_OK);
    rig_run(r, 10 * LH_SECOND);
    assert_true(r->server->phase == PS_STOPPED);
    for (uint32_t k = 0; k < RIG_SHARDS; k++) assert_int_equal(row(r, k)->owner, 77);
}

// Delivers an answer to a report that gives up the moves of these shards.
static void give_up(struct ps_server *s, size_t n, const uint32_t *shards, uint64_t epoch)
{
    struct lh_shard_move moves[RIG_SHARDS] = {{0}};
    struct lh_report_reply m = {.moves = moves, .n_moves = n};
    for (size_t i = 0; i < n; i++) {
        moves[i].shard = shards[i];
        moves[i].epoch = epoch;
    }
    ps_move_told(s, &m);
}

static const uint32_t both[] = {0, 1};

// Storing the next shard's refusal does not make up for one that could not be stored.
TWO_SHARDS(a_refusal_that_cannot_be_stored_ends_the_target, struct rig *r)
{
    begin(r);
    lh_fake_fail_at(r->t.env, 0, LH_ERR_IO);
    give_up(r->standby, 2, both, 9);
    assert_true(lh_fake_failed(r->t.env));
    assert_int_equal(r->fatal_count, 1);
    assert_true(r->standby->shard[0]->begun < 9 && r->standby->shard[1]->begun < 9);
}

// A server refuses only a move to itself: this one may be an old one.
TWO_SHARDS(an_owner_that_hears_of_a_move_given_up_begins_no_epoch_for_it, struct rig *r)
{
    begin(r);
    uint64_t before = r->server->shard[0]->begun;
    give_up(r->server, 2, both, 9);
    rig_run(r, LH_SECOND);
    assert_int_equal(r->server->shard[0]->begun, before);
    assert_int_equal(r->fatal_count, 0);
    assert_true(decides(r->server, 0) && decides(r->server, 1));
}

// The target has the records of both, but refused the epoch of one before. It can't serve them, so
// it can still refuse the other.
TWO_SHARDS(a_target_that_refused_one_refuses_the_other, struct rig *r)
{
    begin(r);
    for (uint32_t k = 0; k < RIG_SHARDS; k++) {
        struct ps_shard *s = r->standby->shard[k];
        s->replica.ledger.move = (struct lh_move){9, r->standby->standby.identity};
        assert_true(ps_shard_moved_here(s));
    }
    r->standby->shard[1]->begun = 9;
    give_up(r->standby, 1, both, 9);
    assert_int_equal(r->standby->shard[0]->begun, 0); // too late: epoch 9 is begun
    r->standby->shard[1]->begun = 10;
    give_up(r->standby, 1, both, 9);
    assert_int_equal(r->standby->shard[0]->begun, 10);
}
