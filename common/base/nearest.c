// Nearest match. See nearest.h.
#include "common/base/nearest.h"

#include <string.h>

enum { WORD_MAX = 63 };

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

size_t lh_edit_distance(const char *a, const char *b)
{
    size_t rows = strnlen(a, WORD_MAX), columns = strnlen(b, WORD_MAX);
    size_t d[3][WORD_MAX + 1]; // rows i-2, i-1, i, in rotation
    for (size_t j = 0; j <= columns; j++) d[0][j] = j;
    for (size_t i = 1; i <= rows; i++) {
        size_t *now = d[i % 3], *up = d[(i - 1) % 3], *up2 = d[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= columns; j++) {
            size_t cost = a[i - 1] != b[j - 1];
            now[j] = min3(up[j] + 1, now[j - 1] + 1, up[j - 1] + cost);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                up2[j - 2] + 1 < now[j])
                now[j] = up2[j - 2] + 1;
        }
    }
    return d[rows % 3][columns];
}

static void consider(struct lh_nearest *n, const char *part, const char *candidate)
{
    size_t len = strlen(n->word), most = len / 3 < 1 ? 1 : len / 3;
    size_t distance = lh_edit_distance(n->word, part);
    if (distance > (most > 4 ? 4 : most) || distance >= n->distance) return;
    n->best = candidate;
    n->distance = distance;
}

void lh_nearest_try(struct lh_nearest *n, const char *candidate)
{
    consider(n, candidate, candidate);
    const char *dot = strrchr(candidate, '.');
    if (dot) consider(n, dot + 1, candidate);
    const char *own = strrchr(n->word, '.'); // right name, wrong section
    if (dot && own && !strcmp(own, dot) && n->distance > 2) {
        n->best = candidate;
        n->distance = 2;
    }
}
