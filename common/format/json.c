// JSON of hashed files. See json.h.
#include "common/format/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"

lh_err lh_json_load(const char *what, struct lh_span json, size_t max, json_t **out)
{
    json_error_t where;
    if (json.len > max)
        return lh_fail(LH_ERR_TOO_LARGE, "%s: %zu bytes, at most %zu", what, json.len, max);
    if (!json.len) return lh_fail(LH_ERR_MALFORMED, "%s: not JSON: it is empty", what);
    *out = json_loadb((const char *)json.data, json.len, JSON_REJECT_DUPLICATES, &where);
    if (*out) return LH_OK;
    return lh_fail(LH_ERR_MALFORMED, "%s: not JSON, line %d: %s", what, where.line, where.text);
}

void lh_json_put(struct lh_buf *out, const char *format, ...)
{
    char text[LH_JSON_FORMAT_MAX];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    LH_ASSERT(n >= 0 && (size_t)n < sizeof text);
    lh_put(out, text, (size_t)n);
}

lh_err lh_json_give(json_t *root, struct lh_buf *out)
{
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (!text) return LH_ERR_NO_MEMORY;
    lh_put(out, text, strlen(text));
    free(text);
    return lh_buf_err(out);
}

double lh_json_number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

const char *lh_json_word(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

bool lh_json_yes(const json_t *o, const char *key)
{
    return json_is_true(json_object_get(o, key));
}
