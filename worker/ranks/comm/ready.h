// How far a device's stream has come with a gradient: a ring of events, each with the number of
// values that are final behind it. A bucket of a sum follows the first event that covers it, and so
// leaves while the backward pass goes on: the host queues a whole pass ahead of the device, and an
// event that is recorded anew would stand behind all of it.
//
// One thread records, another one may follow meanwhile.
#ifndef WK_READY_H
#define WK_READY_H

#include "common/base/err.h"
#include "kernels/cuda/plugin.h"

// More layers than this: the first buckets follow a later event than they need.
enum { WK_READY_EVENTS = 64 };
#define WK_READY_ALL UINT64_MAX // all that is on the stream

struct wk_ready;
// The events are those of the device that the calling thread uses. The codes below are the
// plugin's.
LH_MUST lh_err wk_ready_create(const struct lk_gpu_backend *gpu, struct wk_ready **out);
void wk_ready_destroy(struct wk_ready *r); // NULL is allowed
// A gradient begins anew: no event so far says anything about it.
void wk_ready_forget(struct wk_ready *r);
// The last `final` values of the gradient are final behind what the stream has now; WK_READY_ALL:
// everything is.
int wk_ready_record(struct wk_ready *r, lk_gpu_stream stream, uint64_t final);
// Another stream's next operations come behind the first event since wk_ready_forget() that covers
// so many values, which there is; with WK_READY_ALL behind the newest one of all, if there is one.
int wk_ready_follow(struct wk_ready *r, lk_gpu_stream stream, uint64_t needed);

#endif
