// `longhaul drain`: the workers it applies to, and when its wait for them ends.
#include <string.h>

#include "deploy/ask/drain.h"
#include "deploy/tool/cli.h"
#include "tests/test.h"

static lh_err parse(const char *what, const char *name, struct dp_scope *out)
{
    const char *words[] = {what, name};
    return dp_scope_parse(words, what ? name ? 2 : 1 : 0, out);
}

TEST(words_name_a_scope)
{
    struct dp_scope s;
    char longest[LH_NAME_BYTES + 1] = "";
    memset(longest, 'x', LH_NAME_BYTES);
    assert_int_equal(parse("run", NULL, &s), LH_OK);
    assert_string_equal(s.region, "");
    assert_string_equal(s.worker, "");
    assert_int_equal(parse("region", "eu", &s), LH_OK);
    assert_string_equal(s.region, "eu");
    assert_string_equal(s.worker, "");
    assert_int_equal(parse("worker", "eu-0", &s), LH_OK);
    assert_string_equal(s.region, "");
    assert_string_equal(s.worker, "eu-0");
    assert_int_equal(parse("worker", "eu/eu-0", &s), LH_OK);
    assert_string_equal(s.region, "eu");
    assert_string_equal(s.worker, "eu-0");
    assert_int_equal(parse("region", longest + 1, &s), LH_OK);
    assert_int_equal(parse("region", longest, &s), LH_ERR_INVALID);
    assert_int_equal(parse("worker", "eu/", &s), LH_ERR_INVALID);
    assert_int_equal(parse("worker", "/eu-0", &s), LH_ERR_INVALID);
    assert_int_equal(parse("run", "eu", &s), LH_ERR_INVALID);
    assert_int_equal(parse("region", NULL, &s), LH_ERR_INVALID);
    assert_int_equal(parse(NULL, NULL, &s), LH_ERR_INVALID);
}

// A status with three workers: eu-0 drained, eu-1 silent, us-0 drained if `us_drained`; all done if
// `done`.
static json_t *status_of(const char *phase, bool us_drained, bool done)
{
    json_t *o = json_pack(
        "{s:s s:[] s:[{s:s s:s s:b s:b s:b} {s:s s:s s:b s:b s:b} {s:s s:s s:b s:b s:b}]}", "phase",
        phase, "drained_regions", "workers", "name", "eu-0", "region", "eu", "live", 1, "drained",
        1, "done", done, "name", "eu-1", "region", "eu", "live", 0, "drained", 0, "done", 0, "name",
        "us-0", "region", "us", "live", 1, "drained", us_drained, "done", done);
    assert_non_null(o);
    return o;
}

static struct dp_drained judge(json_t *status, const char *region, const char *worker, bool end)
{
    struct dp_scope scope = {.region = ""};
    struct dp_drained state;
    strncpy(scope.region, region, LH_NAME_BYTES - 1);
    strncpy(scope.worker, worker, LH_NAME_BYTES - 1);
    json_t *rows = dp_drain_rows(status, &scope, end, &state);
    assert_int_equal(json_array_size(rows), state.workers + state.silent);
    json_decref(rows);
    return state;
}

// A worker that is still draining is counted: its own drain was undone, but its region or the run
// drains.
TEST(workers_that_still_drain_are_counted)
{
    json_t *status = status_of("running", false, false);
    json_t *us = json_array_get(json_object_get(status, "workers"), 2);
    assert_int_equal(judge(status, "", "", false).asked, 0);
    json_object_set_new(us, "draining", json_true());
    assert_int_equal(judge(status, "", "", false).asked, 1);
    assert_int_equal(judge(status, "eu", "", false).asked, 0);
    json_decref(status);
}

TEST(the_silent_are_not_waited_for)
{
    json_t *status = status_of("running", false, false);
    struct dp_drained eu = judge(status, "eu", "", false), all = judge(status, "", "", false);
    assert_true(eu.complete);
    assert_int_equal(eu.workers, 1);
    assert_int_equal(eu.silent, 1);
    assert_false(all.complete);
    assert_int_equal(all.workers, 2);
    assert_int_equal(all.drained, 1);
    assert_true(judge(status, "", "eu-0", false).complete);
    assert_false(judge(status, "", "us-0", false).complete);
    assert_true(judge(status, "us", "eu-0", false).workers == 0);
    json_decref(status);
}

TEST(an_end_is_one_when_all_have_said_so)
{
    json_t *closing = status_of("closing", true, false), *told = status_of("ended", true, true);
    json_t *ended = status_of("ended", true, false), *early = status_of("closing", true, true);
    assert_true(judge(closing, "", "", false).complete);
    assert_false(judge(closing, "", "", true).complete);
    assert_false(judge(ended, "", "", true).complete);
    assert_false(judge(early, "", "", true).complete);
    assert_true(judge(told, "", "", true).complete);
    json_decref(closing);
    json_decref(told);
    json_decref(ended);
    json_decref(early);
}

// The command names what a drain waits for; an expelled server holds it up until it is let back.
TEST(a_wait_names_whom_it_waits_for)
{
    struct dp_scope run = {.region = ""};
    struct lh_buf out = lh_buf(4096);
    json_t *status = status_of("running", false, false);
    json_t *servers =
        json_pack("[{s:s s:s s:s} {s:s s:s s:s} {s:s s:s s:s}]", "role", "server", "name", "s0",
                  "state", "live", "role", "server", "name", "s1", "state", "expelled", "role",
                  "standby", "name", "s2", "state", "suspect");
    assert_non_null(servers);
    json_object_set_new(status, "servers", servers);
    dp_drain_waits(status, &run, false, &out);
    lh_put_u8(&out, 0);
    assert_string_equal((const char *)out.data,
                        "server s1, which is expelled (`longhaul admit server s1` lets it back); "
                        "worker us-0");
    json_object_set_new(json_array_get(servers, 1), "state", json_string("suspect"));
    json_object_set_new(json_array_get(json_object_get(status, "workers"), 2), "why",
                        json_string("no step"));
    lh_buf_clear(&out);
    dp_drain_waits(status, &run, false, &out);
    lh_put_u8(&out, 0);
    assert_string_equal((const char *)out.data,
                        "server s1, which is silent; worker us-0, which is stalled: no step");
    json_object_set_new(json_array_get(json_object_get(status, "workers"), 2), "set_aside",
                        json_true());
    json_object_set_new(json_array_get(json_object_get(status, "workers"), 2), "why",
                        json_string("shard 1 refuses its pushes"));
    lh_buf_clear(&out);
    dp_drain_waits(status, &run, false, &out);
    lh_put_u8(&out, 0);
    assert_non_null(strstr((const char *)out.data, "; worker us-0: shard 1 refuses its pushes"));
    lh_buf_free(&out);
    json_decref(status);
}

static int drain(const char *a, const char *b, const char *c, const char *d)
{
    const char *argv[] = {"drain", a, b, c, d};
    int argc = 1;
    while (argc < 5 && argv[argc]) argc++;
    return dp_command(argc, (char **)argv);
}

TEST(wrong_lines)
{
    assert_int_equal(drain(NULL, NULL, NULL, NULL), DP_USAGE);
    assert_int_equal(drain("run", NULL, NULL, NULL), DP_USAGE); // neither --dir nor --coordinator
    assert_int_equal(drain("run", "--end", "--undo", NULL), DP_USAGE);
    assert_int_equal(drain("run", "--wait", "--undo", NULL), DP_USAGE);
    assert_int_equal(drain("region", "eu", "--end", NULL), DP_USAGE);
    assert_int_equal(drain("run", "-o", "yaml", NULL), DP_USAGE);
    assert_int_equal(drain("run", "--dir", "/nonexistent", NULL), DP_MISSING);
}
