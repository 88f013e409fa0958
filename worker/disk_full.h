// Disk full: what is told of a full disk, or of one that hangs, and when it is tried again. See
// disk_full.c.
#ifndef WK_DISK_FULL_H
#define WK_DISK_FULL_H

#include "worker/worker.h"

// Logs it once; then nothing more is said of this kind until wk_disk_full_over().
void wk_disk_full_say(struct wk_worker *w, enum wk_disk_full of, const char *text);
// Something of this kind was written again.
void wk_disk_full_over(struct wk_worker *w, enum wk_disk_full of);
// The shard is not cut for a while; then the event `room` is raised. Each wait is longer.
void wk_disk_full_wait(struct wk_shard *s);

// Says where the commit of a cut waits long for its disk, and that it is over. Neither ends
// anything: training goes on beside the disk lane.
void wk_disk_slow_look(struct wk_shard *s, int64_t now);
void wk_disk_slow_end(struct wk_shard *s);
double wk_disk_slow_age_s(const struct wk_worker *w); // The oldest wait's; 0: nothing waits.

#endif
