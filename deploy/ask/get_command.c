// longhaul get: queries a running coordinator with an admin's certificate. See admin.h.
#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "deploy/ask/admin.h"
#include "deploy/ask/get.h"
#include "deploy/ask/leases.h"
#include "deploy/tool/commands.h"
#include "deploy/tool/files.h"
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
    err = dp_print(&text, err);
    json_decref(status);
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
        return lh_fail(LH_ERR_INVALID, "--state %.40s: expected free, leased or credited",
                       f->state);
    if ((any || q->totals) && strcmp(q->part, "leases") != 0)
        return lh_fail(LH_ERR_INVALID,
                       "--state, --home, --language, --worker and --totals are for leases only");
    if (any && q->totals)
        return lh_fail(LH_ERR_INVALID,
                       "--totals counts all units: it can't be combined with a filter");
    return LH_OK;
}

lh_err dp_cmd_get(int argc, char **argv)
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
        {"--totals", DP_SWITCH, &q.totals, NULL, "leases: only the totals"},
        DP_ADMIN_FLAGS(q.admin),
        {"-o", DP_TEXT, &q.format, "table|wide|json",
         "form of the output; wide: of plan, members and regions"},
    };
    const struct dp_usage usage = {
        "longhaul get members|workers|shards|regions|links|plan|leases "
        "--coordinator HOST:PORT | --dir RUNDIR [flags]",
        "Lists what a running coordinator knows: members, workers, shards, regions, links, the\n"
        "plan, leases. Exit codes: 3 no such region, language or worker; 4 no coordinator\n"
        "answers.\n\n"
        "Leases: LEASE is waits, begun (trained in part, or its claim is being pushed) or\n"
        "recalled (for another region, unless it is begun first), as its holder reported last.\n"
        "TOKEN is the incarnation that the holder must use. EXPIRES S is the time left if the\n"
        "holder falls silent. HOLDER of a credited unit is its last holder.\n"
        "Members: STATE of a worker is live, suspect (silent for half of its bound), lost,\n"
        "drained or done; of a server live, suspect (silent for its bound) or unheard. SILENT S\n"
        "is the time since it was last heard, BOUND S the silence after which it is given up.\n"
        "The longer its round trip, TRIP MS, the longer the bound. -o wide shows each worker's\n"
        "hardware and software, and what encodes its pushes.\n"
        "Regions: -o wide shows what private regions have charged to their budgets, by the\n"
        "logs.\n"
        "Links: measured by a worker from its own pushes and snapshots. PUSH MS is the time\n"
        "from a push's first byte to its decision; a rate is that of one transfer.\n"
        "Plan: ENDS S is when a region would end if units were assigned by measured speed and\n"
        "residency; with coordinator.balance: finish leases follow that assignment. -o wide\n"
        "shows the balancer's last decision, its reason and figures, how many bytes of units\n"
        "links carried against their caps, and how many workers are wanted and have joined.\n",
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
    if (!q.wide) LH_TRY(dp_form(q.format, &q.json));
    LH_TRY(check_filters(&q));
    return get(&q);
}
