// Settings from their sources into a struct. See config.h.
//
// 1. The settings struct always holds values that passed their row's checks; a source that fails at
//    a key leaves that key unchanged.
// 2. A file sets a key at most once, in either spelling (a.b: or a: {b:}).
// 3. The lh_config owns the texts of string settings; the struct points to them.
#include "common/app/config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/app/config_value.h"
#include "common/base/check.h"
#include "common/base/nearest.h"

enum { KEY_BYTES = 256 };

struct value {
    char *text;       // NULL: required and not set
    char *source;     // "default", "server.yaml:12", "--set", "$NAME"
    const char *file; // file that is being read and has set the key, for invariant 2
};

struct lh_config {
    const struct lh_config_table *table;
    uint8_t *settings;
    struct value value[LH_CONFIG_ROWS_MAX];
};

// ---------------------------------------------------------------- rows

static const struct lh_config_row *row_of(const struct lh_config_table *table, const char *key)
{
    for (unsigned i = 0; i < table->rows; i++)
        if (!strcmp(table->row[i].key, key)) return &table->row[i];
    return NULL;
}

// True for "codec" when there is "codec.name".
static bool in_section(const char *key, const char *section)
{
    size_t len = strlen(section);
    return !strncmp(key, section, len) && key[len] == '.';
}

static bool is_section(const struct lh_config_table *table, const char *section)
{
    for (unsigned i = 0; i < table->rows; i++)
        if (in_section(table->row[i].key, section)) return true;
    return false;
}

static LH_MUST lh_err unknown_key(const struct lh_config_table *table, lh_err code,
                                  const char *where, const char *key)
{
    struct lh_nearest nearest = lh_nearest(key);
    for (const char *const *at = table->beside; at && *at; at++) lh_nearest_try(&nearest, *at);
    for (unsigned i = 0; i < table->rows && !nearest.best; i++)
        lh_nearest_try(&nearest, table->row[i].key);
    if (nearest.best)
        return lh_fail(code, "%s: no setting %s of a %s; did you mean %s?", where, key, table->kind,
                       nearest.best);
    return lh_fail(code,
                   "%s: no setting %s of a %s (`longhaul config explain --kind %s` lists all)",
                   where, key, table->kind, table->part_of ? table->part_of : table->kind);
}

// ---------------------------------------------------------------- one value

static LH_MUST lh_err set_row(struct lh_config *c, const struct lh_config_row *row,
                              const char *text, const char *source, const char *file)
{
    struct value *value = &c->value[row - c->table->row];
    if (file && value->file == file)
        return lh_fail(LH_ERR_CONFIG, "%s: %s is given twice, first at %s", source, row->key,
                       value->source);
    char *own = strdup(text), *from = strdup(source);
    if (!own || !from) {
        free(own);
        free(from);
        return lh_fail(LH_ERR_NO_MEMORY, "no memory for settings");
    }
    if (!lh_config_parse(row, own, c->settings + row->offset)) {
        char expected[LH_CONFIG_EXPECTED_BYTES], near[64];
        lh_config_expected(row, expected, sizeof expected);
        bool found = lh_config_nearest_word(row, text, near);
        free(own);
        free(from);
        return lh_fail(LH_ERR_CONFIG, "%s: %s: \"%.80s\" is not valid%s%s%s, expected %s", source,
                       row->key, text, found ? " (did you mean " : "", found ? near : "",
                       found ? "?)" : "", expected);
    }
    free(value->text);
    free(value->source);
    *value = (struct value){own, from, file};
    return LH_OK;
}

static LH_MUST lh_err set_key(struct lh_config *c, const char *key, const char *text,
                              const char *source, const char *file)
{
    const struct lh_config_row *row = row_of(c->table, key);
    if (row) return set_row(c, row, text, source, file);
    if (!is_section(c->table, key)) return unknown_key(c->table, LH_ERR_CONFIG, source, key);
    return lh_fail(LH_ERR_CONFIG, "%s: %s is a section: write its settings below it, indented",
                   source, key);
}

lh_err lh_config_create(const struct lh_config_table *table, struct lh_config **out)
{
    LH_ASSERT(table->rows <= LH_CONFIG_ROWS_MAX);
    struct lh_config *c = calloc(1, sizeof *c);
    if (c) c->settings = calloc(1, table->settings_bytes);
    if (!c || !c->settings) {
        free(c);
        return lh_fail(LH_ERR_NO_MEMORY, "no memory for settings");
    }
    c->table = table;
    for (unsigned i = 0; i < table->rows; i++) {
        const struct lh_config_row *row = &table->row[i];
        LH_ASSERT(row_of(table, row->key) == row && row->offset < table->settings_bytes);
        if (!row->def) {
            if (row->type == LH_CONFIG_STRING) *(const char **)(c->settings + row->offset) = "";
            continue;
        }
        lh_err err = set_row(c, row, row->def, "default", NULL);
        LH_ASSERT(err != LH_ERR_CONFIG); // a default outside its own range
        if (err) {
            lh_config_destroy(c);
            return err;
        }
    }
    *out = c;
    return LH_OK;
}

void lh_config_destroy(struct lh_config *c)
{
    if (!c) return;
    for (unsigned i = 0; i < c->table->rows; i++) {
        free(c->value[i].text);
        free(c->value[i].source);
    }
    free(c->settings);
    free(c);
}

// ---------------------------------------------------------------- sources

// "1, 2, 3" from a list of scalars.
static LH_MUST lh_err join_list(const struct lh_yaml *list, const char *where, const char *key,
                                char *out, size_t size)
{
    size_t used = 0;
    out[0] = 0;
    for (const struct lh_yaml *at = list->child; at; at = at->next) {
        if (at->kind != LH_YAML_SCALAR || used + strlen(at->text) + 3 > size)
            return lh_fail(LH_ERR_CONFIG, "%s: %s: expected a short list of plain values", where,
                           key);
        used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "", at->text);
    }
    return LH_OK;
}

static LH_MUST lh_err walk(struct lh_config *c, const char *name, const char *prefix,
                           const struct lh_yaml *map)
{
    for (const struct lh_yaml *at = map->child; at; at = at->next) {
        char key[KEY_BYTES], where[KEY_BYTES], list[LH_CONFIG_TEXT_MAX];
        snprintf(where, sizeof where, "%.200s:%u", name, at->line);
        int n = snprintf(key, sizeof key, "%s%s%s", prefix, prefix[0] ? "." : "", at->key);
        if (n >= (int)sizeof key)
            return lh_fail(LH_ERR_CONFIG, "%s: a key longer than %d bytes", where, KEY_BYTES - 1);
        const struct lh_config_row *row = row_of(c->table, key);
        if (at->kind == LH_YAML_SCALAR) {
            LH_TRY(set_key(c, key, at->text, where, name));
        } else if (at->kind == LH_YAML_LIST) {
            if (row && row->type != LH_CONFIG_INTS)
                return lh_fail(LH_ERR_CONFIG, "%s: %s takes one value, not a list", where, key);
            LH_TRY(join_list(at, where, key, list, sizeof list));
            LH_TRY(set_key(c, key, list, where, name));
        } else if (is_section(c->table, key)) { // a row may have the same name
            LH_TRY(walk(c, name, key, at));
        } else if (row) {
            return lh_fail(LH_ERR_CONFIG, "%s: %s takes a value, not a section", where, key);
        } else {
            return unknown_key(c->table, LH_ERR_CONFIG, where, key);
        }
    }
    return LH_OK;
}

lh_err lh_config_tree(struct lh_config *c, const char *name, const struct lh_yaml *map)
{
    if (map->kind != LH_YAML_MAP)
        return lh_fail(LH_ERR_CONFIG, "%s:%u: expected lines of `key: value`", name, map->line);
    lh_err err = walk(c, name, "", map);
    for (unsigned i = 0; i < c->table->rows; i++) c->value[i].file = NULL; // `name` is borrowed
    return err;
}

lh_err lh_config_text(struct lh_config *c, const char *name, struct lh_span yaml)
{
    struct lh_yaml *tree;
    LH_TRY(lh_yaml_parse(name, yaml, &tree));
    lh_err err = lh_config_tree(c, name, tree);
    lh_yaml_free(tree);
    return err;
}

lh_err lh_config_set(struct lh_config *c, const char *assignment)
{
    char key[KEY_BYTES];
    const char *equals = strchr(assignment, '=');
    if (!equals || (size_t)(equals - assignment) >= sizeof key)
        return lh_fail(LH_ERR_CONFIG, "--set %.80s: expected key=value", assignment);
    memcpy(key, assignment, (size_t)(equals - assignment));
    key[equals - assignment] = 0;
    return set_key(c, key, equals + 1, "--set", NULL);
}

lh_err lh_config_environment(struct lh_config *c, const char *(*get)(const char *name))
{
    for (unsigned i = 0; i < c->table->rows; i++) {
        const struct lh_config_row *row = &c->table->row[i];
        const char *text = row->env ? get(row->env) : NULL;
        char source[KEY_BYTES];
        if (!text) continue;
        snprintf(source, sizeof source, "$%s", row->env);
        LH_TRY(set_row(c, row, text, source, NULL));
    }
    return LH_OK;
}

lh_err lh_config_finish(struct lh_config *c)
{
    for (unsigned i = 0; i < c->table->rows; i++) {
        const struct lh_config_row *row = &c->table->row[i];
        if (!c->value[i].text || (!row->def && !c->value[i].text[0]))
            return lh_fail(LH_ERR_CONFIG, "%s is missing: a %s needs it (%s)", row->key,
                           c->table->kind, row->help);
    }
    return c->table->check ? c->table->check(c->settings) : LH_OK;
}

const void *lh_config_settings(const struct lh_config *c)
{
    return c->settings;
}

const char *lh_config_value(const struct lh_config *c, const char *key, char *source, size_t size)
{
    const struct lh_config_row *row = row_of(c->table, key);
    const struct value *value = row ? &c->value[row - c->table->row] : NULL;
    if (!value || !value->text) return NULL;
    if (size) snprintf(source, size, "%s", value->source);
    return value->text;
}

// ---------------------------------------------------------------- showing

static void put(struct lh_buf *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct lh_buf *out, const char *format, ...)
{
    char line[4 * LH_CONFIG_TEXT_MAX];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    lh_put(out, line, n < (int)sizeof line ? (size_t)n : sizeof line - 1);
}

static const char *shown(const char *text)
{
    return text && text[0] ? text : "(empty)";
}

static void explain_row(const struct lh_config *c, const struct lh_config_row *row,
                        struct lh_buf *out)
{
    char expected[LH_CONFIG_EXPECTED_BYTES];
    const struct value *value = &c->value[row - c->table->row];
    lh_config_expected(row, expected, sizeof expected);
    put(out, "%s\n    %s.\n    type     %s: %s\n    default  %s\n", row->key, row->help,
        lh_config_type_name(row->type), expected, row->def ? shown(row->def) : "(must be given)");
    if (row->env) put(out, "    variable $%s\n", row->env);
    if (value->text)
        put(out, "    value    %s   (%s)\n", shown(value->text), value->source);
    else
        put(out, "    value    (not given)\n");
}

// A double-quoted YAML scalar: backslash, quote and control characters are escaped.
static void put_quoted(struct lh_buf *out, const char *text)
{
    lh_put_u8(out, '"');
    for (; *text; text++) {
        uint8_t c = (uint8_t)*text;
        if (c == '"' || c == '\\')
            put(out, "\\%c", c);
        else if (c < ' ' || c == 127)
            put(out, "\\x%02x", c);
        else
            lh_put_u8(out, c);
    }
    lh_put_u8(out, '"');
}

void lh_config_write(const struct lh_config *c, struct lh_buf *out)
{
    for (unsigned i = 0; i < c->table->rows; i++) {
        const struct value *value = &c->value[i];
        if (!value->text || !strcmp(value->source, "default")) continue;
        put(out, "%s: ", c->table->row[i].key);
        put_quoted(out, value->text);
        put(out, "\n");
    }
}

lh_err lh_config_explain(const struct lh_config *c, const char *key, bool all, struct lh_buf *out)
{
    bool any = false;
    unsigned left_out = 0;
    for (unsigned i = 0; i < c->table->rows; i++) {
        const struct lh_config_row *row = &c->table->row[i];
        if (key && strcmp(row->key, key) && !in_section(row->key, key)) continue;
        if (!key && !all && row->rare) {
            left_out++;
            continue;
        }
        if (any) put(out, "\n");
        any = true;
        explain_row(c, row, out);
    }
    if (!any && key) return unknown_key(c->table, LH_ERR_NOT_FOUND, "explain", key);
    if (left_out)
        put(out,
            "\n%u settings that few runs need are not shown (`longhaul config explain --kind %s "
            "--all`)\n",
            left_out, c->table->part_of ? c->table->part_of : c->table->kind);
    return lh_buf_err(out);
}

void lh_config_help(const struct lh_config_table *table, const struct lh_config_table *beside,
                    bool all, struct lh_buf *out)
{
    for (unsigned i = 0; i < table->rows; i++) {
        const struct lh_config_row *row = &table->row[i];
        if ((row->rare && !all) || (beside && row_of(beside, row->key))) continue;
        const char *unit = row->unit && row->type != LH_CONFIG_SIZE ? row->unit : "";
        put(out, "  %-32s %s", row->key, row->help);
        if (!row->def)
            put(out, " (required)");
        else if (row->def[0])
            put(out, " [%s%s%s]", row->def, unit[0] ? " " : "", unit);
        put(out, "\n");
    }
}
