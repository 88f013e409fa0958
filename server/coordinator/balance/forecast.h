// Forecast: when each region will have trained all that the balancer's policy gives it, from the
// planner's input (view.h). See forecast.c.
#ifndef PS_CO_FORECAST_H
#define PS_CO_FORECAST_H

#include <jansson.h>

#include "server/coordinator/core.h"

// Gives one row per region, in the order of the units' homes: {"region", "live", "tokens_per_s",
// "held_tokens", "own_tokens", "trains_tokens", "ends_s": seconds or
// null}. An empty array: more regions than the policy takes, or no memory.
json_t *ps_co_forecast(const struct ps_coordinator *c);

#endif
