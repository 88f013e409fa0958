// The emulator's reports: a world's settings and counters, as tables or JSON Lines.
#ifndef LH_DEPLOY_WAN_REPORT_H
#define LH_DEPLOY_WAN_REPORT_H

#include <stdio.h>

#include "deploy/wan/world.h"

void dp_report_settings(const struct dp_world *world, FILE *out);

// One line for each directed pair. JSON: {"from":..., "to":..., then the counters by their names in
// struct dp_counters, "in_flight", "late_avg_us", "late_max_us"}.
void dp_report_counters(const struct dp_world *world, FILE *out, bool json);

#endif
