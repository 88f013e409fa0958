// longhaul get: asks a running coordinator, under an admin's certificate. See admin.h.
#include <string.h>

#include "common/check.h"
#include "common/limits.h"
#include "deploy/admin.h"
#include "deploy/commands.h"
#include "deploy/get.h"
#include "deploy/table.h"

struct request {
    struct dp_admin admin;
    const char *part, *format;
    bool json;
};

static LH_MUST lh_err get(struct request *q)
{
    json_t *status = NULL;
    struct lh_buf text = lh_buf(8 * (size_t)LH_SMALL_BYTES);
    lh_err err = dp_admin_open(&q->admin);
    if (!err) err = dp_admin_status(&q->admin, &status);
    if (!err) err = dp_get_show(q->part, status, q->json, &text);
    if (!err) fwrite(text.data, 1, text.len, stdout);
    json_decref(status);
    lh_buf_free(&text);
    dp_admin_close(&q->admin);
    return err;
}

static LH_MUST lh_err run(int argc, char **argv)
{
    static const char *const parts[] = {"workers", "shards", "regions", "leases"};
    struct request q = {.format = "table"};
    struct dp_texts rest;
    const struct dp_flag flags[] = {
        DP_ADMIN_FLAGS(q.admin),
        {"-o", DP_TEXT, &q.format, "table|json", "form of the output"},
    };
    const struct dp_usage usage = {
        "longhaul get workers|shards|regions|leases --coordinator HOST:PORT | --dir RUNDIR [flags]",
        "Asks a running coordinator who works, which shards stand where, what each region does\n"
        "and how far the units are. Exit code 4 when it does not answer.",
        flags, LH_COUNT(flags)};
    bool help, known = false;
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    for (size_t i = 0; rest.count == 1 && i < LH_COUNT(parts); i++)
        known |= !strcmp(rest.at[0], parts[i]);
    if (!known || (!q.admin.coordinator && !q.admin.dir))
        return lh_fail(LH_ERR_INVALID, "usage: %s", usage.line);
    LH_TRY(dp_table_form(q.format, &q.json));
    q.part = rest.at[0];
    return get(&q);
}

int dp_cmd_get(int argc, char **argv)
{
    lh_err err = run(argc, argv);
    return err ? (int)dp_complain("get", err) : DP_OK;
}
