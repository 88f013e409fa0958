// Order: the sequence in which a run's units are leased, epoch after epoch
// (server/docs/0000-protocol.md#rule-19).
//
// 1. All units of an epoch come before all of the next one.
// 2. Epoch 0 has its units in numeric order. Each later epoch has its own shuffle (Fisher-Yates),
//    derived from the seed and the epoch: a restarted coordinator leases in the same order.
// 3. The order is no promise. With another seed after a restart, units come in another order and
//    are still credited once.
//
// Memory: 4 bytes per unit of the run if it has several epochs, else none.
#include "server/coordinator/order.h"

#include <stdlib.h>

// SplitMix64 (Steele et al. 2014): the next number of the stream.
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void ps_co_shuffle(uint64_t seed, uint32_t epoch, uint32_t *order, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) order[i] = i;
    if (!epoch) return;
    uint64_t own = seed, state = next(&own) + epoch; // neighbouring seeds give unrelated streams
    for (uint32_t left = count; left > 1; left--) {
        uint32_t i = (uint32_t)(next(&state) % left), last = order[left - 1];
        order[left - 1] = order[i];
        order[i] = last;
    }
}

lh_err ps_co_make_order(struct ps_coordinator *c)
{
    if (c->epochs == 1) return LH_OK;
    uint32_t count = (uint32_t)c->conf.units->count;
    c->order = calloc(c->units, sizeof *c->order);
    if (!c->order) return LH_ERR_NO_MEMORY;
    for (uint32_t e = 0; e < c->epochs; e++) {
        uint32_t *order = c->order + (uint64_t)e * count;
        ps_co_shuffle(c->conf.seed, e, order, count);
        for (uint32_t i = 0; i < count; i++) order[i] += e * count;
    }
    return LH_OK;
}

uint64_t ps_co_nth(const struct ps_coordinator *c, uint64_t turn)
{
    return c->order ? c->order[turn] : turn;
}

uint32_t ps_co_data_epoch(const struct ps_coordinator *c)
{
    uint64_t open = ps_co_under_way(c).from / c->conf.units->count;
    return open < c->epochs ? (uint32_t)open : c->epochs - 1;
}
