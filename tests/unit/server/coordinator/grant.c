// Grant: which units a worker gets, keeps and gives back. Each table begins with a request that is
// granted something; each further row changes one thing.
// ctest: coordinator_grant
#include "server/coordinator/grant.h"
#include "server/coordinator/balance/twice.h"
#include "tests/unit/server/coordinator/hand.h"

static struct ps_co_leased out;

// Asks for so many units; returns those of the answer, then "back" and the recalled ones.
static const char *answer(uint32_t worker, const struct lh_lease_request *m)
{
    static char text[200];
    size_t at = 0;
    memset(&out, 0, sizeof out);
    text[0] = 0;
    assert_int_equal(ps_co_grant(c, worker, m, &out), LH_OK);
    for (size_t i = 0; i < out.units; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%d ", (int)out.unit[i]);
    for (size_t i = 0; i < out.recalls; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%d ", i ? "" : "back ",
                               (int)out.recalled[i]);
    return text;
}

static const char *ask(uint32_t worker, uint32_t want, uint32_t ahead)
{
    return answer(worker, &(struct lh_lease_request){.want = want, .ahead = ahead});
}

// The units that are recalled or kept for the worker.
static const char *wanted_by(uint32_t worker)
{
    static char text[200];
    size_t at = 0;
    text[0] = 0;
    for (uint64_t u = 0; u < c->units; u++)
        if (c->wanted_by[u] == worker + 1)
            at += (size_t)snprintf(text + at, sizeof text - at, "%d ", (int)u);
    return text;
}

// Begins anew: all is free and known, and workers give units back.
static void begin(int64_t ride_out_s)
{
    hand_end(NULL);
    hand_begin(NULL);
    for (int i = 0; i < SHARDS; i++) c->shard[i].reported = true;
    c->conf.ride_out_ns = ride_out_s * LH_SECOND;
}

static void refuse(uint32_t worker, uint64_t unit)
{
    struct ps_co_worker *w = &c->worker[worker];
    if (!w->refused) w->refused = calloc(LH_REFUSED_MAX, sizeof *w->refused);
    w->refused[w->refused_count++] = unit;
}

static void close_home(uint32_t worker, uint32_t home)
{
    struct ps_co_worker *w = &c->worker[worker];
    w->away = calloc(LH_AWAY_MAX, sizeof *w->away);
    w->away[w->aways++] = (struct ps_co_away){.home = home, .closed = true};
}

// ---------------------------------------------------------------- first come, first served

enum change {
    NOTHING,
    LEASED,
    CREDITED,
    UNKNOWN,
    KEPT,
    KEPT_FOR_NOBODY,
    KEPT_FOR_IT,
    REFUSED,
    CLOSED,
    FROZEN,
    PAUSED,
    DRAINS,
    IS_DRAINED,
    REGION_DRAINED,
    STALLED,
    LOST,
    BUDGET_202,
    BUDGET_201,
    BUDGET_1
};

static void apply(enum change change, uint32_t worker)
{
    struct ps_co_worker *w = &c->worker[worker];
    switch (change) {
    case LEASED: lease(4, CEM, CO_WAITS); break;
    case CREDITED: credit(4); break;
    case UNKNOWN: c->shard[0].reported = false; break;
    case KEPT: want(4, CEM); break;
    case KEPT_FOR_NOBODY:
        want(4, CEM);
        c->worker[CEM].idle = true;
        break;
    case KEPT_FOR_IT: want(4, worker); break;
    case REFUSED: refuse(worker, 4); break;
    case CLOSED: close_home(worker, EUROPE); break;
    case FROZEN: c->frozen = true; break;
    case PAUSED: c->pause.is = true; break;
    case DRAINS: c->plan.phase = LH_PHASE_DRAIN; break;
    case IS_DRAINED: w->asked = true; break;
    case REGION_DRAINED: snprintf(c->drained_region[c->drained_regions++], 64, "asia"); break;
    case STALLED: w->stall.why = PS_CO_NO_STEP; break;
    case LOST: w->live = false; break;
    case BUDGET_202: c->conf.budget_tokens = 202; break;
    case BUDGET_201: c->conf.budget_tokens = 201; break;
    case BUDGET_1: c->conf.budget_tokens = 1; break;
    default: break;
    }
}

// ann gets her own region's units, then those that may leave europe.
TEST(units_that_a_worker_may_have)
{
    static const struct {
        enum change change;
        const char *units;
    } row[] = {{NOTHING, "0 1 2 3 4 5 "},
               {LEASED, "0 1 2 3 5 "},
               {CREDITED, "0 1 2 3 5 "},
               {UNKNOWN, "1 3 5 "},
               {KEPT, "0 1 2 3 5 "},
               {KEPT_FOR_NOBODY, "0 1 2 3 4 5 "},
               {KEPT_FOR_IT, "0 1 2 3 4 5 "},
               {REFUSED, "0 1 2 3 5 "},
               {CLOSED, "0 1 2 3 "},
               {FROZEN, "0 1 2 3 "},
               {PAUSED, ""},
               {DRAINS, ""},
               {IS_DRAINED, ""},
               {REGION_DRAINED, ""},
               {STALLED, ""},
               {LOST, ""},
               {BUDGET_202, "0 1 2 "},
               {BUDGET_201, "0 1 "},
               {BUDGET_1, "0 "}};
    hand_begin(NULL);
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        begin(0);
        apply(row[i].change, ANN);
        if (strcmp(ask(ANN, DATA, 0), row[i].units) != 0)
            fail_msg("row %zu: %s instead of %s", i, ask(ANN, DATA, 0), row[i].units);
        assert_string_equal(wanted_by(ANN), "");
    }
    begin(0);
    assert_string_equal(ask(DEE, DATA, 0), "0 1 4 5 "); // dee's region is no home
    assert_string_equal(ask(CEM, 1, 0), "6 ");
    assert_string_equal(ask(CEM, 0, 0), "6 "); // cem has it already
    assert_string_equal(ask(ANN, DATA, 0), "2 3 ");
    assert_string_equal(ask(BOB, DATA, 0), "");
    hand_end(NULL);
}

// Beyond what it asks for, a worker gets what it trains in the ride-out time, but no more than half
// of what is left for it.
TEST(units_ahead)
{
    static const struct {
        int64_t ride_out_s; // ann trains ten tokens a second
        uint32_t want, ahead;
        bool gives;
        const char *units;
    } row[] = {
        {10, 1, 8, true, "0 "},     {11, 1, 8, true, "0 1 "},     {20, 1, 8, true, "0 1 "},
        {21, 1, 8, true, "0 1 2 "}, {1000, 1, 8, true, "0 1 2 "}, {1000, 1, 2, true, "0 1 "},
        {1000, 1, 8, false, "0 "},  {0, 1, 8, true, "0 "},        {1000, 5, 8, true, "0 1 2 3 4 "}};
    hand_begin(NULL);
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        begin(row[i].ride_out_s);
        c->worker[ANN].gives = row[i].gives;
        assert_string_equal(ask(ANN, row[i].want, row[i].ahead), row[i].units);
    }
    begin(1000); // units kept for others do not count as left: 615 tokens less 205
    want(4, CEM);
    want(1, CEM);
    assert_string_equal(ask(ANN, 1, 8), "0 2 ");
    begin(1000);
    c->conf.budget_tokens = 500; // half of it
    assert_string_equal(ask(ANN, 1, 8), "0 1 ");
    hand_end(NULL);
}

// ---------------------------------------------------------------- levelling

// bob holds all four units of asia, 406 tokens at 20 a second; ann, with 10 a second, has nothing.
// Both end together if a third moves: unit 3.
TEST(the_busiest_gives)
{
    enum { BASE, KEEPS, SILENT, LEAVES, BEGUN, NO_RIDE, HALTED, IDLE, HALF, OLD, FREE_UNIT, FAST };
    static const char *const wanted[] = {
        [BASE] = "3 ",  [KEEPS] = "",   [SILENT] = "",    [LEAVES] = "",
        [BEGUN] = "2 ", [NO_RIDE] = "", [HALTED] = "",    [IDLE] = "0 1 2 3 ",
        [HALF] = "2 ",  [OLD] = "0 3 ", [FREE_UNIT] = "", [FAST] = "0 3 "};
    hand_begin(NULL);
    for (int why = 0; why < (int)LH_COUNT(wanted); why++) {
        begin(why == NO_RIDE ? 0 : 300);
        for (uint64_t u = 0; u < 4; u++) lease(u, BOB, CO_WAITS);
        lease(4, CEM, CO_WAITS);
        lease(5, CEM, CO_WAITS);
        struct ps_co_worker *bob = &c->worker[BOB], *ann = &c->worker[ANN];
        if (why == KEEPS) bob->gives = false;
        if (why == SILENT) bob->live = false;
        if (why == LEAVES) bob->asked = true;
        if (why == BEGUN) lease(3, BOB, CO_BEGUN);
        if (why == HALTED) c->frozen = true;
        if (why == IDLE) bob->idle = true;
        if (why == HALF) want(0, DEE); // it counts as dee's
        if (why == OLD) ann->tokens_per_s = 0, bob->tokens_per_s = 0;
        if (why == FREE_UNIT) lease(5, (uint32_t)-1, CO_WAITS);
        if (why == FAST) ann->tokens_per_s = 20;
        const char *got = ask(ANN, 1, why == FREE_UNIT ? 1 : 8);
        assert_string_equal(got, why == FREE_UNIT ? "5 " : "");
        if (strcmp(wanted_by(ANN), wanted[why]) != 0)
            fail_msg("case %d: %s instead of %s", why, wanted_by(ANN), wanted[why]);
    }
    hand_end(NULL);
}

// ---------------------------------------------------------------- units that it holds

static const uint64_t HELD[] = {0, 1, 2};

// ann says that she has begun unit 1 and claimed unit 2.
static const char *tell(void)
{
    return answer(ANN, &(struct lh_lease_request){.ahead = 8,
                                                  .n_holding = 3,
                                                  .holding = HELD,
                                                  .n_begun = 1,
                                                  .begun = HELD + 1,
                                                  .n_claimed = 1,
                                                  .claimed = HELD + 2});
}

TEST(units_that_go_back)
{
    enum { BASE, OTHER, NOBODY, ALL, LEAVES, STALLS, LESS, ENOUGH, NOT_AHEAD, UNKNOWN_SHARD, DONE };
    static const char *const heard[] = {
        [BASE] = "0 1 ",        [OTHER] = "1 back 0 ",  [NOBODY] = "0 1 ",    [ALL] = "0 1 ",
        [LEAVES] = "1 back 0 ", [STALLS] = "1 back 0 ", [LESS] = "1 back 0 ", [ENOUGH] = "0 1 ",
        [NOT_AHEAD] = "0 1 ",   [UNKNOWN_SHARD] = "1 ", [DONE] = "1 "};
    hand_begin(NULL);
    for (int why = 0; why < (int)LH_COUNT(heard); why++) {
        begin(300);
        for (int i = 0; i < 3; i++) lease(HELD[i], ANN, CO_WAITS);
        if (why == OTHER) want(0, CEM);
        if (why == NOBODY) want(0, CEM), c->worker[CEM].idle = true;
        if (why == ALL) want(1, CEM); // she keeps what she has begun
        if (why == LEAVES || why == NOT_AHEAD) c->worker[ANN].asked = true;
        if (why == STALLS) c->worker[ANN].stall.why = PS_CO_NO_PUSH;
        if (why == LESS) c->conf.budget_tokens = 201;   // the units have 303
        if (why == ENOUGH) c->conf.budget_tokens = 202; // her last unit has 102
        if (why == NOT_AHEAD) c->worker[ANN].gives = false;
        if (why == UNKNOWN_SHARD) c->shard[0].reported = false;
        if (why == DONE) credit(0); // its credit is known
        const char *is = tell();
        if (strcmp(is, heard[why]) != 0) fail_msg("case %d: %s instead of %s", why, is, heard[why]);
        bool known = why != UNKNOWN_SHARD;
        assert_int_equal(c->begun[1], CO_BEGUN);
        assert_int_equal(c->begun[2], known ? CO_CLAIMED : CO_WAITS);
        assert_int_equal(c->wanted_by[1], 0);
        assert_int_equal(c->lease[0] == CO_FREE, why == STALLS);
        assert_int_equal(c->lease[1], ANN + 1);
    }
    hand_end(NULL);
}

// A worker that lost its leases while it was silent gets those back that are still free.
TEST(units_without_a_lease)
{
    enum {
        BASE,
        OTHERS,
        DONE,
        NOT_KNOWN,
        REFUSES,
        AWAY,
        KEPT_ELSEWHERE,
        STAYS_ELSEWHERE,
        HALTED,
        SPENT,
        RESTARTED,
        NOT_AHEAD,
        TWICE,
        BEYOND
    };
    static const char *const heard[] = {[BASE] = "4 ",
                                        [OTHERS] = "back 4 ",
                                        [DONE] = "back 4 ",
                                        [NOT_KNOWN] = "",
                                        [REFUSES] = "back 4 ",
                                        [AWAY] = "back 4 ",
                                        [KEPT_ELSEWHERE] = "back 4 ",
                                        [STAYS_ELSEWHERE] = "back 6 ",
                                        [HALTED] = "back 4 ",
                                        [SPENT] = "back 4 ",
                                        [RESTARTED] = "",
                                        [NOT_AHEAD] = "",
                                        [TWICE] = "4 ",
                                        [BEYOND] = ""};
    hand_begin(NULL);
    for (int why = 0; why < (int)LH_COUNT(heard); why++) {
        uint64_t unit = why == STAYS_ELSEWHERE ? 6 : why == BEYOND ? DATA : 4;
        begin(300);
        if (why == OTHERS || why == TWICE) lease(4, CEM, CO_BEGUN);
        if (why == TWICE) assert_int_equal(ps_co_lease_second(c, 4, ANN), LH_OK);
        if (why == DONE) credit(4);
        if (why == NOT_KNOWN) c->shard[0].reported = false;
        if (why == REFUSES) refuse(ANN, 4);
        if (why == AWAY) close_home(ANN, EUROPE);
        if (why == KEPT_ELSEWHERE) want(4, DEE);
        if (why == HALTED) c->pause.is = true;
        if (why == SPENT || why == RESTARTED) c->conf.budget_tokens = 105;
        if (why == SPENT) credit(5);
        if (why == RESTARTED) c->shard[1].reported = false; // it may have credited more
        if (why == NOT_AHEAD) c->worker[ANN].gives = false;
        const char *is =
            answer(ANN, &(struct lh_lease_request){.ahead = 8, .n_holding = 1, .holding = &unit});
        if (strcmp(is, heard[why]) != 0) fail_msg("case %d: %s instead of %s", why, is, heard[why]);
        assert_int_equal(c->lease[4] == ANN + 1, why == BASE);
    }
    hand_end(NULL);
}

TEST(units_that_a_worker_returns)
{
    static const uint64_t RETURNED[] = {0, 1, 2, 3, 4, 5, DATA};
    hand_begin(NULL);
    begin(300);
    lease(0, ANN, CO_WAITS);
    lease(1, ANN, CO_BEGUN);
    lease(2, ANN, CO_CLAIMED); // a claim never comes back
    lease(3, BOB, CO_WAITS);   // not hers
    lease(4, ANN, CO_WAITS);
    credit(4);
    lease(5, CEM, CO_BEGUN);
    assert_int_equal(ps_co_lease_second(c, 5, ANN), LH_OK);
    assert_int_equal(ps_co_lease_second(c, 1, DEE), LH_OK);
    const struct lh_lease_request m = {.ahead = 8, .n_returned = 7, .returned = RETURNED};
    assert_string_equal(answer(ANN, &m), "2 "); // she no longer says that she claims it
    static const uint32_t holder[] = {0, DEE + 1, ANN + 1, BOB + 1, ANN + 1, CEM + 1};
    for (uint64_t u = 0; u < LH_COUNT(holder); u++) assert_int_equal(c->lease[u], holder[u]);
    assert_int_equal(c->seconds, 0); // dee is the holder now
    hand_end(NULL);
}

// ---------------------------------------------------------------- units of stalled workers

// bob has stalled with units 0 and 1, of which two of three workers get one each: an equal share.
TEST(units_of_a_stalled_worker_run_again)
{
    enum {
        BASE,
        ALONE,
        WAITS,
        DONE,
        SECOND,
        REFUSES,
        HALTED,
        HALTED_ABROAD,
        SPENT,
        BUSY,
        ABROAD,
        FULL_LINK
    };
    static const char *const heard[] = {
        [BASE] = "0 ",   [ALONE] = "0 1 ", [WAITS] = "1 ",  [DONE] = "1 ",
        [SECOND] = "1 ", [REFUSES] = "1 ", [HALTED] = "0 ", [HALTED_ABROAD] = "",
        [SPENT] = "",    [BUSY] = "5 ",    [ABROAD] = "0 ", [FULL_LINK] = "1 "};
    hand_begin(NULL);
    for (int why = 0; why < (int)LH_COUNT(heard); why++) {
        uint32_t who = why == ABROAD || why == HALTED_ABROAD || why == FULL_LINK ? DEE : ANN;
        struct ps_terms terms = {.term = {{"asia", "america", 201}}, .terms = 1};
        begin(0);
        c->worker[BOB].stall.why = PS_CO_NO_STEP;
        for (uint64_t u = 0; u < DATA; u++)
            if (u > 1 && !(why == BUSY && u == 5)) credit(u);
        lease(0, BOB, why == WAITS ? CO_WAITS : CO_BEGUN);
        lease(1, BOB, CO_CLAIMED);
        if (why == ALONE) c->worker[CEM].idle = c->worker[DEE].live = false;
        if (why == ALONE) c->worker[CEM].live = false;
        if (why == DONE) credit(0);
        if (why == SECOND) assert_int_equal(ps_co_lease_second(c, 0, CEM), LH_OK);
        if (why == REFUSES) refuse(who, 0);
        c->frozen = why == HALTED || why == HALTED_ABROAD;
        if (why == SPENT) c->conf.budget_tokens = 600;
        if (why == FULL_LINK) {
            data.unit[0].tokens = 101; // more than the cap's bytes
            c->conf.links.terms = &terms;
            terms.term[0].cap_bytes = 202;
            data.unit[0].tokens = 102;
        }
        const char *is = ask(who, 2, 0);
        if (strcmp(is, heard[why]) != 0) fail_msg("case %d: %s instead of %s", why, is, heard[why]);
    }
    hand_end(NULL);
}
