// Tables and JSON of the commands that show a run. See table.h.
#include "deploy/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deploy/files.h"

static void put_cell(struct lh_buf *out, const json_t *value, int width)
{
    char text[128] = "-";
    if (json_is_string(value))
        snprintf(text, sizeof text, "%s", json_string_value(value));
    else if (json_is_integer(value))
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(text, sizeof text, "%.1f", json_real_value(value));
    else if (json_is_boolean(value))
        snprintf(text, sizeof text, "%s", json_is_true(value) ? "yes" : "no");
    for (char *at = text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 127) *at = '?';
    dp_put(out, "%*s", width, text);
}

void dp_table_put(struct lh_buf *out, const struct dp_column *columns, const json_t *rows)
{
    size_t i;
    json_t *row;
    for (const struct dp_column *c = columns; c->title; c++)
        dp_put(out, "%s%*s", c == columns ? "" : " ", c->width, c->title);
    dp_put(out, "\n");
    json_array_foreach(rows, i, row)
    {
        for (const struct dp_column *c = columns; c->title; c++) {
            dp_put(out, "%s", c == columns ? "" : " ");
            put_cell(out, json_object_get(row, c->key), c->width);
        }
        dp_put(out, "\n");
    }
}

lh_err dp_table_json(struct lh_buf *out, const json_t *value)
{
    char *text = json_dumps(value, JSON_INDENT(2));
    if (!text) return lh_fail(LH_ERR_NO_MEMORY, "no memory for the answer");
    dp_put(out, "%s\n", text);
    free(text);
    return lh_buf_err(out);
}

lh_err dp_table_form(const char *format, bool *json)
{
    *json = !strcmp(format, "json");
    if (*json || !strcmp(format, "table")) return LH_OK;
    return lh_fail(LH_ERR_INVALID, "-o %.20s: want table or json", format);
}
