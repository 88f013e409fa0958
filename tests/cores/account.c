// A worker's reports on itself and its servers: its status.json counts each admitted push once,
// over all its lives and wherever it was killed; its rate follows the logs; it logs which server it
// misses.
#include <jansson.h>

#include "tests/head.h"
#include "tests/cores/life.h"
#include "worker/replica/follow.h"
#include "worker/privacy/private.h"

enum { LIVES = 12 };

static uint64_t accepted(const struct life *l)
{
    struct lh_buf text = lh_buf(1 << 20);
    json_error_t why;
    assert_int_equal(wk_worker_status(l->worker, &text), LH_OK);
    json_t *o = json_loadb((const char *)text.data, text.len, 0, &why);
    assert_non_null(o);
    uint64_t n = (uint64_t)json_integer_value(json_object_get(o, "accepted"));
    json_decref(o);
    lh_buf_free(&text);
    return n;
}

static uint64_t in_logs(const struct life *l)
{
    uint64_t n = 0;
    for (uint32_t k = 0; k < l->worker->shards; k++) {
        const struct lh_ledger *there = &l->rig->server->shard[k]->replica.ledger;
        const struct lh_row *row = lh_ledger_row(there, l->worker->id);
        assert_non_null(row);
        n += row->admitted;
    }
    return n;
}

// The decision is in memory only: the slot records it with the next cut.
static bool heard_and_not_noted(const struct life *l)
{
    const struct wk_shard *s = &l->worker->shard[0];
    return !s->cut && !wk_outbox_undecided(&s->outbox) &&
           s->slot.committed->decided + 1 == s->slot.committed->next;
}

TEST(each_push_is_counted_once_over_all_lives)
{
    struct life *l = life_begin(51, RIG_SHARDS);
    for (int i = 0; i < LIVES; i++) {
        for (int k = 0; k < 20000 && !heard_and_not_noted(l); k++) life_run(l, LH_MS);
        assert_true(heard_and_not_noted(l));
        life_kill(l);
        life_start(l);
        life_cut(l, 1);
        life_rest(l);
        assert_int_equal(accepted(l), in_logs(l));
    }
    assert_true(accepted(l) > LIVES * RIG_SHARDS);
    life_end(l);
}

static struct {
    const struct life *life;
    uint64_t told, most;
} ticks;

static float note_rate(void *arg, const struct lh_plan *plan, uint64_t tokens)
{
    (void)arg, (void)plan;
    ticks.told++;
    if (ticks.most < tokens) ticks.most = tokens;
    assert_int_equal(tokens, wk_clock(ticks.life->worker));
    return 0.5f;
}

// All workers share one clock: the tokens in the shards' logs when a step begins.
TEST(the_rate_follows_what_the_log_has)
{
    struct life *l = life_begin(3, 2);
    ticks.life = l;
    l->worker->conf.rate = note_rate;
    life_cut(l, 4);
    l->worker->conf.rate = NULL;
    assert_true(ticks.told > 4);
    assert_true(ticks.most > 0);
    life_end(l);
}

// One log of three has false values, then one of two.
TEST(no_owner_moves_the_clock_alone)
{
    struct wk_worker *w = test_calloc(1, sizeof *w);
    w->shard = test_calloc(3, sizeof *w->shard);
    for (uint32_t liar = 0; liar < 3; liar++) {
        for (uint64_t far = 0; far < 2; far++) {
            w->shards = 3;
            for (uint32_t i = 0; i < w->shards; i++) {
                struct lh_ledger *l = &w->shard[i].replica.ledger;
                bool lies = i == liar;
                l->tokens = lies ? far * (UINT64_MAX - 1) : 100 + i;
                l->plan.budget_tokens = lies ? far * UINT64_MAX : 1000;
                l->plan.old_budget_tokens = lies ? 7 : 900;
                l->plan.changed_tokens = lies ? far : 90;
            }
            assert_in_range(wk_clock(w), 100, 102);
            assert_int_equal(wk_clock_plan(w)->budget_tokens, 1000);
            assert_int_equal(wk_clock_plan(w)->old_budget_tokens, 900);
            assert_int_equal(wk_clock_plan(w)->changed_tokens, 90);
            if (liar == 2 || !far) continue;
            w->shards = 2;
            assert_in_range(wk_clock(w), 100, 101);
            assert_int_equal(wk_clock_plan(w)->budget_tokens, 1000);
        }
    }
    test_free(w->shard);
    test_free(w);
}

// Logged only for a shard that no server has reported.
TEST(nobody_misses_a_server_that_is_there)
{
    struct life *l = life_begin(4, 2);
    life_run(l, 10 * LH_SECOND);
    assert_int_equal(life_said(l, "shard.unserved"), 0);
    life_kill(l);
    rig_kill_server(l->rig, false);
    rig_kill_coordinator(l->rig);
    rig_start_coordinator(l->rig); // it knows no server yet
    life_start(l);
    life_run(l, 2 * LH_SECOND);
    assert_true(life_said(l, "INFO worker shard.unserved") > 0);
    assert_int_equal(life_said(l, "WARN worker shard.unserved"), 0); // the server may be starting
    life_run(l, 18 * LH_SECOND);
    assert_true(life_said(l, "WARN worker shard.unserved") > 0);
    life_end(l);
}

// A worker without state may have started before its server, so it warns late. A worker that had
// state warns at once.
RIG_TEST(a_server_that_is_not_there_yet_is_no_warning, struct rig *r)
{
    struct rig_life l;
    rig_serve(r, LH_SECOND);
    rig_kill_server(r, false); // the coordinator still names its address
    lh_fake_boot(r->t.env);
    struct lh_log *log = rig_log_lines(r);
    struct wk_conf conf = rig_life_conf(r, &l, 500);
    conf.log = log;
    rig_life_start(&l, &conf);
    rig_run(r, 2 * LH_SECOND);
    assert_true(rig_said(r, "INFO rig server.unreachable") > 0);
    assert_int_equal(rig_said(r, "WARN rig server.unreachable"), 0);
    rig_run(r, 60 * LH_SECOND);
    unsigned warned = rig_said(r, "WARN rig server.unreachable");
    assert_true(warned > 0);
    assert_int_equal(rig_start_server(r, false), LH_OK);
    for (int i = 0; i < 1000 && !l.worker->shard[0].ready; i++) rig_run(r, 10 * LH_MS);
    assert_true(l.worker->shard[0].ready);
    rig_run(r, LH_SECOND);
    rig_kill_server(r, false);
    rig_run(r, 2 * LH_SECOND);
    assert_true(rig_said(r, "WARN rig server.unreachable") > warned);
    rig_life_end(r, &l, false);
    lh_log_close(log);
}

static lh_err said; // the error that answers each hello; LH_OK: none
static uint64_t row, last_step, far_epoch;
enum { NEXT_ROW = 1 }; // stands for the worker's own number + 1

static void lie(void *self, struct lh_request *rq, const void *m)
{
    const struct life *l = self;
    const struct ps_shard *s = l->rig->server->shard[0];
    struct lh_hello_reply out = {.wire = lh_versions_ours(), .last_digest = {{7}}, .session = true};
    (void)m;
    if (said) {
        lh_reply_error(rq, said, "a word of a server");
        return;
    }
    out.process = l->rig->server->process;
    out.epoch = s->replica.ledger.epoch + far_epoch;
    out.version = s->replica.ledger.version;
    out.incarnation = l->worker->incarnation;
    if (row) out.incarnation = (struct lh_incarnation){row, 7};
    if (row == NEXT_ROW) out.incarnation.number = l->worker->incarnation.number + 1;
    out.last_incarnation = l->worker->incarnation.number;
    // A smaller step would be an older copy's, and the worker ignores those.
    out.last_step = last_step ? last_step : l->worker->shard[0].slot.committed->decided;
    lh_answer(rq, LH_MESSAGE(hello_reply, &out));
}

static bool lies(struct life *l, enum lh_rpc rpc, struct lh_call *call,
                 const struct lh_call_ops **ops, void **self)
{
    if (rpc != LH_RPC_HELLO) return false;
    return !lh_request_take(call, &l->rig->w[1].self, &lh_wire_hello_request, lie, l, ops, self);
}

static uint32_t ended;

static void note_end(void *arg, lh_err err, const char *text)
{
    (void)arg;
    print_message("it ended: %s, %s\n", lh_err_name(err), text);
    ended++;
}

// The coordinator admitted this worker. Whatever a server answers, the worker asks again, and it
// goes on once the server is honest.
TEST(a_servers_word_ends_no_worker)
{
    static const struct {
        lh_err said;
        uint64_t row, last_step, far_epoch;
    } of[] = {
        {LH_ERR_DENIED, 0, 0, 0},
        {LH_ERR_MANIFEST, 0, 0, 0},
        {LH_ERR_VERSION, 0, 0, 0},
        {LH_ERR_FENCED, 0, 0, 0},
        {LH_ERR_EXPELLED, 0, 0, 0},
        {LH_ERR_CORRUPT, 0, 0, 0},
        {LH_OK, UINT64_MAX, 0, 0},
        {LH_OK, (UINT64_C(1) << 62) + 7, 0, 0},
        {LH_OK, UINT64_C(5000) << 32, 0, 0},
        {LH_OK, (UINT64_C(2) << 32) - 1, 0, 0},
        {LH_OK, 0, 1, 0},
        {LH_OK, 0, 0, 1},
        {LH_OK, 0, 0, UINT64_C(1) << 61}, // no later server of the shard could have a higher epoch
    };
    for (size_t i = 0; i < LH_COUNT(of); i++) {
        struct life *l = life_begin(5, 1);
        said = of[i].said;
        row = of[i].row;
        last_step = of[i].last_step;
        far_epoch = of[i].far_epoch;
        life_cut(l, 1); // undecided as long as no hello succeeds
        l->worker->conf.fatal = note_end;
        rig_kill_server(l->rig, false);
        assert_int_equal(rig_start_server(l->rig, false), LH_OK);
        life_hook(l);
        l->on_call = lies;
        life_run(l, 10 * LH_SECOND);
        assert_false(wk_follow_fatal(&l->worker->shard[0], LH_ERR_KEY_MISSING));
        assert_int_equal(ended, 0);
        assert_false(l->worker->stopped);
        assert_int_equal(l->worker->incarnation.number >> 32, 1); // as the coordinator granted
        l->on_call = NULL;
        life_rest(l);
        life_cut(l, 2);
        life_rest(l);
        life_mass(l);
        life_end(l);
    }
}

// Each incarnation needs a FENCE on every shard, and meanwhile honest servers admit no push.
TEST(rows_that_are_made_up_raise_few_incarnations)
{
    static const struct {
        uint64_t row, last_step;
    } of[] = {{NEXT_ROW, 0}, {0, UINT64_MAX}};
    for (size_t i = 0; i < LH_COUNT(of); i++) {
        struct life *l = life_begin(5, 1);
        said = LH_OK;
        row = of[i].row;
        last_step = of[i].last_step;
        far_epoch = 0;
        rig_kill_server(l->rig, false);
        assert_int_equal(rig_start_server(l->rig, false), LH_OK);
        life_hook(l);
        l->on_call = lies;
        uint64_t before = l->worker->incarnation.number;
        life_run(l, 300 * LH_SECOND);
        assert_in_range(l->worker->incarnation.number - before, 2, row ? 2 * 20 : 20);
        assert_true(life_said(l, "incarnation.held") > 0);
        l->on_call = NULL;
        life_rest(l);
        life_cut(l, 2);
        life_rest(l);
        life_mass(l);
        life_end(l);
    }
}

// A plan in one log of two that would make the worker wait for ever.
TEST(one_log_of_two_stops_no_worker)
{
    for (int lie = 0; lie < 3; lie++) {
        struct life *l = life_begin(9, 2);
        struct lh_plan *its = &l->worker->shard[1].replica.ledger.plan;
        if (lie == 0) its->phase = LH_PHASE_WAIT;
        if (lie == 1) its->phase = LH_PHASE_END; // The coordinator says that the run goes on.
        if (lie == 2) its->mode = LH_MODE_BSP;
        its->worker[its->live++] = 12345; // It never pushes.
        wk_note_plans(l->worker);
        uint64_t steps = l->worker->count.steps;
        for (int i = 0; i < 1000 && l->worker->count.steps < steps + 20; i++)
            life_run(l, LH_SECOND);
        assert_in_range(l->worker->count.steps, steps + 20, UINT64_MAX);
        its->live--;
        its->phase = LH_PHASE_RUN;
        its->mode = LH_MODE_ASYNC;
        life_end(l);
    }
}

// The owner of one shard can write any plan into its log. Only a plan in most logs may end this
// worker.
TEST(one_log_of_two_ends_no_worker)
{
    struct life *l = life_begin(7, 2);
    struct lh_plan *its = &l->worker->shard[0].replica.ledger.plan;
    struct lh_plan *honest = &l->worker->shard[1].replica.ledger.plan;
    struct lh_plan *before = test_malloc(2 * sizeof *before);
    bool may = false;
    before[0] = *its;
    before[1] = *honest;
    its->mode = LH_MODE_BSP;
    its->data = LH_DATA_PRIVATE;
    its->privacy = (struct lh_privacy){.level = LH_PRIVACY_REGION, .sigma = 1, .steps = 9};
    wk_note_plans(l->worker);
    assert_false(l->worker->bsp);
    assert_int_equal(wk_private_look(l->worker, &may), LH_OK);
    assert_true(may);
    honest->data = LH_DATA_PRIVATE;
    honest->privacy = its->privacy;
    honest->privacy.sigma = 2; // terms that differ do not count
    assert_int_equal(wk_private_look(l->worker, &may), LH_OK);
    honest->privacy.sigma = 1;
    honest->mode = LH_MODE_BSP;
    wk_note_plans(l->worker);
    assert_true(l->worker->bsp);
    assert_int_equal(wk_private_look(l->worker, &may), LH_ERR_CONFIG);
    *its = before[0];
    *honest = before[1];
    test_free(before);
    life_end(l);
}

// For a while the server has another manifest, so it refuses every push.
TEST(pushes_that_are_refused_in_a_row_are_told_now_and_then)
{
    struct life *l = life_begin(23, 1);
    life_rest(l);
    uint8_t *manifest = l->rig->server->shard[0]->replica.manifest.b;
    const uint32_t before = l->refused, told[] = {0, 0, 0, 1, 1, 1, 1, 2};
    manifest[0] ^= 1;
    for (uint32_t n = 1; n <= LH_COUNT(told); n++) {
        for (int i = 0; i < 60000 && l->refused < before + n; i++) life_run(l, LH_MS);
        assert_int_equal(l->refused, before + n);
        assert_int_equal(life_said(l, "push.refused"), told[n - 1]);
    }
    manifest[0] ^= 1;
    life_cut(l, 2);
    life_rest(l);
    assert_int_equal(l->worker->shard[0].session.refused, 0);
    life_mass(l);
    life_end(l);
}
