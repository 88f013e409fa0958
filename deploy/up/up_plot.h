// The loss curves of a run: a picture for the terminal, and an SVG.
//
// One curve per worker: x in seconds, y the training loss. Long curves are drawn as means per
// column.
#ifndef DP_UP_PLOT_H
#define DP_UP_PLOT_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/buf.h"
#include "common/base/err.h"

struct dp_point {
    double x, y;
};
struct dp_curve {
    const char *name; // borrowed
    const struct dp_point *point;
    size_t points;
};

// Draws width x height characters of plot; axes and legend are outside. `unicode`: marks and lines
// beyond ASCII. Without data, writes one line that says so.
void dp_plot_text(const struct dp_curve *curve, size_t curves, const char *x_name,
                  const char *y_name, unsigned width, unsigned height, bool unicode,
                  struct lh_buf *out);
void dp_plot_svg(const struct dp_curve *curve, size_t curves, const char *title, const char *x_name,
                 const char *y_name, struct lh_buf *out);

#endif
