// A command line in a settings file, split into words like a shell, without a shell.
//
// Blanks separate. '...' is literal; in "..." a backslash escapes " and \; outside of both it
// escapes any character. Unquoted characters that need a shell ($NAME, `...`, pipes, redirections)
// are refused, so that they do not silently fail.
//
// {name} in a word, small letters only, is a placeholder; dp_words_fill() replaces it.
#ifndef DP_WORDS_H
#define DP_WORDS_H

#include "common/base/err.h"

enum { DP_WORDS_MAX = 96, DP_WORDS_BYTES = 16384 };

struct dp_words {
    const char *at[DP_WORDS_MAX + 1]; // ends with NULL
    unsigned count;
    char bytes[DP_WORDS_BYTES];
    unsigned used;
};

struct dp_placeholder {
    const char *name, *value;
};

// LH_ERR_CONFIG: the reason, without a place. No words is valid.
LH_MUST lh_err dp_words_split(const char *line, struct dp_words *out);
// Appends a word literally.
LH_MUST lh_err dp_words_add(struct dp_words *words, const char *word);
// Replaces the placeholders; `list` ends with a NULL name. A NULL value: only checks the name.
// LH_ERR_CONFIG: a placeholder not in `list`.
LH_MUST lh_err dp_words_fill(const struct dp_words *words, const struct dp_placeholder *list,
                             struct dp_words *out);

#endif
