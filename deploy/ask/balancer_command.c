// longhaul balancer: an operator's commands to the balancer.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/net/wire_admin.h"
#include "deploy/ask/admin.h"
#include "deploy/tool/commands.h"

struct request {
    struct dp_admin admin;
    const char *what, *to;
    uint64_t unit;
    uint32_t units; // affected units, from the coordinator's answer
};

static lh_err take_answer(void *arg, const void *answer)
{
    struct request *q = arg;
    const struct lh_move_reply *m = answer;
    q->units = m->units;
    return LH_OK;
}

static LH_MUST lh_err ask(struct request *q)
{
    struct lh_move_request m = {.balancer = q->what, .unit = q->unit, .to = q->to};
    lh_err err = dp_admin_open(&q->admin);
    if (!err)
        err = dp_admin_ask(&q->admin, LH_RPC_MOVE, LH_MESSAGE(move_request, &m), take_answer, q);
    dp_admin_close(&q->admin);
    return err;
}

static void tell(const struct request *q)
{
    if (!strcmp(q->what, "freeze"))
        printf("frozen: each region gets only free units of its own\n");
    else if (!strcmp(q->what, "thaw"))
        printf("units go to other regions again\n");
    else
        printf("unit %" PRIu64 " is recalled for %s\n", q->unit, q->to);
}

// Reads the arguments: for a move, a unit and a worker.
static LH_MUST lh_err take_words(struct request *q, const struct dp_texts *rest)
{
    static const struct {
        const char *name;
        size_t words;
    } orders[] = {{"freeze", 0}, {"thaw", 0}, {"move", 2}};
    size_t i = 0;
    while (rest->count && i < LH_COUNT(orders) && strcmp(orders[i].name, rest->at[0]) != 0) i++;
    if (!rest->count || i == LH_COUNT(orders) || rest->count != 1 + orders[i].words)
        return lh_fail(LH_ERR_INVALID,
                       "expected freeze, thaw or move UNIT WORKER (longhaul balancer --help)");
    q->what = rest->at[0];
    if (rest->count > 1) LH_TRY(dp_number("UNIT", rest->at[1], 0, LH_UNITS_MAX - 1, &q->unit));
    if (rest->count > 2) q->to = rest->at[2];
    return LH_OK;
}

lh_err dp_cmd_balancer(int argc, char **argv)
{
    struct request q = {0};
    struct dp_texts rest;
    const struct dp_flag flags[] = {DP_ADMIN_FLAGS(q.admin)};
    const struct dp_usage usage = {
        "longhaul balancer freeze|thaw|move [UNIT WORKER] --dir RUNDIR | --coordinator HOST:PORT "
        "[flags]",
        "Overrides the balancer's assignment of units in a running run.\n\n"
        "freeze           regions get only their own free units; none is recalled\n"
        "thaw             the balancer decides again\n"
        "move UNIT WORKER recall the unit from its holder, for this worker\n\n"
        "A unit that may not leave its region stays there, and a unit that is begun stays with\n"
        "its holder. freeze survives restarts of the coordinator; move does not. `longhaul get\n"
        "leases` shows where each unit is, `longhaul get plan -o wide` why.\n\n"
        "Exit codes: 0 done; 2 usage, or impossible; 3 no such unit, region or worker; 4 no\n"
        "coordinator answers; 7 not allowed with this certificate.",
        flags, LH_COUNT(flags)};
    bool help;
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    LH_TRY(take_words(&q, &rest));
    if (!q.admin.coordinator && !q.admin.dir)
        return lh_fail(LH_ERR_INVALID, "usage: %s", usage.line);
    LH_TRY(ask(&q));
    tell(&q);
    return LH_OK;
}
