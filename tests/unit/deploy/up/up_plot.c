// Plots of curves: where points are drawn, and a plot without points.
#include <math.h>
#include <string.h>

#include "common/base/check.h"
#include "deploy/up/up_plot.h"
#include "tests/test.h"

static char *finish(struct lh_buf *out)
{
    lh_put_u8(out, 0);
    assert_int_equal(lh_buf_err(out), LH_OK);
    return (char *)out->data;
}

TEST(a_falling_line)
{
    static const struct dp_point points[] = {{0, 6}, {1, 5}, {2, 4}, {3, 3}, {4, 2}, {NAN, 9}};
    const struct dp_curve curve = {"asia", points, LH_COUNT(points)};
    struct lh_buf out = lh_buf(1 << 16);
    dp_plot_text(&curve, 1, "s", "loss", 10, 5, false, &out);
    assert_string_equal(finish(&out), "loss\n"
                                      "    6.00 |*\n"
                                      "         |  *\n"
                                      "         |     *\n"
                                      "         |       *\n"
                                      "    2.00 |         *\n"
                                      "         +----------\n"
                                      "          0      4 s\n"
                                      "          * asia   \n");
    lh_buf_free(&out);
}

TEST(means_per_column_and_two_curves)
{
    struct dp_point many[1000], flat[2] = {{0, 0}, {999, 0}};
    for (int i = 0; i < 1000; i++) many[i] = (struct dp_point){i, i % 2 ? 4 : 0}; // mean 2
    const struct dp_curve curves[] = {{"a", many, 1000}, {"b", flat, 2}};
    struct lh_buf out = lh_buf(1 << 16);
    dp_plot_text(curves, 2, "s", "loss", 20, 5, true, &out);
    char *text = finish(&out);
    assert_non_null(strstr(text, "│●●●●●●●●●●●●●●●●●●●●\n"));
    assert_non_null(strstr(text, "┤▲                  ▲\n"));
    lh_buf_free(&out);
}

TEST(nothing_to_draw)
{
    const struct dp_curve curve = {"a", NULL, 0};
    struct lh_buf out = lh_buf(1 << 16);
    dp_plot_text(&curve, 1, "s", "loss", 20, 5, true, &out);
    assert_string_equal(finish(&out), "loss: nothing to draw\n");
    lh_buf_clear(&out);
    dp_plot_svg(&curve, 1, "t", "s", "loss", &out);
    assert_null(strstr(finish(&out), "polyline"));
    lh_buf_free(&out);
}

TEST(svg_is_closed_and_escaped)
{
    static const struct dp_point points[] = {{0, 1}, {10, 1}};
    const struct dp_curve curve = {"a<b&c", points, 2};
    struct lh_buf out = lh_buf(1 << 16);
    dp_plot_svg(&curve, 1, "run", "s", "loss", &out);
    char *text = finish(&out);
    assert_non_null(strstr(text, "a&lt;b&amp;c"));
    assert_non_null(strstr(text, "points=\"71.0,450.0 869.0,450.0 \""));
    assert_string_equal(text + strlen(text) - 7, "</svg>\n");
    lh_buf_free(&out);
}
