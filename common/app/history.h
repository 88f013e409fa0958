// Curves of a process's metrics over its whole life, in bounded memory: at most LH_HISTORY_POINTS
// samples. When they are full, every second sample is dropped and the interval doubles. A series
// that appears later has NaN before its first sample; new series beyond LH_HISTORY_SERIES are
// dropped.
#ifndef LH_COMMON_HISTORY_H
#define LH_COMMON_HISTORY_H

#include <jansson.h>

#include "common/base/buf.h"

enum { LH_HISTORY_POINTS = 512, LH_HISTORY_SERIES = 512 }; // 1 MiB of values at most

struct lh_history;

struct lh_history *lh_history_create(double every_s); // NULL: no memory
void lh_history_destroy(struct lh_history *h);        // NULL is allowed
// Samples a few metrics of a status (listed in history.c), unless the last sample is less than one
// interval old.
void lh_history_add(struct lh_history *h, double time_s, const json_t *status);
// {"time_s": [...], "left_out": n, "series": [{"metric", "labels", "values": [number or null]}]}
void lh_history_json(const struct lh_history *h, struct lh_buf *out);

#endif
