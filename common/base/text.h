// Makes foreign text safe for a terminal or a log.
//
// Control characters move a cursor or forge a line. Unicode's bidirectional controls (U+202A to
// U+202E, U+2066 to U+2069) display a text in another order than its characters.
#ifndef LH_COMMON_TEXT_H
#define LH_COMMON_TEXT_H

#include <stddef.h>
#include <stdint.h>

// Puts '?' in place of each byte of: control characters (ASCII's, DEL, U+0080 to U+009F),
// bidirectional controls and marks, line and paragraph separators, and invalid UTF-8.
void lh_text_tame(char *text, size_t n);

// The ending of a noun after this count: "1 worker", "2 workers".
static inline const char *lh_s(uint64_t count)
{
    return count == 1 ? "" : "s";
}

#endif
