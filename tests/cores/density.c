// Pushes whose density falls with the run's credited tokens: each frame states its own, the reader
// of the log uses that one, and no mass is lost while the density falls.
#include "tests/cores/life.h"

static const float START = 0.75f;
static uint64_t fall_tokens; // from so many tokens on the density is the codec's
static float rest;           // the density of the codec

static float falling(void *arg, uint64_t tokens)
{
    (void)arg;
    return tokens >= fall_tokens ? rest : START;
}

// Density of the shard's newest push; 0: none is listed.
static float newest(const struct life *l, uint32_t shard)
{
    float density = 0;
    for (const struct wk_entry *e = l->worker->shard[shard].outbox.first; e; e = e->next)
        density = e->head.density;
    return density;
}

static uint64_t credited(const struct life *l)
{
    return l->worker->shard[0].replica.ledger.tokens;
}

static void begin(struct life *l)
{
    rest = l->worker->conf.codec.density;
    assert_true(rest < START);
    l->worker->conf.density = falling;
}

TEST(each_push_has_the_density_of_its_time)
{
    struct life *l = life_begin(31, 2);
    fall_tokens = UINT64_MAX;
    begin(l);
    for (uint32_t i = 0; i < 3; i++) {
        life_cut(l, 1);
        for (uint32_t shard = 0; shard < 2; shard++) assert_true(newest(l, shard) == START);
        life_rest(l);
    }
    life_mass(l);
    fall_tokens = credited(l);
    for (uint32_t i = 0; i < 3; i++) {
        life_cut(l, 1);
        for (uint32_t shard = 0; shard < 2; shard++) assert_true(newest(l, shard) == rest);
        life_rest(l);
    }
    life_mass(l);
    life_end(l);
}

// A worker that dies while the density falls restarts with all its mass.
TEST(a_worker_that_dies_on_the_way_down_keeps_its_mass)
{
    struct life *l = life_begin(32, 2);
    fall_tokens = UINT64_MAX;
    begin(l);
    life_cut(l, 2);
    life_kill(l);
    life_start(l);
    fall_tokens = 0;
    begin(l);
    life_cut(l, 2);
    life_rest(l);
    assert_true(newest(l, 0) == rest);
    life_mass(l);
    life_end(l);
}

static double told;
static unsigned tells;

static void note_rounds(void *arg, double rounds)
{
    (void)arg;
    told = rounds;
    tells++;
}

// `auto` uses the rounds that the coordinator reports; a change within a tenth is not passed on.
TEST(a_worker_hears_of_the_rounds)
{
    struct life *l = life_begin(33, 2);
    l->worker->conf.told_rounds = note_rounds;
    told = tells = 0;
    life_cut(l, 2);
    life_rest(l);
    assert_true(told >= 1);
    assert_true(tells == 1 || tells == 2); // twice if a step had fewer tokens than allowed
    life_end(l);
}
