// Silence counts only while the listener itself ran (server/docs/0000-protocol.md#rule-28): the
// coordinator listens to servers and workers, an owner to its standby.
#include <string.h>

#include "tests/head.h"
#include "server/coordinator/owners/move.h"
#include "server/push/insync.h"
#include "tests/cores/image.h"
#include "tests/cores/words.h"

static struct ps_co_shard *row(struct rig *r)
{
    return &r->coordinator->shard[0];
}

static struct ps_insync *insync(struct rig *r)
{
    return &r->server->shard[0]->insync;
}

// As if the listening process had been paused for so long until now, while all others ran on.
static void away(struct lh_listener *l, int64_t ns)
{
    l->looked_ns -= ns;
}

// ---------------------------------------------------------------- pauses

RIG_TEST(a_pause_of_the_coordinator_deposes_nobody_and_gives_nobody_up, struct rig *r)
{
    rig_begin_in_sync(r);
    struct ps_coordinator *c = r->coordinator;
    assert_int_equal(rig_join(r, 0, 1, 0).granted, 1);
    for (int64_t i = 0; i < 20; i++) {
        c->conf.worker_timeout_ns = 2 * LH_SECOND;
        c->worker[0].seen_ns = ps_co_now(c);
        away(&c->listener, (1 + i % 4) * LH_SECOND);
        // The checks fall on different moments between reports.
        rig_run(r, 1800 * LH_MS + i * 13 * LH_MS);
        assert_int_equal(row(r)->owner, 0);
        assert_true(c->worker[0].live);
        rig_run(r, 4 * LH_SECOND); // until the rest is over
        assert_false(lh_listener_rests(&c->listener));
    }
    assert_int_equal(r->fatal_count, 0);
    assert_true(r->server->phase == PS_SERVING);
}

RIG_TEST(a_dead_owner_is_given_up_after_a_pause_too, struct rig *r)
{
    rig_begin_in_sync(r);
    rig_kill_server(r, false);
    away(&r->coordinator->listener, 5 * LH_SECOND);
    rig_run(r, 5 * LH_SECOND); // the rest
    assert_false(r->standby->phase == PS_SERVING);
    rig_run(r, 3 * LH_SECOND);
    assert_true(r->standby->phase == PS_SERVING);
    assert_int_equal(row(r)->owner, r->standby->standby.identity);
}

// Drops all reports, or all but the standby's (`standby`).
struct ahead {
    const struct rig *rig;
    bool standby;
};

static bool ahead(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                  struct lh_fate *fate)
{
    const struct ahead *a = arg;
    (void)to;
    (void)fate;
    return rpc != LH_RPC_REPORT || (a->standby && strcmp(from, a->rig->t.self.name) == 0);
}

// The owner was silent for long enough before the pause, and after it the standby's report is read
// first (seed 2043 of all,standby).
RIG_TEST(earlier_silence_deposes_nobody_while_reports_are_unread, struct rig *r)
{
    struct ahead a = {.rig = r};
    rig_begin_in_sync(r);
    lh_fabric_fates(r->fabric, ahead, &a);
    rig_run(r, 3 * LH_SECOND); // longer than the take-over time
    away(&r->coordinator->listener, 4 * LH_SECOND);
    a.standby = true;
    rig_run(r, 1500 * LH_MS);
    assert_int_equal(row(r)->owner, 0);
    lh_fabric_fates(r->fabric, NULL, NULL); // now the owner's reports are read too
    rig_run(r, 10 * LH_SECOND);
    assert_int_equal(row(r)->owner, 0);
    assert_true(r->server->phase == PS_SERVING);
}

static size_t units_for(struct rig *r, uint32_t want)
{
    Longhaul__V1__LeaseRequest m = LONGHAUL__V1__LEASE_REQUEST__INIT;
    ProtobufCMessage *answer;
    m.incarnation = 1ull << 32;
    m.want = want;
    assert_int_equal(rig_ask(r, r->to_c[0], LH_RPC_LEASE, &m.base, &answer), LH_OK);
    size_t n = ((Longhaul__V1__LeaseReply *)answer)->n_units;
    rig_free_message(answer);
    return n;
}

RIG_TEST(no_unit_is_leased_by_what_was_known_before_a_pause, struct rig *r)
{
    rig_serve(r, LH_SECOND);
    assert_int_equal(rig_join(r, 0, 1, 0).granted, 1);
    rig_run(r, LH_SECOND);
    assert_int_equal(units_for(r, 2), 2);
    away(&r->coordinator->listener, 3 * LH_SECOND);
    assert_int_equal(units_for(r, 4), 2); // the ones that it has
    rig_run(r, LH_SECOND);                // the server reports
    assert_true(lh_listener_rests(&r->coordinator->listener));
    assert_int_equal(units_for(r, 4), 4);
}

// Delays the standby's confirms.
static bool delay(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                  struct lh_fate *fate)
{
    struct rig *r = arg;
    (void)to;
    if (rpc == LH_RPC_CONFIRM && strcmp(from, r->t.self.name) == 0) fate->delay_ns = 600 * LH_MS;
    return true;
}

RIG_TEST(a_pause_of_the_owner_is_not_its_standbys_silence, struct rig *r)
{
    rig_begin_in_sync(r);
    lh_fabric_fates(r->fabric, delay, r);
    rig_greet(r, 0, 7ull << 32, 0, 1);
    for (int i = 0; i < 1000 && !insync(r)->waiting; i++) rig_run(r, LH_MS / 10);
    assert_non_null(insync(r)->waiting);
    away(&insync(r)->listener, 3 * LH_SECOND);
    for (int i = 0; i < 3000 && insync(r)->waiting; i++) {
        rig_run(r, LH_MS);
        assert_int_equal(insync(r)->state, PS_IN_SYNC);
    }
    assert_null(insync(r)->waiting);
    lh_fabric_fates(r->fabric, NULL, NULL);
    rig_kill_standby(r, false); // a standby that is down is still struck out
    assert_int_equal(rig_fence(r, 0, 8ull << 32), LH_OK);
    assert_int_equal(insync(r)->state, PS_ALONE);
}

// Fates of one server's reports.
struct reports {
    struct rig_node *of;
    uint32_t hangs; // count of reports still to hang until they time out
    int64_t delay_ns;
};

static bool report_fate(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                        struct lh_fate *fate)
{
    struct reports *p = arg;
    (void)to;
    if (rpc != LH_RPC_REPORT || strcmp(from, p->of->self.name) != 0) return true;
    fate->delay_ns = p->hangs ? 60 * LH_SECOND : p->delay_ns;
    p->hangs -= p->hangs > 0;
    return true;
}

RIG_TEST(a_report_that_nobody_answers_does_not_silence_its_owner, struct rig *r)
{
    struct reports p = {.of = &r->s, .hangs = 2};
    rig_begin_in_sync(r);
    lh_fabric_fates(r->fabric, report_fate, &p);
    rig_run(r, 8 * LH_SECOND);
    assert_int_equal(p.hangs, 0);
    assert_int_equal(row(r)->owner, 0);
    assert_false(r->standby->phase == PS_SERVING);
    lh_fabric_fates(r->fabric, NULL, NULL);
}

RIG_TEST(a_round_trip_longer_than_the_take_over_is_no_silence, struct rig *r)
{
    struct reports p = {.of = &r->s,
                        // Delay of each message; the take-over comes after 1.5 s.
                        .delay_ns = 1200 * LH_MS};
    rig_begin_in_sync(r);
    lh_fabric_fates(r->fabric, report_fate, &p);
    for (int i = 0; i < 8; i++) {
        uint64_t heard = r->server->report_heard;
        rig_run(r, 3 * LH_SECOND);
        assert_int_equal(row(r)->owner, 0);
        assert_true(r->server->report_heard > heard); // a report was answered meanwhile
    }
    lh_fabric_fates(r->fabric, NULL, NULL);
}

// As if the coordinator had lost its power with a report of the standby unread; then the owner
// dies.
RIG_TEST(a_report_that_nobody_answers_does_not_keep_a_standby_from_taking_over, struct rig *r)
{
    struct reports p = {.of = &r->t, .hangs = 1};
    rig_begin_in_sync(r);
    lh_fabric_fates(r->fabric, report_fate, &p);
    rig_run(r, LH_SECOND);
    assert_int_equal(p.hangs, 0);
    rig_kill_server(r, true);
    rig_run(r, 3 * LH_SECOND); // less than that report's deadline
    assert_true(r->standby->phase == PS_SERVING);
    lh_fabric_fates(r->fabric, NULL, NULL);
}

// An answer to a report as a standby could arrive between the take-over and its first record, and
// be taken for an answer to the owner.
RIG_TEST(a_new_owner_drops_its_reports_as_a_standby, struct rig *r)
{
    struct reports p = {.of = &r->t, .delay_ns = 700 * LH_MS};
    uint32_t under_way = 0;
    rig_begin_in_sync(r);
    lh_fabric_fates(r->fabric, report_fate, &p);
    rig_run(r, 2 * LH_SECOND);
    rig_kill_server(r, true);
    for (int i = 0; i < 10000 && r->standby->phase == PS_STANDBY; i++) {
        under_way = 0;
        for (int k = 0; k < PS_REPORTS_MAX; k++) under_way += r->standby->report[k].call != NULL;
        rig_run(r, LH_MS);
    }
    assert_true(under_way > 1);
    for (int k = 0; k < PS_REPORTS_MAX; k++) assert_null(r->standby->report[k].call);
    lh_fabric_fates(r->fabric, NULL, NULL);
}

// The answer gives the standby another identity. It reports under the old one only once.
RIG_TEST(a_standby_that_gives_its_name_up_waits_for_the_answer, struct rig *r)
{
    struct reports p = {.of = &r->t, .hangs = 1};
    rig_begin_in_sync(r);
    uint64_t name = row(r)->standby;
    rig_kill_standby(r, false);
    image_damage_tail(&r->t);
    r->rebuild_damaged = true;
    lh_fabric_fates(r->fabric, report_fate, &p);
    assert_int_equal(rig_start_standby(r), LH_OK);
    assert_true(r->standby->standby.lost);
    rig_run(r, 3 * LH_SECOND);
    assert_int_equal(r->standby->reports_sent, 1);
    rig_run(r, 5 * LH_SECOND);
    assert_int_not_equal(r->standby->standby.identity, name);
    lh_fabric_fates(r->fabric, NULL, NULL);
}

// If a standby's reports overtake each other, the newest one counts.
RIG_TEST(a_report_that_was_overtaken_says_nothing_of_its_standby, struct rig *r)
{
    static const struct {
        uint64_t process, number;
        bool noted;
    } said[] = {{1, 2, true}, {1, 1, false}, {1, 3, true}, {1, 3, true},
                {2, 1, true}, {2, 2, true},  {2, 1, false}};
    rig_start_coordinator(r);
    const struct ps_co_standby *noted = row(r)->standing;
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        const struct lh_report_request m = {
            .address = "", .process = said[i].process, .standby = 7, .number = said[i].number};
        const struct lh_shard_report report = {.has_head = true,
                                               .head = {.at = {.epoch = 1, .version = 100 + i}}};
        uint64_t before = noted->head.version;
        ps_co_note_standby(r->coordinator, &r->t.self, &m, &report);
        assert_int_equal(noted->head.version, said[i].noted ? 100 + i : before);
    }
}

// ---------------------------------------------------------------- pushes that wait

// Worker 0 says that a push has waited for so long. Returns whether it now counts as stalled.
static bool stalls(struct rig *r, struct words *s, int64_t waits_s)
{
    const struct ps_coordinator *c = r->coordinator;
    s->waits_ms = (uint64_t)waits_s * 1000;
    say(r, 0, s);
    uint32_t w = ps_co_worker_index(c, lh_worker_id(&r->w[0].self));
    return c->worker[w].stall.why != PS_CO_GOES_ON;
}

// A server is down for a minute. Back again, it admits worker 1's pushes first. Worker 0's push has
// waited as long as the server was silent, which must not count against the worker.
TEST(a_server_that_was_silent_stalls_nobody_when_it_is_back)
{
    enum { FLOOR_S = 30 };
    struct rig *r = begun_run(40, 300 * LH_SECOND);
    struct ps_coordinator *c = r->coordinator;
    struct words a = {.want = 4, .units_per_s = 1, .batch_s = 0.1, .step_ms = 100, .push_s = 0.2};
    struct words b = a;
    c->conf.worker_timeout_ns = 600 * LH_SECOND;
    c->conf.stall_floor_ns = FLOOR_S * LH_SECOND;
    say(r, 0, &a);
    say(r, 1, &b);
    rig_kill_server(r, false);
    rig_run(r, 2 * FLOOR_S * LH_SECOND);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    rig_run(r, 3 * LH_SECOND);
    row(r)->grew_ns = c->listener.ns; // worker 1's push
    assert_false(stalls(r, &a, 2 * FLOOR_S + 3));
    rig_run(r, (FLOOR_S - 5) * LH_SECOND);
    assert_false(stalls(r, &a, 3 * FLOOR_S - 2));
    rig_run(r, 5 * LH_SECOND);
    assert_true(stalls(r, &a, 3 * FLOOR_S + 3));
    rig_free(r);
}
