// The judge against hand-made histories: for each check one history that is wrong, and a similar
// one that is right. They cover durable records, answers, and servers.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/core.h"
#include "server/core.h"
#include "tests/sim/made_cases.h"

static void judge_acknowledged(struct made *m)
{
    sim_judge_acknowledged(m->sim, 0);
}

// ---------------------------------------------------------------- acknowledgements

MADE_TEST(an_acknowledged_push_is_in_the_log, struct made *m)
{
    struct sim_node *server = &m->sim->node[SERVER];
    made_fence(m);
    made_push(m, server, 1);
    sim_saw_answer(server, m->digest, true);
    judge_acknowledged(m);
    made_clean(m->sim);
    assert_int_equal(m->sim->met.acknowledged, 1);
}

MADE_TEST(an_answer_before_its_record_is_found, struct made *m)
{
    made_fence(m);
    made_push(m, NULL, 1);
    sim_saw_answer(&m->sim->node[SERVER], m->digest, true);
    made_found(m->sim, "no such record");
}

MADE_TEST(an_answer_that_says_the_opposite_is_found, struct made *m)
{
    made_fence(m);
    made_push(m, &m->sim->node[SERVER], 1);
    sim_saw_answer(&m->sim->node[SERVER], m->digest, false);
    made_found(m->sim, "no such record");
}

MADE_TEST(a_worker_that_heard_of_what_no_log_ever_had_is_found, struct made *m)
{
    struct lh_incarnation i = {INCARNATION, RANDOM};
    made_fence(m);
    sim_saw_told(m->sim, 0, 0, i, 1, true);
    judge_acknowledged(m);
    made_found(m->sim, "acknowledged and is not in the log");
}

MADE_TEST(a_take_over_may_not_cut_off_what_was_acknowledged, struct made *m)
{
    m->sim->conf.faults.standby = true;
    made_acknowledged(m);
    made_epoch(m, &m->sim->node[STANDBY], 1);
    made_clean(m->sim);
    judge_acknowledged(m);
    made_found(m->sim, "acknowledged and is not in the log");
}

MADE_TEST(it_may_cut_off_what_nobody_was_told_of, struct made *m)
{
    m->sim->conf.faults.standby = true;
    made_fence(m);
    made_push(m, &m->sim->node[SERVER], 1);
    made_epoch(m, &m->sim->node[STANDBY], 1);
    judge_acknowledged(m);
    made_clean(m->sim);
}

MADE_TEST(losses_of_a_lost_disk_are_exempt_and_counted, struct made *m)
{
    made_acknowledged(m);
    sim_saw_loss(&m->sim->node[SERVER], SIM_LOSS_DISK, NULL);
    made_epoch(m, &m->sim->node[SERVER], 1);
    judge_acknowledged(m);
    made_clean(m->sim);
    assert_int_equal(m->sim->met.exempt[SIM_LOSS_DISK], 1);
    assert_int_equal(m->sim->met.acknowledged, 1);
}

MADE_TEST(without_a_fault_no_version_becomes_another_one, struct made *m)
{
    made_acknowledged(m);
    made_epoch(m, &m->sim->node[SERVER], 1);
    made_found(m->sim, "is another one now");
}

MADE_TEST(another_nodes_loss_is_no_excuse, struct made *m)
{
    made_acknowledged(m);
    sim_saw_loss(&m->sim->node[STANDBY], SIM_LOSS_DISK, NULL);
    made_epoch(m, &m->sim->node[SERVER], 1);
    judge_acknowledged(m);
    made_found(m->sim, "acknowledged and is not in the log");
}

MADE_TEST(a_loss_excuses_nothing_that_it_left, struct made *m)
{
    made_acknowledged(m);
    sim_saw_loss(&m->sim->node[SERVER], SIM_LOSS_DAMAGE, NULL);
    sim_log_of(m->sim, 0)->loss[0].floor = 2;
    made_epoch(m, &m->sim->node[SERVER], 1);
    made_found(m->sim, "left all up to 2");
}

MADE_TEST(nothing_is_cut_off_below_the_stable_point, struct made *m)
{
    made_acknowledged(m);
    sim_saw_loss(&m->sim->node[SERVER], SIM_LOSS_DISK, NULL);
    m->sim->judging->stored.shard[0].stable = (struct sim_point){.epoch = 1, .version = 2};
    made_epoch(m, &m->sim->node[SERVER], 1);
    made_found(m->sim, "2 was stable");
}

MADE_TEST(a_loss_is_an_excuse_once, struct made *m)
{
    made_acknowledged(m);
    sim_saw_loss(&m->sim->node[SERVER], SIM_LOSS_TAIL, NULL);
    sim_log_of(m->sim, 0)->loss[0].floor = 1;
    made_epoch(m, &m->sim->node[SERVER], 1);
    made_push(m, &m->sim->node[SERVER], 1);
    sim_saw_answer(&m->sim->node[SERVER], m->digest, true);
    made_epoch(m, &m->sim->node[SERVER], 2);
    judge_acknowledged(m);
    made_found(m->sim, "acknowledged and is not in the log");
}

MADE_TEST(while_a_standby_is_in_sync_a_lost_disk_is_no_excuse, struct made *m)
{
    struct ps_server server = {.standby.identity = IDENTITY};
    made_acknowledged(m);
    m->sim->conf.faults.standby = true;
    m->sim->judging->stored.shard[0].standby = IDENTITY + 1;
    m->sim->node[SERVER].server = &server;
    sim_saw_loss(&m->sim->node[SERVER], SIM_LOSS_DISK, NULL);
    m->sim->node[SERVER].server = NULL;
    made_epoch(m, &m->sim->node[SERVER], 1);
    made_found(m->sim, "a standby was in sync");
}

MADE_TEST(a_record_that_changes_within_its_epoch_is_found, struct made *m)
{
    struct sim_record first;
    made_acknowledged(m);
    sim_saw_loss(&m->sim->node[SERVER], SIM_LOSS_TAIL, NULL);
    assert_true(sim_read_record(lh_blob_span(m->sim->kept[0][1]), &first));
    m->chain = first.chain;
    m->version = 1;
    made_push(m, &m->sim->node[SERVER], 2);
    made_found(m->sim, "changed without a new epoch");
}

MADE_TEST(a_record_that_is_cut_short_is_none, void *unused)
{
    struct lh_buf bytes = lh_buf(256);
    struct lh_record r = {.version = 1, .epoch = 1, .kind = LH_FENCE, .body = {NULL, 0}};
    lh_record_write_header(&r, &bytes);
    struct sim_record out;
    assert_true(sim_read_record(lh_buf_span(&bytes), &out));
    assert_false(sim_read_record(lh_span(bytes.data, bytes.len - 1), &out));
    lh_put_u8(&bytes, 0); // a byte more than its header says
    assert_false(sim_read_record(lh_buf_span(&bytes), &out));
    lh_buf_free(&bytes);
}

// ---------------------------------------------------------------- states

// Folds the same log with the product's replica and with the judge's fold.
static void fold_both(struct made *m, struct lk_replica *theirs, struct sim_fold *own, float *theta)
{
    struct sim *s = m->sim;
    uint8_t job[LH_JOB_BYTES];
    float *q = calloc(s->manifest.values, sizeof *q);
    assert_non_null(q);
    memcpy(job, SIM_JOB, LH_JOB_BYTES);
    assert_int_equal(lk_replica_create(theirs, job, &s->manifest, 0, s->keys), LH_OK);
    sim_fold_begin(own, lh_span(SIM_JOB, LH_JOB_BYTES), &s->manifest.hash, 0, 1, theta,
                   s->manifest.values);
    for (uint64_t v = 1; v <= m->version; v++) {
        struct lh_record r;
        struct sim_record mine;
        uint32_t body;
        struct lh_span bytes = lh_blob_span(s->kept[0][v]);
        assert_int_equal(lh_record_parse_header(bytes, &r, &body), LH_OK);
        r.body = lh_span(bytes.data + LH_RECORD_HEADER_BYTES, body);
        assert_int_equal(lk_replica_apply(theirs, &r), LH_OK);
        assert_true(sim_read_record(bytes, &mine));
        if (mine.kind == LH_ADMIT) assert_true(sim_payload(s, 0, mine.body, q));
        assert_null(sim_fold_next(own, &mine, q));
    }
    free(q);
}

MADE_TEST(a_state_is_the_fold_of_its_log_in_bits, struct made *m)
{
    struct lk_replica theirs;
    struct sim_fold own;
    float theta[64] = {0};
    made_acknowledged(m);
    made_push(m, &m->sim->node[SERVER], 2);
    fold_both(m, &theirs, &own, theta);
    assert_null(sim_state_differs(&own, &theirs));
    assert_true(theta[0] == -3);
    theirs.ledger.row[0].tokens++;
    assert_string_equal(sim_state_differs(&own, &theirs), "a row");
    theirs.ledger.row[0].tokens--;
    theirs.ledger.row[0].last_digest.b[2] ^= 1;
    assert_string_equal(sim_state_differs(&own, &theirs), "a row");
    theirs.ledger.row[0].last_digest.b[2] ^= 1;
    own.credited[1] = true;
    assert_string_equal(sim_state_differs(&own, &theirs), "credits");
    own.credited[1] = false;
    theirs.ledger.admitted++;
    assert_string_equal(sim_state_differs(&own, &theirs), "counters");
    theirs.ledger.admitted--;
    theirs.ledger.plan.phase++;
    assert_string_equal(sim_state_differs(&own, &theirs), "plan");
    theirs.ledger.plan.phase--;
    own.rows--;
    assert_string_equal(sim_state_differs(&own, &theirs), "rows");
    own.rows++;
    own.chain.b[0] ^= 1;
    assert_string_equal(sim_state_differs(&own, &theirs), "version, epoch or chain");
    own.chain.b[0] ^= 1;
    theirs.theta[1] = nextafterf(theirs.theta[1], 0);
    assert_string_equal(sim_state_differs(&own, &theirs), "parameters");
    theirs.theta[1] = theta[1];
    assert_null(sim_state_differs(&own, &theirs));
    lk_replica_free(&theirs);
    sim_fold_end(&own);
}

// ---------------------------------------------------------------- standbys

MADE_TEST(a_standby_in_sync_has_all_that_was_acknowledged, struct made *m)
{
    const struct sim_node *standby = &m->sim->node[STANDBY];
    made_acknowledged(m);
    sim_note_copy(m->sim, standby, 0, 1, 2);
    sim_saw_in_sync(m->sim, 0, standby);
    made_clean(m->sim);
    sim_note_copy(m->sim, standby, 0, 1, 1);
    sim_saw_in_sync(m->sim, 0, standby);
    made_found(m->sim, "is in sync and has 1");
}

MADE_TEST(nothing_is_acknowledged_that_the_standby_lacks, struct made *m)
{
    struct ps_server standby = {.standby.identity = IDENTITY};
    made_fence(m);
    made_push(m, &m->sim->node[SERVER], 1);
    m->sim->node[STANDBY].server = &standby;
    m->sim->judging->stored.shard[0].standby = IDENTITY;
    sim_note_copy(m->sim, &m->sim->node[STANDBY], 0, 1, 1);
    sim_saw_answer(&m->sim->node[SERVER], m->digest, true);
    m->sim->node[STANDBY].server = NULL;
    made_found(m->sim, "is in sync and has 1");
}

static void nothing(void *arg)
{
    (void)arg;
}

static void let_pass(struct sim *s, int64_t ns)
{
    lh_fake_at(s->world, ns, nothing, NULL);
    lh_fake_run(s->world, lh_fake_now(s->world) + ns);
}

MADE_TEST(a_server_that_served_all_the_time_is_not_replaced, struct made *m)
{
    struct sim_log *l = sim_log_of(m->sim, 0);
    l->owner = &m->sim->node[SERVER];
    let_pass(m->sim, 10 * LH_SECOND);
    l->served_since = 9 * LH_SECOND;
    sim_saw_taken(m->sim, 0);
    made_clean(m->sim); // less time than it takes to be believed dead
    l->served_since = LH_SECOND;
    m->sim->judging->trouble[SERVER] = 9 * LH_SECOND;
    sim_saw_taken(m->sim, 0);
    made_clean(m->sim); // it could not be reached
    m->sim->judging->trouble[SERVER] = 0;
    sim_saw_taken(m->sim, 0);
    made_found(m->sim, "served and could be heard all the time");
}

// The coordinator prints this about worker 1, 0.1 s later each time.
static void printed_as(struct sim *s, bool live, int64_t bound_ns)
{
    let_pass(s, 100 * LH_MS);
    sim_saw_printed(s, 1, live, bound_ns);
}

MADE_TEST(nobody_is_given_up_before_the_bound_that_was_printed, struct made *m)
{
    struct sim *s = m->sim;
    struct sim_node *worker = &s->node[1 + SIM_SERVERS + 1];
    const int64_t bound = 5 * LH_SECOND;
    sim_saw_heard(worker);
    for (int i = 0; i < 49; i++) printed_as(s, true, bound);
    printed_as(s, false, bound); // 5.0 s
    made_clean(s);
    printed_as(s, true, bound); // live again
    sim_saw_heard(worker);
    for (int i = 0; i < 48; i++) printed_as(s, true, bound);
    printed_as(s, false, bound); // 4.9 s
    made_found(s, "worker 1 was given up after 4.9 s of silence, and its bound was 5.0 s");
}

enum { HINDERED, STANDS_STILL };

// Nobody serves the shard for 6 s. Its standby runs, is in sync or not, and can be reached or not.
// After `at` tenths of a second the coordinator is hindered for a moment, or stopped for `tenths`.
static void wait_for_the_standby(struct made *m, bool cut_off, uint64_t in_sync, int at, int what,
                                 int tenths)
{
    struct lh_transport transport = {0};
    struct ps_coordinator coordinator = {0};
    struct ps_shard shard = {0}, *shards[] = {&shard};
    struct ps_server server = {
        .conf.shard_count = 1, .shard = shards, .standby.identity = IDENTITY};
    struct sim *s = m->sim;
    s->conf.faults.standby = true;
    s->judging->stored.shard[0].standby = in_sync;
    s->node[0].transport = s->node[STANDBY].transport = &transport;
    s->node[0].coordinator = &coordinator;
    s->node[STANDBY].server = &server;
    s->node[STANDBY].cut_off = cut_off;
    for (int i = 0; i < 60; i++) {
        if (i == at && what == HINDERED) sim_saw_trouble(&s->node[0]);
        if (i == at && what == STANDS_STILL)
            lh_fake_stall_at(s->node[0].env, -1, tenths * 100 * LH_MS);
        let_pass(s, 100 * LH_MS);
        sim_look_often(s);
    }
    s->node[0].transport = s->node[STANDBY].transport = NULL;
    s->node[0].coordinator = NULL;
    s->node[STANDBY].server = NULL;
}

MADE_TEST(a_standby_that_is_in_sync_serves_soon, struct made *m)
{
    wait_for_the_standby(m, true, IDENTITY, -1, HINDERED, 0);
    wait_for_the_standby(m, false, IDENTITY + 1, -1, HINDERED, 0);
    wait_for_the_standby(m, false, IDENTITY, 30, HINDERED, 0);
    made_clean(m->sim);
    sim_log_of(m->sim, 0)->silent_since = 0;
    wait_for_the_standby(m, false, IDENTITY, -1, HINDERED, 0);
    made_found(m->sim, "nobody serves it");
}

// Twice the pause is subtracted from the 6 s, and nothing else.
MADE_TEST(a_pause_of_the_coordinator_is_left_out_twice, struct made *m)
{
    wait_for_the_standby(m, false, IDENTITY, 0, STANDS_STILL, 20);
    made_clean(m->sim);
    sim_log_of(m->sim, 0)->silent_since = 0;
    wait_for_the_standby(m, false, IDENTITY, 30, STANDS_STILL, 12);
    made_clean(m->sim);
    sim_log_of(m->sim, 0)->silent_since = 0;
    wait_for_the_standby(m, false, IDENTITY, 30, STANDS_STILL, 5); // time before it counts
    made_found(m->sim, "nobody serves it");
}

// When the last late copy of the former server's reports has arrived, 2.5 s of 6 are left.
MADE_TEST(a_late_copy_of_a_report_is_heard, struct made *m)
{
    int64_t *echo = &m->sim->judging->echo[SERVER];
    sim_log_of(m->sim, 0)->owner = &m->sim->node[SERVER];
    *echo = 3500 * LH_MS;
    wait_for_the_standby(m, false, IDENTITY, -1, HINDERED, 0);
    made_clean(m->sim);
    sim_log_of(m->sim, 0)->silent_since = 0;
    *echo = lh_fake_now(m->sim->world); // a report from before its silence
    m->sim->judging->echo[STANDBY] = *echo + 3500 * LH_MS;
    wait_for_the_standby(m, false, IDENTITY, -1, HINDERED, 0);
    made_found(m->sim, "nobody serves it");
}

// A server serves this version of this epoch; version 2 of epoch 1 is acknowledged.
static void serves(struct made *m, uint64_t epoch, uint64_t version)
{
    struct ps_shard shard = {.replica.ledger = {.epoch = epoch, .version = version}};
    struct ps_shard *shards[] = {&shard};
    struct ps_server server = {.conf.shard_count = 1, .shard = shards, .phase = PS_SERVING};
    m->sim->node[SERVER].server = &server;
    sim_look_often(m->sim);
    m->sim->node[SERVER].server = NULL;
}

MADE_TEST(less_than_was_acknowledged_is_served_under_another_epoch, struct made *m)
{
    made_acknowledged(m);
    serves(m, 1, 2);
    serves(m, 2, 1);
    made_clean(m->sim);
    serves(m, 1, 1);
    made_found(m->sim, "was acknowledged in it");
}
