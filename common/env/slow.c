// Waits for a disk. See slow.h.
#include "common/env/slow.h"

#include "common/env/env.h"

void lh_slow_begin(struct lh_slow *w, int64_t now_ns)
{
    *w = (struct lh_slow){.waits = true, .since_ns = now_ns, .say_ns = LH_DISK_SLOW};
}

double lh_slow_age_s(const struct lh_slow *w, int64_t now_ns)
{
    return w->waits ? (double)(now_ns - w->since_ns) / LH_SECOND : 0;
}

void lh_slow_look(struct lh_slow *w, int64_t now_ns, struct lh_log *log, const char *what,
                  const char *where, const char *effect)
{
    int64_t age = now_ns - w->since_ns;
    if (!w->waits || age < w->say_ns) return;
    while (age >= w->say_ns) w->say_ns *= 2;
    lh_logf(log, LH_WARN, "disk.slow",
            "%s has waited for %s for %.1f s; %s meanwhile. Look at %s: nothing is lost while it "
            "hangs",
            what, where, (double)age / LH_SECOND, effect, where);
}

void lh_slow_end(struct lh_slow *w, int64_t now_ns, struct lh_log *log, const char *what)
{
    if (w->waits && w->say_ns > LH_DISK_SLOW)
        lh_logf(log, LH_INFO, "disk.again", "%s is durable after %.1f s", what,
                lh_slow_age_s(w, now_ns));
    w->waits = false;
}
