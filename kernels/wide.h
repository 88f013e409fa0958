// LK_WIDE compiles a function twice, for the base processor and for AVX2, and the loader picks one
// at start. Sanitizers cannot instrument the picking (it runs before they start), so their builds
// have the base form only; so have clang's before 18, which gives the picker another name than
// other files call.
#ifndef LK_WIDE_H
#define LK_WIDE_H

#include "common/base/sanitizer.h"

#if defined(__clang__) && __clang_major__ < 18
#define LK_OLD_CLANG 1
#endif

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(LH_ASAN) && !defined(LH_TSAN) &&     \
    !defined(LK_OLD_CLANG)
#define LK_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define LK_WIDE
#endif

#endif
