// Stash: tokens of units that arrived over the network, in memory until they are no longer needed.
// Unit numbers are those of the data. Any thread, several at once.
#ifndef WK_STASH_H
#define WK_STASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

struct wk_stash;

LH_MUST lh_err wk_stash_open(struct wk_stash **out);
void wk_stash_close(struct wk_stash *s); // NULL is allowed
// Copies the n bytes; a unit already present does not change. LH_ERR_BUSY: no memory now.
LH_MUST lh_err wk_stash_put(struct wk_stash *s, uint64_t unit, const void *bytes, size_t n);
// Copies the unit's first n bytes out. False: it is absent or has fewer.
bool wk_stash_get(struct wk_stash *s, uint64_t unit, void *out, size_t n);
bool wk_stash_has(struct wk_stash *s, uint64_t unit);
void wk_stash_drop(struct wk_stash *s, uint64_t unit); // any unit

#endif
