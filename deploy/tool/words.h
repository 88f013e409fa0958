// A command line of a settings file, split into words as a shell splits it, without a shell.
//
// Blanks separate. '...' is taken as it stands; in "..." a backslash comes before " and \; outside
// of both it comes before any character. What only a shell would understand ($NAME, `...`, pipes,
// redirections) is refused where it isn't quoted, so that nobody thinks that it works.
//
// {name} in a word, small letters alone, is a placeholder; dp_words_fill() puts its value there.
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

// LH_ERR_CONFIG says what is wrong, without a place. No word at all is none.
LH_MUST lh_err dp_words_split(const char *line, struct dp_words *out);
// Appends a word as it stands.
LH_MUST lh_err dp_words_add(struct dp_words *words, const char *word);
// The words with their placeholders' values; `list` ends with a NULL name. A NULL value: the name
// alone is checked. LH_ERR_CONFIG: a placeholder that `list` does not have.
LH_MUST lh_err dp_words_fill(const struct dp_words *words, const struct dp_placeholder *list,
                             struct dp_words *out);

#endif
