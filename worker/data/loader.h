// The loader: tokens of data units, read ahead in the background.
//
// A unit is a run of tokens in a token file (common/format/units.h). read() gives the ids of
// consecutive tokens plus the one after them (the last target), and waits only when prefetch was
// too slow; that wait is counted. read() is called on the compute lane, everything else on the loop
// thread.
//
// How far ahead: by Little's law. What a fetch takes over what a unit lasts in training is how many
// must be under way at once; that many threads fetch, and ahead() says how many units should be
// announced beyond the ones in use. Both are measured, as moving averages.
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
    const char *dir;              // folder that the units' paths are relative to, or
    struct wk_source *source;     // takes: where they are fetched from; NULL: dir
    uint32_t depth;               // units held in memory at most (>= 2)
    uint32_t fetches;             // fetches under way at once, at most; 0: one
    const char *cache;            // a folder of fetched units; NULL: none
    uint64_t cache_bytes;         // the most that the cache may take
    // At the start, this part of the region's units (the first ones) is fetched into the cache,
    // while nothing announced waits and only as far as the cache has room. 0: none
    double warm;
    const char *region;
};

struct wk_loader_status {
    int64_t waited_ns;      // sum of what read() waited
    double fetch_s, unit_s; // what a fetch takes, what a unit lasts in training; 0: not known yet
    uint32_t ahead;         // units that should be announced beyond those in use
    uint64_t warmed;        // units that the start's warm-up has seen to
    struct wk_fetch_counts counts;
};

LH_MUST lh_err wk_loader_open(const struct wk_loader_conf *conf, struct wk_loader **out);
void wk_loader_close(struct wk_loader *l);
uint64_t wk_loader_units(const struct wk_loader *l); // units of the data
// This unit comes soon: a background thread reads and checks it (sha256). Cheap, may repeat.
void wk_loader_announce(struct wk_loader *l, uint64_t unit);
// It does not come after all: what was read of it may be pushed out.
void wk_loader_withdraw(struct wk_loader *l, uint64_t unit);
// ids[0..tokens]: tokens + 1 ids, from `offset` of the unit. After the unit's last token comes the
// file's next one, or, at the file's end, the last token again.
LH_MUST lh_err wk_loader_read(struct wk_loader *l, uint64_t unit, uint64_t offset, uint64_t tokens,
                              uint32_t *ids);
// Units whose files are not here (fetch.h). Any thread.
bool wk_loader_find(struct wk_loader *l, uint64_t unit, bool *kept);
LH_MUST lh_err wk_loader_keep(struct wk_loader *l, uint64_t unit, const uint8_t *tokens, size_t n);
void wk_loader_drop(struct wk_loader *l, uint64_t unit);
int64_t wk_loader_waited_ns(const struct wk_loader *l); // sum of what read() waited for the source
void wk_loader_status(struct wk_loader *l, struct wk_loader_status *out);

#endif
