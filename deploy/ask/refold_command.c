// longhaul refold, longhaul rewind: takes a running run back, to the fold without a worker's
// pushes, or to earlier versions.
//
// The request is sent again until the order is over; a kill of this command changes nothing about
// the order. A coordinator that is away for a moment (it may share its process with a server, which
// starts again) is waited for.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/text.h"
#include "common/net/wire_admin.h"
#include "deploy/ask/admin.h"
#include "deploy/tool/commands.h"

static const int64_t POLL_NS = 300 * LH_MS;
static const int64_t TELL_NS = 30 * LH_SECOND;

struct request {
    struct dp_admin admin;
    const char *timeout;
    uint64_t timeout_s;
    // what is asked for
    char region[LH_NAME_BYTES], name[LH_NAME_BYTES]; // refold
    uint64_t from, to;
    struct lh_shard_version version[DP_TEXTS_MAX];
    size_t version_count;
    // the last answer
    uint64_t number, left_out;
    uint32_t shards, done, kept;
    bool goes, over;
    char why[400], waits[200];
    int64_t told_ns; // when `waits` was last printed
};

static lh_err take_answer(void *arg, const void *answer)
{
    struct request *q = arg;
    const struct lh_refold_reply *a = answer;
    bool forgotten = !a->number; // the coordinator was restarted before it went: asked anew
    if (forgotten && q->goes)
        return lh_fail(LH_ERR_CONFLICT, "another order came after this one: `longhaul events` "
                                        "shows the result of each (refold.over)");
    q->number = a->number;
    if (forgotten) return LH_OK;
    q->goes = a->goes;
    q->over = a->over;
    q->shards = a->shards;
    q->done = a->done;
    q->kept = a->kept;
    q->left_out = a->left_out;
    snprintf(q->why, sizeof q->why, "%s", a->why);
    lh_text_tame(q->why, strlen(q->why)); // a server's words
    snprintf(q->waits, sizeof q->waits, "%s", a->waits);
    lh_text_tame(q->waits, strlen(q->waits));
    return LH_OK;
}

static LH_MUST lh_err ask(struct request *q)
{
    struct lh_refold_request m = {.name = q->name,
                                  .region = q->region,
                                  .from = q->from,
                                  .to = q->to,
                                  .n_shards = q->version_count,
                                  .shards = q->version,
                                  .number = q->number};
    return dp_admin_ask(&q->admin, LH_RPC_REFOLD, LH_MESSAGE(refold_request, &m), take_answer, q);
}

// Says now and then whom the order waits for.
static void tell_missing(struct request *q)
{
    int64_t now = lh_now(q->admin.env);
    if (!q->waits[0] || now - q->told_ns < TELL_NS) return;
    fprintf(stderr, "waiting for server %s\n", q->waits);
    q->told_ns = now;
}

// Asks until the order is over, refused, or the time is.
static LH_MUST lh_err follow(struct request *q)
{
    int64_t until = lh_now(q->admin.env) + (int64_t)q->timeout_s * LH_SECOND;
    q->told_ns = lh_now(q->admin.env);
    for (;;) {
        lh_err err = ask(q);
        bool away = err == LH_ERR_UNAVAILABLE || err == LH_ERR_DEADLINE;
        bool late = q->timeout_s && lh_now(q->admin.env) >= until;
        if (err && (!away || !q->number || late)) return err;
        if (q->over || late) return LH_OK;
        tell_missing(q);
        dp_admin_pause(&q->admin, POLL_NS);
    }
}

static void tell(const struct request *q)
{
    if (q->over)
        printf("%u of %u shards go on from there, under new epochs", q->done, q->shards);
    else if (q->goes)
        printf("under way: %u of %u shards go on from there; the same command waits for the "
               "others, now for server %s",
               q->done, q->shards, q->waits);
    else
        printf("no shard has changed yet: server %s has not answered whether it can", q->waits);
    if (q->name[0] && q->goes + q->over) printf("; %" PRIu64 " pushes are left out", q->left_out);
    printf("\n");
}

static LH_MUST lh_err take_back(struct request *q, enum dp_exit *exit)
{
    lh_err err = dp_admin_open(&q->admin);
    if (!err) err = follow(q);
    dp_admin_close(&q->admin);
    if (err) return err;
    tell(q);
    *exit = q->over ? DP_OK : DP_STOPPED;
    if (!q->kept) return LH_OK;
    return lh_fail(LH_ERR_INTERNAL, "%u of %u shards keep their present history: %s", q->kept,
                   q->shards, q->why);
}

static const char bounds[] =
    "Every server is asked first. If one refuses, no shard changes; the refusal names the\n"
    "server and the first possible version. If you do not trust that server's answer, expel\n"
    "it (`longhaul expel server NAME`): its standby in sync takes its shards over, or\n"
    "another server that you name (`longhaul adopt`); then give the order again. If all\n"
    "agree, each server starts again in place and keeps its former history in\n"
    "DIR/before-ORDER. The run goes on under a new epoch: workers take the new states, and\n"
    "push again what these states lack. A process that is killed meanwhile continues the\n"
    "order after its restart; the same command waits for the end.\n\n"
    "Exit codes: 0 done; 1 a server failed to do it; 2 usage, or not possible now (the run\n"
    "is closing, a shard is being moved or has no server, another order is under way); 3\n"
    "too far back, no such version yet, or no push of that worker; 4 no coordinator\n"
    "answers; 7 not allowed with this certificate; 8 not done in time (the order goes on).";

static LH_MUST lh_err common(struct request *q, const struct dp_usage *usage, int argc, char **argv,
                             bool *help)
{
    LH_TRY(dp_flags(usage, argc, argv, NULL, help));
    if (*help) return LH_OK;
    q->timeout_s = 3600;
    if (!q->timeout) return LH_OK;
    return dp_number("--timeout", q->timeout, 0, UINT32_MAX, &q->timeout_s);
}

static LH_MUST lh_err parse_version(struct request *q, const char *text)
{
    const char *colon = strchr(text, ':');
    if (!colon) return dp_number("--to", text, 1, UINT64_MAX - 1, &q->to);
    char number[24];
    uint64_t shard = 0, version = 0;
    snprintf(number, sizeof number, "%.*s", (int)(colon - text), text);
    LH_TRY(dp_number("--to", number, 0, LH_SHARDS_MAX - 1, &shard));
    LH_TRY(dp_number("--to", colon + 1, 1, UINT64_MAX - 1, &version));
    q->version[q->version_count++] = (struct lh_shard_version){(uint32_t)shard, version};
    return LH_OK;
}

static LH_MUST lh_err run_rewind(struct request *q, int argc, char **argv, enum dp_exit *exit)
{
    struct dp_texts to = {0};
    char about[2048];
    bool help;
    const struct dp_flag flags[] = {
        {"--to", DP_EACH, &to, "[SHARD:]VERSION", "of all shards, or of one"},
        {"--timeout", DP_TEXT, &q->timeout, "SECONDS", "time limit for all of it; 0: none (3600)"},
        DP_ADMIN_FLAGS(q->admin),
    };
    snprintf(
        about, sizeof about,
        "Takes a running run back to earlier versions of its shards, as far back as the servers\n"
        "keep checkpoints and logs (checkpoint.keep).\n"
        "%s",
        bounds);
    const struct dp_usage usage = {
        "longhaul rewind --to VERSION --dir RUNDIR | --coordinator HOST:PORT [flags]", about, flags,
        LH_COUNT(flags)};
    LH_TRY(common(q, &usage, argc, argv, &help));
    if (help) return LH_OK;
    if (!to.count) return lh_fail(LH_ERR_INVALID, "--to is missing: usage: %s", usage.line);
    for (unsigned i = 0; i < to.count; i++) LH_TRY(parse_version(q, to.at[i]));
    return take_back(q, exit);
}

static LH_MUST lh_err parse_worker(struct request *q, const char *who)
{
    const char *slash = strchr(who, '/'), *name = slash ? slash + 1 : who;
    size_t region = slash ? (size_t)(slash - who) : 0;
    if (!name[0] || strlen(name) >= sizeof q->name || region >= sizeof q->region)
        return lh_fail(LH_ERR_INVALID,
                       "--without: '%.80s' is not a valid name: expected [REGION/]NAME", who);
    memcpy(q->region, who, region);
    memcpy(q->name, name, strlen(name) + 1);
    return LH_OK;
}

static LH_MUST lh_err run_refold(struct request *q, int argc, char **argv, enum dp_exit *exit)
{
    const char *without = NULL, *from = NULL;
    char about[2048];
    bool help;
    const struct dp_flag flags[] = {
        {"--without", DP_TEXT, &without, "[REGION/]NAME", "the worker"},
        {"--from", DP_TEXT, &from, "VERSION", "remove only pushes from this version on"},
        {"--timeout", DP_TEXT, &q->timeout, "SECONDS", "time limit for all of it; 0: none (3600)"},
        DP_ADMIN_FLAGS(q->admin),
    };
    snprintf(
        about, sizeof about,
        "Removes one worker's pushes from a running run, as if all had been refused: the logs\n"
        "are folded again without them, and the units that it claimed are free again. This\n"
        "reaches as far back as the servers keep checkpoints and logs (checkpoint.keep). Expel\n"
        "the worker first (`longhaul expel`); otherwise it pushes the same again. %s",
        bounds);
    const struct dp_usage usage = {
        "longhaul refold --without [REGION/]NAME --dir RUNDIR | --coordinator HOST:PORT [flags]",
        about, flags, LH_COUNT(flags)};
    LH_TRY(common(q, &usage, argc, argv, &help));
    if (help) return LH_OK;
    if (!without) return lh_fail(LH_ERR_INVALID, "--without is missing: usage: %s", usage.line);
    LH_TRY(parse_worker(q, without));
    if (from) LH_TRY(dp_number("--from", from, 1, UINT64_MAX - 1, &q->from));
    return take_back(q, exit);
}

static LH_MUST lh_err command(int argc, char **argv, enum dp_exit *exit,
                              lh_err (*run)(struct request *, int, char **, enum dp_exit *))
{
    struct request *q = calloc(1, sizeof *q);
    lh_err err = q ? run(q, argc, argv, exit) : LH_ERR_NO_MEMORY;
    free(q);
    return err;
}

lh_err dp_cmd_rewind(int argc, char **argv, enum dp_exit *exit)
{
    return command(argc, argv, exit, run_rewind);
}

lh_err dp_cmd_refold(int argc, char **argv, enum dp_exit *exit)
{
    return command(argc, argv, exit, run_refold);
}
