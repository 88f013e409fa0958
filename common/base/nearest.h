// "did you mean ...": the candidate nearest to a word by edits.
#ifndef LH_COMMON_NEAREST_H
#define LH_COMMON_NEAREST_H

#include <stddef.h>

struct lh_nearest {
    const char *word; // borrows
    const char *best; // borrows; NULL: no candidate near enough yet
    size_t distance;
};

static inline struct lh_nearest lh_nearest(const char *word)
{
    return (struct lh_nearest){word, NULL, (size_t)-1};
}
// Offers a candidate. A dotted one is also compared by its last part, so "denisty" finds
// "codec.density". Near enough: at most a third of the word's length, at least 1, at most 4 edits.
void lh_nearest_try(struct lh_nearest *n, const char *candidate);
// Insertions, deletions, replacements and swaps of neighbours between two words (optimal string
// alignment). Words longer than 63 bytes are compared by their first 63.
size_t lh_edit_distance(const char *a, const char *b);

#endif
