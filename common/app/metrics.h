// The registry of metrics: one table says which fields of a status are metrics, under which name,
// of which type and unit. GET /metrics, the page of metrics in deploy/docs and TensorBoard's event
// files read it, so a new metric is a field of the status and one row here.
//
// A status is the JSON object that a process writes to status.json about once a second. Rendering
// works on its text alone: nothing here runs on a program's loop or on the path of a push.
#ifndef LH_COMMON_METRICS_H
#define LH_COMMON_METRICS_H

#include <jansson.h>

#include "common/base/buf.h"
#include "common/base/err.h"

enum lh_metric_type {
    LH_COUNTER,   // only rises while a process lives; its name ends in _total
    LH_GAUGE,     // a number, or 1 and 0 for true and false
    LH_HISTOGRAM, // an object of lh_histogram_status()
    LH_STATE,     // a row that exists: 1, its state is a label
};

// A private region keeps some metrics to itself (privacy.telemetry: none).
enum lh_metric_class {
    LH_METRIC_PUBLIC, // follows from the plan, from the network or from this machine alone
    LH_METRIC_DATA,   // depends on what was trained on, or on when
};

struct lh_metric {
    const char *name; // Prometheus' rules: a unit in base units, _total for counters
    enum lh_metric_type type;
    enum lh_metric_class privacy;
    const char *roles;  // letters of the processes that have it: server, worker, coordinator
    const char *path;   // fields with dots between; "x[]": each element of the array x
    const char *labels; // "label=field,...": fields of the element; "" for none
    double scale;       // the field times this is in the name's unit
    const char *help;
};

extern const struct lh_metric lh_metrics[];
extern const unsigned lh_metrics_count;

// The numbers of one metric in a status. `labels` is ready to stand between braces ("": none).
typedef void lh_metric_fn(void *arg, const struct lh_metric *m, const char *labels,
                          const json_t *value);
void lh_metrics_each(const json_t *status, const struct lh_metric *m, lh_metric_fn *fn, void *arg);

// Appends a status' metrics in Prometheus' text format 0.0.4. LH_ERR_INVALID: `status` is no
// object.
LH_MUST lh_err lh_metrics_prometheus(const json_t *status, struct lh_buf *out);
// Appends the table of all metrics as Markdown.
void lh_metrics_page(struct lh_buf *out);

#endif
