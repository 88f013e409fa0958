// longhaul drain: lets a run, a region or a worker finish its work in flight and pause.
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/text.h"
#include "common/net/wire_admin.h"
#include "deploy/ask/admin.h"
#include "deploy/ask/drain.h"
#include "deploy/tool/commands.h"
#include "deploy/tool/files.h"
#include "deploy/tool/table.h"

static const int64_t POLL_NS = 500 * LH_MS;
// A wait that takes longer than usual is explained, and again each time after that.
static const int64_t EXPLAINED_NS = 15 * LH_SECOND;

struct request {
    struct dp_admin admin;
    struct dp_scope scope;
    const char *timeout;
    uint64_t timeout_s; // 0: none
    bool end, undo, wait, json;
};

static const struct dp_column columns[] = {
    {"NAME", "name", -20},       {"REGION", "region", -12},
    {"LIVE", "live", -5},        {"DRAINING", "draining", -9},
    {"DRAINED", "drained", -8},  {"DONE", "done", -5},
    {"SILENT S", "silent_s", 9}, {NULL, NULL, 0},
};

// ---------------------------------------------------------------- ask, wait

static LH_MUST lh_err send(struct request *q)
{
    struct lh_drain_request m = {q->scope.region, q->scope.worker, q->end, q->undo};
    return dp_admin_ask(&q->admin, LH_RPC_DRAIN, LH_MESSAGE(drain_request, &m), NULL, NULL);
}

static void explain(const struct request *q, const json_t *status)
{
    struct lh_buf why = lh_buf(LH_SMALL_BYTES);
    dp_drain_waits(status, &q->scope, q->end, &why);
    if (why.len) fprintf(stderr, "longhaul drain: still waits for %.*s\n", (int)why.len, why.data);
    lh_buf_free(&why);
}

// Polls until all have drained or the time is over. *status: the last one received.
static LH_MUST lh_err await(struct request *q, json_t **status, struct dp_drained *state)
{
    int64_t until = lh_now(q->admin.env) + (int64_t)q->timeout_s * LH_SECOND;
    int64_t explained = lh_now(q->admin.env);
    for (;;) {
        json_t *fresh;
        lh_err err = dp_admin_status(&q->admin, &fresh);
        bool late = q->timeout_s && lh_now(q->admin.env) >= until;
        // a restarted coordinator still drains, so keep asking
        if (err && (late || !q->wait || err != LH_ERR_UNAVAILABLE)) return err;
        if (!err) {
            json_decref(*status);
            *status = fresh;
            json_decref(dp_drain_rows(fresh, &q->scope, q->end, state));
            if (!q->wait || state->complete || late) return LH_OK;
            if (lh_now(q->admin.env) - explained >= EXPLAINED_NS) {
                explained = lh_now(q->admin.env);
                explain(q, fresh);
            }
        }
        dp_admin_pause(&q->admin, POLL_NS);
    }
}

// ---------------------------------------------------------------- show

static LH_MUST lh_err put_json(const struct request *q, const json_t *status, json_t *rows,
                               const struct dp_drained *state, struct lh_buf *out)
{
    json_t *o = json_pack("{s:s s:s s:b s:b s:O? s:b s:i s:i s:i s:O}", "region", q->scope.region,
                          "worker", q->scope.worker, "end", q->end, "undo", q->undo, "phase",
                          json_object_get(status, "phase"), "complete", state->complete, "live",
                          (int)state->workers, "drained", (int)state->drained, "silent",
                          (int)state->silent, "workers", rows);
    lh_err err = dp_table_json(out, o);
    json_decref(o);
    return err;
}

static void put_text(const struct request *q, const json_t *rows, const struct dp_drained *state,
                     struct lh_buf *out)
{
    dp_table_put(out, columns, rows);
    if (q->undo)
        dp_put(out, "undone: %u live worker%s\n", state->workers - state->asked,
               state->workers - state->asked == 1 ? " goes on" : "s go on");
    else if (q->end && state->complete)
        dp_put(out, "the run has ended; %u worker%s confirmed it\n", state->drained,
               lh_s(state->drained));
    else
        dp_put(out, "%u of %u live worker%s %s %s%s\n", state->drained, state->workers,
               lh_s(state->workers), state->workers == 1 ? "has" : "have",
               q->end ? "ended" : "drained",
               state->complete || q->wait ? "" : " so far; --wait waits for them");
    if (q->undo && state->asked)
        dp_put(out, "%u still drain%s with the region or the run: undo that, too\n", state->asked,
               state->asked == 1 ? "s" : "");
    if (state->silent)
        dp_put(out, "%u worker%s silent and %s not waited for\n", state->silent,
               state->silent == 1 ? " is" : "s are", state->silent == 1 ? "was" : "were");
}

static LH_MUST lh_err show(const struct request *q, const json_t *status, struct dp_drained *state)
{
    struct lh_buf out = lh_buf(8 * (size_t)LH_SMALL_BYTES);
    json_t *rows = dp_drain_rows(status, &q->scope, q->end, state);
    lh_err err = LH_OK;
    if (q->json)
        err = put_json(q, status, rows, state, &out);
    else
        put_text(q, rows, state, &out);
    err = dp_print(&out, err);
    json_decref(rows);
    return err;
}

static LH_MUST lh_err drain(struct request *q, enum dp_exit *exit)
{
    json_t *status = NULL;
    struct dp_drained state = {0};
    lh_err err = dp_admin_open(&q->admin);
    if (!err) err = send(q);
    if (!err) err = await(q, &status, &state);
    if (!err) err = show(q, status, &state);
    if (!err) *exit = q->wait && !state.complete ? DP_STOPPED : DP_OK;
    json_decref(status);
    dp_admin_close(&q->admin);
    return err;
}

// ---------------------------------------------------------------- command

lh_err dp_cmd_drain(int argc, char **argv, enum dp_exit *exit)
{
    struct request q = {.timeout_s = 600};
    struct dp_texts rest;
    const struct dp_flag flags[] = {
        {"--end", DP_SWITCH, &q.end, NULL, "end the run with what is credited so far"},
        {"--undo", DP_SWITCH, &q.undo, NULL, "undo the drain: workers go on"},
        {"--wait", DP_SWITCH, &q.wait, NULL, "wait until all have drained, or the run has ended"},
        {"--timeout", DP_TEXT, &q.timeout, "SECONDS", "time limit of --wait; 0: none (600)"},
        DP_ADMIN_FLAGS(q.admin),
        {"-o", DP_FORM, &q.json, "table|json", "form of the output"},
    };
    const struct dp_usage usage = {
        "longhaul drain run | region NAME | worker [REGION/]NAME --dir RUNDIR | --coordinator "
        "HOST:PORT [flags]",
        "Lets workers finish and push their current work, then stop training. Afterwards they\n"
        "can be stopped without loss. The request survives restarts, until --undo. Other workers\n"
        "get the units of a drained region or worker. --end ends the whole run early, with its\n"
        "final versions and digests.\n\n"
        "Exit codes: 0 requested, or with --wait drained; 2 usage; 3 no such worker or region;\n"
        "4 no coordinator answers; 7 not allowed with this certificate; 8 not drained in time\n"
        "(the request stands: the same command waits again).",
        flags, LH_COUNT(flags)};
    bool help;
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    LH_TRY(dp_scope_parse(rest.at, rest.count, &q.scope));
    if (q.timeout) LH_TRY(dp_number("--timeout", q.timeout, 0, UINT32_MAX, &q.timeout_s));
    if (q.end && (q.undo || q.scope.region[0] || q.scope.worker[0]))
        return lh_fail(LH_ERR_INVALID,
                       "--end is for a whole run, and can't be combined with --undo");
    if (q.undo && q.wait) return lh_fail(LH_ERR_INVALID, "--undo can't be combined with --wait");
    return drain(&q, exit);
}
