// One data unit, whole and checked: from the cache, or from the source and then into the cache.
//
// Its data is always checked: the unit's sha256, and every id below the vocabulary; from the source
// also the token file's header. Any thread, several at once.
#ifndef WK_FETCH_H
#define WK_FETCH_H

#include "common/format/units.h"
#include "worker/data/cache.h"
#include "worker/data/source.h"

struct wk_fetch_counts {
    // Units from the source, from the cache, and from the network.
    uint64_t fetched, cached, arrived;
    uint64_t bytes; // from the source
};

struct wk_fetch;
LH_MUST lh_err wk_fetch_open(const struct lh_units *units, struct wk_source *source,
                             struct wk_cache *cache, struct wk_fetch **out); // borrows all
void wk_fetch_close(struct wk_fetch *f);                                     // NULL is allowed

size_t wk_fetch_bytes(const struct wk_fetch *f,
                      uint64_t unit); // bytes of the unit and one more token
// The unit's tokens and the one after them; at the file's end its last token again. Errors name
// unit, file and remedy: LH_ERR_NOT_FOUND, LH_ERR_CORRUPT, the source's.
LH_MUST lh_err wk_fetch_unit(struct wk_fetch *f, uint64_t unit, uint8_t *bytes);
bool wk_fetch_is_cached(struct wk_fetch *f, uint64_t unit);
// ---- units without local files (worker/units/travel.h)
// True: the unit is in the source, the cache or memory. A unit that only the cache has is kept in
// memory from now on.
bool wk_fetch_find(struct wk_fetch *f, uint64_t unit, bool *kept);
// Keeps the unit's tokens[n], checked against its sha256, until drop(); also in the cache if there
// is one. LH_ERR_BUSY: no memory now.
LH_MUST lh_err wk_fetch_keep(struct wk_fetch *f, uint64_t unit, const uint8_t *tokens, size_t n);
void wk_fetch_drop(struct wk_fetch *f, uint64_t unit); // any unit
struct wk_fetch_counts wk_fetch_counted(const struct wk_fetch *f);

#endif
