// Findings of `longhaul doctor` and `up --plan`, a line each.
#ifndef DP_FINDING_H
#define DP_FINDING_H

#include <stdio.h>

enum dp_finding { DP_FINE, DP_MAY_FAIL, DP_FAILS };

struct dp_check {
    FILE *out;
    unsigned warnings; // may go wrong
    unsigned failures; // will go wrong
};

// Writes a line, and counts it.
void dp_check_say(struct dp_check *c, enum dp_finding level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
