// A run as one JSON object: the source of each field, sums, and missing data.
#include <stdio.h>
#include <string.h>

#include "common/format/json.h"
#include "common/net/rpc.h"
#include "common/net/wire_admin.h"
#include "common/net/wire_shard.h"
#include "deploy/ask/admin.h"
#include "deploy/ask/describe.h"
#include "deploy/ask/leases.h"
#include "deploy/ask/look.h"
#include "deploy/tool/files.h"
#include "tests/test.h"
#include "tests/world/transport_mem.h"

static const char STATUS[] =
    "{\"role\":\"coordinator\",\"phase\":\"running\",\"draining\":false,\"units\":10,"
    "\"credited_tokens\":400,\"budget_tokens\":1000,\"workers\":["
    "{\"name\":\"eu-0\",\"region\":\"eu\",\"live\":true,\"tokens\":7,\"tokens_per_s\":2.5,\"h\":4,"
    "\"utilisation\":0.5,"
    "\"draining\":true,\"drained\":true,\"silent_s\":0.5,\"incarnation\":4294967298},"
    "{\"name\":\"eu-1\",\"region\":\"eu\",\"live\":true,\"tokens\":5,\"tokens_per_s\":1.5,\"h\":8,"
    "\"utilisation\":0.75,"
    "\"silent_s\":0.1},"
    "{\"name\":\"0\",\"region\":\"us\",\"live\":true,\"tokens\":1,\"tokens_per_s\":1.0},"
    "{\"name\":\"0\",\"region\":\"as\",\"live\":false,\"tokens\":1,\"tokens_per_s\":9.0,"
    "\"utilisation\":0.9},"
    "{\"name\":\"own-0\",\"region\":\"own\",\"live\":false,\"tokens\":0,\"tokens_per_s\":0.0}],"
    "\"links\":[{\"worker\":\"eu-0\",\"region\":\"eu\",\"rtt_ms\":10,\"push_ms\":80.5},"
    "{\"worker\":\"eu-0\",\"region\":\"eu\",\"rtt_ms\":30,\"push_ms\":70},"
    "{\"worker\":\"eu-1\",\"region\":\"eu\",\"rtt_ms\":20},"
    "{\"worker\":\"0\",\"region\":\"as\",\"rtt_ms\":900}],"
    "\"shards\":[{\"shard\":0,\"address\":\"a:1\",\"version\":12},"
    "{\"shard\":1,\"address\":\"b:1\",\"version\":13}]}";
static const char SERVERS[] =
    "{\"a:1\":{\"name\":\"s0\",\"region\":\"eu\",\"shards\":[{\"shard\":5,\"admitted\":1},"
    "{\"shard\":0,\"admitted\":11,\"refused\":2,\"optimizer\":{\"name\":\"sgd\"},\"staleness\":{"
    "\"p50\":1,\"p99\":3,\"max\":4,"
    "\"bound\":12}}]},\"b:1\":null}";
static const char FILES[] =
    "{\"eu-0\":{\"loss\":2.0,\"state\":\"draining\",\"payload_up_bytes\":100,"
    "\"payload_down_bytes\":10},\"eu-1\":{\"loss\":3.0,\"payload_up_bytes\":50,"
    "\"payload_down_bytes\":5},\"own-0\":{\"payload_up_bytes\":7,\"payload_down_bytes\":1}}";

static json_t *parsed(const char *text)
{
    json_t *o = json_loads(text, 0, NULL);
    assert_non_null(o);
    return o;
}

static json_t *look(void)
{
    json_t *status = parsed(STATUS), *servers = parsed(SERVERS), *files = parsed(FILES);
    json_t *all = dp_look_merge(status, servers, files);
    assert_non_null(all);
    json_decref(status);
    json_decref(servers);
    json_decref(files);
    return all;
}

static const json_t *at(const json_t *all, const char *list, size_t row)
{
    return json_array_get(json_object_get(all, list), row);
}

static double number(const json_t *o, const char *key)
{
    assert_true(json_is_number(json_object_get(o, key)));
    return json_number_value(json_object_get(o, key));
}

TEST(regions_add_up)
{
    json_t *all = look();
    const json_t *eu = at(all, "regions", 0), *us = at(all, "regions", 1);
    assert_true(number(eu, "loss") == 2.5);
    assert_true(number(eu, "sent_bytes") == 150);
    assert_true(number(eu, "received_bytes") == 15);
    assert_true(number(eu, "drained") == 1);
    assert_true(number(eu, "h") == 8);
    assert_true(number(eu, "silent_s") == 0.5);
    assert_null(json_object_get(us, "loss")); // no file has one
    const json_t *own = at(all, "regions", 3);
    assert_true(number(own, "sent_bytes") == 7);
    assert_null(json_object_get(own, "loss")); // an external trainer reports none
    json_decref(all);
}

// A worker shows its slowest path, a region its slowest live worker.
TEST(measurements_are_those_of_the_slowest)
{
    json_t *all = look();
    const json_t *eu = at(all, "regions", 0), *us = at(all, "regions", 1);
    const json_t *as = at(all, "regions", 2), *first = at(all, "workers", 0);
    assert_true(number(first, "rtt_ms") == 30);
    assert_true(number(first, "push_ms") == 80.5);
    assert_true(number(at(all, "workers", 1), "rtt_ms") == 20);
    assert_null(json_object_get(at(all, "workers", 1), "push_ms"));
    // The only link of a worker named 0 is in another region.
    assert_null(json_object_get(at(all, "workers", 2), "rtt_ms"));
    assert_true(number(eu, "utilisation") == 0.625);
    assert_true(number(eu, "rtt_ms") == 30);
    assert_true(number(eu, "push_ms") == 80.5);
    assert_null(json_object_get(us, "utilisation"));
    assert_null(json_object_get(us, "push_ms"));
    assert_null(json_object_get(as, "utilisation")); // the worker is gone
    assert_null(json_object_get(as, "rtt_ms"));
    json_decref(all);
}

TEST(shards_tell_whether_their_server_answers)
{
    json_t *all = look();
    const json_t *first = at(all, "shards", 0), *second = at(all, "shards", 1);
    assert_true(json_is_true(json_object_get(first, "answers")));
    assert_true(number(first, "admitted") == 11);
    assert_true(number(first, "staleness_p99") == 3);
    assert_true(number(first, "version") == 12);
    assert_non_null(json_object_get(json_object_get(first, "optimizer"), "name"));
    assert_string_equal(json_string_value(json_object_get(first, "server")), "s0");
    assert_true(json_is_false(json_object_get(second, "answers")));
    assert_null(json_object_get(second, "admitted"));
    assert_true(number(second, "version") == 13);
    json_decref(all);
}

// Credits of a shard that no server reported are missing in the sum, and the run says so.
TEST(unheard_shards_and_a_frozen_balancer_are_told)
{
    json_t *all = look(), *run = json_object_get(all, "run");
    assert_null(json_object_get(run, "unheard_shards"));
    assert_null(json_object_get(run, "frozen"));
    json_decref(all);
    json_t *status = parsed(STATUS);
    json_object_set_new(json_array_get(json_object_get(status, "shards"), 1), "address",
                        json_string(""));
    json_object_set_new(status, "balancer", parsed("{\"frozen\":true}"));
    all = dp_look_merge(status, NULL, NULL);
    run = json_object_get(all, "run");
    assert_true(number(run, "unheard_shards") == 1);
    assert_true(json_is_true(json_object_get(run, "frozen")));
    json_decref(all);
    json_decref(status);
}

TEST(the_run_has_an_end_in_sight)
{
    json_t *all = look(), *run = json_object_get(all, "run");
    assert_true(number(run, "percent") == 40);
    assert_true(number(run, "tokens_per_s") == 5); // the speed of live workers
    assert_true(number(run, "eta_s") == 120);
    assert_true(number(run, "live") == 3);
    json_decref(all);
    json_t *still = parsed(STATUS);
    json_object_set_new(still, "draining", json_true());
    all = dp_look_merge(still, NULL, NULL);
    assert_null(json_object_get(json_object_get(all, "run"), "eta_s"));
    json_decref(all);
    json_decref(still);
}

static lh_err find(const json_t *all, const char *kind, const char *name, json_t **out)
{
    const char *words[] = {kind, name};
    return dp_describe_find(all, words, name ? 2 : 1, out);
}

TEST(things_have_names)
{
    json_t *all = look(), *thing;
    assert_int_equal(find(all, "worker", "eu-1", &thing), LH_OK);
    assert_true(number(thing, "loss") == 3);
    json_decref(thing);
    assert_int_equal(find(all, "worker", "eu-0", &thing), LH_OK);
    assert_string_equal(json_string_value(json_object_get(thing, "incarnation")), "1.2");
    json_decref(thing);
    assert_int_equal(find(all, "worker", "0", &thing), LH_ERR_INVALID);
    assert_non_null(strstr(lh_err_text(LH_ERR_INVALID), "write REGION/NAME"));
    assert_int_equal(find(all, "worker", "as/0", &thing), LH_OK);
    assert_false(json_is_true(json_object_get(thing, "live")));
    json_decref(thing);
    assert_int_equal(find(all, "region", "eu", &thing), LH_OK);
    assert_int_equal(json_array_size(json_object_get(thing, "workers")), 2);
    json_decref(thing);
    assert_int_equal(find(all, "shard", "1", &thing), LH_OK);
    assert_true(number(thing, "version") == 13);
    json_decref(thing);
    assert_int_equal(find(all, "run", NULL, &thing), LH_OK);
    assert_int_equal(json_array_size(json_object_get(thing, "shards")), 2);
    json_decref(thing);
    assert_int_equal(find(all, "shard", "1x", &thing), LH_ERR_INVALID);
    assert_int_equal(find(all, "shard", "2", &thing), LH_ERR_NOT_FOUND);
    assert_non_null(strstr(lh_err_text(LH_ERR_NOT_FOUND), "there are: 0 1"));
    assert_int_equal(find(all, "worker", "as/eu-1", &thing), LH_ERR_NOT_FOUND);
    assert_non_null(strstr(lh_err_text(LH_ERR_NOT_FOUND), "no worker as/eu-1 in this run"));
    assert_non_null(strstr(lh_err_text(LH_ERR_NOT_FOUND), " as/0"));
    assert_int_equal(find(all, "region", "atlantis", &thing), LH_ERR_NOT_FOUND);
    assert_int_equal(find(all, "planet", "earth", &thing), LH_ERR_INVALID);
    json_decref(all);
}

TEST(units_are_counted)
{
    json_t *thing = parsed("{\"name\":\"a\\u001bb\",\"gone\":null}");
    json_t *rows = json_array();
    struct lh_buf out = lh_buf(1 << 16);
    for (int i = 0; i < 50; i++)
        json_array_append_new(
            rows, json_pack("{s:i s:s}", "unit", i, "state", i < 40 ? "leased" : "credited"));
    dp_describe_leases(thing, rows);
    const json_t *units = json_object_get(thing, "units");
    assert_true(number(units, "leased") == 40);
    assert_true(number(units, "credited") == 10);
    assert_int_equal(json_array_size(json_object_get(thing, "leased_units")), 32);
    dp_describe_put(thing, &out);
    lh_put_u8(&out, 0);
    assert_non_null(strstr((const char *)out.data, "name                 a?b\n"));
    assert_non_null(strstr((const char *)out.data, "gone                 -\n"));
    assert_non_null(strstr((const char *)out.data, "  leased             40\n"));
    assert_non_null(strstr((const char *)out.data, "leased_units         0 1 2 3 "));
    lh_buf_free(&out);
    json_decref(rows);
    json_decref(thing);
}

enum { SERVERS_ASKED = 3 };

// Each server answers only once all are asked.
struct asked {
    struct lh_request *rq[SERVERS_ASKED];
    unsigned count;
};

static void on_status(void *self, struct lh_request *rq, const void *request)
{
    (void)request;
    struct asked *q = self;
    struct lh_status_reply m = {.json = "{\"name\":\"s\",\"shards\":[]}"};
    q->rq[q->count++] = rq;
    for (unsigned i = 0; q->count == SERVERS_ASKED && i < SERVERS_ASKED; i++)
        lh_answer(q->rq[i], LH_MESSAGE(status_reply, &m));
}

static lh_err accept_status(void *self, struct lh_call *call, enum lh_rpc rpc,
                            const struct lh_peer *peer, const struct lh_call_ops **ops, void **to)
{
    assert_int_equal(rpc, LH_RPC_SHARD_STATUS);
    return lh_request_take(call, peer, &lh_wire_shard_status_request, on_status, self, ops, to);
}

static struct lh_transport *node(struct lh_fabric *fabric, struct lh_env *env, const char *name)
{
    struct lh_transport *out;
    struct lh_peer self = {.role = LH_S};
    snprintf(self.name, sizeof self.name, "%s", name);
    assert_int_equal(lh_transport_mem_create(fabric, env, &self, false, &out), LH_OK);
    return out;
}

TEST(a_server_that_is_silent_does_not_hold_up_the_others)
{
    struct dp_admin a = {0};
    struct asked asked = {0};
    struct lh_service service = {&asked, accept_status};
    struct lh_fabric *fabric = lh_fabric_create();
    struct lh_transport *server[SERVERS_ASKED];
    json_t *status = json_pack("{s:[]}", "shards");
    assert_int_equal(lh_env_real_create(&a.env), LH_OK);
    a.transport = node(fabric, a.env, "admin");
    for (int i = 0; i < SERVERS_ASKED; i++) {
        char name[16], bound[LH_ADDRESS_BYTES];
        snprintf(name, sizeof name, "s%d:1", i);
        server[i] = node(fabric, a.env, name);
        assert_int_equal(server[i]->ops->listen(server[i], name, &service, bound, sizeof bound),
                         LH_OK);
        json_array_append_new(json_object_get(status, "shards"),
                              json_pack("{s:s}", "address", bound));
    }
    json_t *servers = dp_look_servers(&a, status), *said;
    const char *address;
    assert_int_equal(json_object_size(servers), SERVERS_ASKED);
    json_object_foreach(servers, address, said)
        assert_string_equal(lh_json_word(said, "name"), "s");
    json_decref(servers);
    json_decref(status);
    dp_admin_pause(&a, LH_MS); // both ends of each call hear of its end
    for (unsigned i = 0; i < a.servers; i++) a.transport->ops->hangup(a.server[i].link);
    lh_transport_mem_kill(a.transport, false);
    for (int i = 0; i < SERVERS_ASKED; i++) lh_transport_mem_kill(server[i], false);
    lh_fabric_destroy(fabric);
    lh_env_real_destroy(a.env);
}

// ---------------------------------------------------------------- a coordinator's answers

enum { ANSWERS = 6 };
static const char WHOLE[] = "{\"role\":\"coordinator\"}";

struct answer {
    uint64_t from, text; // the expected question's
    const char *json;
    uint64_t number, bytes;
    lh_err err;
};

struct told {
    const struct answer *answer; // [ANSWERS], in their order
    unsigned count;
};

static void on_question(void *self, struct lh_request *rq, const void *request)
{
    struct told *t = self;
    const struct lh_status_request *m = request;
    assert_true(t->count < ANSWERS);
    const struct answer *a = &t->answer[t->count++];
    assert_int_equal(m->from, a->from);
    assert_int_equal(m->text, a->text);
    struct lh_status_reply out = {.json = a->json, .text = a->number, .bytes = a->bytes};
    if (a->err)
        lh_reply_error(rq, a->err, "another operator asks");
    else
        lh_answer(rq, LH_MESSAGE(status_reply, &out));
}

static lh_err accept_question(void *self, struct lh_call *call, enum lh_rpc rpc,
                              const struct lh_peer *peer, const struct lh_call_ops **ops, void **to)
{
    assert_int_equal(rpc, LH_RPC_STATUS);
    return lh_request_take(call, peer, &lh_wire_status_request, on_question, self, ops, to);
}

// Asks for the state, or for leases if `rows` is given. Returns the number of questions.
static unsigned ask_as(const struct answer answers[ANSWERS], lh_err expected, json_t *rows)
{
    struct dp_admin a = {.coordinator = "c:1"};
    struct told told = {answers, 0};
    struct lh_service service = {&told, accept_question};
    struct lh_fabric *fabric = lh_fabric_create();
    char bound[LH_ADDRESS_BYTES];
    const struct dp_lease_filter all = {NULL, NULL, NULL, NULL};
    json_t *status = NULL;
    assert_int_equal(lh_env_real_create(&a.env), LH_OK);
    a.transport = node(fabric, a.env, "admin");
    struct lh_transport *c = node(fabric, a.env, "c:1");
    assert_int_equal(c->ops->listen(c, "c:1", &service, bound, sizeof bound), LH_OK);
    assert_int_equal(a.transport->ops->dial(a.transport, bound, LH_S, LH_LINE_FIRST, &a.link),
                     LH_OK);
    lh_err err = rows ? dp_leases_ask(&a, &all, rows) : dp_admin_status(&a, &status);
    assert_int_equal(err, expected);
    assert_true(rows || (status != NULL) == !err);
    json_decref(status);
    dp_admin_pause(&a, LH_MS); // both ends of each call hear of its end
    a.transport->ops->hangup(a.link);
    lh_transport_mem_kill(a.transport, false);
    lh_transport_mem_kill(c, false);
    lh_fabric_destroy(fabric);
    lh_env_real_destroy(a.env);
    return told.count;
}

TEST(a_state_comes_in_slices)
{
    enum { HALF = 8, ALL = sizeof WHOLE - 1 };
    char first[HALF + 1];
    snprintf(first, sizeof first, "%.*s", HALF, WHOLE);
    const struct answer once[ANSWERS] = {{0, 0, WHOLE, 0, 0, LH_OK}};
    assert_int_equal(ask_as(once, LH_OK, NULL), 1);
    const struct answer twice[ANSWERS] = {{0, 0, first, 7, ALL, LH_OK},
                                          {HALF, 7, WHOLE + HALF, 7, ALL, LH_OK}};
    assert_int_equal(ask_as(twice, LH_OK, NULL), 2);
    const struct answer again[ANSWERS] = {{0, 0, first, 7, ALL, LH_OK},
                                          {HALF, 7, "", 0, 0, LH_ERR_BUSY},
                                          {0, 0, first, 8, ALL, LH_OK},
                                          {HALF, 8, WHOLE + HALF, 8, ALL, LH_OK}};
    assert_int_equal(ask_as(again, LH_OK, NULL), 4);
    const struct answer empty[ANSWERS] = {{0, 0, first, 7, ALL, LH_OK},
                                          {HALF, 7, "", 7, ALL, LH_OK}};
    assert_int_equal(ask_as(empty, LH_ERR_MALFORMED, NULL), 2);
    const struct answer other[ANSWERS] = {{0, 0, "{\"role\":\"worker\"}", 0, 0, LH_OK}};
    assert_int_equal(ask_as(other, LH_ERR_MALFORMED, NULL), 1);
    const struct answer denied[ANSWERS] = {{0, 0, "", 0, 0, LH_ERR_DENIED}};
    assert_int_equal(ask_as(denied, LH_ERR_DENIED, NULL), 1);
}

// One that was just started again says that it has not heard of all yet.
TEST(a_coordinator_that_hears_is_asked_again)
{
    static const char HEARS[] = "{\"role\":\"coordinator\",\"hears\":true}";
    const struct answer answers[ANSWERS] = {{0, 0, HEARS, 0, 0, LH_OK}, {0, 0, WHOLE, 0, 0, LH_OK}};
    assert_int_equal(ask_as(answers, LH_OK, NULL), 2);
}

TEST(leases_come_in_pages)
{
    json_t *rows = json_array();
    const struct answer pages[ANSWERS] = {{0, 0, "{\"leases\":[1,2],\"next\":4}", 0, 0, LH_OK},
                                          {4, 0, "{\"leases\":[],\"next\":5}", 0, 0, LH_OK},
                                          {5, 0, "{\"leases\":[3]}", 0, 0, LH_OK}};
    assert_int_equal(ask_as(pages, LH_OK, rows), 3);
    assert_int_equal(json_array_size(rows), 3);
    assert_int_equal(json_integer_value(json_array_get(rows, 2)), 3);
    const struct answer back[ANSWERS] = {{0, 0, "{\"leases\":[],\"next\":4}", 0, 0, LH_OK},
                                         {4, 0, "{\"leases\":[4],\"next\":4}", 0, 0, LH_OK}};
    assert_int_equal(ask_as(back, LH_ERR_MALFORMED, rows), 2);
    const struct answer none[ANSWERS] = {{0, 0, "{\"leases\":3}", 0, 0, LH_OK}};
    assert_int_equal(ask_as(none, LH_ERR_MALFORMED, rows), 1);
    assert_int_equal(json_array_size(rows), 3);
    json_decref(rows);
}
