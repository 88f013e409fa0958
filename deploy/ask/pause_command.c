// longhaul pause, longhaul resume: lets a run stand still where it is, and go on.
#include <stdio.h>

#include "common/base/check.h"
#include "common/net/wire_admin.h"
#include "deploy/ask/admin.h"
#include "deploy/tool/commands.h"

struct request {
    struct dp_admin admin;
    const char *why;
    bool resume, changed;
    uint32_t workers;
};

static lh_err take_answer(void *arg, const void *answer)
{
    struct request *q = arg;
    const struct lh_pause_reply *m = answer;
    q->workers = m->workers;
    q->changed = m->changed;
    return LH_OK;
}

static LH_MUST lh_err ask(struct request *q)
{
    struct lh_pause_request m = {.why = q->why, .resume = q->resume};
    lh_err err = dp_admin_open(&q->admin);
    if (!err)
        err = dp_admin_ask(&q->admin, LH_RPC_PAUSE, LH_MESSAGE(pause_request, &m), take_answer, q);
    dp_admin_close(&q->admin);
    return err;
}

static void tell(const struct request *q)
{
    const char *s = q->workers == 1 ? "" : "s";
    if (q->resume)
        printf(q->changed ? "the run goes on: %u live worker%s\n"
                          : "the run was not paused: %u live worker%s\n",
               q->workers, s);
    else if (q->changed)
        printf("the run is paused: %u live worker%s; each learns of it within a second or two, "
               "finishes its pushes, and trains no further until longhaul resume\n",
               q->workers, s);
    else
        printf("the run was paused already; the earlier reason stays\n");
}

static LH_MUST lh_err run(int argc, char **argv, bool resume)
{
    struct request q = {.resume = resume};
    const struct dp_flag flags[] = {
        {"--why", DP_TEXT, &q.why, "TEXT", "the reason, shown with the run's status"},
        DP_ADMIN_FLAGS(q.admin),
    };
    const struct dp_usage pause = {
        "longhaul pause --dir RUNDIR | --coordinator HOST:PORT [--why TEXT] [flags]",
        "Pauses a run: workers end their current step, finish their pushes, make no further\n"
        "step, and keep their units. No worker counts as stalled meanwhile. The pause survives\n"
        "restarts of all processes, until longhaul resume. A paused run does not end by itself;\n"
        "longhaul drain still works, and drain run --end also ends the pause. To stop machines,\n"
        "drain instead: a draining worker pushes all that it has trained.\n\n"
        "Exit codes: 0 paused; 2 usage, or training is over; 4 no coordinator answers; 7 not\n"
        "allowed with this certificate.",
        flags, LH_COUNT(flags)};
    const struct dp_usage go_on = {
        "longhaul resume --dir RUNDIR | --coordinator HOST:PORT [--why TEXT] [flags]",
        "Resumes a run that an operator or a rule paused.\n\n"
        "Exit codes: 0 it goes on; 2 usage; 4 no coordinator answers; 7 not allowed with this\n"
        "certificate.",
        flags, LH_COUNT(flags)};
    const struct dp_usage *usage = resume ? &go_on : &pause;
    bool help;
    LH_TRY(dp_flags(usage, argc, argv, NULL, &help));
    if (help) return LH_OK;
    LH_TRY(ask(&q));
    tell(&q);
    return LH_OK;
}

lh_err dp_cmd_pause(int argc, char **argv)
{
    return run(argc, argv, false);
}

lh_err dp_cmd_resume(int argc, char **argv)
{
    return run(argc, argv, true);
}
