// Progress of a drain. See drain.h.
#include "common/format/json.h"
#include "deploy/ask/drain.h"
#include "deploy/tool/files.h"

#include <string.h>

static LH_MUST lh_err take_name(char out[LH_NAME_BYTES], const char *name, size_t len)
{
    if (!len || len >= LH_NAME_BYTES)
        return lh_fail(LH_ERR_INVALID, "a name of %zu bytes; they have 1 to %d", len,
                       LH_NAME_BYTES - 1);
    memcpy(out, name, len);
    out[len] = 0;
    return LH_OK;
}

lh_err dp_scope_parse(const char *const *words, unsigned count, struct dp_scope *out)
{
    *out = (struct dp_scope){.region = ""};
    if (count == 1 && !strcmp(words[0], "run")) return LH_OK;
    if (count == 2 && !strcmp(words[0], "region"))
        return take_name(out->region, words[1], strlen(words[1]));
    if (count != 2 || strcmp(words[0], "worker") != 0)
        return lh_fail(LH_ERR_INVALID, "drain what? run, region NAME or worker [REGION/]NAME");
    const char *slash = strchr(words[1], '/'), *name = slash ? slash + 1 : words[1];
    if (slash) LH_TRY(take_name(out->region, words[1], (size_t)(slash - words[1])));
    return take_name(out->worker, name, strlen(name));
}

static bool is(const json_t *worker, const char *key, const char *name)
{
    const char *value = json_string_value(json_object_get(worker, key));
    return !name[0] || (value && !strcmp(value, name));
}

json_t *dp_drain_rows(const json_t *status, const struct dp_scope *scope, bool end,
                      struct dp_drained *out)
{
    json_t *rows = json_array(), *w;
    const char *phase = json_string_value(json_object_get(status, "phase"));
    bool ended = phase && !strcmp(phase, "ended");
    size_t i;
    *out = (struct dp_drained){.complete = ended || !end};
    json_array_foreach(json_object_get(status, "workers"), i, w)
    {
        if (!is(w, "region", scope->region) || !is(w, "name", scope->worker)) continue;
        json_array_append(rows, w);
        if (!lh_json_yes(w, "live")) {
            out->silent++;
            continue;
        }
        // a done worker has drained, too
        bool drained = lh_json_yes(w, "done") || (!end && lh_json_yes(w, "drained"));
        out->workers++;
        out->asked += lh_json_yes(w, "draining");
        out->drained += drained;
        out->complete &= drained;
    }
    return rows;
}

// ---------------------------------------------------------------- what it waits for

static void put_server(const json_t *server, struct lh_buf *out)
{
    const char *state = lh_json_word(server, "state"), *name = lh_json_word(server, "name");
    if (strcmp(lh_json_word(server, "role"), "server") != 0 || !strcmp(state, "live")) return;
    const char *before = out->len ? "; " : "";
    if (!strcmp(state, "expelled"))
        dp_put(out, "%sserver %s, which is expelled (`longhaul admit server %s` lets it back)",
               before, name, name);
    else if (!strcmp(state, "unheard"))
        dp_put(out, "%sthe server of %s, which the coordinator has not heard", before, name);
    else
        dp_put(out, "%sserver %s, which is silent", before, name);
}

void dp_drain_waits(const json_t *status, const struct dp_scope *scope, bool end,
                    struct lh_buf *out)
{
    struct dp_drained state;
    json_t *rows = dp_drain_rows(status, scope, end, &state), *row;
    size_t i;
    json_array_foreach(json_object_get(status, "servers"), i, row) put_server(row, out);
    json_array_foreach(rows, i, row)
    {
        bool drained = lh_json_yes(row, "done") || (!end && lh_json_yes(row, "drained"));
        const char *why = lh_json_word(row, "why");
        if (!lh_json_yes(row, "live") || drained) continue;
        dp_put(out, "%sworker %s", out->len ? "; " : "", lh_json_word(row, "name"));
        if (!why[0]) continue;
        dp_put(out, "%s: %s", lh_json_yes(row, "set_aside") ? "" : ", which is stalled", why);
    }
    json_decref(rows);
}
