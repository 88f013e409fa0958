// Read by clang-tidy before every file but common/base/err.c (lint.sh). The analyzer cannot see
// that lh_fail returns the code it is given; these macros show it, which ends impossible paths.
#ifndef LH_TESTS_LINT_H
#define LH_TESTS_LINT_H

#include "common/base/err.h"

#define lh_fail(code, ...) ((void)lh_fail(code, __VA_ARGS__), (code))
#define lh_fail_errno(...) ((void)lh_fail_errno(__VA_ARGS__), LH_ERR_IO)

#endif
