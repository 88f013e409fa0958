// Status: what operators see of members, servers, shards and leases.
// ctest: coordinator_status
#include "server/coordinator/status.h"
#include "common/net/wire_admin.h"
#include "tests/unit/server/coordinator/hand.h"

static json_t *status(void)
{
    struct lh_buf out = lh_buf(1 << 20);
    assert_int_equal(ps_coordinator_status(c, &out), LH_OK);
    json_t *all = json_loadb((const char *)out.data, out.len, 0, NULL);
    assert_non_null(all);
    lh_buf_free(&out);
    return all;
}

// A member of the status; of its row `at`, if it is a list.
static json_t *part(const char *name, size_t at)
{
    json_t *all = status(), *its = json_object_get(all, name);
    json_t *out = json_incref(json_is_array(its) ? json_array_get(its, at) : its);
    json_decref(all);
    return out;
}

static void assert_row(const char *name, size_t at, const char *wanted)
{
    json_t *row = part(name, at);
    assert_has(row, wanted);
    json_decref(row);
}

// ---------------------------------------------------------------- the run

HAND(counts_of_units_and_tokens)
{
    c->conf.budget_tokens = 5000;
    c->plan.number = 12;
    c->refused_servers = 3;
    snprintf(c->drained_region[c->drained_regions++], LH_NAME_BYTES, "america");
    lease(0, ANN, CO_WAITS);
    lease(1, ANN, CO_BEGUN);
    lease(2, BOB, CO_CLAIMED);
    lease(3, BOB, CO_WAITS);
    credit(5);
    want(3, CEM); // recalled
    want(6, CEM); // kept
    json_t *all = status();
    assert_has(all, "{'role': 'coordinator', 'phase': 'running', 'draining': false, "
                    "'ending': false, 'drained_regions': ['america'], 'credited_tokens': 105, "
                    "'budget_tokens': 5000, 'units': 8, 'data_epoch': 0, 'data_epochs': 1, "
                    "'credited': 1, 'leased': 4, 'begun': 2, 'recalled': 1, 'plan': 12, "
                    "'ready': true, 'disk_full': false, 'refused_servers': 3, 'links': [], "
                    "'paused': null, 'alarms': null, 'hook': null, 'scale': null}");
    assert_int_equal(json_array_size(json_object_get(all, "workers")), WORKERS);
    assert_int_equal(json_array_size(json_object_get(all, "shards")), SHARDS);
    assert_int_equal(json_array_size(json_object_get(all, "forecast")), 3);
    json_decref(all);
    assert_row("balancer", 0,
               "{'rule': 'level', 'frozen': false, 'twice': 0, 'decisions': [], "
               "'links': []}");
    c->conf.balance.follows = c->frozen = true;
    assert_row("balancer", 0, "{'rule': 'finish', 'frozen': true}");
}

// A restarted coordinator has an incomplete picture until all have reported, or for five seconds.
HAND(a_coordinator_hears_until_all_have_spoken)
{
    for (int why = 0; why < 8; why++) {
        c->listener.ns = c->began_ns + 5 * LH_SECOND - 1;
        c->plan.phase = why == 1 ? LH_PHASE_WAIT : LH_PHASE_RUN;
        if (why == 2) c->listener.ns++;
        c->shard[0].reported = true;
        c->shard[1].reported = why != 3;
        for (int i = 0; i < WORKERS; i++) c->worker[i].joined = why < 4 || i < DEE;
        c->worker[DEE].drained_kept = why == 5;
        c->plan.left_out[0] = why == 7 ? 1 : c->worker[DEE].id;
        c->plan.left = why >= 6;
        if (why < 3) c->worker[ANN].joined = false;
        bool hears = why == 0 || why == 3 || why == 4 || why == 7;
        json_t *is = part("hears", 0);
        assert_int_equal(json_is_true(is), hears);
        json_decref(is);
    }
}

HAND(a_shard_lags_behind_its_head)
{
    struct ps_co_shard *s = &c->shard[1];
    snprintf(s->address, sizeof s->address, "e:2");
    s->head = (struct lh_point){.epoch = 4, .version = 90};
    s->stable.version = 60;
    s->plan = 7;
    s->phase = LH_PHASE_DRAIN;
    assert_row("shards", 1,
               "{'shard': 1, 'address': 'e:2', 'epoch': 4, 'version': 90, "
               "'stable': 60, 'stable_lag': 30, 'plan': 7, 'phase': 'draining', "
               "'standby_in_sync': false, 'moving': false, 'taken_over': false}");
    s->stable.version = 91; // the log lost its end
    s->standby = 1;
    assert_row("shards", 1,
               "{'stable_lag': 0, 'standby_in_sync': true, 'moving': false, "
               "'taken_over': false}");
    s->standby = 0;
    s->move.target = 1;
    assert_row("shards", 1, "{'standby_in_sync': false, 'moving': true, 'taken_over': false}");
    s->move.target = 0;
    s->owner = 1;
    assert_row("shards", 1, "{'standby_in_sync': false, 'moving': false, 'taken_over': true}");
}

// ---------------------------------------------------------------- members

HAND(a_worker_is_told_with_its_silence)
{
    struct ps_co_worker *w = &c->worker[CEM];
    w->granted = 2;
    w->incarnation = 3;
    w->tokens = 999;
    c->conf.worker_timeout_ns = 40 * LH_SECOND;
    c->conf.h_base = 8;
    c->listener.ns = w->seen_ns + 3 * LH_SECOND;
    assert_row("workers", CEM,
               "{'name': 'cem', 'region': 'europe', 'granted': 2, 'incarnation': 3, 'live': true, "
               "'draining': false, 'drained': false, 'done': false, 'tokens_per_s': 30.0, "
               "'tokens': 999, 'h': 8, 'final': [], 'expelled': false, 'member_state': 'live', "
               "'silent_s': 3.0, 'bound_s': 40.0, 'trip_ms': null, 'left_out': null, "
               "'stalled': null, 'why': null, 'charged': null, 'set_aside': false}");
    w->trip = (struct lh_trip){250 * LH_MS, 50 * LH_MS};
    c->conf.worker_timeout_max_ns = 41 * LH_SECOND;
    assert_row("workers", CEM, "{'trip_ms': 250.0, 'spread_ms': 50.0, 'bound_s': 41.0}");
    c->listener.ns = w->seen_ns + 20 * LH_SECOND + LH_SECOND / 2;
    assert_row("workers", CEM, "{'member_state': 'suspect'}");
    w->drained = true; // nobody asked it to
    assert_row("workers", CEM, "{'tokens_per_s': 0.0, 'member_state': 'suspect'}");
    w->asked = true;
    assert_row("workers", CEM, "{'draining': true, 'drained': true, 'member_state': 'drained'}");
    w->live = w->drained = w->asked = false;
    assert_row("workers", CEM, "{'tokens_per_s': 0.0, 'live': false, 'member_state': 'lost'}");
}

// The last copies of a worker are told when it is done.
HAND(a_worker_that_is_done_tells_its_copies)
{
    struct ps_co_worker *w = &c->worker[CEM];
    w->final = calloc(SHARDS, sizeof *w->final);
    w->final[1].version = 7;
    w->final[1].chain.b[0] = 0xab;
    assert_row("workers", CEM, "{'final': []}");
    w->done = true;
#define ZEROS "00000000000000000000000000000000000000000000000000000000000000"
    assert_row("workers", CEM,
               "{'done': true, 'member_state': 'done', 'final': [{'shard': 0, "
               "'version': 0, 'digest': '00" ZEROS "'}, {'shard': 1, "
               "'version': 7, 'digest': 'ab" ZEROS "'}]}");
    c->plan.left_out[0] = w->id;
    c->plan.left = 1;
    w->stall.lost_pushes = UINT64_MAX;
    w->stall.lost_tokens = 5;
    assert_row("workers", CEM,
               "{'left_out': {'lost_pushes': 9223372036854775807, "
               "'lost_tokens': 5}}");
    assert_row("workers", ANN, "{'left_out': null}");
}

// At region level each shard's pushes are a share of a step; else all shards count the same steps.
HAND(the_steps_of_a_private_worker_are_told)
{
    struct ps_co_worker *w = &c->worker[CEM];
    w->admitted = calloc(SHARDS, sizeof *w->admitted);
    w->admitted[0].charged = 6;
    w->admitted[1].charged = 3;
    c->plan.privacy = (struct lh_privacy){
        .level = LH_PRIVACY_REGION, .sigma = 8, .rate = 1, .epsilon = 2, .delta = 1e-5};
    assert_row("workers", CEM, "{'charged': null, 'epsilon_max': null}"); // it is not private
    c->conf.data = LH_DATA_PRIVATE;
    assert_row("workers", CEM,
               "{'charged': 4.5, 'epsilon_max': 2.0, 'delta': 1e-5, 'rate': 1.0, "
               "'sigma': 4.0, 'budget_spent': false}");
    c->plan.privacy.level = LH_PRIVACY_REPORTED;
    w->spent = true;
    json_t *row = part("workers", CEM), *other = part("workers", ANN);
    assert_has(row, "{'charged': 6.0, 'sigma': 8.0, 'budget_spent': true}");
    assert_has(other, "{'charged': 0.0}");
    double most = json_number_value(json_object_get(row, "epsilon_at_most"));
    assert_true(most > 0);
    near(json_number_value(json_object_get(row, "epsilon")), most); // no record is drawn
    json_decref(row);
    json_decref(other);
    c->plan.privacy.rate = 0.5;
    row = part("workers", CEM);
    double drawn = json_number_value(json_object_get(row, "epsilon_at_most"));
    assert_true(drawn > 0 && drawn < most);
    assert_null(json_object_get(row, "epsilon"));
    json_decref(row);
}

// ---------------------------------------------------------------- servers

HAND(an_owner_is_told_once_with_its_shards)
{
    assert_row("servers", 1,
               "{'name': 'shard 1', 'region': '-', 'role': 'server', 'shards': [1], "
               "'state': 'unheard'}");
    for (uint32_t i = 0; i < SHARDS; i++) {
        snprintf(c->shard[i].name, LH_NAME_BYTES, "s1");
        snprintf(c->shard[i].region, LH_NAME_BYTES, "europe");
        c->shard[i].server = 77;
    }
    c->listener.ns = c->shard[1].heard_ns + 5 * LH_SECOND;
    assert_row("servers", 0,
               "{'name': 's1', 'region': 'europe', 'role': 'server', "
               "'shards': [0, 1], 'state': 'live', 'silent_s': 5.0, 'bound_s': 0.0, "
               "'trip_ms': null}");
    c->conf.take_over_ns = 5 * LH_SECOND;
    assert_row("servers", 0, "{'state': 'suspect', 'bound_s': 5.0}");
    c->listener.ns--;
    assert_row("servers", 0, "{'state': 'live'}");
    c->expelled[0] = (struct ps_co_expelled){.id = 77, .region = "asia", .name = "bad"};
    c->expelled_count = 1; // a worker with the same id
    assert_row("servers", 0, "{'state': 'live'}");
    c->expelled[0].server = true;
    assert_row("servers", 0, "{'name': 'bad', 'region': 'asia', 'state': 'expelled'}");
    c->shard[0].server = c->shard[1].server = 0;
    assert_row("servers", 0, "{'name': 's1', 'state': 'live'}");
    c->shard[0].heard_of = c->shard[1].heard_of = 77;
    assert_row("servers", 0, "{'name': 'bad', 'state': 'expelled'}");
}

HAND(standbys_are_told_beside_the_owner)
{
    struct ps_co_shard *s = &c->shard[0];
    snprintf(s->name, LH_NAME_BYTES, "s1");
    s->owner = 5;
    s->standing[0] = (struct ps_co_standby){.identity = 5, .name = "s1", .region = "europe"};
    s->standing[1] = (struct ps_co_standby){.identity = 6, .name = "s1", .region = "asia"};
    s->standing[1].heard_ns = c->listener.ns;
    c->listener.ns += 10 * LH_SECOND;
    assert_row("servers", 1,
               "{'name': 's1', 'region': 'asia', 'role': 'standby', 'shards': [0], "
               "'state': 'suspect', 'silent_s': 10.0, 'bound_s': 10.0}");
    assert_row("servers", 2, "{'name': 'shard 1'}"); // the owner is no standby
    c->listener.ns--;
    assert_row("servers", 1, "{'state': 'live'}");
}

// ---------------------------------------------------------------- leases

static json_t *leases(struct lh_status_request q)
{
    struct lh_buf out = lh_buf(LH_SMALL_BYTES);
    if (!q.state) q.state = "";
    if (!q.home) q.home = "";
    if (!q.language) q.language = "";
    if (!q.worker) q.worker = "";
    assert_int_equal(ps_co_leases(c, &q, &out), LH_OK);
    json_t *page = json_loadb((const char *)out.data, out.len, 0, NULL);
    lh_buf_free(&out);
    return page;
}

// The units of the page, and the first one of the next; "-": there is none.
static const char *units(struct lh_status_request q)
{
    static char text[200];
    json_t *page = leases(q), *row;
    size_t i, at = 0;
    json_array_foreach(json_object_get(page, "leases"), i, row) at += (size_t)snprintf(
        text + at, sizeof text - at, "%d ", (int)json_integer_value(json_object_get(row, "unit")));
    const json_t *next = json_object_get(page, "next");
    if (json_is_null(next))
        snprintf(text + at, sizeof text - at, "-");
    else
        snprintf(text + at, sizeof text - at, "then %d", (int)json_integer_value(next));
    json_decref(page);
    return text;
}

HAND(a_page_has_the_units_that_match)
{
    hand_epochs(2);
    lease(0, ANN, CO_WAITS);
    lease(9, CEM, CO_WAITS);
    lease(5, CEM, CO_CLAIMED);
    credit(5);
    credit(12);
#define ASK(...) units((struct lh_status_request){__VA_ARGS__})
    assert_string_equal(ASK(.state = "leased"), "0 9 -");
    assert_string_equal(ASK(.state = "credited"), "5 12 -");
    assert_string_equal(ASK(.state = "free", .home = "asia"), "1 2 3 8 10 11 -");
    assert_string_equal(ASK(.language = "ja"), "3 11 -");
    assert_string_equal(ASK(.worker = "cem"), "5 9 -");
    assert_string_equal(ASK(.worker = "cem", .state = "leased"), "9 -");
    assert_string_equal(ASK(.from = 13), "13 14 15 -");
    assert_string_equal(ASK(.from = 13, .limit = 2), "13 14 then 15");
    assert_string_equal(ASK(.from = 13, .limit = 3), "13 14 15 -");
    assert_string_equal(ASK(.from = 16), "-");
    assert_string_equal(ASK(.from = UINT64_MAX), "-");
    assert_string_equal(ASK(.limit = 1), "0 then 1");
}

static void assert_lease(uint64_t unit, const char *wanted)
{
    json_t *page = leases((struct lh_status_request){.from = unit, .limit = 1});
    assert_has(json_array_get(json_object_get(page, "leases"), 0), wanted);
    json_decref(page);
}

HAND(a_lease_is_told_with_its_holder)
{
    hand_epochs(2);
    struct ps_co_worker *w = &c->worker[CEM];
    int64_t wall = c->conf.env->ops->wall_s(c->conf.env);
    w->granted = 4;
    c->conf.worker_timeout_ns = 40 * LH_SECOND;
    c->listener.ns = w->seen_ns + 10 * LH_SECOND;
    assert_lease(11, "{'unit': 11, 'data_epoch': 1, 'language': 'ja', 'home': 'asia', "
                     "'tokens': 103, 'state': 'free', 'lease': null, 'holder': null, "
                     "'holder_region': null, 'token': null, 'age_s': null, 'expires_s': null, "
                     "'credited_tokens': 0}");
    lease(11, CEM, CO_WAITS);
    assert_lease(11, "{'state': 'leased', 'lease': 'waits', 'holder': 'cem', "
                     "'holder_region': 'europe', 'token': 4, 'expires_s': 30.0, 'age_s': null, "
                     "'credited_tokens': 0}");
    c->leased_s[11] = (uint32_t)(wall - 7);
    assert_lease(11, "{'age_s': 7}");
    c->leased_s[11] = (uint32_t)(wall + 7); // the clock was set back
    c->listener.ns += 40 * LH_SECOND;
    assert_lease(11, "{'age_s': 0, 'expires_s': 0.0}");
    want(11, ANN);
    assert_lease(11, "{'lease': 'recalled'}");
    lease(11, CEM, CO_BEGUN);
    assert_lease(11, "{'lease': 'begun'}");
    lease(11, CEM, CO_CLAIMED);
    assert_lease(11, "{'lease': 'begun'}");
    credit(11);
    assert_lease(11, "{'state': 'credited', 'lease': null, 'holder': 'cem', 'token': 4, "
                     "'age_s': null, 'expires_s': null, 'credited_tokens': 103}");
}
