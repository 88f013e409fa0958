// Implements fiber.h.
#include "tests/sim/fiber.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

#include "common/base/check.h"

struct sim_fiber {
    pthread_t thread;
    sem_t its, ours; // semaphores: the fiber's turn, the simulator's turn
    void (*fn)(void *arg);
    void *arg;
    bool ended;
#ifdef LH_PLANTED_BUGS
    const char *bug; // the bug planted in the simulator's thread
#endif
};

static void take_turn(sem_t *turn)
{
    while (sem_wait(turn)) continue; // interrupted by a signal
}

static void *run(void *arg)
{
    struct sim_fiber *f = arg;
    take_turn(&f->its);
#ifdef LH_PLANTED_BUGS
    lh_bug_plant(f->bug);
#endif
    f->fn(f->arg);
    f->ended = true;
    sem_post(&f->ours);
    return NULL;
}

struct sim_fiber *sim_fiber_start(void (*fn)(void *arg), void *arg)
{
    struct sim_fiber *f = calloc(1, sizeof *f);
    LH_ASSERT(f);
    f->fn = fn;
    f->arg = arg;
#ifdef LH_PLANTED_BUGS
    f->bug = lh_bug_planted();
#endif
    sem_init(&f->its, 0, 0);
    sem_init(&f->ours, 0, 0);
    int failed = pthread_create(&f->thread, NULL, run, f);
    LH_ASSERT(!failed);
    return f;
}

void sim_fiber_wait(struct sim_fiber *f)
{
    sem_post(&f->ours);
    take_turn(&f->its);
}

void sim_fiber_go(struct sim_fiber *f)
{
    LH_ASSERT(!f->ended);
    sem_post(&f->its);
    take_turn(&f->ours);
}

bool sim_fiber_ended(const struct sim_fiber *f)
{
    return f->ended;
}

void sim_fiber_free(struct sim_fiber *f)
{
    if (!f) return;
    LH_ASSERT(f->ended);
    pthread_join(f->thread, NULL);
    sem_destroy(&f->its);
    sem_destroy(&f->ours);
    free(f);
}
