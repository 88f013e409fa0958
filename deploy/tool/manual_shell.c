// Completion for bash and zsh. See manual.h.
//
// --help's name for a flag's value selects its completion: words separated by bars are the choices;
// DIR or FILE completes paths.
#include <string.h>

#include "common/format/json.h"
#include "deploy/tool/files.h"
#include "deploy/tool/manual.h"

enum values { FREE, CHOICES, FOLDERS, PATHS };

static enum values values_of(const char *value)
{
    if (strstr(value, "DIR")) return FOLDERS;
    if (strstr(value, "FILE")) return PATHS;
    bool choices = strchr(value, '|') != NULL;
    for (const char *at = value; *at; at++)
        choices &= (*at >= 'a' && *at <= 'z') || *at == '-' || *at == '|';
    return choices ? CHOICES : FREE;
}

static void put_choices(const char *value, struct lh_buf *out)
{
    for (; *value; value++) lh_put_u8(out, *value == '|' ? ' ' : (uint8_t)*value);
}

static void put_words(const json_t *words, struct lh_buf *out)
{
    json_t *w;
    size_t i;
    json_array_foreach(words, i, w) dp_put(out, "%s%s", i ? " " : "", json_string_value(w));
}

static void put_names(const json_t *pages, struct lh_buf *out)
{
    json_t *page;
    size_t i;
    json_array_foreach(pages, i, page) dp_put(out, "%s ", lh_json_word(page, "name"));
}

// ---------------------------------------------------------------- bash

static void bash_page(const json_t *page, const char *indent, struct lh_buf *out)
{
    static const char *const action[] = {NULL, NULL, "dirs", "files"};
    json_t *flag;
    size_t i;
    dp_put(out, "%sflags='", indent);
    json_array_foreach(json_object_get(page, "flags"), i, flag)
        dp_put(out, "%s ", lh_json_word(flag, "name"));
    dp_put(out, "--help' words='");
    put_words(json_object_get(page, "words"), out);
    dp_put(out, "'\n%scase $before in\n", indent);
    json_array_foreach(json_object_get(page, "flags"), i, flag)
    {
        const char *value = lh_json_word(flag, "value");
        enum values kind = values_of(value);
        if (!value[0]) continue;
        dp_put(out, "%s%s) value=", indent, lh_json_word(flag, "name"));
        if (kind == CHOICES) {
            dp_put(out, "choices choices='");
            put_choices(value, out);
            dp_put(out, "'");
        } else {
            dp_put(out, "%s", action[kind] ? action[kind] : "free");
        }
        dp_put(out, " ;;\n");
    }
    dp_put(out, "%sesac\n", indent);
}

void dp_manual_bash(const json_t *pages, struct lh_buf *out)
{
    json_t *page, *own;
    size_t i, k;
    dp_put(out, "# bash completion for longhaul, written by `longhaul completion bash`\n"
                "# a name of a file may have spaces, and only of a folder a slash comes after it\n"
                "_longhaul_paths()\n{\n"
                "    compopt -o filenames 2> /dev/null\n"
                "    mapfile -t COMPREPLY < <(compgen \"$1\" -- \"$now\")\n"
                "}\n"
                "_longhaul()\n{\n"
                "    local now=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
                "    local flags= words= value= choices=\n"
                "    COMPREPLY=()\n"
                "    if [ \"$COMP_CWORD\" = 1 ]; then\n"
                "        COMPREPLY=($(compgen -W '");
    put_names(pages, out);
    dp_put(out, "help version' -- \"$now\"))\n        return\n    fi\n    case ${COMP_WORDS[1]} "
                "in\n    help) words='");
    put_names(pages, out);
    dp_put(out, "exit-codes' ;;\n");
    json_array_foreach(pages, i, page)
    {
        dp_put(out, "    %s)\n", lh_json_word(page, "name"));
        bash_page(page, "        ", out);
        if (json_array_size(json_object_get(page, "own"))) {
            dp_put(out, "        case ${COMP_WORDS[2]} in\n");
            json_array_foreach(json_object_get(page, "own"), k, own)
            {
                if (k) dp_put(out, "            ;;\n");
                dp_put(out, "        %s)\n", lh_json_word(own, "name"));
                bash_page(own, "            ", out);
            }
            dp_put(out, "            ;;\n        esac\n");
        }
        dp_put(out, "        ;;\n");
    }
    dp_put(
        out,
        "    esac\n"
        "    case $value in\n"
        "    choices) COMPREPLY=($(compgen -W \"$choices\" -- \"$now\")) ;;\n"
        "    dirs) _longhaul_paths -d ;;\n"
        "    files) _longhaul_paths -f ;;\n"
        "    free) ;;\n"
        "    *)\n"
        "        case $now in\n"
        "        -*) COMPREPLY=($(compgen -W \"$flags\" -- \"$now\")) ;;\n"
        "        *)\n"
        "            [ \"$COMP_CWORD\" != 2 ] || COMPREPLY=($(compgen -W \"$words\" -- \"$now\"))\n"
        "            [ ${#COMPREPLY[@]} != 0 ] || _longhaul_paths -f\n"
        "            ;;\n"
        "        esac\n"
        "        ;;\n"
        "    esac\n"
        "}\n"
        "complete -F _longhaul longhaul\n");
}

// ---------------------------------------------------------------- zsh

// Escapes text for single quotes and for _arguments.
static void zsh_text(const char *text, struct lh_buf *out)
{
    for (; *text; text++) {
        if (*text == '\'')
            dp_put(out, "'\\''");
        else
            dp_put(out, "%s%c", strchr("[]:\\", *text) ? "\\" : "", *text);
    }
}

static void zsh_flag(const json_t *flag, struct lh_buf *out)
{
    const char *value = lh_json_word(flag, "value");
    bool repeats = lh_json_yes(flag, "repeats");
    dp_put(out, " \\\n            '%s%s[", repeats ? "*" : "", lh_json_word(flag, "name"));
    zsh_text(lh_json_word(flag, "help"), out);
    dp_put(out, "]");
    if (value[0]) {
        dp_put(out, ":");
        zsh_text(value, out);
        dp_put(out, ":");
        enum values kind = values_of(value);
        if (kind == FOLDERS) dp_put(out, "_files -/");
        if (kind == PATHS) dp_put(out, "_files");
        if (kind == CHOICES) {
            dp_put(out, "(");
            put_choices(value, out);
            dp_put(out, ")");
        }
    }
    dp_put(out, "'");
}

static void zsh_page(const json_t *page, struct lh_buf *out)
{
    json_t *flag;
    size_t i;
    dp_put(out, "        _arguments");
    json_array_foreach(json_object_get(page, "flags"), i, flag) zsh_flag(flag, out);
    dp_put(out, " \\\n            '--help[this command]'");
    if (json_array_size(json_object_get(page, "words"))) {
        dp_put(out, " \\\n            '1:what:(");
        put_words(json_object_get(page, "words"), out);
        dp_put(out, ")'");
    }
    dp_put(out, " \\\n            '*:file:_files'\n        ;;\n");
}

void dp_manual_zsh(const json_t *pages, struct lh_buf *out)
{
    json_t *page, *own;
    size_t i, k;
    dp_put(out, "#compdef longhaul\n"
                "# zsh completion for longhaul, written by `longhaul completion zsh`\n"
                "_longhaul()\n{\n"
                "    local -a commands\n"
                "    commands=(\n");
    json_array_foreach(pages, i, page)
    {
        dp_put(out, "        '%s:", lh_json_word(page, "name"));
        zsh_text(lh_json_word(page, "help"), out);
        dp_put(out, "'\n");
    }
    dp_put(out, "        'help:commands, one command, or exit-codes'\n"
                "        'version:the version of this build'\n"
                "    )\n"
                "    if ((CURRENT == 2)); then\n"
                "        _describe command commands\n"
                "        return\n"
                "    fi\n"
                "    local command=$words[2] which=$words[2]\n"
                "    case $command in\n");
    json_array_foreach(pages, i, page)
    {
        if (!json_array_size(json_object_get(page, "own"))) continue;
        dp_put(out, "    %s) ((CURRENT == 3)) || which=\"$command $words[3]\" ;;\n",
               lh_json_word(page, "name"));
    }
    dp_put(out, "    esac\n"
                "    # the command's own words count from its name on\n"
                "    local skip=1\n"
                "    [[ $which == $command ]] || skip=2\n"
                "    shift $skip words\n"
                "    ((CURRENT -= skip))\n"
                "    case $which in\n");
    json_array_foreach(pages, i, page)
    {
        dp_put(out, "    %s)\n", lh_json_word(page, "name"));
        zsh_page(page, out);
        json_array_foreach(json_object_get(page, "own"), k, own)
        {
            dp_put(out, "    '%s %s')\n", lh_json_word(page, "name"), lh_json_word(own, "name"));
            zsh_page(own, out);
        }
    }
    dp_put(out, "    help)\n        _arguments '1:what:(");
    put_names(pages, out);
    dp_put(out, "exit-codes)'\n        ;;\n    esac\n}\n_longhaul \"$@\"\n");
}
