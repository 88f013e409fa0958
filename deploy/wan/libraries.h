// The library search path from the environment (LD_LIBRARY_PATH).
//
// wanem runs as root, and so does what it starts in a region. The loader looks up an empty or
// relative element of the path from the current folder, where anybody's library may lie. It read
// the path before main(), so wanem's own libraries are not covered: sudo and su drop the variable,
// and a caller that keeps it must make it absolute.
#ifndef DP_WAN_LIBRARIES_H
#define DP_WAN_LIBRARIES_H

#include <stdbool.h>
#include <stddef.h>

enum { DP_LIBRARIES_BYTES = 4096 }; // a longer path is dropped whole

// Writes the absolute elements of `path`, in order. False: there were others, which are left out.
bool dp_libraries_absolute(const char *path, char out[DP_LIBRARIES_BYTES]);

// Cleans LD_LIBRARY_PATH for the programs that this one starts, and says so on stderr.
void dp_libraries_clean(void);

#endif
