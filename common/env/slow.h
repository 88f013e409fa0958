// How long a wait for a disk lasts, and when its process says so: after LH_DISK_SLOW, and each time
// that it has lasted twice as long.
#ifndef LH_COMMON_SLOW_H
#define LH_COMMON_SLOW_H

#include "common/env/log.h"

#define LH_DISK_SLOW (2 * LH_SECOND)

struct lh_slow {
    bool waits;
    int64_t since_ns, say_ns; // say_ns: the age that is said next
};

void lh_slow_begin(struct lh_slow *w, int64_t now_ns);
double lh_slow_age_s(const struct lh_slow *w, int64_t now_ns); // 0: nothing waits
// Says "disk.slow" where it is time to: `what` waits, and with it `who`.
void lh_slow_look(struct lh_slow *w, int64_t now_ns, struct lh_log *log, const char *what,
                  const char *who);
// Says "disk.again" where the wait was said.
void lh_slow_end(struct lh_slow *w, int64_t now_ns, struct lh_log *log, const char *what);

#endif
