// Foreign text. See text.h.
#include "common/base/text.h"

#include <stdbool.h>
#include <stdint.h>

// Returns the length of the UTF-8 sequence at `at` and its character in *out; 0: invalid.
static size_t decode(const uint8_t *at, size_t n, uint32_t *out)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t more = at[0] < 0x80 ? 0 : at[0] < 0xe0 ? 1 : at[0] < 0xf0 ? 2 : 3;
    if ((at[0] >= 0x80 && at[0] < 0xc2) || at[0] > 0xf4 || more >= n) return 0;
    uint32_t c = more ? at[0] & (0x3fu >> more) : at[0];
    for (size_t i = 1; i <= more; i++) {
        if ((at[i] & 0xc0) != 0x80) return 0;
        c = c << 6 | (at[i] & 0x3f);
    }
    if (c < least[more + 1] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return 0;
    *out = c;
    return more + 1;
}

static bool is_wild(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

void lh_text_tame(char *text, size_t n)
{
    for (size_t at = 0; at < n;) {
        uint32_t c = 0;
        size_t length = decode((const uint8_t *)text + at, n - at, &c);
        bool wild = !length || is_wild(c);
        if (!length) length = 1;
        for (size_t i = 0; i < length && wild; i++) text[at + i] = '?';
        at += length;
    }
}
