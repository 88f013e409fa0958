// Settings: one table {key, type, default, range, unit, help} serves the file, the command line,
// --help, `config explain` and the documentation.
//
// Sources, later over earlier: the table's defaults, a YAML file (nested maps become dotted keys),
// assignments "a.b=c" from the command line, the environment for rows that name a variable (paths
// of secrets only). Every error is LH_ERR_CONFIG and names the place ("server.yaml:12"), the key,
// the expected value, and for an unknown key the nearest known one.
//
// Values: sizes take B, KiB, MiB, GiB, TiB, kB, MB, GB, TB; durations ns, us, ms, s, min, h, d, and
// without a suffix the row's own unit; integers may be written 3_000_000.
#ifndef LH_COMMON_CONFIG_H
#define LH_COMMON_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "common/app/yaml.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/env/env.h"

enum { LH_CONFIG_INTS_MAX = 256, LH_CONFIG_TEXT_MAX = 2048, LH_CONFIG_ROWS_MAX = 128 };

struct lh_ints {
    int64_t value[LH_CONFIG_INTS_MAX];
    uint32_t count;
};

// The comment beside each type gives its field's type in the settings struct.
enum lh_config_type {
    LH_CONFIG_STRING,   // const char *, lives as long as the lh_config
    LH_CONFIG_BOOL,     // bool
    LH_CONFIG_INT,      // int64_t
    LH_CONFIG_FLOAT,    // double, finite
    LH_CONFIG_SIZE,     // int64_t, bytes
    LH_CONFIG_DURATION, // int64_t, in the row's unit
    LH_CONFIG_ENUM,     // int: position in `words`
    LH_CONFIG_INTS,     // struct lh_ints; min and max bound each element
};

struct lh_config_row {
    const char *key; // dotted
    enum lh_config_type type;
    size_t offset;     // the field's offset in the settings struct
    const char *def;   // the default in the file's syntax; NULL: the setting must be given
    double min, max;   // limits of the value; equal: no limits
    const char *unit;  // "ms", "tokens"; may be NULL. Durations: ns, us, ms, s, min or h
    const char *words; // enum: "text|json". Numbers: words that stand for values, "auto=0|off=-1";
                       // may be NULL
    const char *help;  // one sentence, no full stop
    const char *env;   // variable that overrides it; NULL for all but paths of secrets
    bool rare;         // `explain` without --all omits it: few runs ever set it
};

// The offset of T's field; does not compile unless the field has the type C.
#define LH_CONFIG_FIELD(T, field, C)                                                               \
    (offsetof(T, field) + (size_t) _Generic(((T *)0)->field, C : 0))

#define LH_CONFIG_ROW(T, who, key, type, field, C, def, min, max, unit, words, help, env)          \
    {                                                                                              \
        key, LH_CONFIG_##type, LH_CONFIG_FIELD(T, field, C), def, min, max, unit, words, help,     \
            env, LH_CONFIG_IS_##who                                                                \
    }
// A row of a table. `who` is `user` for a setting that people set, or `rare`.
#define LH_CONFIG_ROW_STRING(T, who, key, field, def, help)                                        \
    LH_CONFIG_ROW(T, who, key, STRING, field, const char *, def, 0, 0, 0, 0, help, 0)
#define LH_CONFIG_ROW_SECRET(T, who, key, field, env, help)                                        \
    LH_CONFIG_ROW(T, who, key, STRING, field, const char *, "", 0, 0, 0, 0, help, env)
#define LH_CONFIG_ROW_BOOL(T, who, key, field, def, help)                                          \
    LH_CONFIG_ROW(T, who, key, BOOL, field, bool, def, 0, 0, 0, 0, help, 0)
#define LH_CONFIG_ROW_INT(T, who, key, field, def, min, max, unit, words, help)                    \
    LH_CONFIG_ROW(T, who, key, INT, field, int64_t, def, min, max, unit, words, help, 0)
#define LH_CONFIG_ROW_FLOAT(T, who, key, field, def, min, max, unit, words, help)                  \
    LH_CONFIG_ROW(T, who, key, FLOAT, field, double, def, min, max, unit, words, help, 0)
#define LH_CONFIG_ROW_SIZE(T, who, key, field, def, min, max, help)                                \
    LH_CONFIG_ROW(T, who, key, SIZE, field, int64_t, def, min, max, "bytes", 0, help, 0)
#define LH_CONFIG_ROW_DURATION(T, who, key, field, def, min, max, unit, help)                      \
    LH_CONFIG_ROW(T, who, key, DURATION, field, int64_t, def, min, max, unit, 0, help, 0)
#define LH_CONFIG_ROW_ENUM(T, who, key, field, def, words, help)                                   \
    LH_CONFIG_ROW(T, who, key, ENUM, field, int, def, 0, 0, 0, words, help, 0)
#define LH_CONFIG_ROW_INTS(T, who, key, field, def, min, max, unit, help)                          \
    LH_CONFIG_ROW(T, who, key, INTS, field, struct lh_ints, def, min, max, unit, 0, help, 0)
// A setting's field, of its type above; for files of settings such as server/settings.def.
#define LH_SETTING_FIELD(type, who, path, field, ...) LH_CONFIG_C_##type field;
#define LH_CONFIG_C_STRING const char *
#define LH_CONFIG_C_SECRET const char *
#define LH_CONFIG_C_BOOL bool
#define LH_CONFIG_C_INT int64_t
#define LH_CONFIG_C_FLOAT double
#define LH_CONFIG_C_SIZE int64_t
#define LH_CONFIG_C_DURATION int64_t
#define LH_CONFIG_C_ENUM int
#define LH_CONFIG_C_INTS struct lh_ints
#define LH_CONFIG_IS_user false
#define LH_CONFIG_IS_rare true

struct lh_config_table {
    const char *kind; // "server"; used in help and errors
    // Further keys of the file, candidates for "did you mean"; ends with NULL. NULL: none.
    const char *const *beside;
    // The kind's name on `longhaul config explain`'s command line; NULL: `kind`.
    const char *part_of;
    const struct lh_config_row *row;
    unsigned rows;
    size_t settings_bytes;
    // Checks relations between rows. May be NULL. Fails with LH_ERR_CONFIG, naming keys.
    lh_err (*check)(const void *settings);
};

struct lh_config;

LH_MUST lh_err lh_config_create(const struct lh_config_table *table, struct lh_config **out);
void lh_config_destroy(struct lh_config *c); // NULL is allowed
// Errors show `name`.
LH_MUST lh_err lh_config_text(struct lh_config *c, const char *name, struct lh_span yaml);
LH_MUST lh_err lh_config_tree(struct lh_config *c, const char *name, const struct lh_yaml *map);
LH_MUST lh_err lh_config_set(struct lh_config *c, const char *assignment); // "a.b=c"
// get(name) is getenv or a test's function; it returns NULL for a variable that is not set.
LH_MUST lh_err lh_config_environment(struct lh_config *c, const char *(*get)(const char *name));
// Call once, last: checks that no required setting is missing, and runs the table's check.
LH_MUST lh_err lh_config_finish(struct lh_config *c);
const void *lh_config_settings(const struct lh_config *c); // lives as long as `c`

// The value in the file's syntax and its source ("default", "server.yaml:12", "--set", "$NAME");
// NULL: no such key, or a required one that is not set.
const char *lh_config_value(const struct lh_config *c, const char *key, char *source, size_t size);
// Appends a file that reproduces these settings: a line "key: "value"" for each that is not a
// default.
void lh_config_write(const struct lh_config *c, struct lh_buf *out);
// The rows of one key or section, with current value and source. `key` NULL: all rows; without
// `all` those that are not rare, and the number of rare ones. LH_ERR_NOT_FOUND names the nearest
// key.
LH_MUST lh_err lh_config_explain(const struct lh_config *c, const char *key, bool all,
                                 struct lh_buf *out);
// One line per key, for --help; without `all` only those that are not rare. Leaves out the keys
// that `beside` (may be NULL) also has.
void lh_config_help(const struct lh_config_table *table, const struct lh_config_table *beside,
                    bool all, struct lh_buf *out);
// The command line of a program of one table: --config FILE, --set a.b=c (may repeat), --explain
// [KEY], --help, --version. Reads the file, the assignments and the environment, and finishes.
// LH_OK with `shown` not empty: the caller prints it and exits with 0. LH_ERR_INVALID: a wrong
// command line.
LH_MUST lh_err lh_config_main(struct lh_config *c, const struct lh_config_table *table,
                              struct lh_env *env, const char *(*get)(const char *name), int argc,
                              char **argv, struct lh_buf *shown);

#endif
