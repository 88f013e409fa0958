// The common part of the generated texts: the pages. See manual.h.
#include "deploy/tool/manual.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/check.h"
#include "deploy/tool/cli.h"
#include "deploy/tool/files.h"

enum { PAGE_BYTES_MAX = 1 << 16, WORD_BYTES = 32 };

// Runs a command with standard output redirected to a file.
static LH_MUST lh_err run_into(int file, const struct dp_command *c, int argc, char **argv)
{
    fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    if (kept < 0 || dup2(file, STDOUT_FILENO) < 0) return lh_fail_errno(errno, "standard output");
    int code = dp_command(argc, argv);
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    return code == DP_OK ? LH_OK : lh_fail(LH_ERR_MALFORMED, "%s has no --help=json", c->name);
}

// The help table of a command, or of one of its words (NULL: none).
static LH_MUST lh_err load_page(const struct dp_command *c, const char *word, json_t **out)
{
    char name[WORD_BYTES], verb[WORD_BYTES], flag[] = "--help=json", text[PAGE_BYTES_MAX];
    char *argv[4] = {name, word ? verb : flag, word ? flag : NULL, NULL};
    snprintf(name, sizeof name, "%s", c->name);
    snprintf(verb, sizeof verb, "%s", word ? word : "");
    int file = memfd_create("help", MFD_CLOEXEC);
    if (file < 0) return lh_fail_errno(errno, "help of %s", c->name);
    lh_err err = run_into(file, c, word ? 3 : 2, argv);
    ssize_t len = err ? 0 : pread(file, text, sizeof text, 0);
    close(file);
    *out = err || len <= 0 ? NULL : json_loadb(text, (size_t)len, 0, NULL);
    if (!err && !json_is_array(json_object_get(*out, "flags")))
        err = lh_fail(LH_ERR_MALFORMED, "%s %s: can't read its table of flags", c->name, verb);
    if (!err) json_object_set_new(*out, "name", json_string(word ? word : c->name));
    return err;
}

static LH_MUST lh_err load_words(const struct dp_command *c, json_t *page)
{
    json_t *words = json_array(), *own = json_array();
    json_object_set_new(page, "words", words);
    json_object_set_new(page, "own", own);
    for (const char *at = c->words ? c->words : ""; *at;) {
        char word[WORD_BYTES];
        size_t len = strcspn(at, " ");
        LH_ASSERT(len < sizeof word);
        memcpy(word, at, len);
        word[len] = 0;
        at += len + (at[len] == ' ');
        json_array_append_new(words, json_string(word));
        if (!c->own) continue;
        json_t *mine = NULL;
        lh_err err = load_page(c, word, &mine);
        json_array_append(own, mine);
        json_decref(mine);
        LH_TRY(err);
    }
    return LH_OK;
}

// Lists all command names as words of `longhaul man`.
static void name_commands(json_t *pages)
{
    json_t *page, *words = json_array();
    size_t i;
    json_array_foreach(pages, i, page) json_array_append(words, json_object_get(page, "name"));
    json_array_foreach(pages, i, page)
    {
        if (strcmp(json_string_value(json_object_get(page, "name")), "man") == 0)
            json_object_set(page, "words", words);
    }
    json_decref(words);
}

lh_err dp_manual_load(json_t **out)
{
    json_t *pages = json_array();
    lh_err err = LH_OK;
    for (const struct dp_command *c = dp_commands; !err && c->name; c++) {
        json_t *page = NULL;
        err = load_page(c, NULL, &page);
        if (!err) json_object_set_new(page, "help", json_string(c->help));
        if (!err) err = load_words(c, page);
        json_array_append(pages, page);
        json_decref(page);
    }
    if (!err) name_commands(pages);
    *out = err ? NULL : pages;
    if (err) json_decref(pages);
    return err;
}
