// The library search path from the environment. See libraries.h.
#include "deploy/wan/libraries.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool dp_libraries_absolute(const char *path, char out[DP_LIBRARIES_BYTES])
{
    size_t n = 0;
    bool all = true;
    out[0] = 0;
    if (!path[0]) return true; // the loader treats it as unset
    if (strlen(path) >= DP_LIBRARIES_BYTES) return false;
    for (const char *at = path;; at++) {
        size_t length = strcspn(at, ":;"); // the loader accepts both
        if (at[0] == '/')
            n += (size_t)snprintf(out + n, DP_LIBRARIES_BYTES - n, "%s%.*s", n ? ":" : "",
                                  (int)length, at);
        else
            all = false;
        at += length;
        if (!*at) return all;
    }
}

void dp_libraries_clean(void)
{
    char kept[DP_LIBRARIES_BYTES];
    const char *path = getenv("LD_LIBRARY_PATH");
    if (!path || dp_libraries_absolute(path, kept)) return;
    fprintf(stderr, "wanem: LD_LIBRARY_PATH has an element that means the current folder, and this "
                    "runs as root: only its absolute elements are passed on\n");
    if (!kept[0] || setenv("LD_LIBRARY_PATH", kept, 1)) unsetenv("LD_LIBRARY_PATH");
}
