// Makes foreign text safe for a terminal or a log.
//
// Control characters move a cursor or forge a line. Unicode's bidirectional controls (U+202A to
// U+202E, U+2066 to U+2069) display a text in another order than its characters.
#ifndef LH_COMMON_TEXT_H
#define LH_COMMON_TEXT_H

#include <stddef.h>

// Puts '?' in place of each byte of: control characters (ASCII's, DEL, U+0080 to U+009F),
// bidirectional controls and marks, line and paragraph separators, and invalid UTF-8.
void lh_text_tame(char *text, size_t n);

#endif
