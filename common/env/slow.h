// Measures a wait for the disk and logs it: after LH_DISK_SLOW, and again each time its age has
// doubled.
#ifndef LH_COMMON_SLOW_H
#define LH_COMMON_SLOW_H

#include "common/env/log.h"

#define LH_DISK_SLOW (2 * LH_SECOND)

struct lh_slow {
    bool waits;
    int64_t since_ns, say_ns; // say_ns: age of the next log line
};

void lh_slow_begin(struct lh_slow *w, int64_t now_ns);
double lh_slow_age_s(const struct lh_slow *w, int64_t now_ns); // 0: no wait
// Logs "disk.slow" when it is due: `what` waits for `where`; `effect` is a clause.
void lh_slow_look(struct lh_slow *w, int64_t now_ns, struct lh_log *log, const char *what,
                  const char *where, const char *effect);
// Ends the wait; logs "disk.again" if it was logged.
void lh_slow_end(struct lh_slow *w, int64_t now_ns, struct lh_log *log, const char *what);

#endif
