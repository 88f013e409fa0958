// Read by clang-tidy before every file but common/base/err.c (lint.sh): lh_fail returns the code it
// is given, which the analyzer cannot see and which ends the path it follows.
#ifndef LH_TESTS_LINT_H
#define LH_TESTS_LINT_H

#include "common/base/err.h"

#define lh_fail(code, ...) ((void)lh_fail(code, __VA_ARGS__), (code))
#define lh_fail_errno(...) ((void)lh_fail_errno(__VA_ARGS__), LH_ERR_IO)

#endif
