// Three made-up regions for tests of the balancer's policy.
#ifndef TESTS_BALANCE_RIG_H
#define TESTS_BALANCE_RIG_H

#include <stdlib.h>

#include "server/coordinator/balance/balance.h"
#include "tests/test.h"

enum { ASIA, EUROPE, AMERICA };
static const double UNIT = 1000; // tokens, and bytes

static struct ps_balance *b;
static struct ps_balance_plan *plan;

static struct ps_balance_pool pool_of(uint32_t home, double units)
{
    return (struct ps_balance_pool){.home = home,
                                    .allowed = 7,
                                    .units = (uint32_t)units,
                                    .tokens = units * UNIT,
                                    .bytes = units * UNIT};
}

// Three regions of 10 tokens/s, links of 1000 bytes/s, one pool of so many units in asia.
static int begin_with(double units)
{
    b = calloc(1, sizeof *b);
    plan = calloc(1, sizeof *plan);
    b->conf = (struct ps_balance_conf){.window = 4, .hysteresis = 0.1};
    b->regions = 3;
    for (int i = 0; i < 3; i++) {
        b->region[i].workers = 1;
        b->region[i].tokens_per_s.mean = 10;
        for (int k = 0; k < 3; k++) {
            b->link[i][k].bytes_per_s.mean = 1000;
            b->link[i][k].cap_bytes = -1;
        }
    }
    b->pools = 1;
    b->pool[0] = pool_of(ASIA, units);
    return 0;
}

static int end(void **state)
{
    (void)state;
    free(b);
    free(plan);
    return 0;
}

static struct ps_balance_choice next(uint32_t region)
{
    ps_balance_plan(b, plan);
    return ps_balance_next(b, plan, region);
}

#endif
