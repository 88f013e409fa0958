// The loader: tokens of data units, read ahead in the background.
//
// A unit is a run of tokens in a token file (common/format/units.h). read() gives the ids of
// consecutive tokens plus the one after them (the last target). It waits only if prefetch was too
// slow, and counts the wait. Call read() on the compute lane, everything else on the loop thread.
//
// Read-ahead follows Little's law: the time of a fetch divided by a unit's time in training is the
// number of fetches that must run at once. That many threads fetch, and ahead() is the number of
// units to announce beyond the ones in use. Both times are measured, as moving averages.
#ifndef WK_LOADER_H
#define WK_LOADER_H

#include <stdint.h>

#include "common/base/err.h"
#include "common/base/limits.h"
#include "common/format/units.h"
#include "worker/data/fetch.h"

struct wk_loader;

enum { WK_FETCHES_MAX = 32, WK_AHEAD_MIN = 8, WK_AHEAD_MAX = LH_READ_AHEAD_MAX };

struct wk_loader_conf {
    const struct lh_units *units; // borrows, for the loader's life
    const char *dir;              // folder of the units' relative paths, or
    struct wk_source *source;     // takes: source of the units; NULL: dir
    uint32_t depth;               // limit of units held in memory (>= 2)
    uint32_t fetches;             // limit of fetches at once; 0: one
    const char *cache;            // a folder of fetched units; NULL: none
    uint64_t cache_bytes;         // size limit of the cache
    // At the start, fetches this fraction of the region's units (the first ones) into the cache,
    // while no announced unit waits and only as far as the cache has space. 0: none
    double warm;
    const char *region;
};

struct wk_loader_status {
    int64_t waited_ns;      // total time that read() waited
    double fetch_s, unit_s; // time of a fetch; time that a unit lasts in training; 0: not known yet
    uint32_t ahead;         // units to announce beyond those in use
    int64_t away_ns;        // time for which no read has reached the store; 0: it can be read
    uint64_t warmed;        // units that the warm-up has handled
    struct wk_fetch_counts counts;
};

LH_MUST lh_err wk_loader_open(const struct wk_loader_conf *conf, struct wk_loader **out);
void wk_loader_close(struct wk_loader *l);
uint64_t wk_loader_units(const struct wk_loader *l); // units of the data
// This unit is needed soon: a background thread reads and checks it (sha256). Cheap, may repeat.
void wk_loader_announce(struct wk_loader *l, uint64_t unit);
// The unit is not needed after all: its data may be evicted.
void wk_loader_withdraw(struct wk_loader *l, uint64_t unit);
// ids[0..tokens]: tokens + 1 ids, from `offset` of the unit. After the unit's last token comes the
// file's next one or, at the file's end, the last token again.
LH_MUST lh_err wk_loader_read(struct wk_loader *l, uint64_t unit, uint64_t offset, uint64_t tokens,
                              uint32_t *ids);
// Units without local files (fetch.h). Any thread.
bool wk_loader_find(struct wk_loader *l, uint64_t unit, bool *kept);
LH_MUST lh_err wk_loader_keep(struct wk_loader *l, uint64_t unit, const uint8_t *tokens, size_t n);
void wk_loader_drop(struct wk_loader *l, uint64_t unit);
void wk_loader_hush(struct wk_loader *l); // ends reads of a far source soon; any thread
void wk_loader_status(struct wk_loader *l, struct wk_loader_status *out);

#endif
