// The trace of a push: all lines of worker and server about one push have the same id, also after a
// resend (common/net/trace.h).
#include <stdlib.h>
#include <string.h>

#include "tests/cores/trip.h"

enum { ID = 32 };

// The id in the first line with this event after `at`; returns where to look on, or NULL.
static const char *id_of(const char *at, const char *event, char out[ID + 1])
{
    char field[64];
    snprintf(field, sizeof field, "\"event\":\"%s\"", event);
    const char *found = strstr(at, field), *line = found;
    if (!found) return NULL;
    while (line > at && line[-1] != '\n') line--;
    const char *trace = strstr(line, "\"trace\":\"");
    assert_true(trace && trace < found);
    snprintf(out, ID + 1, "%s", trace + strlen("\"trace\":\""));
    assert_int_equal(strspn(out, "0123456789abcdef"), ID);
    return found + 1;
}

static unsigned count(const char *text, const char *event, const char *id)
{
    char is[ID + 1];
    unsigned n = 0;
    for (const char *at = text; (at = id_of(at, event, is));) n += !strcmp(is, id);
    return n;
}

// Logs JSON lines of worker and server, with debug lines, to one file.
static void log_as_json(struct trip *t)
{
    t->r->server->conf.log = NULL;
    lh_log_close(t->log);
    assert_int_equal(lh_log_open(&t->log, t->r->t.env, "both", LH_DEBUG, true, "lines"), LH_OK);
    t->r->server->conf.log = t->log;
}

TRIP_TEST(lines_about_a_push_share_its_id, struct trip *t)
{
    static const char *const once[] = {"push.received", "push.unsealed", "push.decided"};
    struct lh_buf text = lh_buf(16 << 20);
    char first[ID + 1], second[ID + 1];
    log_as_json(t);
    trip_start_worker(t);
    trip_run_until_credited(t, 8);
    assert_int_equal(lh_file_load(t->r->t.env, "lines", &text), LH_OK);
    lh_put_u8(&text, 0);
    const char *lines = (const char *)text.data, *at = id_of(lines, "push.sent", first);
    assert_non_null(at);
    assert_non_null(id_of(at, "push.sent", second));
    assert_string_not_equal(first, second);
    for (size_t i = 0; i < LH_COUNT(once); i++) assert_int_equal(count(lines, once[i], first), 1);
    assert_int_equal(count(lines, "push.begun", first), 1);
    lh_buf_free(&text);
}

// Loses the first few push requests.
static bool lose_some(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                      struct lh_fate *fate)
{
    int *left = arg;
    (void)from, (void)to;
    if (rpc == LH_RPC_PUSH && *left > 0) fate->lose_request = (*left)-- > 0;
    return true;
}

TRIP_TEST(a_resend_has_the_same_id, struct trip *t)
{
    struct lh_buf text = lh_buf(16 << 20);
    char id[ID + 1];
    int left = 3;
    log_as_json(t);
    lh_fabric_fates(t->r->fabric, lose_some, &left);
    trip_start_worker(t);
    trip_run_until_credited(t, 4);
    assert_int_equal(lh_file_load(t->r->t.env, "lines", &text), LH_OK);
    lh_put_u8(&text, 0);
    const char *lines = (const char *)text.data;
    assert_non_null(id_of(lines, "push.sent", id));
    assert_int_equal(count(lines, "push.sent", id), 4);
    assert_int_equal(count(lines, "push.decided", id), 1);
    lh_buf_free(&text);
}
