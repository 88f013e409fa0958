// Disk full: reports a full or hanging disk, and schedules retries. See disk_full.c.
#ifndef WK_DISK_FULL_H
#define WK_DISK_FULL_H

#include "worker/worker.h"

// Logs it once; nothing more of this kind is logged until wk_disk_full_over().
void wk_disk_full_say(struct wk_worker *w, enum wk_disk_full of, const char *text);
// A write of this kind succeeded again.
void wk_disk_full_over(struct wk_worker *w, enum wk_disk_full of);
// Delays the shard's cuts for a while, then raises the event `room`. Each wait is longer.
void wk_disk_full_wait(struct wk_shard *s);
void wk_disk_full_hold(struct wk_shard *s, const char *text); // both, for the outbox

// Logs that the commit of a cut waits long for its disk, and its end. Training goes on meanwhile.
void wk_disk_slow_look(struct wk_shard *s, int64_t now);
void wk_disk_slow_end(struct wk_shard *s);
double wk_disk_slow_age_s(const struct wk_worker *w); // age of the oldest wait; 0: none

#endif
