// longhaul move: moves a server's shards to the standby that follows them; both keep running.
#include <stdio.h>
#include <string.h>

#include "common/base/limits.h"
#include "common/format/json.h"
#include "common/net/wire_admin.h"
#include "deploy/ask/admin.h"
#include "deploy/tool/commands.h"
#include "deploy/tool/table.h"

static const int64_t POLL_NS = 200 * LH_MS;

struct request {
    struct dp_admin admin;
    const char *server, *timeout;
    uint64_t timeout_s; // 0: none
    uint32_t shards;    // number of shards that move
    bool wait, moved;
};

static lh_err take_answer(void *arg, const void *answer)
{
    struct request *q = arg;
    const struct lh_move_reply *m = answer;
    q->shards = m->shards;
    return LH_OK;
}

static LH_MUST lh_err send(struct request *q)
{
    struct lh_move_request m = {.server = q->server};
    return dp_admin_ask(&q->admin, LH_RPC_MOVE, LH_MESSAGE(move_request, &m), take_answer, q);
}

static bool some_moves(const json_t *status)
{
    const json_t *shard;
    size_t i;
    bool moves = false;
    json_array_foreach(json_object_get(status, "shards"), i, shard) moves |=
        lh_json_yes(shard, "moving");
    return moves;
}

// Polls until no shard is moving or the time is over.
static LH_MUST lh_err await(struct request *q)
{
    int64_t until = lh_now(q->admin.env) + (int64_t)q->timeout_s * LH_SECOND;
    for (;;) {
        json_t *status = NULL;
        lh_err err = dp_admin_status(&q->admin, &status);
        bool late = q->timeout_s && lh_now(q->admin.env) >= until;
        if (err && (late || err != LH_ERR_UNAVAILABLE)) return err;
        q->moved = !err && !some_moves(status);
        json_decref(status);
        if (q->moved || late) return LH_OK;
        dp_admin_pause(&q->admin, POLL_NS);
    }
}

static LH_MUST lh_err move(struct request *q)
{
    lh_err err = dp_admin_open(&q->admin);
    if (!err) err = send(q);
    if (!err && q->wait) err = await(q);
    if (!err)
        printf("%u shard%s %s %s%s\n", q->shards, q->shards == 1 ? "" : "s",
               q->moved ? "went to" : "to go to", q->server,
               q->wait ? "" : " once that server has nearly caught up; --wait waits for it");
    dp_admin_close(&q->admin);
    return err;
}

lh_err dp_cmd_move(int argc, char **argv, enum dp_exit *exit)
{
    struct request q = {.timeout_s = 600};
    struct dp_texts rest;
    const struct dp_flag flags[] = {
        {"--wait", DP_SWITCH, &q.wait, NULL, "wait until they have moved"},
        {"--timeout", DP_TEXT, &q.timeout, "SECONDS", "time limit of --wait; 0: none (600)"},
        DP_ADMIN_FLAGS(q.admin),
    };
    const struct dp_usage usage = {
        "longhaul move SERVER --dir RUNDIR | --coordinator HOST:PORT [flags]",
        "Moves shards to the standby (role: standby) that follows them, while their server\n"
        "runs. Training goes on; pushes wait for a second or two. The former server ends when\n"
        "it learns of the move; start it with role: standby then. The request survives\n"
        "restarts; if the standby dies first, the move waits for it. All shards of a server\n"
        "move together: a standby that follows only some of them is refused.\n\n"
        "Exit codes: 0 requested, or with --wait done; 2 usage, or these shards can't move now;\n"
        "3 no such standby; 4 no coordinator answers; 7 not allowed with this certificate; 8\n"
        "not done in time (the request stands).",
        flags, LH_COUNT(flags)};
    bool help;
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    if (rest.count != 1)
        return lh_fail(LH_ERR_INVALID, "move to which server? longhaul move SERVER");
    q.server = rest.at[0];
    if (q.timeout) LH_TRY(dp_number("--timeout", q.timeout, 0, UINT32_MAX, &q.timeout_s));
    LH_TRY(move(&q));
    *exit = q.wait && !q.moved ? DP_STOPPED : DP_OK;
    return LH_OK;
}
