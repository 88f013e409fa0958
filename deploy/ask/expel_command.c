// longhaul expel, admit, retire: expels a worker or a server from a run, lets it back, or frees the
// name of a worker that is gone for good.
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/net/wire_admin.h"
#include "deploy/ask/admin.h"
#include "deploy/tool/commands.h"

enum wish { EXPEL, ADMIT, RETIRE };

struct request {
    struct dp_admin admin;
    enum wish wish;
    bool server, any; // any: a worker, or else a server
    char region[LH_NAME_BYTES], name[LH_NAME_BYTES];
    // the coordinator's answer
    uint64_t identity;
    bool changed;
};

static lh_err take_answer(void *arg, const void *answer)
{
    struct request *q = arg;
    const struct lh_expel_reply *a = answer;
    q->identity = a->identity;
    q->changed = a->changed;
    snprintf(q->region, sizeof q->region, "%s", a->region);
    return LH_OK;
}

static LH_MUST lh_err send(struct request *q)
{
    struct lh_expel_request m = {.name = q->name,
                                 .region = q->region,
                                 .server = q->server,
                                 .admit = q->wish == ADMIT,
                                 .retire = q->wish == RETIRE};
    return dp_admin_ask(&q->admin, LH_RPC_EXPEL, LH_MESSAGE(expel_request, &m), take_answer, q);
}

static LH_MUST lh_err ask(struct request *q)
{
    LH_TRY(dp_admin_open(&q->admin));
    lh_err err = send(q);
    if (err != LH_ERR_NOT_FOUND || !q->any) return err;
    q->server = true;
    return send(q);
}

static const struct {
    const char *changed, *same;
} OUTCOME[] = {
    [EXPEL] = {"is expelled", "was expelled before"},
    [ADMIT] = {"is let back", "was neither expelled nor set aside"},
    [RETIRE] = {"is retired: its name is free as soon as every shard knows", "is being retired"},
};

static LH_MUST lh_err expel(struct request *q)
{
    lh_err err = ask(q);
    dp_admin_close(&q->admin);
    if (err) return err;
    printf("%s %s of %s (%016llx) %s\n", q->server ? "server" : "worker", q->name, q->region,
           (unsigned long long)q->identity,
           q->changed ? OUTCOME[q->wish].changed : OUTCOME[q->wish].same);
    return LH_OK;
}

// Parses "[worker
// server] [REGION/]NAME".
static LH_MUST lh_err parse_who(const struct dp_texts *rest, struct request *q)
{
    bool kind =
        rest->count == 2 && (!strcmp(rest->at[0], "worker") || !strcmp(rest->at[0], "server"));
    if (rest->count != 1 && !kind)
        return lh_fail(LH_ERR_INVALID, "who? name [worker|server] [REGION/]NAME");
    const char *who = rest->at[rest->count - 1], *slash = strchr(who, '/');
    const char *name = slash ? slash + 1 : who;
    size_t region = slash ? (size_t)(slash - who) : 0;
    if (!name[0] || strlen(name) >= sizeof q->name || region >= sizeof q->region)
        return lh_fail(LH_ERR_INVALID, "'%.80s' is not a valid name: expected [REGION/]NAME", who);
    q->any = !kind;
    q->server = kind && !strcmp(rest->at[0], "server");
    memcpy(q->region, who, region);
    memcpy(q->name, name, strlen(name) + 1);
    return LH_OK;
}

#define LINE(verb)                                                                                 \
    "longhaul " verb " [worker|server] [REGION/]NAME --dir RUNDIR | --coordinator HOST:PORT "      \
    "[flags]"

static const struct {
    const char *line, *help;
} TEXT[] = {
    [EXPEL] =
        {LINE("expel"),
         "Expels a worker or a server from a running run. Coordinator and servers refuse it from\n"
         "then on, its calls end, and other workers get its units. Every shard's log records it;\n"
         "it survives restarts, until `longhaul admit`. The effect of its pushes on the model\n"
         "stays; `longhaul refold` removes it. Its certificate can still open connections: see\n"
         "the setting tls.revoked.\n\n"
         "Exit codes: 0 expelled; 2 usage; 3 no member of that name (try REGION/NAME); 4 no\n"
         "coordinator answers; 7 not allowed with this certificate."},
    [ADMIT] =
        {LINE("admit"),
         "Lets back a member that was expelled from a running run, or a worker whose pushes are\n"
         "set aside because ten in a row were far larger than other workers'. A worker that\n"
         "ended when it was expelled must be started again.\n\n"
         "Exit codes: 0 let back; 2 usage; 3 no member of that name; 4 no coordinator answers; 7\n"
         "not allowed with this certificate."},
    [RETIRE] =
        {LINE("retire"),
         "Frees the name of a worker that will not come back: a run has at most 1,024 names at a\n"
         "time. The worker's directory becomes void: its unpushed progress is lost, and a later\n"
         "worker of that name starts with an empty directory. A running worker is not retired:\n"
         "end it first. Its pushes stay in the model.\n\n"
         "Exit codes: 0 retired; 2 usage, or it is running; 3 no worker of that name; 4 no\n"
         "coordinator answers; 7 not allowed with this certificate."},
};

static LH_MUST lh_err run(int argc, char **argv, enum wish wish)
{
    struct request q = {.wish = wish};
    struct dp_texts rest;
    const struct dp_flag flags[] = {DP_ADMIN_FLAGS(q.admin)};
    const struct dp_usage usage = {TEXT[wish].line, TEXT[wish].help, flags, LH_COUNT(flags)};
    bool help;
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    LH_TRY(parse_who(&rest, &q));
    if (wish == RETIRE) q.any = false;
    return expel(&q);
}

lh_err dp_cmd_expel(int argc, char **argv)
{
    return run(argc, argv, EXPEL);
}

lh_err dp_cmd_admit(int argc, char **argv)
{
    return run(argc, argv, ADMIT);
}

lh_err dp_cmd_retire(int argc, char **argv)
{
    return run(argc, argv, RETIRE);
}
