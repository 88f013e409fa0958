// Parsing and describing values of settings. See config_value.h.
//
// 1. A text is a value as a whole or an error: "10x", "", "1e999" are errors, never 10, 0 or
// infinity.
// 2. A suffix multiplies exactly: "1.5 KiB" is 1536, "1.5 ms" for a setting in ms is an error.
#include "common/app/config_value.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/base/nearest.h"

struct suffix {
    const char *name;
    double factor;
};
static const struct suffix sizes[] = {
    {"TiB", 1099511627776.0},
    {"GiB", 1073741824.0},
    {"MiB", 1048576.0},
    {"KiB", 1024.0},
    {"TB", 1e12},
    {"GB", 1e9},
    {"MB", 1e6},
    {"kB", 1e3},
    {"B", 1},
    {NULL, 0},
};
static const struct suffix durations[] = {
    // in ns
    {"ns", 1},     {"us", 1e3},   {"ms", 1e6},    {"s", 1e9},
    {"min", 60e9}, {"h", 3600e9}, {"d", 86400e9}, {NULL, 0},
};

static const double exact_max = 9007199254740992.0; // 2^53: beyond, a double skips integers

const char *lh_config_type_name(enum lh_config_type type)
{
    static const char *const name[] = {"string", "bool",     "integer", "number",
                                       "size",   "duration", "choice",  "list of integers"};
    return name[type];
}

static double factor_of(const struct suffix *table, const char *name)
{
    for (; table->name; table++)
        if (!strcasecmp(table->name, name)) return table->factor;
    return 0;
}

static bool in_range(const struct lh_config_row *row, double v)
{
    return row->min == row->max || (v >= row->min && v <= row->max);
}

// ---------------------------------------------------------------- words

// Walks "a|b=1|c": the next word, its length and the text after '=' (NULL: none).
static const char *next_word(const char *at, size_t *len, const char **value)
{
    size_t all = strcspn(at, "|");
    const char *equals = memchr(at, '=', all);
    *len = equals ? (size_t)(equals - at) : all;
    *value = equals ? equals + 1 : NULL;
    return at[all] ? at + all + 1 : NULL;
}

// Position of `text` among the row's words, -1: none. *value: the word's number.
static int word_of(const struct lh_config_row *row, const char *text, double *value)
{
    int position = 0;
    for (const char *at = row->words; at; position++) {
        size_t len;
        const char *word = at, *number;
        at = next_word(at, &len, &number);
        if (strncmp(word, text, len) || text[len]) continue;
        if (number) *value = strtod(number, NULL);
        return position;
    }
    return -1;
}

bool lh_config_nearest_word(const struct lh_config_row *row, const char *text, char out[64])
{
    struct lh_nearest near = lh_nearest(text);
    bool found = false;
    for (const char *at = row->type == LH_CONFIG_ENUM ? row->words : NULL; at;) {
        char word[64];
        size_t len;
        const char *from = at, *number;
        at = next_word(at, &len, &number);
        snprintf(word, sizeof word, "%.*s", (int)len, from);
        near.best = NULL; // only a nearer word sets it again
        lh_nearest_try(&near, word);
        if (!near.best) continue;
        memcpy(out, word, sizeof word);
        found = true;
    }
    return found;
}

// ---------------------------------------------------------------- numbers

// Copies without the '_' between digits; false: the text is no plain number.
static bool clean_number(const char *text, char *out, size_t size)
{
    size_t n = 0;
    for (const char *at = text; *at; at++) {
        bool between = at > text && at[-1] >= '0' && at[-1] <= '9' && at[1] >= '0' && at[1] <= '9';
        if (*at == '_' && between) continue;
        if (n + 1 == size || *at == '_') return false;
        out[n++] = *at;
    }
    out[n] = 0;
    // strtod also takes hexadecimal, "inf" and "nan"
    return n && strspn(out, "+-.0123456789eE") == n;
}

static bool parse_double(const char *text, double *out)
{
    char clean[64], *end;
    if (!clean_number(text, clean, sizeof clean)) return false;
    errno = 0;
    double v = strtod(clean, &end);
    if (*end || end == clean || !isfinite(v) || (errno == ERANGE && fabs(v) > 1)) return false;
    *out = v;
    return true;
}

static bool parse_int(const char *text, int64_t *out)
{
    char clean[64], *end;
    if (!clean_number(text, clean, sizeof clean)) return false;
    errno = 0;
    long long v = strtoll(clean, &end, 10);
    if (*end || end == clean || errno) return false;
    *out = v;
    return true;
}

// "64 MiB" -> 64 times the factor of MiB over `base`; the result must be an integer.
static bool parse_suffixed(const struct suffix *table, double base, const char *text, int64_t *out)
{
    char number[64];
    size_t len = strspn(text, "+-._0123456789");
    if (!len || len >= sizeof number) return false;
    memcpy(number, text, len);
    number[len] = 0;
    const char *suffix = text + len + strspn(text + len, " ");
    double factor = *suffix ? factor_of(table, suffix) / base : 1, v;
    if (factor == 0 || !parse_double(number, &v)) return false;
    v *= factor;
    if (fabs(v) > exact_max || v != floor(v)) return false;
    *out = (int64_t)v;
    return true;
}

static bool parse_number(const struct lh_config_row *row, const char *text, int64_t *out)
{
    double word;
    if (word_of(row, text, &word) >= 0) {
        *out = (int64_t)word;
        return true;
    }
    int64_t v;
    bool ok = row->type == LH_CONFIG_SIZE ? parse_suffixed(sizes, 1, text, &v)
              : row->type == LH_CONFIG_DURATION
                  ? parse_suffixed(durations, factor_of(durations, row->unit), text, &v)
                  : parse_int(text, &v);
    if (!ok || !in_range(row, (double)v)) return false;
    *out = v;
    return true;
}

static bool parse_ints(const struct lh_config_row *row, const char *text, struct lh_ints *out)
{
    struct lh_ints list = {.count = 0};
    for (const char *at = text + strspn(text, " ,"); *at; at += strspn(at, " ,")) {
        char one[32];
        size_t len = strcspn(at, " ,");
        if (len >= sizeof one || list.count == LH_CONFIG_INTS_MAX) return false;
        memcpy(one, at, len);
        one[len] = 0;
        int64_t v;
        if (!parse_int(one, &v) || !in_range(row, (double)v)) return false;
        list.value[list.count++] = v;
        at += len;
    }
    *out = list;
    return true;
}

// ---------------------------------------------------------------- all types

static bool parse_bool(const char *text, bool *out)
{
    static const char *const yes[] = {"true", "yes", "on"}, *const no[] = {"false", "no", "off"};
    for (int i = 0; i < 3; i++) {
        if (!strcasecmp(text, yes[i])) return *out = true;
        if (!strcasecmp(text, no[i])) return *out = false, true;
    }
    return false;
}

bool lh_config_parse(const struct lh_config_row *row, const char *text, void *field)
{
    if (strlen(text) > LH_CONFIG_TEXT_MAX) return false;
    double v;
    switch (row->type) {
    case LH_CONFIG_STRING: *(const char **)field = text; return true;
    case LH_CONFIG_BOOL: return parse_bool(text, field);
    case LH_CONFIG_INT:
    case LH_CONFIG_SIZE:
    case LH_CONFIG_DURATION: return parse_number(row, text, field);
    case LH_CONFIG_INTS: return parse_ints(row, text, field);
    case LH_CONFIG_ENUM: {
        int position = word_of(row, text, &v);
        if (position >= 0) *(int *)field = position;
        return position >= 0;
    }
    case LH_CONFIG_FLOAT:
        if (word_of(row, text, &v) < 0 && (!parse_double(text, &v) || !in_range(row, v)))
            return false;
        *(double *)field = v;
        return true;
    }
    return false;
}

static void format_limit(const struct lh_config_row *row, double v, char *out, size_t size)
{
    if (row->type == LH_CONFIG_SIZE) {
        const struct suffix *unit = sizes; // the largest binary one that divides it
        while (unit->factor > 1 && (v == 0 || fmod(v, unit->factor) != 0)) unit++;
        snprintf(out, size, "%.0f %s", v / unit->factor, unit->name);
    } else if (v == floor(v) && fabs(v) < 1e15) {
        snprintf(out, size, "%.0f", v);
    } else {
        snprintf(out, size, "%g", v);
    }
}

static void append(char *out, size_t size, const char *text, size_t len)
{
    size_t used = strlen(out);
    if (len >= size - used) len = size - used - 1;
    memcpy(out + used, text, len);
    out[used + len] = 0;
}

static void append_words(const struct lh_config_row *row, const char *before, char *out,
                         size_t size)
{
    for (const char *at = row->words; at;) {
        size_t len;
        const char *word = at, *number;
        at = next_word(at, &len, &number);
        append(out, size, before, strlen(before));
        append(out, size, word, len);
        before = ", ";
    }
}

void lh_config_expected(const struct lh_config_row *row, char *out, size_t size)
{
    static const char *const what[] = {
        "text of at most 1024 bytes",
        "true or false",
        "an integer",
        "a number",
        "a size",
        "a duration",
        "one of",
        "a list of integers",
    };
    snprintf(out, size, "%s", what[row->type]);
    if (row->type == LH_CONFIG_ENUM) {
        append_words(row, " ", out, size);
        return;
    }
    if (row->min != row->max) {
        char low[40], high[40], range[100];
        format_limit(row, row->min, low, sizeof low);
        format_limit(row, row->max, high, sizeof high);
        snprintf(range, sizeof range, " from %s to %s", low, high);
        append(out, size, range, strlen(range));
    }
    if (row->unit && row->type != LH_CONFIG_SIZE) {
        append(out, size, " ", 1);
        append(out, size, row->unit, strlen(row->unit));
    }
    append_words(row, ", or ", out, size);
}
