// longhaul man and longhaul completion: generated from the commands' own tables. See manual.h.
#include <string.h>

#include "common/base/check.h"
#include "deploy/tool/commands.h"
#include "deploy/tool/files.h"
#include "deploy/tool/manual.h"

enum { TEXT_BYTES_MAX = 4 << 20 };

// ---------------------------------------------------------------- man

static LH_MUST lh_err write_page(const json_t *pages, const char *command, const char *dir)
{
    char path[DP_PATH_BYTES];
    struct lh_buf text = lh_buf(TEXT_BYTES_MAX);
    lh_err err = dp_manual_page(pages, command, &text);
    if (!err)
        err = dp_path(path, "%s/longhaul%s%s.1", dir, command ? "-" : "", command ? command : "");
    if (!err) err = dp_file_write(path, lh_buf_span(&text), 0644);
    lh_buf_free(&text);
    return err;
}

static LH_MUST lh_err write_pages(const json_t *pages, const char *dir)
{
    LH_TRY(dp_make_dirs(dir));
    for (const struct dp_command *c = dp_commands; c->name; c++)
        LH_TRY(write_page(pages, c->name, dir));
    return write_page(pages, NULL, dir);
}

static LH_MUST lh_err print_page(const json_t *pages, const char *command)
{
    struct lh_buf text = lh_buf(TEXT_BYTES_MAX);
    lh_err err = dp_manual_page(pages, command, &text);
    return dp_print(&text, err);
}

lh_err dp_cmd_man(int argc, char **argv)
{
    const char *dir = NULL;
    struct dp_texts rest;
    const struct dp_flag flags[] = {
        {"--out", DP_TEXT, &dir, "DIR",
         "write all pages into this folder, as longhaul.1, longhaul-up.1, ..."}};
    const struct dp_usage usage = {
        "longhaul man [COMMAND] | --out DIR",
        "Prints the manual page of a command, or of the tool, in the format of man(7):\n"
        "`longhaul man up | man -l -`. `cmake --install` installs all of them.",
        flags, LH_COUNT(flags)};
    bool help;
    json_t *pages;
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    if (rest.count > 1 || (dir && rest.count))
        return lh_fail(LH_ERR_INVALID, "usage: %s", usage.line);
    LH_TRY(dp_manual_load(&pages));
    lh_err err = dir ? write_pages(pages, dir) : print_page(pages, rest.count ? rest.at[0] : NULL);
    json_decref(pages);
    return err;
}

// ---------------------------------------------------------------- completion

lh_err dp_cmd_completion(int argc, char **argv)
{
    struct dp_texts rest;
    const struct dp_usage usage = {
        "longhaul completion bash | zsh",
        "Prints a completion script. For bash: `source <(longhaul completion bash)`. For zsh,\n"
        "write it as _longhaul into a folder of fpath. `cmake --install` installs both.",
        NULL, 0};
    bool help;
    json_t *pages;
    LH_TRY(dp_flags(&usage, argc, argv, &rest, &help));
    if (help) return LH_OK;
    bool zsh = rest.count == 1 && !strcmp(rest.at[0], "zsh");
    if (!zsh && (rest.count != 1 || strcmp(rest.at[0], "bash") != 0))
        return lh_fail(LH_ERR_INVALID, "usage: %s", usage.line);
    LH_TRY(dp_manual_load(&pages));
    struct lh_buf text = lh_buf(TEXT_BYTES_MAX);
    (zsh ? dp_manual_zsh : dp_manual_bash)(pages, &text);
    lh_err err = dp_print(&text, LH_OK);
    json_decref(pages);
    return err;
}
