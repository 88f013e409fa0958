// Prove: proves possession of a durable copy that this worker claims to have.
#ifndef WK_PROVE_H
#define WK_PROVE_H

#include "worker/worker.h"

// Reads the copies that the coordinator asks about, on the copy lane, one at a time per shard; a
// lease request follows.
void wk_prove(struct wk_worker *w, size_t n, const struct lh_challenge *list);
// Lists the known answers in out[w->shards]. Returns their number.
size_t wk_prove_tell(const struct wk_worker *w, struct lh_possession *out);
void wk_prove_free(struct wk_proving *p); // NULL is allowed

#endif
