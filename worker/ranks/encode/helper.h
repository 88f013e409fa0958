// A rank's portion in the leader's pushes: a thread that encodes what the rank is asked for
// (encoding.h), on the CPU or on the rank's device. It holds nothing of a push but what it was
// given.
#ifndef WK_HELPER_H
#define WK_HELPER_H

#include "common/env/log.h"
#include "kernels/cuda/plugin.h"

struct wk_helper_conf {
    struct lh_log *log;
    void (*ring)(void *arg); // wakes the region's thread: an answer is there
    void *arg;
    const struct lk_gpu_backend *gpu; // Portions are encoded on its device; NULL: on the CPU.
    int index;                        // the device's number
};

struct wk_helper;
// The thread begins with the first ask. Borrows log and gpu. LH_ERR_NO_MEMORY.
LH_MUST lh_err wk_helper_create(const struct wk_helper_conf *conf, struct wk_helper **out);
void wk_helper_destroy(struct wk_helper *h); // waits for its thread; NULL is allowed

// ---- the region's thread
// Takes a copy, and who asks; more than a leader asks for at once are dropped.
void wk_helper_ask(struct wk_helper *h, uint64_t asker, struct lh_span ask);
// Appends the next answer; `asker` is who asked for it. False: there is none.
bool wk_helper_answer(struct wk_helper *h, uint64_t *asker, struct lh_buf *out);
// Portions encoded so far; *there: how many of them on the device. Any thread.
uint64_t wk_helper_count(struct wk_helper *h, uint64_t *there);

#endif
