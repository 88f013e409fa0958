// A listener's clock. See listener.h.
#include "common/net/listener.h"

void lh_listener_start(struct lh_listener *l, int64_t now_ns, int64_t gap_ns, int64_t rest_max_ns)
{
    *l = (struct lh_listener){
        .gap_ns = gap_ns, .rest_max_ns = rest_max_ns, .looked_ns = now_ns, .ns = now_ns};
}

int64_t lh_listener_look(struct lh_listener *l, int64_t now_ns)
{
    int64_t gap = now_ns - l->looked_ns;
    if (gap <= 0) return l->ns;
    l->looked_ns = now_ns;
    if (gap > l->gap_ns) {
        l->pauses++;
        int64_t rest = gap < l->rest_max_ns ? gap : l->rest_max_ns;
        if (l->rest_ns < rest) l->rest_ns = rest;
        return l->ns;
    }
    int64_t rested = gap < l->rest_ns ? gap : l->rest_ns;
    l->rest_ns -= rested;
    l->ns += gap - rested;
    return l->ns;
}

bool lh_listener_rests(const struct lh_listener *l)
{
    return l->rest_ns > 0;
}
