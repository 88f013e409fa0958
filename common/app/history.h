// Curves of a process' metrics over its whole life, in bounded memory: LH_HISTORY_POINTS times at
// most. When they are full, every second one goes and the distance between them doubles. A series
// that comes later has NaN before; beyond LH_HISTORY_SERIES new ones are left out.
#ifndef LH_COMMON_HISTORY_H
#define LH_COMMON_HISTORY_H

#include <jansson.h>

#include "common/base/buf.h"

enum { LH_HISTORY_POINTS = 512, LH_HISTORY_SERIES = 512 }; // 1 MiB of values at most

struct lh_history;

struct lh_history *lh_history_create(double every_s); // NULL: no memory
void lh_history_destroy(struct lh_history *h);        // NULL is allowed
// Keeps a few metrics of a status (the list is in history.c); does nothing where the last time that
// was kept is nearer than the distance of times.
void lh_history_add(struct lh_history *h, double time_s, const json_t *status);
// {"time_s": [...], "left_out": n, "series": [{"metric", "labels", "values": [number or null]}]}
void lh_history_json(const struct lh_history *h, struct lh_buf *out);

#endif
