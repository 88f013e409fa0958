// A folder of data units that were fetched, so that a slow source is asked once.
//
// An entry is a file DIR/NAME.unit: magic "LHUC" u32, version u32, bytes n u64, the bytes, CRC-32C
// u32 of all before it; little endian. It is there whole or not at all, and a damaged one is
// removed when it is read. Together they take no more than the given bytes: the one that was used
// least lately goes first. One process uses a folder. Any thread, several at once.
#ifndef WK_CACHE_H
#define WK_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

enum { WK_CACHE_NAME = 96 };

struct wk_cache;

// Makes the folder, takes over what is in it, removes what an interrupted write left. Where there
// are many entries, a thread goes on with it: until then nothing is put.
LH_MUST lh_err wk_cache_open(const char *dir, uint64_t bytes_max, struct wk_cache **out);
void wk_cache_close(struct wk_cache *c);  // NULL is allowed; the files stay
bool wk_cache_ready(struct wk_cache *c);  // all that is in the folder was taken over
void wk_cache_settle(struct wk_cache *c); // Waits for it; for one thread alone.
// False: not there, or damaged.
bool wk_cache_get(struct wk_cache *c, const char *name, void *out, size_t n);
// Keeps it, where there is room: a cache that can't is only slower. False: it did not.
bool wk_cache_put(struct wk_cache *c, const char *name, const void *bytes, size_t n);
bool wk_cache_has(struct wk_cache *c, const char *name);
uint64_t wk_cache_bytes(struct wk_cache *c); // bytes on the disk
uint64_t wk_cache_room(struct wk_cache *c);  // without pushing anything out

#endif
