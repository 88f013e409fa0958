// The registry of metrics: one table maps fields of a status to metrics with name, type and unit.
// GET /metrics, the page of metrics in deploy/docs and TensorBoard's event files read it, so a new
// metric takes a field of the status and one row here.
//
// A status is the JSON object that a process writes to status.json about once a second. Rendering
// needs that text alone; nothing here runs on a program's loop or on the path of a push.
#ifndef LH_COMMON_METRICS_H
#define LH_COMMON_METRICS_H

#include <jansson.h>

#include "common/base/buf.h"
#include "common/base/err.h"

enum lh_metric_type {
    LH_COUNTER,   // never falls during a process's life; its name ends in _total
    LH_GAUGE,     // a number, or 1 or 0 for true or false
    LH_HISTOGRAM, // an object of lh_histogram_status()
    LH_STATE,     // 1 for each row that exists; its state is a label
};

// With privacy.telemetry "none" a private region does not publish LH_METRIC_DATA metrics.
enum lh_metric_class {
    LH_METRIC_PUBLIC, // depends on the plan, the network or this machine alone
    LH_METRIC_DATA,   // depends on the training data, or on the time of training
};

struct lh_metric {
    const char *name; // Prometheus' rules: a unit in base units, _total for counters
    enum lh_metric_type type;
    enum lh_metric_class privacy;
    const char *roles;  // letters of the processes that have it: server, worker, coordinator
    const char *path;   // field names joined by dots; "x[]": each element of the array x
    const char *labels; // "label=field,...": fields of the element; "": none
    double scale;       // factor from the field's unit to the name's
    const char *help;
};

extern const struct lh_metric lh_metrics[];
extern const unsigned lh_metrics_count;

// Calls `fn` with each value of one metric in a status. `labels` is the text between the braces
// ("": none).
typedef void lh_metric_fn(void *arg, const struct lh_metric *m, const char *labels,
                          const json_t *value);
void lh_metrics_each(const json_t *status, const struct lh_metric *m, lh_metric_fn *fn, void *arg);

// Appends a status's metrics in Prometheus' text format 0.0.4. LH_ERR_INVALID: `status` is no
// object.
LH_MUST lh_err lh_metrics_prometheus(const json_t *status, struct lh_buf *out);

#endif
