// Assertions and planted bugs. See check.h.
#include "common/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void lh_assert_failed(const char *expression, const char *file, int line)
{
    fprintf(stderr, "longhaul: our bug: %s:%d: %s\n", file, line, expression);
    abort();
}

#ifdef LH_PLANTED_BUGS
static _Thread_local const char *planted;

bool lh_bug_is(const char *name)
{
    return planted && strcmp(planted, name) == 0;
}

void lh_bug_plant(const char *name)
{
    planted = name;
}
#endif
