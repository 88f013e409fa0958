// longhaul describe: one object of a running run, with all its known fields.
#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "deploy/ask/describe.h"
#include "deploy/ask/leases.h"
#include "deploy/ask/look.h"
#include "deploy/tool/commands.h"
#include "deploy/tool/files.h"
#include "deploy/tool/table.h"

struct request {
    struct dp_admin admin;
    struct dp_texts words;
    bool json;
};

// Adds a worker's leases, or the units whose home is a region.
static LH_MUST lh_err add_leases(struct request *q, json_t *thing)
{
    bool worker = !strcmp(q->words.at[0], "worker"), region = !strcmp(q->words.at[0], "region");
    if (!worker && !region) return LH_OK;
    const char *name = json_string_value(json_object_get(thing, worker ? "name" : "region"));
    const struct dp_lease_filter filter = {.worker = worker ? name : NULL,
                                           .home = region ? name : NULL};
    json_t *rows = json_array();
    lh_err err = dp_leases_ask(&q->admin, &filter, rows);
    if (!err) dp_describe_leases(thing, rows);
    json_decref(rows);
    return err;
}

static LH_MUST lh_err describe(struct request *q)
{
    json_t *look = NULL, *thing = NULL;
    struct lh_buf out = lh_buf(8 * (size_t)LH_SMALL_BYTES);
    lh_err err = dp_admin_open(&q->admin);
    if (!err) err = dp_look(&q->admin, &look);
    if (!err) err = dp_describe_find(look, q->words.at, q->words.count, &thing);
    if (!err) err = add_leases(q, thing);
    if (!err && q->json)
        err = dp_table_json(&out, thing);
    else if (!err)
        dp_describe_put(thing, &out);
    err = dp_print(&out, err);
    json_decref(thing);
    json_decref(look);
    dp_admin_close(&q->admin);
    return err;
}

lh_err dp_cmd_describe(int argc, char **argv)
{
    struct request q = {0};
    const struct dp_flag flags[] = {
        DP_ADMIN_FLAGS(q.admin),
        {"-o", DP_FORM, &q.json, "table|json", "form of the output"},
    };
    const struct dp_usage usage = {
        "longhaul describe run | region NAME | shard N | worker [REGION/]NAME --dir RUNDIR | "
        "--coordinator HOST:PORT [flags]",
        "Shows everything known about one part of a running run: from the coordinator, from the\n"
        "shard's server (\"answers\" says whether it replied), with --dir from the workers'\n"
        "status files; for a worker or a region also its units. Exit codes: 3 no such part, 4\n"
        "no coordinator answers.",
        flags, LH_COUNT(flags)};
    bool help;
    json_t *thing;
    LH_TRY(dp_flags(&usage, argc, argv, &q.words, &help));
    if (help) return LH_OK;
    // checks the words before asking the coordinator; names are looked up later
    if (dp_describe_find(NULL, q.words.at, q.words.count, &thing) == LH_ERR_INVALID)
        return LH_ERR_INVALID;
    json_decref(thing);
    return describe(&q);
}
