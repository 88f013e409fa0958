// The loader: tokens of data units, read ahead in the background.
//
// A unit is a run of tokens in a token file (common/units.h). read() gives the ids of consecutive
// tokens plus the one after them (the last target), and waits only when prefetch was too slow; that
// wait is counted. read() is called on the compute lane, everything else on the loop thread.
#ifndef WK_LOADER_H
#define WK_LOADER_H

#include <stdint.h>

#include "common/err.h"
#include "common/units.h"

struct wk_loader;

struct wk_loader_conf {
    const struct lh_units *units; // borrows, for the loader's life
    const char *dir;              // folder that the units' paths are relative to
    uint32_t depth;               // units held in memory at most (>= 2)
};

LH_MUST lh_err wk_loader_open(const struct wk_loader_conf *conf, struct wk_loader **out);
void wk_loader_close(struct wk_loader *l);
// This unit comes soon: the background thread reads and checks it (sha256). Cheap, may repeat.
void wk_loader_announce(struct wk_loader *l, uint64_t unit);
// ids[0..tokens]: tokens + 1 ids, from `offset` of the unit. After the unit's last token comes the
// file's next one, or, at the file's end, the last token again.
LH_MUST lh_err wk_loader_read(struct wk_loader *l, uint64_t unit, uint64_t offset, uint64_t tokens,
                              uint32_t *ids);
int64_t wk_loader_waited_ns(const struct wk_loader *l); // sum of what read() waited for the disk

#endif
