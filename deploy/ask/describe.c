// One thing of a run. See describe.h.
#include "common/format/json.h"
#include "deploy/ask/describe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deploy/ask/drain.h"
#include "deploy/tool/files.h"
#include "deploy/tool/table.h"

enum { UNITS_SHOWN = 32 };

// ---------------------------------------------------------------- find

static LH_MUST lh_err find_worker(const json_t *look, const struct dp_scope *scope, json_t **out)
{
    const json_t *rows = json_object_get(look, "workers");
    json_t *row, *found = NULL;
    size_t i;
    json_array_foreach(rows, i, row)
    {
        if (strcmp(lh_json_word(row, "name"), scope->worker) != 0) continue;
        if (scope->region[0] && strcmp(lh_json_word(row, "region"), scope->region) != 0) continue;
        if (found)
            return lh_fail(LH_ERR_INVALID, "%s is a worker of %s and of %s: write REGION/NAME",
                           scope->worker, lh_json_word(found, "region"),
                           lh_json_word(row, "region"));
        found = row;
    }
    if (!found) {
        char name[sizeof scope->region + sizeof scope->worker + 1];
        snprintf(name, sizeof name, "%s%s%s", scope->region, scope->region[0] ? "/" : "",
                 scope->worker);
        return dp_table_missing(rows, "region", "name", "worker", name);
    }
    *out = json_copy(found);
    return LH_OK;
}

static LH_MUST lh_err find_region(const json_t *look, const char *name, json_t **out)
{
    const json_t *rows = json_object_get(look, "regions");
    json_t *row, *w;
    size_t i, k;
    json_array_foreach(rows, i, row)
    {
        if (strcmp(lh_json_word(row, "region"), name) != 0) continue;
        json_t *names = json_array();
        json_array_foreach(json_object_get(look, "workers"), k, w)
        {
            if (!strcmp(lh_json_word(w, "region"), name))
                json_array_append(names, json_object_get(w, "name"));
        }
        *out = json_copy(row);
        json_object_set_new(*out, "workers", names);
        return LH_OK;
    }
    return dp_table_missing(rows, NULL, "region", "region", name);
}

static LH_MUST lh_err find_shard(const json_t *look, const char *name, json_t **out)
{
    const json_t *rows = json_object_get(look, "shards");
    char *end;
    json_int_t number = strtoll(name, &end, 10);
    json_t *row;
    size_t i;
    if (*end || !*name)
        return lh_fail(LH_ERR_INVALID, "shard %.60s: expected a shard's number", name);
    json_array_foreach(rows, i, row)
    {
        if (json_integer_value(json_object_get(row, "shard")) != number) continue;
        *out = json_copy(row);
        return LH_OK;
    }
    return dp_table_missing(rows, NULL, "shard", "shard", name);
}

static json_t *names_of(const json_t *rows, const char *key)
{
    json_t *names = json_array(), *row;
    size_t i;
    json_array_foreach(rows, i, row) json_array_append(names, json_object_get(row, key));
    return names;
}

static json_t *whole_run(const json_t *look)
{
    json_t *run = json_copy(json_object_get(look, "run"));
    json_object_set_new(run, "regions", names_of(json_object_get(look, "regions"), "region"));
    json_object_set_new(run, "workers", names_of(json_object_get(look, "workers"), "name"));
    json_object_set_new(run, "shards", names_of(json_object_get(look, "shards"), "shard"));
    return run;
}

lh_err dp_describe_find(const json_t *look, const char *const *words, unsigned count, json_t **out)
{
    struct dp_scope scope;
    *out = NULL;
    if (count == 2 && !strcmp(words[0], "shard")) return find_shard(look, words[1], out);
    if (dp_scope_parse(words, count, &scope))
        return lh_fail(LH_ERR_INVALID,
                       "describe what? run, region NAME, shard N or worker [REGION/]NAME");
    if (scope.worker[0]) return find_worker(look, &scope, out);
    if (scope.region[0]) return find_region(look, scope.region, out);
    *out = whole_run(look);
    return LH_OK;
}

// ---------------------------------------------------------------- leases

void dp_describe_leases(json_t *thing, const json_t *rows)
{
    static const char *const states[] = {"free", "leased", "credited"};
    size_t count[3] = {0}, i;
    json_t *row, *ids = json_array();
    json_array_foreach(rows, i, row)
    {
        const char *state = lh_json_word(row, "state");
        for (size_t s = 0; s < 3; s++) count[s] += !strcmp(state, states[s]);
        if (!strcmp(state, "leased") && json_array_size(ids) < UNITS_SHOWN)
            json_array_append(ids, json_object_get(row, "unit"));
    }
    json_object_set_new(thing, "units",
                        json_pack("{s:I s:I s:I}", states[0], (json_int_t)count[0], states[1],
                                  (json_int_t)count[1], states[2], (json_int_t)count[2]));
    json_object_set_new(thing, "leased_units", ids);
}

// ---------------------------------------------------------------- show

static void put_scalar(const json_t *value, struct lh_buf *out)
{
    char text[256];
    dp_scalar_text(value, DP_FOUR_DIGITS, text, sizeof text);
    dp_put(out, "%s", text[0] ? text : "-");
}

static void put_fields(const json_t *o, int indent, struct lh_buf *out);

static void put_list(const json_t *list, int indent, struct lh_buf *out)
{
    const json_t *value;
    size_t i;
    bool objects = json_is_object(json_array_get(list, 0));
    json_array_foreach(list, i, value)
    {
        if (objects) {
            dp_put(out, "\n");
            put_fields(value, indent + 2, out);
        } else {
            dp_put(out, "%s", i ? " " : "");
            put_scalar(value, out);
        }
    }
    if (!json_array_size(list)) dp_put(out, "-");
    if (!objects) dp_put(out, "\n");
}

static void put_fields(const json_t *o, int indent, struct lh_buf *out)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)o, key, value) // the loop does not change `o`
    {
        dp_put(out, "%*s%-*s ", indent, "", 20 - indent, key);
        if (json_is_array(value)) {
            put_list(value, indent, out);
        } else if (json_is_object(value)) {
            dp_put(out, "\n");
            put_fields(value, indent + 2, out);
        } else {
            put_scalar(value, out);
            dp_put(out, "\n");
        }
    }
}

void dp_describe_put(const json_t *thing, struct lh_buf *out)
{
    put_fields(thing, 0, out);
}
