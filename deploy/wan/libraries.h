// The search path for libraries that the environment brings (LD_LIBRARY_PATH).
//
// wanem runs as root, and so does what it runs in a region. An empty element of the path, or one
// that does not begin with a slash, is found from the current folder, where anybody's library may
// lie. The loader read the path before main(), so wanem's own libraries are not covered: sudo and
// su drop the variable, and a caller that keeps it must make it absolute.
#ifndef DP_WAN_LIBRARIES_H
#define DP_WAN_LIBRARIES_H

#include <stdbool.h>
#include <stddef.h>

enum { DP_LIBRARIES_BYTES = 4096 }; // a longer path is left out as a whole

// The absolute elements of `path`, in their order. False: there were others, which are left out.
bool dp_libraries_absolute(const char *path, char out[DP_LIBRARIES_BYTES]);

// Cleans LD_LIBRARY_PATH for the programs that this one starts, and says so on stderr.
void dp_libraries_clean(void);

#endif
