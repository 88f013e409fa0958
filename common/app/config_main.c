// The command line of a program of one settings table: longhaul-server, longhaul-worker. See
// config.h.
#include <stdio.h>
#include <string.h>

#include "common/app/config.h"

static LH_MUST lh_err load(struct lh_config *c, struct lh_env *env, const char *path)
{
    struct lh_buf text = lh_buf(LH_YAML_BYTES_MAX);
    lh_err err = lh_file_load(env, path, &text);
    if (!err) err = lh_config_text(c, path, lh_buf_span(&text));
    lh_buf_free(&text);
    return err;
}

struct line {
    const char *config, *explain;
    bool wants_explain, wants_help, wants_version;
};

static void put(struct lh_buf *out, const char *text)
{
    lh_put(out, text, strlen(text));
}

static LH_MUST lh_err read_line(int argc, char **argv, struct line *line)
{
    for (int i = 1; i < argc; i++) {
        const char *flag = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        bool takes = !strcmp(flag, "--config") || !strcmp(flag, "--set");
        if (takes && !value) return lh_fail(LH_ERR_INVALID, "%s needs a value (--help)", flag);
        if (!strcmp(flag, "--config"))
            line->config = value;
        else if (!strcmp(flag, "--help") || !strcmp(flag, "-h"))
            line->wants_help = true;
        else if (!strcmp(flag, "--version"))
            line->wants_version = true;
        else if (!strcmp(flag, "--explain")) {
            line->wants_explain = true;
            if (value && value[0] != '-') line->explain = argv[++i];
        } else if (!takes)
            return lh_fail(LH_ERR_INVALID, "no flag %s (--help lists all)", flag);
        i += takes;
    }
    return LH_OK;
}

static void show_help(const char *program, const struct lh_config_table *table, struct lh_buf *out)
{
    char head[512];
    snprintf(
        head, sizeof head,
        "usage: %s --config FILE [--set KEY=VALUE]... | --explain [KEY] | --version\n\n"
        "Settings of a %s, in FILE (YAML, nested or dotted) or by --set. These are the ones that\n"
        "most runs need; `longhaul config explain --kind %s --all` has all of them:\n",
        program, table->kind, table->kind);
    put(out, head);
    lh_config_help(table, NULL, false, out);
}

lh_err lh_config_main(struct lh_config *c, const struct lh_config_table *table, struct lh_env *env,
                      const char *(*get)(const char *name), int argc, char **argv,
                      struct lh_buf *shown)
{
    struct line line = {0};
    LH_TRY(read_line(argc, argv, &line));
    const char *slash = argc ? strrchr(argv[0], '/') : NULL;
    const char *program = slash ? slash + 1 : argc ? argv[0] : "longhaul";
    if (line.wants_help) {
        show_help(program, table, shown);
        return lh_buf_err(shown);
    }
    if (line.wants_version) {
        put(shown, LH_VERSION "\n");
        return lh_buf_err(shown);
    }
    if (line.config) LH_TRY(load(c, env, line.config));
    for (int i = 1; i + 1 < argc; i++) {
        if (!strcmp(argv[i], "--set")) LH_TRY(lh_config_set(c, argv[i + 1]));
        i += !strcmp(argv[i], "--set") || !strcmp(argv[i], "--config"); // past the value
    }
    LH_TRY(lh_config_environment(c, get));
    if (line.wants_explain) return lh_config_explain(c, line.explain, false, shown);
    if (!line.config)
        return lh_fail(LH_ERR_INVALID, "--config FILE is missing (%s --help)", program);
    return lh_config_finish(c);
}
