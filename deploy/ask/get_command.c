// longhaul get: queries a running coordinator with an admin's certificate. See admin.h.
#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "deploy/ask/admin.h"
#include "deploy/ask/get.h"
#include "deploy/ask/leases.h"
#include "deploy/tool/commands.h"
#include "deploy/tool/table.h"

static const size_t OUTPUT_BYTES_MAX = (size_t)2
                                       << 30; // all units of a run that is as large as may be

struct request {
    struct dp_admin admin;
    const char *part, *format;
    struct dp_lease_filter filter;
    bool totals, json, wide;
};

// Nothing matched: does the name exist?
static LH_MUST lh_err check_names(struct request *q, const json_t *status)
{
    const struct dp_lease_filter any = {0};
    json_t *all = json_array();
    lh_err err = q->filter.home || q->filter.language ? dp_leases_ask(&q->admin, &any, all) : LH_OK;
    if (!err) err = dp_leases_known(&q->filter, json_object_get(status, "workers"), all);
    json_decref(all);
    return err;
}

static LH_MUST lh_err get_leases(struct request *q, const json_t *status, struct lh_buf *text)
{
    json_t *rows = q->totals ? NULL : json_array();
    lh_err err = q->totals ? LH_OK : dp_leases_ask(&q->admin, &q->filter, rows);
    if (!err && rows && !json_array_size(rows)) err = check_names(q, status);
    if (!err) err = dp_get_leases(status, rows, q->json, text);
    json_decref(rows);
    return err;
}

// ---------------------------------------------------------------- the command

static LH_MUST lh_err get(struct request *q)
{
    json_t *status = NULL;
    struct lh_buf text = lh_buf(OUTPUT_BYTES_MAX);
    bool members = !strcmp(q->part, "members"), regions = !strcmp(q->part, "regions");
    const char *part = q->part;
    if (q->wide && members) part = "machines";
    if (q->wide && regions) part = "budgets";
    lh_err err = dp_admin_open(&q->admin);
    if (!err) err = dp_admin_status(&q->admin, &status);
    if (!err)
        err = !strcmp(q->part, "leases") ? get_leases(q, status, &text)
                                         : dp_get_show(part, status, q->json, &text);
    if (!err && q->wide && !members && !regions) dp_get_decisions(status, &text);
    if (!err) err = lh_buf_err(&text);
    if (!err) fwrite(text.data, 1, text.len, stdout);
    json_decref(status);
    lh_buf_free(&text);
    dp_admin_close(&q->admin);
    return err;
}

static LH_MUST lh_err check_filters(const struct request *q)
{
    static const char *const states[] = {"free", "leased", "credited"};
    const struct dp_lease_filter *f = &q->filter;
    bool any = f->state || f->home || f->language || f->worker, known = !f->state;
    for (size_t i = 0; f->state && i < LH_COUNT(states); i++) known |= !strcmp(f->state, states[i]);
    if (!known)
        return lh_fail(LH_ERR_INVALID, "--state %.40s: want free, leased or credited", f->state);
    if ((any || q->totals) && strcmp(q->part, "leases") != 0)
        return lh_fail(LH_ERR_INVALID, "--state, --home, --language, --worker and --totals are of "
                                       "leases");
    if (any && q->totals)
        return lh_fail(LH_ERR_INVALID, "--totals is of all units: it takes no filter");
    return LH_OK;
}

static LH_MUST lh_err run(int argc, char **argv)
{
    static const char *const parts[] = {"members", "workers", "shards", "regions",
                                        "links",   "plan",    "leases"};
    struct request q = {.format = "table"};
    struct dp_texts rest;
    const struct dp_flag flags[] = {
        {"--state", DP_TEXT, &q.filter.state, "free|leased|credited",
         "leases: only units in this state"},
        {"--home", DP_TEXT, &q.filter.home, "REGION", "leases: only units of this region"},
        {"--language", DP_TEXT, &q.filter.language, "NAME", "leases: only units of this language"},
        {"--worker", DP_TEXT, &q.filter.worker, "NAME",
         "leases: only units that this worker holds or held"},
        {"--totals", DP_SWITCH, &q.totals, NULL, "leases: no line for each unit"},
        DP_ADMIN_FLAGS(q.admin),
        {"-o", DP_TEXT, &q.format, "table|wide|json",
         "form of the output; wide: of plan, members and regions"},
    };
    const struct dp_usage usage = {
        "longhaul get members|workers|shards|regions|links|plan|leases "
        "--coordinator HOST:PORT | --dir RUNDIR [flags]",
        "Asks a running coordinator who works, which shards stand where, what each region does\n"
        "and who holds which unit. Exit code 3 when there is no such region,\n"
        "language or worker, 4 when it does not answer.\n"
        "\n"
        "A lease: LEASE is waits, begun (trained in part, or its claim is on its way) or recalled\n"
        "(for another region, unless it is begun meanwhile), as its holder said last; TOKEN is\n"
        "the incarnation under which its holder must speak, EXPIRES S what is left if it falls\n"
        "silent, HOLDER of a credited unit who held it last.\n"
        "A member: STATE of a worker is live, suspect (silent for half of its bound), lost,\n"
        "drained or done, of a server live, suspect (silent for its bound) or unheard.\n"
        "SILENT S is how long it was not heard of, BOUND S how long it may be before it\n"
        "is given up. The longer its round trip, TRIP MS, the longer the bound. -o wide says what\n"
        "each worker runs on, by which software, and what makes its pushes.\n"
        "A region: -o wide says what the logs show that private regions charged to their budgets.\n"
        "A link: what a worker measured of its way to a server by its own pushes and snapshots;\n"
        "PUSH MS is from a push's first byte to its decision, a rate is that of one transfer.\n"
        "The plan: ENDS S is when a region would end if units went to whom the balancer gives\n"
        "them by measured speed and residency, which leases follow with coordinator.balance: "
        "finish;\n"
        "-o wide says what the balancer decided last, why, and by which figures, what links\n"
        "carried of units against their caps, and how many workers are wanted and here.\n",
        flags, LH_COUNT(flags)};
    bool help, known = false;
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    for (size_t i = 0; rest.count == 1 && i < LH_COUNT(parts); i++)
        known |= !strcmp(rest.at[0], parts[i]);
    if (!known || (!q.admin.coordinator && !q.admin.dir))
        return lh_fail(LH_ERR_INVALID, "usage: %s", usage.line);
    q.part = rest.at[0];
    bool may = !strcmp(q.part, "plan") || !strcmp(q.part, "members") || !strcmp(q.part, "regions");
    q.wide = may && !strcmp(q.format, "wide");
    if (!q.wide) LH_TRY(dp_table_form(q.format, &q.json));
    LH_TRY(check_filters(&q));
    return get(&q);
}

int dp_cmd_get(int argc, char **argv)
{
    lh_err err = run(argc, argv);
    return err ? (int)dp_complain("get", err) : DP_OK;
}
