// The doctor's report on a running run: what it names, and whether a person has to act.
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "deploy/up/doctor_run.h"
#include "tests/test.h"

enum { NOW_S = 2000000000 };

#define SERVER "\"role\":\"server\",\"name\":\"s0\",\"shards\":[{\"shard\":0,\"parameters\":1000}]"
#define WELL                                                                                       \
    "\"version\":\"" LH_VERSION "\",\"time_s\":2000000001,\"disk_free_bytes\":1000000000000,"      \
    "\"certificate_expires_s\":8640000"

static const char STATUS[] =
    "{" WELL ",\"role\":\"coordinator\",\"phase\":\"running\",\"credited_tokens\":4,"
    "\"budget_tokens\":9,\"workers\":[{\"name\":\"a\",\"region\":\"eu\",\"live\":true,"
    "\"member_state\":\"live\",\"version\":\"" LH_VERSION "\"}],"
    "\"shards\":[{\"shard\":0,\"address\":\"h:1\",\"standby_in_sync\":false}],"
    "\"servers\":[{\"role\":\"server\",\"name\":\"s0\",\"state\":\"live\",\"shards\":[0]}]}";
static const char SERVERS[] = "{\"h:1\":{" WELL "," SERVER "}}";

// Returns the doctor's lines for these three inputs; *fails and *warns count those that need
// action.
static char *doctor(const char *status, const char *servers, const char *files, unsigned *fails,
                    unsigned *warns)
{
    char *text = NULL;
    size_t bytes = 0;
    json_t *a = json_loads(status, 0, NULL), *b = json_loads(servers, 0, NULL),
           *d = json_loads(files, 0, NULL);
    struct dp_check c = {.out = open_memstream(&text, &bytes)};
    assert_true(a && b && d && c.out);
    dp_check_run(&c, a, b, d, NOW_S);
    fclose(c.out);
    *fails = c.failures;
    *warns = c.warnings;
    json_decref(a);
    json_decref(b);
    json_decref(d);
    return text;
}

TEST(a_run_that_is_well_asks_for_nothing)
{
    unsigned fails, warns;
    char *text = doctor(STATUS, SERVERS, "{}", &fails, &warns);
    assert_int_equal(fails + warns, 0);
    assert_non_null(strstr(text, "run: running, 4 of 9 tokens, 1 of 1 workers live"));
    assert_non_null(strstr(text, "server s0 at h:1: it answers"));
    free(text);
}

// Returns the text with `part` replaced.
static char *with(const char *text, const char *part, const char *other)
{
    const char *at = strstr(text, part);
    size_t n = strlen(text) + strlen(other) + 1;
    char *out = malloc(n);
    assert_true(at && out);
    snprintf(out, n, "%.*s%s%s", (int)(at - text), text, other, at + strlen(part));
    return out;
}

TEST(each_fault_is_named)
{
    static const char SOUND[] = "\"time_s\":2000000001";
    static const struct {
        bool server; // `part` is in the server's answer; else in the coordinator's status
        const char *part, *other, *says;
        bool fails;
    } rows[] = {
        {false, "\"member_state\":\"live\"", "\"member_state\":\"lost\",\"silent_s\":90",
         "FAIL   worker eu/a: lost, silent for 90 s: it is gone", true},
        {false, "\"member_state\":\"live\"", "\"member_state\":\"stalled\",\"why\":\"no step\"",
         "FAIL   worker eu/a: stalled, silent for 0 s; no step:", true},
        {false, "\"member_state\":\"live\"", "\"member_state\":\"set_aside\"", "`longhaul admit`",
         true},
        {false, "\"member_state\":\"live\"", "\"member_state\":\"suspect\"", "warn   worker eu/a",
         false},
        {false, "\"member_state\":\"live\",\"version\":\"" LH_VERSION "\"",
         "\"member_state\":\"live\",\"version\":\"0.0.7\"", "it runs version 0.0.7", false},
        {false, "\"state\":\"live\"", "\"state\":\"suspect\",\"silent_s\":40",
         "FAIL   server s0: silent for 40 s", true},
        {false, "\"state\":\"live\"", "\"state\":\"unheard\"", "no server has reported it", true},
        {false, "\"state\":\"live\"", "\"state\":\"expelled\"",
         "FAIL   s0: it was expelled, and nothing reaches its shards: `longhaul admit", true},
        {false, SOUND, "\"balancer\":{\"frozen\":true}", "`longhaul balancer thaw` undoes it",
         false},
        {false, "\"workers\":[{\"name\":\"a\",\"region\":\"eu\",\"live\":true",
         "\"balancer\":{\"frozen\":true},\"workers\":[{\"name\":\"a\",\"region\":\"eu\",\"live\":"
         "false",
         "so nobody trains those of a while it is away: `longhaul balancer thaw`", true},
        {false, "\"servers\":[",
         "\"servers\":[{\"role\":\"standby\",\"name\":\"b\",\"state\":\"live\",\"shards\":[0]},",
         "shard 0: its standby b is not in sync", false},
        {false, SOUND, "\"paused\":{\"by\":\"boss\",\"why\":\"lunch\"}",
         "run: paused by boss (lunch): `longhaul resume`", false},
        {false, SOUND, "\"draining\":true", "`longhaul drain run --undo`", false},
        {false, SOUND,
         "\"alarms\":[{\"rule\":\"hot\",\"active\":true,\"region\":\"eu\",\"text\":\"loss 9\"},"
         "{\"rule\":\"cold\",\"active\":false}]",
         "FAIL   alarm hot of eu: loss 9", true},
        {false, SOUND, "\"hook\":{\"failures\":2,\"says\":\"exit 1\"}",
         "hook: 2 calls in a row failed: exit 1", false},
        {true, SOUND, "\"time_s\":2000000500", "its clock is 500 s before this machine's", false},
        {true, SOUND, "\"time_s\":1999999900", "its clock is 100 s behind this machine's", false},
        {true, SOUND, "\"disk_full\":true", "FAIL   server s0 at h:1: its disk is full", true},
        {true, SOUND, "\"commit_age_s\":12", "has not finished a write for 12 s", true},
        {true, SOUND, "\"store\":{\"away\":true,\"failures\":3,\"age_s\":70}",
         "store of checkpoints can't be reached (3 failures", true},
        {true, SOUND, "\"loader\":{\"away_s\":70}", "store of units (data.dir) could not be read",
         true},
        {true, "1000000000000", "1000", "free on its disk", false},
        {true, "8640000", "86400", "its certificate expires in 1.0 days", false},
        {true, "8640000", "-5", "its certificate has expired", true},
        {true, "\"parameters\":1000", "\"rebuilding\":{}", "shard 0 is being rebuilt", false},
        {true, SERVERS, "{\"h:1\":null}", "FAIL   server at h:1: no answer:", true},
    };
    for (size_t i = 0; i < LH_COUNT(rows); i++) {
        const char *whole = rows[i].server ? SERVERS : STATUS;
        char *other = with(whole, rows[i].part, rows[i].other);
        unsigned fails, warns;
        char *text = doctor(rows[i].server ? STATUS : other, rows[i].server ? other : SERVERS, "{}",
                            &fails, &warns);
        if (!strstr(text, rows[i].says)) fail_msg("no \"%s\" in:\n%s", rows[i].says, text);
        assert_int_equal(fails, rows[i].fails);
        assert_int_equal(warns, !rows[i].fails);
        free(text);
        free(other);
    }
}

// A worker's own status file knows more than the coordinator does.
TEST(a_workers_file_is_looked_at)
{
    unsigned fails, warns;
    char *text = doctor(STATUS, SERVERS, "{\"a\":{\"disk_full\":true}}", &fails, &warns);
    assert_non_null(strstr(text, "FAIL   worker eu/a: its disk is full"));
    assert_int_equal(fails, 1);
    free(text);
    static const char OLD[] = "{\"a\":{\"time_s\":1999999940,\"disk_free_bytes\":9}}";
    text = doctor(STATUS, SERVERS, OLD, &fails, &warns); // too old to say anything of the disk
    assert_non_null(strstr(text, "FAIL   worker eu/a: it answers, but has written no status for "
                                 "60 s: its disk is full or hangs"));
    assert_int_equal(fails, 1);
    assert_int_equal(warns, 0);
    free(text);
}

TEST(an_answer_without_sense_harms_nobody)
{
    static const char *const odd[] = {"{}", "[]",
                                      "{\"workers\":3,\"shards\":[null],\"servers\":{}}",
                                      "{\"workers\":[[]],\"alarms\":[1],\"paused\":7,\"hook\":[]}"};
    for (size_t i = 0; i < LH_COUNT(odd); i++) {
        unsigned fails, warns;
        free(doctor(odd[i], "{\"h:1\":[1]}", odd[i], &fails, &warns));
        assert_int_equal(fails, 1); // the server's answer is the one failure
    }
}
