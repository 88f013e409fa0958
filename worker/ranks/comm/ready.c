// A ring of events. See ready.h.
//
// Invariants: 1. The ring has the newest events, in order; their coverage rises from one to the
// next.
// 2. Only the oldest event is re-recorded, and then covers more than before: a stream that follows
// it at that moment waits longer than needed, never too short.
#include "worker/ranks/comm/ready.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/base/check.h"

struct wk_ready {
    const struct lk_gpu_backend *gpu;
    pthread_mutex_t lock;
    lk_gpu_event event[WK_READY_EVENTS];
    uint64_t final[WK_READY_EVENTS];
    uint64_t first, next; // valid events: their places are modulo WK_READY_EVENTS
};

lh_err wk_ready_create(const struct lk_gpu_backend *gpu, struct wk_ready **out)
{
    struct wk_ready *r = calloc(1, sizeof *r);
    *out = r;
    if (!r) return lh_fail(LH_ERR_NO_MEMORY, "a ring of events");
    r->gpu = gpu;
    pthread_mutex_init(&r->lock, NULL);
    int err = 0;
    for (int i = 0; !err && i < WK_READY_EVENTS; i++)
        err = gpu->streams->event_create(&r->event[i]);
    if (!err) return LH_OK;
    wk_ready_destroy(r);
    *out = NULL;
    return lh_fail(LH_ERR_UNSUPPORTED, "events: %s", gpu->error_text(err));
}

void wk_ready_destroy(struct wk_ready *r)
{
    if (!r) return;
    for (int i = 0; i < WK_READY_EVENTS; i++)
        if (r->event[i]) r->gpu->streams->event_destroy(r->event[i]);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

void wk_ready_forget(struct wk_ready *r)
{
    pthread_mutex_lock(&r->lock);
    r->first = r->next;
    pthread_mutex_unlock(&r->lock);
}

int wk_ready_record(struct wk_ready *r, lk_gpu_stream stream, uint64_t final)
{
    pthread_mutex_lock(&r->lock);
    uint64_t place = r->next % WK_READY_EVENTS;
    int err = r->gpu->streams->event_record(r->event[place], stream);
    r->final[place] = final;
    r->next++;
    if (r->next - r->first > WK_READY_EVENTS) r->first = r->next - WK_READY_EVENTS;
    pthread_mutex_unlock(&r->lock);
    return err;
}

int wk_ready_follow(struct wk_ready *r, lk_gpu_stream stream, uint64_t needed)
{
    pthread_mutex_lock(&r->lock);
    if (!r->next) { // no event was recorded yet
        pthread_mutex_unlock(&r->lock);
        return 0;
    }
    LH_ASSERT(needed == WK_READY_ALL || r->next > r->first);
    uint64_t at = needed == WK_READY_ALL ? r->next - 1 : r->first;
    while (r->final[at % WK_READY_EVENTS] < needed && at + 1 < r->next) at++;
    int err = r->gpu->streams->event_follow(stream, r->event[at % WK_READY_EVENTS]);
    pthread_mutex_unlock(&r->lock);
    return err;
}
