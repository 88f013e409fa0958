// Streams: the random numbers of the faults that came after the first ones, and when these strike.
//
// Each fault has a stream of its own, from the seed and its name: a seed that does without it draws
// nothing, so it means what it meant before the fault was there.
#include <string.h>

#include "tests/sim/cluster.h"

static const char *const names[] = {
#define NAME(name) #name,
    SIM_FAULTS(NAME, NAME, NAME, NAME)
#undef NAME
};

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void sim_streams(struct sim *s)
{
    for (size_t f = 0; f < SIM_FAULT_COUNT; f++) {
        uint64_t state = s->conf.seed;
        for (const char *c = names[f]; *c; c++) state = splitmix(&state) ^ (uint8_t)*c;
        s->stream[f] = splitmix(&state);
    }
}

uint64_t sim_draw(struct sim *s, enum sim_fault fault, uint64_t n)
{
    return splitmix(&s->stream[fault]) % n;
}
