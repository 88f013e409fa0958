// A device stream's progress with a gradient: a ring of events, each with the number of values that
// are final behind it. A bucket of a sum follows the first event that covers it, and so is sent
// while the backward pass continues. One event would not do: the host queues a whole pass ahead of
// the device, and a re-recorded event would stand behind all of it.
//
// One thread records while another may follow.
#ifndef WK_READY_H
#define WK_READY_H

#include "common/base/err.h"
#include "kernels/cuda/plugin.h"

// With more layers than this, the first buckets follow a later event than they need.
enum { WK_READY_EVENTS = 64 };
#define WK_READY_ALL UINT64_MAX // all work on the stream

struct wk_ready;
// The events belong to the calling thread's current device. The codes below are the plugin's.
LH_MUST lh_err wk_ready_create(const struct lk_gpu_backend *gpu, struct wk_ready **out);
void wk_ready_destroy(struct wk_ready *r); // NULL is allowed
// Starts a new gradient: earlier events no longer count.
void wk_ready_forget(struct wk_ready *r);
// The gradient's last `final` values are final behind the stream's work so far; WK_READY_ALL: all
// are.
int wk_ready_record(struct wk_ready *r, lk_gpu_stream stream, uint64_t final);
// Queues another stream's next operations behind the first event since wk_ready_forget() that
// covers `needed` values; one must exist. With WK_READY_ALL: behind the newest event, if any.
int wk_ready_follow(struct wk_ready *r, lk_gpu_stream stream, uint64_t needed);

#endif
