// A folder of fetched data units, so that a slow source is asked once.
//
// An entry is a file DIR/NAME.unit: magic "LHUC" u32, version u32, bytes n u64, the bytes, CRC-32C
// u32 of all before it; little endian. An entry is whole or absent; a damaged one is removed when
// read. The total stays within the given bytes: the least recently used entry is removed first. One
// process uses a folder. Any thread, several at once.
#ifndef WK_CACHE_H
#define WK_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

enum { WK_CACHE_NAME = 96 };

struct wk_cache;

// Makes the folder, takes over its entries, removes the leftovers of interrupted writes. With many
// entries a thread continues: nothing is put until it is done.
LH_MUST lh_err wk_cache_open(const char *dir, uint64_t bytes_max, struct wk_cache **out);
void wk_cache_close(struct wk_cache *c);  // NULL is allowed; the files stay
bool wk_cache_ready(struct wk_cache *c);  // the whole folder was taken over
void wk_cache_settle(struct wk_cache *c); // waits for that; call it on one thread only
// False: absent or damaged.
bool wk_cache_get(struct wk_cache *c, const char *name, void *out, size_t n);
// Stores it if there is space; without it the cache is only slower. False: not stored.
bool wk_cache_put(struct wk_cache *c, const char *name, const void *bytes, size_t n);
bool wk_cache_has(struct wk_cache *c, const char *name);
uint64_t wk_cache_bytes(struct wk_cache *c); // bytes on the disk
uint64_t wk_cache_room(struct wk_cache *c);  // free bytes, without evicting an entry

#endif
