// The process of a rank other than the leader: it computes its part of every step of its region's
// worker (reduce.h) and has no other state. When the leader ends, it waits for the next one.
#ifndef WK_RANK_H
#define WK_RANK_H

#include "common/env/env.h"
#include "worker/ranks/reduce_shm.h"
#include "worker/train/model.h"

struct wk_rank_conf {
    struct lh_env *env;
    struct lh_log *log;
    struct wk_shm_conf shm;
    uint32_t rank;
    struct wk_shape shape;
    uint32_t batch; // sequences per pass
    // The run is over (LH_OK), or this process can't take part in it. On the loop.
    void (*ended)(void *arg, lh_err err, const char *text);
    void *arg;
};

struct wk_rank;
LH_MUST lh_err wk_rank_start(const struct wk_rank_conf *conf, struct wk_rank **out);
LH_MUST lh_err wk_rank_status(const struct wk_rank *r, struct lh_buf *out); // JSON
void wk_rank_close(struct wk_rank *r); // leaves its seat before the compute lane stops
void wk_rank_stop(struct wk_rank *r);  // frees it once the lane is idle; NULL is allowed

#endif
