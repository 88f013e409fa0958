// Assertions about ourselves. They stay on in release: a failed one means our bug, never a peer's.
#ifndef LH_COMMON_CHECK_H
#define LH_COMMON_CHECK_H

#include <stdbool.h>

_Noreturn void lh_assert_failed(const char *expression, const char *file, int line);

#define LH_ASSERT(expression)                                                                      \
    ((expression) ? (void)0 : lh_assert_failed(#expression, __FILE__, __LINE__))
#define LH_STATIC_ASSERT(expression, text) _Static_assert(expression, text)
#define LH_COUNT(array) (sizeof(array) / sizeof((array)[0]))

// Planted bugs (tests/model BUGS): compiled in by -DLH_BUGS=ON only, where the test names the one
// that is live. In every other build LH_BUG() is the constant false and the branch disappears.
#ifdef LH_PLANTED_BUGS
bool lh_bug_is(const char *name);
void lh_bug_plant(const char *name); // NULL: none
#define LH_BUG(name) lh_bug_is(name)
#else
#define LH_BUG(name) false
#endif

#endif
