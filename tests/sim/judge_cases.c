// The judge against histories that were made up: for each thing that it looks for one where it is
// wrong, and a neighbour where it is right.
//
// No core runs. A test says what became durable, what was answered, what a worker holds.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "longhaul/v1/member.pb-c.h"
#include "tests/sim/judge.h"

enum { SERVER = 1, WORKER = 1 + SIM_SERVERS, STANDBY = SIM_FIRST_STANDBY };
enum { INCARNATION = 1, RANDOM = 77, IDENTITY = 500 };

struct made { // a log that is written by hand
    struct sim *sim;
    struct lh_hash chain;
    uint64_t version, epoch, step;
    uint8_t digest[16]; // of the newest push
};

// ---------------------------------------------------------------- a cluster that does not run

static void add_node(struct sim *s, uint32_t at, enum sim_kind kind, enum lh_role role,
                     uint32_t number)
{
    struct sim_node *n = &s->node[at];
    struct lh_peer self = setup_peer(role, number, "sim");
    *n = (struct sim_node){.sim = s, .kind = kind, .index = number, .self = self};
    snprintf(n->name, sizeof n->name, "%s", self.name);
    snprintf(n->dir, sizeof n->dir, "%.31s", self.name);
    n->env = lh_fake_node(s->world, NULL, NULL);
    lh_fake_boot(n->env);
}

static struct sim *sim_new(void)
{
    static const uint64_t shapes[3][5] = {{4, 2}, {3}, {2, 2}};
    static const char *const names[3] = {"a.weight", "b.weight", "c.weight"};
    struct sim *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->conf.exact = true;
    s->codec = (struct lk_codec){LK_INDEX_RICE, LK_VALUE_FP32, 1};
    s->world = lh_fake_world_create(1);
    s->shards = 1;
    assert_int_equal(lh_manifest_build(&s->manifest, 3, names, shapes, 1, NULL), LH_OK);
    s->keys = setup_keys();
    add_node(s, 0, SIM_COORDINATOR, LH_C, 0);
    for (uint32_t i = 0; i < SIM_SERVERS; i++) add_node(s, SERVER + i, SIM_SERVER, LH_S, i);
    for (uint32_t i = 0; i < SIM_WORKERS; i++) add_node(s, WORKER + i, SIM_WORKER, LH_W, i);
    add_node(s, STANDBY, SIM_STANDBY, LH_S, SIM_SERVERS);
    s->nodes = STANDBY + 1;
    s->node[SERVER].shards = s->node[STANDBY].shards = 1;
    for (uint32_t w = 0; w < SIM_WORKERS; w++) {
        struct sim_history *h = &s->history[w][0];
        h->raw = calloc(s->manifest.values, sizeof *h->raw);
        h->gone = calloc(s->manifest.values, sizeof *h->gone);
        h->last = calloc(s->manifest.values, sizeof *h->last);
        assert_true(h->raw && h->gone && h->last);
    }
    sim_judging_begin(s);
    return s;
}

static void sim_free(struct sim *s)
{
    sim_judging_end(s);
    for (uint32_t w = 0; w < SIM_WORKERS; w++) {
        free(s->history[w][0].raw);
        free(s->history[w][0].gone);
        free(s->history[w][0].last);
    }
    for (uint32_t v = 0; v < SIM_VERSIONS_MAX; v++) lh_blob_release(s->kept[0][v]);
    lh_fake_world_destroy(s->world);
    lh_manifest_free(&s->manifest);
    lh_keyring_destroy(s->keys);
    free(s);
}

static int set_up(void **state)
{
    struct made *m = calloc(1, sizeof *m);
    struct sim_fold fold;
    assert_non_null(m);
    m->sim = sim_new();
    sim_fold_begin(&fold, lh_span(SIM_JOB, LH_JOB), &m->sim->manifest.hash, 0, 1, NULL, 0);
    m->chain = fold.chain;
    sim_fold_end(&fold);
    m->epoch = 1;
    *state = m;
    return 0;
}

static int tear_down(void **state)
{
    struct made *m = *state;
    sim_free(m->sim);
    free(m);
    return 0;
}

#define JUDGE_TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

static void assert_found(const struct sim *s, const char *words)
{
    if (!strstr(s->bad, words)) fail_msg("\"%s\" is not in \"%s\"", words, s->bad);
}

static void assert_clean(const struct sim *s)
{
    assert_string_equal(s->bad, "");
}

// ---------------------------------------------------------------- a log by hand

static void make_durable(struct made *m, struct sim_node *server, struct lh_record r)
{
    struct sim_record own = {.version = m->version + 1,
                             .epoch = m->epoch,
                             .kind = r.kind,
                             .reason = r.reason,
                             .scale = r.scale,
                             .body = r.body};
    r.version = ++m->version;
    r.epoch = m->epoch;
    r.chain = m->chain = sim_chain(&m->chain, &own);
    sim_saw_folded(server, 0, &r);
}

static void fence(struct made *m)
{
    struct lh_buf body = lh_buf(64);
    struct lh_incarnation i = {INCARNATION, RANDOM};
    lh_fence_write(m->sim->judging->id[0], i, &body);
    make_durable(m, &m->sim->node[SERVER],
                 (struct lh_record){.kind = LH_FENCE, .body = lh_buf_span(&body)});
    lh_buf_free(&body);
}

// An epoch that begins at version `base`: what was above belongs to no log.
static void begin_epoch(struct made *m, struct sim_node *server, uint64_t base)
{
    struct sim_record last;
    struct lh_buf body = lh_buf(64);
    m->version = base;
    m->epoch++;
    assert_true(sim_read_record(lh_blob_span(m->sim->kept[0][base]), &last));
    m->chain = last.chain;
    lh_put_u64(&body, m->epoch);
    lh_put_u64(&body, base);
    make_durable(m, server, (struct lh_record){.kind = LH_EPOCH, .body = lh_buf_span(&body)});
    lh_buf_free(&body);
}

// Worker 0's next push: each value moves by `by`. Gives the sealed frame.
static struct lh_buf make_frame(struct made *m, float by)
{
    struct sim *s = m->sim;
    const struct lh_shard_layout *layout = &s->manifest.shard[0];
    struct lh_buf plain = lh_buf(1 << 16), frame = lh_buf(1 << 16);
    struct lk_payload_info info;
    float *delta = calloc(layout->values, sizeof *delta);
    assert_non_null(delta);
    for (uint64_t i = 0; i < layout->values; i++) delta[i] = by;
    assert_int_equal(lk_encode(&s->codec, layout, 1, NULL, delta, &plain, &info), LH_OK);
    free(delta);
    struct lh_frame f = {.index_code = s->codec.index,
                         .value_code = s->codec.value,
                         .cipher = LH_CIPHER_XCHACHA20,
                         .density = 1,
                         .key_id = 1,
                         .worker = s->judging->id[0],
                         .incarnation = {INCARNATION, RANDOM},
                         .step = ++m->step,
                         .tokens = 1,
                         .steps = 1,
                         .values = info.values,
                         .plain_bytes = (uint32_t)plain.len,
                         .manifest = s->manifest.hash};
    const struct lh_seal_context context = {f.worker, INCARNATION, RANDOM, 0, LH_SEAL_FRAME};
    memcpy(f.job, SIM_JOB, LH_JOB);
    lh_frame_write_head(&f, &frame);
    struct lh_span head = lh_span(frame.data, frame.len);
    uint8_t *sealed = malloc(plain.len + LH_SEAL_TAG);
    assert_non_null(sealed);
    assert_int_equal(
        lh_seal(s->keys, f.cipher, 1, &context, head, f.nonce, lh_buf_span(&plain), sealed), LH_OK);
    lh_put(&frame, sealed, plain.len + LH_SEAL_TAG);
    free(sealed);
    lh_buf_free(&plain);
    struct sim_frame read;
    assert_true(sim_read_frame(lh_buf_span(&frame), &read));
    sim_frame_digest(lh_buf_span(&frame), &read, m->digest);
    return frame;
}

// It is cut and committed; its record becomes durable if `server` is not NULL.
static void push(struct made *m, struct sim_node *server, float by)
{
    struct sim_history *h = &m->sim->history[0][0];
    struct lh_buf frame = make_frame(m, by);
    h->cut[h->cuts++] = (struct sim_cut){
        .incarnation = {INCARNATION, RANDOM}, .step = m->step, .committed = true, .copy = true};
    for (uint64_t i = 0; i < m->sim->manifest.shard[0].values; i++) h->raw[i] += (double)by;
    if (server)
        make_durable(m, server,
                     (struct lh_record){.kind = LH_ADMIT, .scale = 1, .body = lh_buf_span(&frame)});
    lh_buf_free(&frame);
}

static void judge_acknowledged(struct made *m)
{
    sim_judge_acknowledged(m->sim, 0);
}

// ---------------------------------------------------------------- acknowledgements

static void an_acknowledged_push_is_in_the_log(void **state)
{
    struct made *m = *state;
    struct sim_node *server = &m->sim->node[SERVER];
    fence(m);
    push(m, server, 1);
    sim_saw_answer(server, m->digest, true);
    judge_acknowledged(m);
    assert_clean(m->sim);
    assert_int_equal(m->sim->met.acknowledged, 1);
}

static void an_answer_before_its_record_is_found(void **state)
{
    struct made *m = *state;
    fence(m);
    push(m, NULL, 1);
    sim_saw_answer(&m->sim->node[SERVER], m->digest, true);
    assert_found(m->sim, "no such record");
}

static void an_answer_that_says_the_opposite_is_found(void **state)
{
    struct made *m = *state;
    fence(m);
    push(m, &m->sim->node[SERVER], 1);
    sim_saw_answer(&m->sim->node[SERVER], m->digest, false);
    assert_found(m->sim, "no such record");
}

static void a_worker_that_heard_of_what_no_log_ever_had_is_found(void **state)
{
    struct made *m = *state;
    struct lh_incarnation i = {INCARNATION, RANDOM};
    fence(m);
    sim_saw_told(m->sim, 0, 0, i, 1, true);
    judge_acknowledged(m);
    assert_found(m->sim, "acknowledged and is not in the log");
}

static void acknowledged(struct made *m)
{
    fence(m);
    push(m, &m->sim->node[SERVER], 1);
    sim_saw_answer(&m->sim->node[SERVER], m->digest, true);
}

static void a_take_over_may_not_cut_off_what_was_acknowledged(void **state)
{
    struct made *m = *state;
    m->sim->conf.faults.standby = true;
    acknowledged(m);
    begin_epoch(m, &m->sim->node[STANDBY], 1);
    assert_clean(m->sim);
    judge_acknowledged(m);
    assert_found(m->sim, "acknowledged and is not in the log");
}

static void it_may_cut_off_what_nobody_was_told_of(void **state)
{
    struct made *m = *state;
    m->sim->conf.faults.standby = true;
    fence(m);
    push(m, &m->sim->node[SERVER], 1);
    begin_epoch(m, &m->sim->node[STANDBY], 1);
    judge_acknowledged(m);
    assert_clean(m->sim);
}

static void what_a_lost_disk_took_is_exempt_and_counted(void **state)
{
    struct made *m = *state;
    acknowledged(m);
    sim_saw_loss(&m->sim->node[SERVER], SIM_LOSS_DISK, NULL);
    begin_epoch(m, &m->sim->node[SERVER], 1);
    judge_acknowledged(m);
    assert_clean(m->sim);
    assert_int_equal(m->sim->met.exempt[SIM_LOSS_DISK], 1);
    assert_int_equal(m->sim->met.acknowledged, 1);
}

static void without_a_fault_no_version_becomes_another_one(void **state)
{
    struct made *m = *state;
    acknowledged(m);
    begin_epoch(m, &m->sim->node[SERVER], 1);
    assert_found(m->sim, "is another one now");
}

static void another_nodes_loss_is_no_excuse(void **state)
{
    struct made *m = *state;
    acknowledged(m);
    sim_saw_loss(&m->sim->node[STANDBY], SIM_LOSS_DISK, NULL);
    begin_epoch(m, &m->sim->node[SERVER], 1);
    judge_acknowledged(m);
    assert_found(m->sim, "acknowledged and is not in the log");
}

static void a_loss_excuses_nothing_that_it_left(void **state)
{
    struct made *m = *state;
    acknowledged(m);
    sim_saw_loss(&m->sim->node[SERVER], SIM_LOSS_DAMAGE, NULL);
    sim_log_of(m->sim, 0)->loss[0].floor = 2;
    begin_epoch(m, &m->sim->node[SERVER], 1);
    assert_found(m->sim, "left all up to 2");
}

static void nothing_is_cut_off_below_the_stable_point(void **state)
{
    struct made *m = *state;
    acknowledged(m);
    sim_saw_loss(&m->sim->node[SERVER], SIM_LOSS_DISK, NULL);
    m->sim->stable[0][m->sim->stables[0]++] = (struct ps_co_point){.epoch = 1, .version = 2};
    begin_epoch(m, &m->sim->node[SERVER], 1);
    assert_found(m->sim, "2 was stable");
}

static void a_loss_is_an_excuse_once(void **state)
{
    struct made *m = *state;
    acknowledged(m);
    sim_saw_loss(&m->sim->node[SERVER], SIM_LOSS_TAIL, NULL);
    sim_log_of(m->sim, 0)->loss[0].floor = 1;
    begin_epoch(m, &m->sim->node[SERVER], 1);
    push(m, &m->sim->node[SERVER], 1);
    sim_saw_answer(&m->sim->node[SERVER], m->digest, true);
    begin_epoch(m, &m->sim->node[SERVER], 2);
    judge_acknowledged(m);
    assert_found(m->sim, "acknowledged and is not in the log");
}

static void while_a_standby_is_in_sync_a_lost_disk_is_no_excuse(void **state)
{
    struct made *m = *state;
    struct ps_server server = {.standby.identity = IDENTITY};
    acknowledged(m);
    m->sim->conf.faults.standby = true;
    m->sim->judging->stored.shard[0].standby = IDENTITY + 1;
    m->sim->node[SERVER].server = &server;
    sim_saw_loss(&m->sim->node[SERVER], SIM_LOSS_DISK, NULL);
    m->sim->node[SERVER].server = NULL;
    begin_epoch(m, &m->sim->node[SERVER], 1);
    assert_found(m->sim, "a standby was in sync");
}

static void a_record_that_changes_within_its_epoch_is_found(void **state)
{
    struct made *m = *state;
    struct sim_record first;
    acknowledged(m);
    sim_saw_loss(&m->sim->node[SERVER], SIM_LOSS_TAIL, NULL);
    assert_true(sim_read_record(lh_blob_span(m->sim->kept[0][1]), &first));
    m->chain = first.chain;
    m->version = 1;
    push(m, &m->sim->node[SERVER], 2);
    assert_found(m->sim, "changed without a new epoch");
}

// ---------------------------------------------------------------- standbys

static void whoever_is_in_sync_has_all_that_was_acknowledged(void **state)
{
    struct made *m = *state;
    const struct sim_node *standby = &m->sim->node[STANDBY];
    acknowledged(m);
    sim_note_copy(m->sim, standby, 0, 1, 2);
    sim_saw_in_sync(m->sim, 0, standby);
    assert_clean(m->sim);
    sim_note_copy(m->sim, standby, 0, 1, 1);
    sim_saw_in_sync(m->sim, 0, standby);
    assert_found(m->sim, "is in sync and has 1");
}

static void nothing_is_acknowledged_that_the_standby_lacks(void **state)
{
    struct made *m = *state;
    struct ps_server standby = {.standby.identity = IDENTITY};
    fence(m);
    push(m, &m->sim->node[SERVER], 1);
    m->sim->node[STANDBY].server = &standby;
    m->sim->judging->stored.shard[0].standby = IDENTITY;
    sim_note_copy(m->sim, &m->sim->node[STANDBY], 0, 1, 1);
    sim_saw_answer(&m->sim->node[SERVER], m->digest, true);
    m->sim->node[STANDBY].server = NULL;
    assert_found(m->sim, "is in sync and has 1");
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

static void a_server_that_served_all_the_time_is_not_replaced(void **state)
{
    struct made *m = *state;
    struct sim_log *l = sim_log_of(m->sim, 0);
    l->owner = &m->sim->node[SERVER];
    let_pass(m->sim, 10 * LH_SECOND);
    l->served_since = 9 * LH_SECOND;
    sim_saw_taken(m->sim, 0);
    assert_clean(m->sim); // for less than the time that it takes to be believed dead
    l->served_since = LH_SECOND;
    m->sim->judging->trouble[SERVER] = 9 * LH_SECOND;
    sim_saw_taken(m->sim, 0);
    assert_clean(m->sim); // it could not be reached
    m->sim->judging->trouble[SERVER] = 0;
    sim_saw_taken(m->sim, 0);
    assert_found(m->sim, "served and could be heard all the time");
}

// Nobody serves the shard: its standby runs, is in sync, and may be heard, or not.
static void wait_for_the_standby(struct made *m, bool cut_off, uint64_t in_sync)
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
        let_pass(s, 100 * LH_MS);
        sim_look_often(s);
    }
    s->node[0].transport = s->node[STANDBY].transport = NULL;
    s->node[0].coordinator = NULL;
    s->node[STANDBY].server = NULL;
}

static void a_standby_that_is_in_sync_serves_soon(void **state)
{
    struct made *m = *state;
    wait_for_the_standby(m, true, IDENTITY);
    wait_for_the_standby(m, false, IDENTITY + 1);
    assert_clean(m->sim);
    wait_for_the_standby(m, false, IDENTITY);
    assert_found(m->sim, "nobody serves it");
}

// ---------------------------------------------------------------- mass

struct hands { // what a worker's shard holds
    struct wk_worker worker;
    struct wk_shard shard;
    float residual[64];
};

static void hold(struct made *m, struct hands *h, float each)
{
    memset(h, 0, sizeof *h);
    h->worker.shard = &h->shard;
    h->shard.layout = &m->sim->manifest.shard[0];
    h->shard.residual = h->residual;
    for (uint64_t i = 0; i < h->shard.layout->values; i++) h->residual[i] = each;
    for (uint32_t w = 0; w < SIM_WORKERS; w++) m->sim->node[WORKER + w].worker = &h->worker;
}

static void put_in(struct made *m, double each)
{
    for (uint64_t i = 0; i < m->sim->manifest.shard[0].values; i++)
        m->sim->history[0][0].raw[i] += each;
}

static void start(struct made *m, struct hands *h, float each)
{
    hold(m, h, each);
    sim_mass_start(&m->sim->node[WORKER]);
    for (uint32_t w = 0; w < SIM_WORKERS; w++) m->sim->node[WORKER + w].worker = NULL;
}

static void a_start_that_holds_less_and_says_nothing_is_found(void **state)
{
    struct made *m = *state;
    struct hands h;
    put_in(m, 3);
    start(m, &h, 3);
    assert_clean(m->sim);
    start(m, &h, 2);
    assert_found(m->sim, "declares no loss");
}

static void what_the_log_has_is_not_held_as_well(void **state)
{
    struct made *m = *state;
    struct hands h;
    fence(m);
    push(m, &m->sim->node[SERVER], 1);
    put_in(m, 3);
    start(m, &h, 3);
    assert_clean(m->sim);
    start(m, &h, 4);
    assert_found(m->sim, "declares no loss");
}

static void the_newest_cut_may_have_been_committed_or_not(void **state)
{
    struct made *m = *state;
    struct hands h;
    struct sim_history *history = &m->sim->history[0][0];
    put_in(m, 3);
    history->cuts = 1;
    history->pending = true;
    for (uint64_t i = 0; i < m->sim->manifest.shard[0].values; i++) history->last[i] = 2;
    start(m, &h, 5);
    assert_clean(m->sim);
    assert_true(history->raw[0] == 5);
}

static void a_declared_loss_is_measured_and_excuses_no_more(void **state)
{
    struct made *m = *state;
    struct hands h;
    put_in(m, 3);
    m->sim->history[0][0].lost = m->sim->history[0][0].losing = true;
    start(m, &h, 1);
    assert_clean(m->sim);
    assert_true(m->sim->history[0][0].gone[0] == 2);
    start(m, &h, 0);
    assert_found(m->sim, "declares no loss");
}

static void a_declared_loss_makes_nothing_larger(void **state)
{
    struct made *m = *state;
    struct hands h;
    put_in(m, 3);
    m->sim->history[0][0].lost = m->sim->history[0][0].losing = true;
    start(m, &h, 4);
    assert_found(m->sim, "after it declared a loss");
}

static void a_lost_slot_starts_from_its_snapshot(void **state)
{
    struct made *m = *state;
    struct hands h;
    put_in(m, 3);
    m->sim->history[0][0].lost = m->sim->history[0][0].losing = true;
    m->sim->history[0][0].slot_lost = true; // and there is no snapshot: zeros
    start(m, &h, 1);
    assert_found(m->sim, "rule 11");
}

static void judge_mass_of(struct made *m, float each)
{
    struct hands *h = calloc(SIM_WORKERS, sizeof *h);
    assert_non_null(h);
    for (uint32_t w = SIM_WORKERS; w--;) hold(m, &h[w], w ? 0 : each);
    for (uint32_t w = 0; w < SIM_WORKERS; w++) m->sim->node[WORKER + w].worker = &h[w].worker;
    sim_judge_mass(m->sim, 0);
    for (uint32_t w = 0; w < SIM_WORKERS; w++) m->sim->node[WORKER + w].worker = NULL;
    free(h);
}

static void in_the_end_all_of_it_is_there(void **state)
{
    struct made *m = *state;
    put_in(m, 3);
    judge_mass_of(m, 3);
    assert_clean(m->sim);
    judge_mass_of(m, 2);
    assert_found(m->sim, "2 is left");
}

static void in_the_end_nothing_is_there_twice(void **state)
{
    struct made *m = *state;
    put_in(m, 3);
    judge_mass_of(m, 4);
    assert_found(m->sim, "4 came out");
}

static void what_a_declared_loss_left_must_be_there_in_the_end(void **state)
{
    struct made *m = *state;
    struct hands h;
    put_in(m, 3);
    m->sim->history[0][0].lost = m->sim->history[0][0].losing = true;
    start(m, &h, 2);
    judge_mass_of(m, 1);
    assert_found(m->sim, "1 is left");
}

static void a_cut_off_record_is_in_its_authors_outbox(void **state)
{
    struct made *m = *state;
    acknowledged(m);
    m->sim->history[0][0].cut[0].copy = false;
    sim_saw_loss(&m->sim->node[SERVER], SIM_LOSS_DISK, NULL);
    begin_epoch(m, &m->sim->node[SERVER], 1);
    assert_found(m->sim, "lost it without a word");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        JUDGE_TEST(an_acknowledged_push_is_in_the_log),
        JUDGE_TEST(an_answer_before_its_record_is_found),
        JUDGE_TEST(an_answer_that_says_the_opposite_is_found),
        JUDGE_TEST(a_worker_that_heard_of_what_no_log_ever_had_is_found),
        JUDGE_TEST(a_take_over_may_not_cut_off_what_was_acknowledged),
        JUDGE_TEST(it_may_cut_off_what_nobody_was_told_of),
        JUDGE_TEST(what_a_lost_disk_took_is_exempt_and_counted),
        JUDGE_TEST(without_a_fault_no_version_becomes_another_one),
        JUDGE_TEST(another_nodes_loss_is_no_excuse),
        JUDGE_TEST(a_loss_excuses_nothing_that_it_left),
        JUDGE_TEST(nothing_is_cut_off_below_the_stable_point),
        JUDGE_TEST(a_loss_is_an_excuse_once),
        JUDGE_TEST(while_a_standby_is_in_sync_a_lost_disk_is_no_excuse),
        JUDGE_TEST(a_record_that_changes_within_its_epoch_is_found),
        JUDGE_TEST(whoever_is_in_sync_has_all_that_was_acknowledged),
        JUDGE_TEST(nothing_is_acknowledged_that_the_standby_lacks),
        JUDGE_TEST(a_server_that_served_all_the_time_is_not_replaced),
        JUDGE_TEST(a_standby_that_is_in_sync_serves_soon),
        JUDGE_TEST(a_start_that_holds_less_and_says_nothing_is_found),
        JUDGE_TEST(what_the_log_has_is_not_held_as_well),
        JUDGE_TEST(the_newest_cut_may_have_been_committed_or_not),
        JUDGE_TEST(a_declared_loss_is_measured_and_excuses_no_more),
        JUDGE_TEST(a_declared_loss_makes_nothing_larger),
        JUDGE_TEST(a_lost_slot_starts_from_its_snapshot),
        JUDGE_TEST(in_the_end_all_of_it_is_there),
        JUDGE_TEST(in_the_end_nothing_is_there_twice),
        JUDGE_TEST(what_a_declared_loss_left_must_be_there_in_the_end),
        JUDGE_TEST(a_cut_off_record_is_in_its_authors_outbox),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
