// Rows of the coordinator's store that can't be read, though the file is intact. The start is
// refused with the file, the row and the remedy, so that no answered request is silently forgotten
// (server/docs/0000-protocol.md#rule-26, server/coordinator/commit.c).
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "server/coordinator/balance/lease.h"
#include "server/coordinator/commit.h"
#include "tests/cores/rig.h"

enum { UNITS = 8 }; // units of the data, as in rig_new()

static struct rig *one_there(uint32_t epochs)
{
    struct rig *r = rig_new(1);
    rig_start_coordinator(r);
    assert_int_equal(rig_join(r, 0, 11, 0).granted, 1); // the run has one epoch
    rig_kill_coordinator(r);
    r->epochs = epochs;
    rig_start_coordinator(r);
    return r;
}

static uint64_t worker(const struct rig *r)
{
    return lh_worker_id(&r->w[0].self);
}

static void put(struct rig *r, const char *key, struct lh_span value)
{
    assert_int_equal(ps_co_put(r->coordinator, key, value), LH_OK);
    rig_settle(r);
}

static void put_number(struct rig *r, const char *key, uint64_t number)
{
    struct lh_buf b = lh_buf(16);
    lh_put_u64(&b, number);
    put(r, key, lh_buf_span(&b));
    lh_buf_free(&b);
}

// A row of a lease: the unit's place in its range and a 1 (a second lease has neither), the holder,
// and a number 0.
static void put_lease(struct rig *r, const char *key, uint8_t place, uint64_t worker)
{
    struct lh_buf b = lh_buf(32);
    bool range = !strncmp(key, "lease", 5);
    if (range) lh_put_u8(&b, place);
    if (range) lh_put_u8(&b, 1);
    lh_put_u64(&b, worker);
    lh_put_u64(&b, 0);
    put(r, key, lh_buf_span(&b));
    lh_buf_free(&b);
}

static void refused(struct rig *r, const char *key, const char *why)
{
    char word[256];
    rig_kill_coordinator(r);
    assert_int_equal(rig_try_coordinator(r), LH_ERR_CORRUPT);
    const char *text = lh_err_text(LH_ERR_CORRUPT);
    snprintf(word, sizeof word, "%s/store: row %s %s", r->c.dir, key, why);
    if (!strstr(text, word)) fail_msg("\"%s\" does not say \"%s\"", text, word);
    if (!strstr(text, "or restore the file from a copy")) fail_msg("no way out: %s", text);
    rig_free(r);
}

static const char NEVER_JOINED[] = "is of a worker that never joined",
                  NO_UNIT[] = "is of a unit that the run does not have: run.epochs";

// ---------------------------------------------------------------- truncated rows

TEST(one_that_is_too_short_is_refused)
{
    static const char *const keys[] = {"lease/0000000000", "second/0000000001", "stable/0000",
                                       "epoch/0000", "insync/0000"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct rig *r = one_there(1);
        put(r, keys[i], lh_span("\5\5a", 3)); // too short for a number, and for its name of 5 bytes
        refused(r, keys[i], "is too short");
    }
}

TEST(a_member_that_is_too_short_is_refused)
{
    struct rig *r = one_there(1);
    put_number(r, "worker/00000000000000aa", 0xaa); // without its other numbers and its name
    refused(r, "worker/00000000000000aa", "is too short");
}

TEST(the_silence_of_a_member_is_not_measured_by_half_a_trip)
{
    struct rig *r = one_there(1);
    char key[48];
    snprintf(key, sizeof key, "trip/w/%016" PRIx64, worker(r));
    put_number(r, key, 5);
    refused(r, key, "is too short");
}

TEST(a_wish_to_drain_the_run_says_whether_it_ends)
{
    struct rig *r = one_there(1);
    put(r, "drain/run", lh_span(NULL, 0));
    refused(r, "drain/run", "is too short");
}

TEST(a_plan_that_is_none_is_refused)
{
    struct rig *r = one_there(1);
    put(r, "plan", lh_span("plan", 4));
    refused(r, "plan", "can't be read: ");
}

// ---------------------------------------------------------------- rows about something unknown

TEST(a_lease_is_of_a_unit_and_a_worker_of_the_run)
{
    static const char *const kinds[] = {"lease", "second"};
    // The run has units 0 to 7.
    static const char *const units[] = {"0000000008", "", "x", "-1", " 1", "1x"};
    for (size_t k = 0; k < 2; k++) {
        char key[48];
        struct rig *r;
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            r = one_there(1);
            snprintf(key, sizeof key, "%s/%s", kinds[k], units[u]);
            put_lease(r, key, 0, worker(r));
            refused(r, key, NO_UNIT);
        }
        r = one_there(1);
        snprintf(key, sizeof key, "%s/0000000000", kinds[k]);
        put_lease(r, key, 0, worker(r) + 1);
        refused(r, key, NEVER_JOINED);
    }
}

TEST(leases_are_of_the_units_of_their_range)
{
    struct rig *r = one_there(1);
    put_lease(r, "lease/0000000001", 0, worker(r));
    refused(r, "lease/0000000001", "is of no range of units");
    r = one_there(1);
    put_lease(r, "lease/0000000000", 64, worker(r));
    refused(r, "lease/0000000000", "has units that are not of its range");
}

TEST(bytes_that_crossed_are_of_a_worker_and_a_home)
{
    static const char *const names[] = {"crossed/1", "crossed/0000000000000001.00",
                                        "crossed/000000000000000x/00",
                                        "crossed/0000000000000001/x"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct rig *r = one_there(1);
        put(r, names[i], lh_span("123456781234567812345678", 24));
        refused(r, names[i], "has another name than crossed/WORKER/HOME");
    }
    char key[48];
    for (int i = 0; i < 3; i++) {
        const char *const why[] = {"is too short", NEVER_JOINED, "is of a home that no unit"};
        struct rig *r = one_there(1);
        snprintf(key, sizeof key, "crossed/%016llx/%02d", (unsigned long long)worker(r) + (i == 1),
                 i == 2 ? 63 : 0);
        put(r, key, lh_span("123456781234567812345678", i ? 24 : 23));
        refused(r, key, why[i]);
    }
}

TEST(a_drain_is_of_a_member)
{
    struct rig *r = one_there(1);
    put(r, "drain/worker/00000000000000aa", lh_span("", 1));
    refused(r, "drain/worker/00000000000000aa", NEVER_JOINED);
}

TEST(a_members_row_has_its_name)
{
    struct rig *r = one_there(1);
    put_number(r, "worker/00000000000000aa", 0xab);
    refused(r, "worker/00000000000000aa", "is another worker's");
}

// The settings have fewer epochs than the run began with: leases of the others are not forgotten.
TEST(a_run_keeps_its_epochs)
{
    struct rig *r = one_there(2);
    put_lease(r, "lease/0000000000", 9, worker(r));
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
    assert_int_equal(r->coordinator->lease[9], 1);
    r->epochs = 1;
    refused(r, "lease/0000000000", NO_UNIT);
}

// ---------------------------------------------------------------- valid rows

// A row has the leases of 64 units, as runs: no run goes beyond its row's end.
TEST(leases_of_many_units_come_back)
{
    struct rig *r = one_there(20); // 160 units
    struct ps_coordinator *c = r->coordinator;
    for (uint64_t u = 1; u < 130; u++) assert_int_equal(ps_co_lease_set(c, u, 0), LH_OK);
    assert_int_equal(ps_co_lease_set(c, 0, 0), LH_OK); // stores the first row again
    assert_int_equal(ps_co_lease_end(c, 100), LH_OK);
    rig_settle(r);
    uint32_t number[160], last = c->last_grant;
    memcpy(number, c->number, sizeof number);
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
    c = r->coordinator;
    for (uint64_t u = 0; u < 160; u++) {
        bool leased = u < 130 && u != 100;
        assert_int_equal(c->lease[u], leased);
        if (leased) assert_int_equal(c->number[u], number[u]);
    }
    assert_int_equal(c->last_grant, last);
    assert_int_equal(c->leased_end, 130);
    rig_free(r);
}

// ---------------------------------------------------------------- one row too many

static void put_many(struct rig *r, const char *kind, int digits, uint32_t count,
                     struct lh_span value)
{
    for (uint32_t i = 0; i < count; i++) {
        char key[48];
        snprintf(key, sizeof key, "%s%0*u", kind, digits, i);
        put(r, key, value);
    }
}

TEST(one_too_many_is_refused)
{
    struct lh_buf id = lh_buf(16);
    struct rig *r = one_there(PS_CO_SECONDS_MAX / UNITS + 1);
    lh_put_u64(&id, worker(r));
    lh_put_u32(&id, 1);
    put_many(r, "second/", 10, PS_CO_SECONDS_MAX + 1, lh_buf_span(&id));
    refused(r, "second/0000000064", "is of one unit more than may run twice");

    r = one_there(1);
    put_many(r, "drain/region/", 4, PS_DRAINED_REGIONS_MAX + 1, lh_span("", 1));
    refused(r, "drain/region/0064", "is of one region more than may drain");
    lh_buf_free(&id);
}

TEST(a_run_has_so_many_members)
{
    struct rig *r = one_there(1);
    char key[48];
    for (uint64_t id = 1; id <= LH_WORKERS_MAX; id++) { // one more has joined
        struct lh_buf b = lh_buf(1024);
        lh_put_u64(&b, id);
        lh_put_u32(&b, 1);
        lh_put_str(&b, "asia");
        lh_put_str(&b, "w");
        for (int i = 0; i < 3; i++) lh_put_u64(&b, 0); // the attempt, and two token counts
        snprintf(key, sizeof key, "worker/%016" PRIx64, id);
        assert_int_equal(ps_co_put(r->coordinator, key, lh_buf_span(&b)), LH_OK);
        lh_buf_free(&b);
    }
    rig_settle(r);
    assert_true(worker(r) > LH_WORKERS_MAX); // its row is read last
    snprintf(key, sizeof key, "worker/%016" PRIx64, worker(r));
    refused(r, key, "is of one worker more than a run may have");
}

TEST(a_region_has_a_name_that_fits)
{
    struct rig *r = one_there(1);
    char key[32 + LH_NAME_BYTES] = "drain/region/";
    memset(key + strlen(key), 'a', LH_NAME_BYTES);
    put(r, key, lh_span("", 1));
    refused(r, key, "is of a region with too long a name");
}
