// Words of a command line. See words.h.
#include "deploy/tool/words.h"

#include <stdbool.h>
#include <string.h>

#include "common/base/nearest.h"

// ---------------------------------------------------------------- growing

static LH_MUST lh_err put(struct dp_words *w, char c)
{
    if (w->used >= sizeof w->bytes)
        return lh_fail(LH_ERR_CONFIG, "the command is longer than %zu bytes", sizeof w->bytes - 1);
    w->bytes[w->used++] = c;
    return LH_OK;
}

static LH_MUST lh_err begin(struct dp_words *w)
{
    if (w->count == DP_WORDS_MAX)
        return lh_fail(LH_ERR_CONFIG, "the command has more than %d words", DP_WORDS_MAX);
    w->at[w->count++] = w->bytes + w->used;
    w->at[w->count] = NULL;
    return LH_OK;
}

static LH_MUST lh_err put_text(struct dp_words *w, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) LH_TRY(put(w, text[i]));
    return LH_OK;
}

lh_err dp_words_add(struct dp_words *words, const char *word)
{
    LH_TRY(begin(words));
    return put_text(words, word, strlen(word) + 1);
}

// ---------------------------------------------------------------- splitting

static LH_MUST lh_err shell_only(char c)
{
    return lh_fail(LH_ERR_CONFIG,
                   "%c is special in a shell, but no shell runs this: quote it with '...', or "
                   "start a shell: [sh, -c, \"...\"]",
                   c);
}

// Reads from after the opening quote to the closing one; returns the place after it.
static LH_MUST lh_err quoted(struct dp_words *w, const char **at, char quote)
{
    const char *s = *at;
    for (; *s && *s != quote; s++) {
        if (quote == '"' && (*s == '$' || *s == '`')) return shell_only(*s);
        if (quote == '"' && *s == '\\' && (s[1] == '"' || s[1] == '\\')) s++;
        LH_TRY(put(w, *s));
    }
    if (!*s) return lh_fail(LH_ERR_CONFIG, "a quote %c is not closed", quote);
    *at = s + 1;
    return LH_OK;
}

static LH_MUST lh_err one_word(struct dp_words *w, const char **at)
{
    const char *s = *at;
    LH_TRY(begin(w));
    while (*s && !strchr(" \t\r\n", *s)) {
        char c = *s++;
        if (c == '\'' || c == '"') {
            LH_TRY(quoted(w, &s, c));
            continue;
        }
        if (strchr("|&;<>$`", c)) return shell_only(c);
        if (c == '\\' && !(c = *s++))
            return lh_fail(LH_ERR_CONFIG, "nothing comes after the last backslash");
        LH_TRY(put(w, c));
    }
    *at = s;
    return put(w, 0);
}

lh_err dp_words_split(const char *line, struct dp_words *out)
{
    out->count = out->used = 0;
    out->at[0] = NULL;
    for (const char *s = line + strspn(line, " \t\r\n"); *s; s += strspn(s, " \t\r\n"))
        LH_TRY(one_word(out, &s));
    return LH_OK;
}

// ---------------------------------------------------------------- placeholders

// Length of a placeholder that begins here, with its brackets; 0: none.
static size_t placeholder(const char *s)
{
    size_t n = *s == '{' ? strspn(s + 1, "abcdefghijklmnopqrstuvwxyz") : 0;
    return n && s[n + 1] == '}' ? n + 2 : 0;
}

static LH_MUST lh_err value_of(const struct dp_placeholder *list, const char *s, size_t n,
                               const char **out)
{
    char name[40] = "";
    if (n - 2 < sizeof name) memcpy(name, s + 1, n - 2);
    struct lh_nearest nearest = lh_nearest(name);
    for (; list->name; list++) {
        lh_nearest_try(&nearest, list->name);
        if (strcmp(list->name, name) != 0) continue;
        *out = list->value ? list->value : "";
        return LH_OK;
    }
    return lh_fail(LH_ERR_CONFIG, "no placeholder %.40s%s%s%s", s,
                   nearest.best ? "; did you mean {" : "", nearest.best ? nearest.best : "",
                   nearest.best ? "}?" : "");
}

static LH_MUST lh_err fill(const char *word, const struct dp_placeholder *list,
                           struct dp_words *out)
{
    LH_TRY(begin(out));
    for (const char *s = word; *s;) {
        size_t n = placeholder(s);
        const char *value = s;
        if (n) LH_TRY(value_of(list, s, n, &value));
        LH_TRY(put_text(out, value, n ? strlen(value) : 1));
        s += n ? n : 1;
    }
    return put(out, 0);
}

lh_err dp_words_fill(const struct dp_words *words, const struct dp_placeholder *list,
                     struct dp_words *out)
{
    out->count = out->used = 0;
    out->at[0] = NULL;
    for (unsigned i = 0; i < words->count; i++) LH_TRY(fill(words->at[i], list, out));
    return LH_OK;
}
