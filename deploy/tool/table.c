// Tables and JSON of the commands that show a run. See table.h.
#include "deploy/tool/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/base/text.h"
#include "deploy/tool/files.h"

// Tenths would show it as zero: a delta of a privacy budget.
static bool is_below_tenths(double value)
{
    return value != 0 && fabs(value) < 0.05;
}

void dp_scalar_text(const json_t *value, enum dp_real real, char *out, size_t size)
{
    snprintf(out, size, "-");
    if (json_is_string(value))
        snprintf(out, size, "%s", json_string_value(value));
    else if (json_is_integer(value))
        snprintf(out, size, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value) && real == DP_TENTHS && !is_below_tenths(json_real_value(value)))
        snprintf(out, size, "%.1f", json_real_value(value));
    else if (json_is_real(value))
        snprintf(out, size, real == DP_TENTHS ? "%.2g" : "%.4g", json_real_value(value));
    else if (json_is_boolean(value))
        snprintf(out, size, "%s", json_is_true(value) ? "yes" : "no");
    lh_text_tame(out, strlen(out));
}

static void put_cell(struct lh_buf *out, const json_t *value, int width)
{
    char text[128];
    dp_scalar_text(value, DP_TENTHS, text, sizeof text);
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

void dp_table_fit(struct lh_buf *out, struct lh_span text, unsigned columns, unsigned lines)
{
    unsigned column = 0, line = 1;
    for (const uint8_t *at = text.data, *end = at + text.len; at < end; at++) {
        if (*at == '\n') {
            if (line++ == lines) return;
            column = 0;
        } else if ((*at & 0xc0) != 0x80) {
            column++;
        }
        if (column <= columns) lh_put_u8(out, *at);
    }
}

void dp_table_screen(unsigned *columns, unsigned *lines)
{
    struct winsize size = {0};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) || !size.ws_col || !size.ws_row)
        size.ws_col = size.ws_row = UINT16_MAX;
    *columns = size.ws_col;
    *lines = size.ws_row;
}

lh_err dp_table_json(struct lh_buf *out, const json_t *value)
{
    char *text = json_dumps(value, JSON_INDENT(2) | JSON_ENSURE_ASCII);
    if (!text) return lh_fail(LH_ERR_NO_MEMORY, "no memory for the answer");
    dp_put(out, "%s\n", text);
    free(text);
    return lh_buf_err(out);
}

lh_err dp_table_show(const struct dp_column *columns, const json_t *rows, bool json)
{
    struct lh_buf text = lh_buf(64 << 20);
    lh_err err = LH_OK;
    if (json)
        err = dp_table_json(&text, rows);
    else
        dp_table_put(&text, columns, rows);
    return dp_print(&text, err);
}

// ---------------------------------------------------------------- what there is not

enum { NAMES_BYTES = 300, NAME_BYTES = 128 };

static void name_of(const json_t *row, const char *under, const char *key, char out[NAME_BYTES])
{
    const json_t *value = json_object_get(row, key);
    const char *place = under ? json_string_value(json_object_get(row, under)) : NULL;
    out[0] = 0;
    if (json_is_integer(value))
        snprintf(out, NAME_BYTES, "%lld", (long long)json_integer_value(value));
    else if (json_string_length(value))
        snprintf(out, NAME_BYTES, "%.60s%s%.60s", place ? place : "", place ? "/" : "",
                 json_string_value(value));
}

lh_err dp_table_missing(const json_t *rows, const char *under, const char *key, const char *kind,
                        const char *name)
{
    struct lh_buf names = lh_buf(NAMES_BYTES);
    json_t *told = json_object(), *row;
    size_t i;
    json_array_foreach(rows, i, row)
    {
        char is[NAME_BYTES];
        name_of(row, under, key, is);
        if (!is[0] || json_object_get(told, is)) continue;
        json_object_set_new(told, is, json_true());
        dp_put(&names, " %s", is);
    }
    json_decref(told);
    lh_err err = lh_fail(LH_ERR_NOT_FOUND, "no %s %.64s in this run; there are:%.*s%s", kind, name,
                         (int)names.len, names.len ? (const char *)names.data : "",
                         lh_buf_err(&names) ? " ..." : "");
    lh_buf_free(&names);
    return err;
}
