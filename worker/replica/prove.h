// Prove: proves possession of a durable copy that this worker claims to have.
#ifndef WK_PROVE_H
#define WK_PROVE_H

#include "longhaul/v1/member.pb-c.h"
#include "worker/worker.h"

// Reads the copies that the coordinator asks about, on the copy lane, one at a time per shard; a
// lease request follows.
void wk_prove(struct wk_worker *w, size_t n, Longhaul__V1__Challenge **list);
// Lists the known answers in `list` of item[w->shards]; they borrow from the worker.
size_t wk_prove_tell(struct wk_worker *w, Longhaul__V1__Possession *item,
                     Longhaul__V1__Possession **list);
void wk_prove_free(struct wk_proving *p); // NULL is allowed

#endif
