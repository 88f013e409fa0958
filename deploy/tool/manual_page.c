// Manual pages in the language of man(7). See manual.h.
#include <string.h>

#include "common/base/exit.h"
#include "common/base/nearest.h"
#include "common/format/json.h"
#include "deploy/tool/cli.h"
#include "deploy/tool/files.h"
#include "deploy/tool/manual.h"

// Writes text literally: no line becomes a request, and no '-' a typographic hyphen.
static void put_part(const char *text, size_t length, struct lh_buf *out)
{
    bool begins = true;
    for (const char *end = text + length; text < end; text++) {
        if (begins && (*text == '.' || *text == '\'')) dp_put(out, "\\&");
        begins = *text == '\n';
        if (*text == '\\')
            dp_put(out, "\\e");
        else if (*text == '-')
            dp_put(out, "\\-");
        else
            dp_put(out, "%c", *text);
    }
}

static void put_text(const char *text, struct lh_buf *out)
{
    put_part(text, strlen(text), out);
}

// Fills paragraphs, so that they fit every terminal; only those with columns keep their lines.
static void put_paragraphs(const char *text, struct lh_buf *out)
{
    for (bool first = true; *text; first = false) {
        const char *end = strstr(text, "\n\n");
        size_t length = end ? (size_t)(end - text) : strlen(text);
        bool columns = memmem(text, length, "  ", 2);
        if (!first) dp_put(out, ".PP\n");
        if (columns) dp_put(out, ".nf\n");
        put_part(text, length, out);
        dp_put(out, columns ? "\n.fi\n" : "\n");
        text += length;
        text += strspn(text, "\n");
    }
}

static void put_head(const char *page, const char *help, struct lh_buf *out)
{
    dp_put(out, ".\\\" written by `longhaul man`\n.TH %s 1 \"\" \"longhaul %s\" \"Longhaul\"\n",
           page, LH_VERSION);
    dp_put(out, ".SH NAME\n");
    put_text(page, out);
    dp_put(out, " \\- ");
    put_text(help, out);
    dp_put(out, "\n");
}

static void put_flags(const json_t *flags, struct lh_buf *out)
{
    json_t *flag;
    size_t i;
    json_array_foreach(flags, i, flag)
    {
        dp_put(out, ".TP\n\\fB");
        put_text(lh_json_word(flag, "name"), out);
        dp_put(out, "\\fR");
        if (lh_json_word(flag, "value")[0]) {
            dp_put(out, " \\fI");
            put_text(lh_json_word(flag, "value"), out);
            dp_put(out, "\\fR");
        }
        dp_put(out, "\n");
        put_text(lh_json_word(flag, "help"), out);
        dp_put(out, "\n");
    }
}

static void put_synopsis(const json_t *page, struct lh_buf *out)
{
    dp_put(out, ".SH SYNOPSIS\n");
    put_text(lh_json_word(page, "usage"), out);
    dp_put(out, "\n.SH DESCRIPTION\n");
    put_paragraphs(lh_json_word(page, "text"), out);
}

static void put_exits(struct lh_buf *out)
{
    enum dp_exit code;
    const char *name, *meaning;
    dp_put(out, ".SH EXIT STATUS\n");
    for (unsigned i = 0; (name = dp_exit_name(i, &code, &meaning)); i++) {
        dp_put(out, ".TP\n\\fB%d\\fR %s\n", (int)code, name);
        put_text(meaning, out);
        dp_put(out, "\n");
    }
}

static void put_command(const json_t *page, struct lh_buf *out)
{
    char name[64];
    json_t *own;
    size_t i;
    snprintf(name, sizeof name, "longhaul-%s", lh_json_word(page, "name"));
    put_head(name, lh_json_word(page, "help"), out);
    put_synopsis(page, out);
    if (json_array_size(json_object_get(page, "flags"))) dp_put(out, ".SH OPTIONS\n");
    put_flags(json_object_get(page, "flags"), out);
    json_array_foreach(json_object_get(page, "own"), i, own)
    {
        dp_put(out, ".SH %s\n", lh_json_word(own, "name"));
        put_text(lh_json_word(own, "usage"), out);
        dp_put(out, "\n.PP\n");
        put_paragraphs(lh_json_word(own, "text"), out);
        put_flags(json_object_get(own, "flags"), out);
    }
    put_exits(out);
    dp_put(out, ".SH SEE ALSO\n.BR longhaul (1)\n");
}

static void put_tool(const json_t *pages, struct lh_buf *out)
{
    json_t *page;
    size_t i;
    put_head("longhaul", "train one model across datacenters", out);
    dp_put(out, ".SH SYNOPSIS\n\\fBlonghaul\\fR \\fICOMMAND\\fR [flags]\n.SH COMMANDS\n");
    json_array_foreach(pages, i, page)
    {
        dp_put(out, ".TP\n.BR longhaul\\-%s (1)\n", lh_json_word(page, "name"));
        put_text(lh_json_word(page, "help"), out);
        dp_put(out, "\n");
    }
    put_exits(out);
}

lh_err dp_manual_page(const json_t *pages, const char *command, struct lh_buf *out)
{
    json_t *page;
    size_t i;
    if (!command) {
        put_tool(pages, out);
        return lh_buf_err(out);
    }
    json_array_foreach(pages, i, page)
    {
        if (strcmp(lh_json_word(page, "name"), command) != 0) continue;
        put_command(page, out);
        return lh_buf_err(out);
    }
    struct lh_nearest nearest = lh_nearest(command);
    json_array_foreach(pages, i, page) lh_nearest_try(&nearest, lh_json_word(page, "name"));
    if (nearest.best)
        return lh_fail(LH_ERR_INVALID, "no command %.60s; did you mean %s?", command, nearest.best);
    return lh_fail(LH_ERR_INVALID, "no command %.60s (`longhaul help` lists all)", command);
}
