// Drawing curves. See up_plot.h.
#include "deploy/up/up_plot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "deploy/tool/files.h"

enum { WIDTH_MAX = 200, HEIGHT_MAX = 60, COLUMNS_SVG = 400, STYLES = 6 };

struct frame {
    double x_min, x_max, y_min, y_max;
};

static const char *const ascii_mark[STYLES] = {"*", "+", "o", "x", "#", "@"};
static const char *const unicode_mark[STYLES] = {"●", "▲", "■", "◆", "○", "△"};
static const char *const color[STYLES] = {"#1f77b4", "#d62728", "#2ca02c",
                                          "#9467bd", "#ff7f0e", "#17becf"};

static bool frame_of(const struct dp_curve *curve, size_t curves, struct frame *f)
{
    *f = (struct frame){INFINITY, -INFINITY, INFINITY, -INFINITY};
    for (size_t c = 0; c < curves; c++)
        for (size_t i = 0; i < curve[c].points; i++) {
            struct dp_point p = curve[c].point[i];
            if (!isfinite(p.x) || !isfinite(p.y)) continue;
            f->x_min = fmin(f->x_min, p.x);
            f->x_max = fmax(f->x_max, p.x);
            f->y_min = fmin(f->y_min, p.y);
            f->y_max = fmax(f->y_max, p.y);
        }
    if (f->x_min > f->x_max) return false;
    if (f->x_max - f->x_min < 1e-9) f->x_max = f->x_min + 1;
    if (f->y_max - f->y_min < 1e-9) f->y_max = f->y_min + 1;
    return true;
}

// Mean y of the points in each of `columns` columns; NAN: no points.
static void means(const struct dp_curve *c, const struct frame *f, unsigned columns, double *out)
{
    double sum[COLUMNS_SVG] = {0};
    unsigned n[COLUMNS_SVG] = {0};
    for (size_t i = 0; i < c->points; i++) {
        struct dp_point p = c->point[i];
        if (!isfinite(p.x) || !isfinite(p.y)) continue;
        double at = (p.x - f->x_min) / (f->x_max - f->x_min) * columns;
        unsigned column = at >= columns ? columns - 1 : (unsigned)at;
        sum[column] += p.y;
        n[column]++;
    }
    for (unsigned i = 0; i < columns; i++) out[i] = n[i] ? sum[i] / n[i] : NAN;
}

// ---------------------------------------------------------------- text

static void put_canvas(const uint8_t *canvas, unsigned width, unsigned height,
                       const struct frame *f, bool unicode, struct lh_buf *out)
{
    for (unsigned row = 0; row < height; row++) {
        double y = f->y_max - (f->y_max - f->y_min) * row / (height - 1);
        bool label = row % 4 == 0 || row == height - 1;
        if (label)
            dp_put(out, "%8.2f %s", y, unicode ? "┤" : "|");
        else
            dp_put(out, "%8s %s", "", unicode ? "│" : "|");
        unsigned end = width; // no blanks at the end of a line
        while (end && !canvas[row * width + end - 1]) end--;
        for (unsigned column = 0; column < end; column++) {
            unsigned style = canvas[row * width + column];
            const char *const *marks = unicode ? unicode_mark : ascii_mark;
            dp_put(out, "%s", style ? marks[style - 1] : " ");
        }
        dp_put(out, "\n");
    }
}

void dp_plot_text(const struct dp_curve *curve, size_t curves, const char *x_name,
                  const char *y_name, unsigned width, unsigned height, bool unicode,
                  struct lh_buf *out)
{
    uint8_t canvas[WIDTH_MAX * HEIGHT_MAX] = {0};
    double mean[COLUMNS_SVG];
    struct frame f;
    if (width < 10) width = 10;
    if (width > WIDTH_MAX) width = WIDTH_MAX;
    if (height < 3) height = 3;
    if (height > HEIGHT_MAX) height = HEIGHT_MAX;
    if (!frame_of(curve, curves, &f)) {
        dp_put(out, "%s: nothing to draw\n", y_name);
        return;
    }
    for (size_t c = 0; c < curves; c++) {
        means(&curve[c], &f, width, mean);
        for (unsigned column = 0; column < width; column++) {
            if (isnan(mean[column])) continue;
            double at = (f.y_max - mean[column]) / (f.y_max - f.y_min) * (height - 1);
            canvas[(unsigned)lround(at) * width + column] = (uint8_t)(1 + c % STYLES);
        }
    }
    dp_put(out, "%s\n", y_name);
    put_canvas(canvas, width, height, &f, unicode, out);
    dp_put(out, "%8s %s", "", unicode ? "└" : "+");
    for (unsigned i = 0; i < width; i++) dp_put(out, "%s", unicode ? "─" : "-");
    char left[32], right[32];
    snprintf(left, sizeof left, "%.0f", f.x_min);
    snprintf(right, sizeof right, "%.0f %s", f.x_max, x_name);
    dp_put(out, "\n%10s%s%*s\n%10s", "", left, (int)(width - strlen(left)), right, "");
    for (size_t c = 0; c < curves; c++)
        dp_put(out, "%s %s   ", (unicode ? unicode_mark : ascii_mark)[c % STYLES], curve[c].name);
    dp_put(out, "\n");
}

// ---------------------------------------------------------------- svg

static void put_escaped(struct lh_buf *out, const char *text)
{
    for (; *text; text++) {
        const char *as = *text == '&'   ? "&amp;"
                         : *text == '<' ? "&lt;"
                         : *text == '>' ? "&gt;"
                                        : NULL;
        if (as)
            dp_put(out, "%s", as);
        else
            dp_put(out, "%c", *text);
    }
}

enum { LEFT = 70, TOP = 50, PLOT_W = 800, PLOT_H = 400 };

static void svg_text(struct lh_buf *out, double x, double y, const char *anchor, const char *text)
{
    dp_put(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    put_escaped(out, text);
    dp_put(out, "</text>\n");
}

static void svg_axes(struct lh_buf *out, const struct frame *f)
{
    char label[32];
    for (int i = 0; i <= 5; i++) {
        double y = TOP + PLOT_H * i / 5.0, x = LEFT + PLOT_W * i / 5.0;
        dp_put(out, "<path d=\"M%d %.1fh%d\" stroke=\"#ddd\"/>\n", LEFT, y, PLOT_W);
        snprintf(label, sizeof label, "%.2f", f->y_max - (f->y_max - f->y_min) * i / 5);
        svg_text(out, LEFT - 8, y + 4, "end", label);
        // labels of a short axis differ only in their fractions
        snprintf(label, sizeof label, f->x_max - f->x_min < 10 ? "%.2f" : "%.0f",
                 f->x_min + (f->x_max - f->x_min) * i / 5);
        svg_text(out, x, TOP + PLOT_H + 20, "middle", label);
    }
    dp_put(out, "<path d=\"M%d %dv%dh%d\" fill=\"none\" stroke=\"#333\"/>\n", LEFT, TOP, PLOT_H,
           PLOT_W);
}

static void svg_curve(struct lh_buf *out, const struct dp_curve *c, size_t index,
                      const struct frame *f)
{
    double mean[COLUMNS_SVG];
    means(c, f, COLUMNS_SVG, mean);
    dp_put(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"",
           color[index % STYLES]);
    for (int i = 0; i < COLUMNS_SVG; i++)
        if (!isnan(mean[i]))
            dp_put(out, "%.1f,%.1f ", LEFT + (i + 0.5) * PLOT_W / COLUMNS_SVG,
                   TOP + (f->y_max - mean[i]) / (f->y_max - f->y_min) * PLOT_H);
    dp_put(out, "\"/>\n");
    double x = LEFT + 20 + 150 * (double)(index % 5),
           y = TOP + PLOT_H + 62 + 18 * (double)(index / 5);
    dp_put(out, "<path d=\"M%.0f %.0fh24\" stroke=\"%s\" stroke-width=\"3\"/>\n", x, y - 4,
           color[index % STYLES]);
    svg_text(out, x + 30, y, "start", c->name);
}

void dp_plot_svg(const struct dp_curve *curve, size_t curves, const char *title, const char *x_name,
                 const char *y_name, struct lh_buf *out)
{
    struct frame f;
    int height = TOP + PLOT_H + 80 + 18 * (int)(curves / 5);
    bool any = frame_of(curve, curves, &f);
    dp_put(out,
           "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
           "font-family=\"sans-serif\" font-size=\"12\">\n"
           "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
           LEFT + PLOT_W + 30, height);
    svg_text(out, LEFT, 20, "start", title);
    svg_text(out, LEFT, 40, "start", y_name);
    svg_text(out, LEFT + PLOT_W, TOP + PLOT_H + 40, "end", x_name);
    if (any) {
        svg_axes(out, &f);
        for (size_t c = 0; c < curves; c++) svg_curve(out, &curve[c], c, &f);
    }
    dp_put(out, "</svg>\n");
}
