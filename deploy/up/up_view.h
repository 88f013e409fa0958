// Live progress, for a terminal or as lines. See up_view.c.
#ifndef DP_UP_VIEW_H
#define DP_UP_VIEW_H

#include "deploy/up/up.h"

struct dp_view {
    bool terminal;
    unsigned lines; // lines of the last picture
    int64_t last_ns;
};
void dp_view_open(struct dp_view *v);
void dp_view_show(struct dp_view *v, const struct dp_up *up, bool now);
// Prints a line of news above the picture.
void dp_view_say(struct dp_view *v, const struct dp_up *up, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
