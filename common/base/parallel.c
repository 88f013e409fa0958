// Parts on several threads. See parallel.h.
//
// Threads live for one call: starting one takes tens of microseconds and a part milliseconds, and
// no thread pool needs an owner.
#include "common/base/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

enum { COPY_BYTES = 4 << 20 };

struct parallel {
    size_t n;
    void (*part)(void *arg, size_t i);
    void *arg;
    atomic_size_t next;
};

static void *take_parts(void *arg)
{
    struct parallel *p = arg;
    for (size_t i; (i = atomic_fetch_add(&p->next, 1)) < p->n;) p->part(p->arg, i);
    return NULL;
}

size_t lh_processors(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? 1 : (size_t)CPU_COUNT(&set);
}

void lh_parallel(size_t n, void (*part)(void *arg, size_t i), void *arg)
{
    size_t threads = n < 2 ? n : lh_processors();
    lh_parallel_on(threads < LH_PARALLEL_MAX ? threads : LH_PARALLEL_MAX, n, part, arg);
}

void lh_parallel_on(size_t threads, size_t n, void (*part)(void *arg, size_t i), void *arg)
{
    struct parallel p = {.n = n, .part = part, .arg = arg};
    pthread_t other[LH_PARALLEL_ON_MAX];
    size_t most = threads < n ? threads : n, others = 0;
    if (most > LH_PARALLEL_ON_MAX) most = LH_PARALLEL_ON_MAX;
    while (others + 1 < most && !pthread_create(&other[others], NULL, take_parts, &p)) others++;
    take_parts(&p);
    while (others) pthread_join(other[--others], NULL);
}

struct copy {
    uint8_t *to;
    const uint8_t *from;
    size_t n;
};

static void copy_part(void *arg, size_t i)
{
    const struct copy *c = arg;
    size_t at = i * COPY_BYTES, n = c->n - at < COPY_BYTES ? c->n - at : COPY_BYTES;
    memcpy(c->to + at, c->from + at, n);
}

void lh_parallel_copy(void *to, const void *from, size_t n)
{
    struct copy c = {to, from, n};
    lh_parallel((n + COPY_BYTES - 1) / COPY_BYTES, copy_part, &c);
}
