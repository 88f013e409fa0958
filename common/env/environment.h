// The process's own environment, for functions that take variables from any source.
#ifndef LH_COMMON_ENVIRONMENT_H
#define LH_COMMON_ENVIRONMENT_H

#include <stdlib.h>

static inline const char *lh_environment(const char *name) // NULL: not set
{
    return getenv(name);
}

#endif
