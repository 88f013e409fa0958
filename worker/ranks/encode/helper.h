// A rank's portion in the leader's pushes: a thread that encodes what the rank is asked for
// (encoding.h). It holds nothing of a push but what it was given.
#ifndef WK_HELPER_H
#define WK_HELPER_H

#include "common/env/log.h"

struct wk_helper;
// The thread begins with the first ask. `ring` wakes the region's thread: an answer is there.
LH_MUST lh_err wk_helper_create(struct lh_log *log, void (*ring)(void *arg), void *arg,
                                struct wk_helper **out);
void wk_helper_destroy(struct wk_helper *h); // waits for its thread; NULL is allowed

// ---- the region's thread
// Takes a copy, and who asks; more than a leader asks for at once are dropped.
void wk_helper_ask(struct wk_helper *h, uint64_t asker, struct lh_span ask);
// Appends the next answer; `asker` is who asked for it. False: there is none.
bool wk_helper_answer(struct wk_helper *h, uint64_t *asker, struct lh_buf *out);
uint64_t wk_helper_count(struct wk_helper *h); // portions encoded so far; any thread

#endif
