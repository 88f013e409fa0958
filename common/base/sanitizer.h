// Defines LH_ASAN or LH_TSAN in a build with that sanitizer; gcc and clang announce them
// differently.
#ifndef LH_COMMON_SANITIZER_H
#define LH_COMMON_SANITIZER_H

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LH_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define LH_TSAN 1
#endif
#endif

#if defined(__SANITIZE_ADDRESS__) && !defined(LH_ASAN)
#define LH_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__) && !defined(LH_TSAN)
#define LH_TSAN 1
#endif

#endif
