// The tool's frame: finds the command, prints help and errors. See cli.h.
#include "deploy/tool/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/nearest.h"
#include "deploy/tool/commands.h"

const struct dp_command dp_commands[] = {
#define RUN_ROW(command, ...) {#command, dp_cmd_##command, NULL, __VA_ARGS__},
#define ENDS_ROW(command, ...) {#command, NULL, dp_cmd_##command, __VA_ARGS__},
    DP_COMMANDS(RUN_ROW, ENDS_ROW)
#undef RUN_ROW
#undef ENDS_ROW
        {.name = NULL},
};

static const struct {
    enum dp_exit code;
    const char *name, *meaning;
} exits[] = {
#define EXIT_ROW(id, code, name, meaning) {DP_##id, name, meaning},
    LH_EXITS(EXIT_ROW)
#undef EXIT_ROW
};

// ---------------------------------------------------------------- help

static void help_commands(FILE *out)
{
    fprintf(out, "longhaul trains one model across datacenters.\n\n"
                 "usage: longhaul COMMAND [flags]     longhaul COMMAND --help\n\n");
    for (const struct dp_command *c = dp_commands; c->name; c++)
        fprintf(out, "  %-12s %s\n", c->name, c->help);
    fprintf(out, "  %-12s %s\n  %-12s %s\n", "help", "This, `help COMMAND`, or `help exit-codes`",
            "version", "The version of this build");
}

static void help_exits(FILE *out)
{
    for (size_t i = 0; i < sizeof exits / sizeof exits[0]; i++)
        fprintf(out, "%d  %-12s %s\n", exits[i].code, exits[i].name, exits[i].meaning);
}

const char *dp_exit_name(unsigned i, enum dp_exit *code, const char **meaning)
{
    if (i >= sizeof exits / sizeof exits[0]) return NULL;
    *code = exits[i].code;
    *meaning = exits[i].meaning;
    return exits[i].name;
}

// ---------------------------------------------------------------- commands

static const struct dp_command *command_of(const char *name)
{
    const struct dp_command *c = dp_commands;
    while (c->name && strcmp(c->name, name)) c++;
    return c->name ? c : NULL;
}

static int unknown_command(const char *name)
{
    struct lh_nearest nearest = lh_nearest(name);
    for (const struct dp_command *c = dp_commands; c->name; c++) lh_nearest_try(&nearest, c->name);
    lh_nearest_try(&nearest, "help");
    lh_nearest_try(&nearest, "version");
    fprintf(stderr, "longhaul: no command %.60s", name);
    if (nearest.best)
        fprintf(stderr, "; did you mean %s?\n", nearest.best);
    else
        fprintf(stderr, " (`longhaul help` lists all)\n");
    return DP_USAGE;
}

// Checks the first word: an unknown one, unless it is a flag, would only print the usage.
static bool knows_word(const struct dp_command *c, const char *word)
{
    struct lh_nearest nearest = lh_nearest(word);
    char words[128], *rest = NULL;
    if (!c->words || !word || word[0] == '-') return true;
    int n = snprintf(words, sizeof words, "%s", c->words);
    LH_ASSERT(n > 0 && (size_t)n < sizeof words);
    for (char *at = strtok_r(words, " ", &rest); at; at = strtok_r(NULL, " ", &rest)) {
        if (!strcmp(at, word)) return true;
        lh_nearest_try(&nearest, at);
    }
    fprintf(stderr, "longhaul %s: no %.60s", c->name, word);
    if (nearest.best)
        fprintf(stderr, "; did you mean %s?\n", nearest.best);
    else
        fprintf(stderr, " (one of: %s)\n", c->words);
    return false;
}

static int help(int argc, char **argv)
{
    if (argc < 2) {
        help_commands(stdout);
        return DP_OK;
    }
    if (!strcmp(argv[1], "exit-codes")) {
        help_exits(stdout);
        return DP_OK;
    }
    char flag[] = "--help";
    char *line[] = {argv[1], flag, NULL};
    return dp_command(2, line);
}

int dp_command(int argc, char **argv)
{
    const struct dp_command *c = command_of(argv[0]);
    enum dp_exit exit = DP_OK;
    if (!c) return unknown_command(argv[0]);
    if (argc > 1 && !knows_word(c, argv[1])) return DP_USAGE;
    lh_err err = c->ends ? c->ends(argc, argv, &exit) : c->run(argc, argv);
    if (!err) return (int)exit;
    fprintf(stderr, "longhaul %s: %s\n", c->name, lh_err_text(err));
    return (int)lh_exit_of(err);
}

int dp_main(int argc, char **argv)
{
    if (argc < 2) {
        help_commands(stderr);
        return DP_USAGE;
    }
    const char *name = argv[1];
    if (!strcmp(name, "help") || !strcmp(name, "--help") || !strcmp(name, "-h"))
        return help(argc - 1, argv + 1);
    if (!strcmp(name, "version") || !strcmp(name, "--version")) {
        printf("longhaul %s\n", LH_VERSION);
        return DP_OK;
    }
    return dp_command(argc - 1, argv + 1);
}

// ---------------------------------------------------------------- flags

static const struct dp_flag *flag_of(const struct dp_usage *usage, const char *name, size_t len)
{
    for (unsigned i = 0; i < usage->flags; i++)
        if (strlen(usage->flag[i].name) == len && !memcmp(usage->flag[i].name, name, len))
            return &usage->flag[i];
    return NULL;
}

static LH_MUST lh_err unknown_flag(const struct dp_usage *usage, const char *flag)
{
    struct lh_nearest nearest = lh_nearest(flag);
    for (unsigned i = 0; i < usage->flags; i++) lh_nearest_try(&nearest, usage->flag[i].name);
    if (nearest.best)
        return lh_fail(LH_ERR_INVALID, "no flag %.60s; did you mean %s?", flag, nearest.best);
    return lh_fail(LH_ERR_INVALID, "no flag %.60s (--help lists all)", flag);
}

static LH_MUST lh_err keep_text(struct dp_texts *texts, const char *name, const char *text)
{
    if (texts->count == DP_TEXTS_MAX)
        return lh_fail(LH_ERR_INVALID, "more than %d of %s", DP_TEXTS_MAX, name);
    texts->at[texts->count++] = text;
    return LH_OK;
}

static int flag_text(const struct dp_flag *flag, char out[100])
{
    return snprintf(out, 100, "%s%s%s", flag->name, flag->value ? " " : "",
                    flag->value ? flag->value : "");
}

// Prints help in a column as wide as the flags need, or below a very long flag.
static void print_usage(const struct dp_usage *usage)
{
    enum { NARROW = 20, WIDE = 26 };
    char text[100];
    int width = NARROW;
    printf("usage: %s\n", usage->line);
    if (usage->text) printf("\n%s\n", usage->text);
    if (usage->flags) printf("\n");
    for (unsigned i = 0; i < usage->flags; i++) {
        int used = flag_text(&usage->flag[i], text);
        if (used > width && used <= WIDE) width = used;
    }
    for (unsigned i = 0; i < usage->flags; i++) {
        bool apart = flag_text(&usage->flag[i], text) > width;
        printf("  %-*s%s", width, text, apart ? "\n" : "");
        printf("%*s %s\n", apart ? width + 2 : 0, "", usage->flag[i].help);
    }
}

static void print_json(const struct dp_usage *usage)
{
    json_t *flags = json_array();
    for (unsigned i = 0; i < usage->flags; i++) {
        const struct dp_flag *flag = &usage->flag[i];
        json_array_append_new(flags, json_pack("{s:s s:s? s:s s:b}", "name", flag->name, "value",
                                               flag->value, "help", flag->help, "repeats",
                                               flag->kind == DP_EACH));
    }
    json_t *o = json_pack("{s:s s:s s:o}", "usage", usage->line, "text",
                          usage->text ? usage->text : "", "flags", flags);
    json_dumpf(o, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII);
    printf("\n");
    json_decref(o);
}

// Parses one flag at argv[*at]; moves *at past its value.
static LH_MUST lh_err one_flag(const struct dp_usage *usage, int argc, char **argv, int *at)
{
    const char *word = argv[*at], *equals = strchr(word, '=');
    size_t len = equals ? (size_t)(equals - word) : strlen(word);
    const struct dp_flag *flag = flag_of(usage, word, len);
    if (!flag) return unknown_flag(usage, word);
    if (flag->kind == DP_SWITCH) {
        if (equals) return lh_fail(LH_ERR_INVALID, "%s takes no value", flag->name);
        *(bool *)flag->out = true;
        return LH_OK;
    }
    const char *value = equals ? equals + 1 : *at + 1 < argc ? argv[++*at] : NULL;
    if (!value) return lh_fail(LH_ERR_INVALID, "%s needs a value: %s", flag->name, flag->value);
    if (flag->kind == DP_EACH) return keep_text(flag->out, flag->name, value);
    if (flag->kind == DP_FORM) return dp_form(value, flag->out);
    *(const char **)flag->out = value;
    return LH_OK;
}

lh_err dp_flags(const struct dp_usage *usage, int argc, char **argv, struct dp_texts *rest,
                bool *help_shown)
{
    bool only_rest = false;
    const char *other = NULL;
    if (rest) rest->count = 0;
    *help_shown = false;
    for (int i = 1; i < argc; i++) {
        if (!only_rest && !strcmp(argv[i], "--")) {
            only_rest = true;
        } else if (!only_rest && !strcmp(argv[i], "--help=json")) {
            print_json(usage);
            *help_shown = true;
            return LH_OK;
        } else if (!only_rest && (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))) {
            print_usage(usage);
            *help_shown = true;
            return LH_OK;
        } else if (!only_rest && argv[i][0] == '-' && argv[i][1]) {
            LH_TRY(one_flag(usage, argc, argv, &i));
        } else if (rest) {
            LH_TRY(keep_text(rest, "arguments", argv[i]));
        } else {
            other = argv[i];
        }
    }
    if (other) return lh_fail(LH_ERR_INVALID, "%.60s: usage: %s", other, usage->line);
    return LH_OK;
}

lh_err dp_verbs(const struct dp_usage *usage, const struct dp_verb *verb, size_t count, int argc,
                char **argv)
{
    bool help_shown;
    for (size_t i = 0; i < count && argc > 1; i++)
        if (!strcmp(argv[1], verb[i].name)) return verb[i].run(argc - 1, argv + 1);
    struct dp_texts rest;
    LH_TRY(dp_flags(usage, argc, argv, &rest, &help_shown));
    return help_shown ? LH_OK : lh_fail(LH_ERR_INVALID, "usage: %s", usage->line);
}

lh_err dp_number(const char *flag, const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
    char *end;
    if (!text) return LH_OK;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno || value < min || value > max)
        return lh_fail(LH_ERR_INVALID, "%s %.40s: want a number from %" PRIu64 " to %" PRIu64, flag,
                       text, min, max);
    *out = value;
    return LH_OK;
}

lh_err dp_real(const char *flag, const char *text, double min, double max, double *out)
{
    char *end;
    if (!text) return LH_OK;
    double value = strtod(text, &end);
    if (!*text || *end || !(value >= min && value <= max))
        return lh_fail(LH_ERR_INVALID, "%s %.40s: want a number from %g to %g", flag, text, min,
                       max);
    *out = value;
    return LH_OK;
}

lh_err dp_form(const char *text, bool *json)
{
    *json = !strcmp(text, "json");
    if (*json || !strcmp(text, "table")) return LH_OK;
    return lh_fail(LH_ERR_INVALID, "-o %.20s: want table or json", text);
}
