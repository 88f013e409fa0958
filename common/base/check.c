// Assertions and planted bugs. See check.h.
#include "common/base/check.h"

#include <signal.h>
#include <stdatomic.h>
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

const char *lh_bug_planted(void)
{
    return planted;
}

static const char *const failpoints[] = {
#define NAME(name, role, where) name,
    LH_FAILPOINTS(NAME)
#undef NAME
};

void lh_failpoint(const char *name)
{
    static atomic_uint passed; // how often the armed failpoint was passed
    size_t known = 0;
    while (known < LH_COUNT(failpoints) && strcmp(failpoints[known], name) != 0) known++;
    LH_ASSERT(known < LH_COUNT(failpoints));
    const char *armed = getenv("LONGHAUL_FAILPOINT");
    size_t n = strlen(name);
    if (!armed || strncmp(armed, name, n) != 0 || armed[n] != '@') return;
    if (atomic_fetch_add(&passed, 1) + 1 == strtoul(armed + n + 1, NULL, 10)) raise(SIGKILL);
}
#endif
