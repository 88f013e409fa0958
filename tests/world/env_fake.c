// The fake world: virtual clock, events, crashes. The files are in env_fake_files.c. See
// env_fake.h.
//
// Invariants: 1. events run in order of (time, sequence number); equal seeds give equal runs.
// 2. A node's event runs only in the life that made it, and not during a stall. 3. A dead node's
// operations fail or do nothing; a running handler may finish, but without effect outside.
#include "tests/world/env_fake.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "tests/world/env_fake_files.h"

enum { SLOT_BITS = 24 }; // bits of a timer's id for its slot; bounds the pending events

struct event {
    int64_t at, due; // they differ after a stall of its node
    uint64_t sequence;
    uint32_t slot;            // its index in lh_fake_world.place
    struct lh_fake_env *node; // NULL: an event of the world
    uint64_t life;
    lh_fn fn, lost;
    void *arg;
};

struct lh_fake_world {
    struct event *heap;
    size_t events, cap;
    size_t *place;       // [cap] heap index of the slot's event
    uint32_t *free_slot; // [cap] from index `events` on: free slots
    int64_t now;
    bool struck; // a node has crashed and its on_death() was not called yet
    uint64_t sequence, handled, random;
    struct lh_fake_env **node;
    size_t nodes;
};

// ---------------------------------------------------------------- randomness: splitmix64

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint64_t lh_fake_random(struct lh_fake_world *w)
{
    return splitmix(&w->random);
}

static void fake_random(struct lh_env *env, void *out, size_t n)
{
    struct lh_fake_env *e = (struct lh_fake_env *)env;
    for (uint8_t *at = out; n;) {
        uint64_t v = splitmix(&e->random);
        size_t k = n < 8 ? n : 8;
        memcpy(at, &v, k);
        at += k;
        n -= k;
    }
}

// ---------------------------------------------------------------- events

static bool before(const struct event *a, const struct event *b)
{
    if (a->at != b->at) return a->at < b->at;
    return a->due != b->due ? a->due < b->due : a->sequence < b->sequence;
}

static void set(struct lh_fake_world *w, size_t i, struct event e)
{
    w->heap[i] = e;
    w->place[e.slot] = i;
}

static void swap(struct lh_fake_world *w, size_t i, size_t k)
{
    struct event t = w->heap[i];
    set(w, i, w->heap[k]);
    set(w, k, t);
}

static void sift_up(struct lh_fake_world *w, size_t i)
{
    for (; i && before(&w->heap[i], &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        swap(w, i, (i - 1) / 2);
}

static void sift_down(struct lh_fake_world *w, size_t i)
{
    for (;;) {
        size_t least = i;
        for (size_t k = 2 * i + 1; k <= 2 * i + 2 && k < w->events; k++)
            if (before(&w->heap[k], &w->heap[least])) least = k;
        if (least == i) return;
        swap(w, i, least);
        i = least;
    }
}

static struct event take(struct lh_fake_world *w, size_t i)
{
    struct event e = w->heap[i];
    w->free_slot[--w->events] = e.slot;
    if (i < w->events) {
        set(w, i, w->heap[w->events]);
        sift_up(w, i);
        sift_down(w, i);
    }
    return e;
}

static void grow(struct lh_fake_world *w)
{
    size_t cap = w->cap ? 2 * w->cap : 256;
    LH_ASSERT(cap <= 1u << SLOT_BITS);
    w->heap = realloc(w->heap, cap * sizeof *w->heap);
    w->place = realloc(w->place, cap * sizeof *w->place);
    w->free_slot = realloc(w->free_slot, cap * sizeof *w->free_slot);
    LH_ASSERT(w->heap && w->place && w->free_slot);
    for (; w->cap < cap; w->cap++) {
        w->free_slot[w->cap] = (uint32_t)w->cap;
        w->place[w->cap] = 0;
    }
}

static uint32_t put(struct lh_fake_world *w, struct event e)
{
    if (w->events == w->cap) grow(w);
    e.slot = w->free_slot[w->events];
    set(w, w->events, e);
    sift_up(w, w->events++);
    return e.slot;
}

// Returns the timer's id: its sequence number and its slot.
static uint64_t add(struct lh_fake_world *w, int64_t delay, struct lh_fake_env *node, lh_fn fn,
                    lh_fn lost, void *arg)
{
    int64_t at = w->now + (delay > 0 ? delay : 0);
    uint64_t life = node ? node->life : 0;
    uint32_t slot = put(w, (struct event){at, at, ++w->sequence, 0, node, life, fn, lost, arg});
    return w->sequence << SLOT_BITS | slot;
}

void lh_fake_at(struct lh_fake_world *w, int64_t delay_ns, lh_fn fn, void *arg)
{
    add(w, delay_ns, NULL, fn, NULL, arg);
}

void lh_fake_deliver(struct lh_env *to, int64_t delay_ns, lh_fn fn, lh_fn lost, void *arg)
{
    struct lh_fake_env *e = (struct lh_fake_env *)to;
    if (e->alive)
        add(e->world, delay_ns, e, fn, lost, arg);
    else if (lost)
        lost(arg);
}

static bool stands_still(const struct event *e)
{
    const struct lh_fake_env *n = e->node;
    return n && n->alive && e->life == n->life && n->still_until > e->at;
}

static void bury_struck(struct lh_fake_world *w)
{
    w->struck = false;
    for (size_t i = 0; i < w->nodes; i++)
        if (w->node[i]->struck) {
            w->node[i]->struck = false;
            w->node[i]->on_death(w->node[i]->arg);
        }
}

bool lh_fake_run(struct lh_fake_world *w, int64_t until_ns)
{
    while (w->events && w->heap[0].at <= until_ns) {
        struct event e = take(w, 0);
        w->now = e.at;
        if (stands_still(&e)) {
            e.at = e.node->still_until;
            put(w, e);
            continue;
        }
        w->handled++;
        if (e.node && (!e.node->alive || e.life != e.node->life)) {
            if (e.lost) e.lost(e.arg);
            continue;
        }
        e.fn(e.arg);
        if (w->struck) bury_struck(w);
    }
    if (w->now < until_ns && w->events) w->now = until_ns;
    return w->events > 0;
}

int64_t lh_fake_now(const struct lh_fake_world *w)
{
    return w->now;
}

uint64_t lh_fake_events(const struct lh_fake_world *w)
{
    return w->handled;
}

// ---------------------------------------------------------------- the env table

static int64_t fake_now(struct lh_env *env)
{
    return ((struct lh_fake_env *)env)->world->now;
}

static int64_t fake_wall(struct lh_env *env)
{
    return 1700000000 + fake_now(env) / LH_SECOND;
}

static uint64_t fake_after(struct lh_env *env, int64_t delay_ns, lh_fn fn, void *arg)
{
    struct lh_fake_env *e = (struct lh_fake_env *)env;
    return e->alive ? add(e->world, delay_ns, e, fn, NULL, arg) : UINT64_MAX;
}

static void fake_post(struct lh_env *env, lh_fn fn, void *arg)
{
    fake_after(env, 0, fn, arg);
}

static void fake_cancel(struct lh_env *env, uint64_t timer)
{
    struct lh_fake_world *w = ((struct lh_fake_env *)env)->world;
    uint64_t slot = timer & ((1u << SLOT_BITS) - 1);
    if (slot >= w->cap) return;
    size_t i = w->place[slot]; // stale if the slot's event is over
    if (i < w->events && w->heap[i].sequence == timer >> SLOT_BITS) take(w, i);
}

static void do_job(struct lh_fake_env *e, enum lh_lane lane, lh_job job, lh_fn done, void *arg)
{
    if (e->alive && e->take_job && e->take_job(e->jobs_arg, lane, job, done, arg)) return;
    int64_t least = job(arg);
    if (lane != LH_LANE_COMPUTE) least += (int64_t)(splitmix(&e->random) % (3 * LH_MS));
    fake_after(&e->env, least, done, arg);
}

struct late { // a job that waits for its slow or hanging disk
    struct lh_fake_env *node;
    enum lh_lane lane;
    lh_job job;
    lh_fn done;
    void *arg;
};

static void do_late(void *arg)
{
    struct late l = *(struct late *)arg;
    free(arg);
    do_job(l.node, l.lane, l.job, l.done, l.arg);
}

static void fake_work(struct lh_env *env, enum lh_lane lane, lh_job job, lh_fn done, void *arg)
{
    struct lh_fake_env *e = (struct lh_fake_env *)env;
    int64_t now = e->world->now, *begins = &e->begins[lane];
    bool files = lane == LH_LANE_DISK || lane == LH_LANE_COPY || lane == LH_LANE_STATUS;
    if (files && *begins < e->hangs_until) *begins = e->hangs_until;
    if (lane == LH_LANE_COMPUTE || !e->alive || (!e->slow && *begins <= now)) {
        do_job(e, lane, job, done, arg);
        return;
    }
    struct late *l = malloc(sizeof *l);
    LH_ASSERT(l);
    *l = (struct late){e, lane, job, done, arg};
    if (*begins < now) *begins = now; // a lane keeps the order of its jobs
    if (e->slow) *begins += (int64_t)(splitmix(&e->random) % (uint64_t)e->slow);
    add(e->world, *begins - now, e, do_late, free, l);
}

static void fake_boot_id(struct lh_env *env, uint8_t out[16])
{
    memcpy(out, ((struct lh_fake_env *)env)->boot, 16);
}

static const struct lh_env_ops fake_ops = {
    .now_ns = fake_now,
    .wall_s = fake_wall,
    .post = fake_post,
    .after = fake_after,
    .cancel = fake_cancel,
    .work = fake_work,
    .random = fake_random,
    .boot_id = fake_boot_id,
    .files = &lh_fake_files_ops,
};

// ---------------------------------------------------------------- nodes

struct lh_fake_world *lh_fake_world_create(uint64_t seed)
{
    struct lh_fake_world *w = calloc(1, sizeof *w);
    LH_ASSERT(w);
    w->random = seed * 0x9e3779b97f4a7c15u + 1;
    return w;
}

void lh_fake_world_destroy(struct lh_fake_world *w)
{
    for (size_t i = 0; i < w->nodes; i++) w->node[i]->alive = false;
    while (w->events) {
        struct event e = take(w, 0);
        if (e.lost) e.lost(e.arg);
    }
    for (size_t i = 0; i < w->nodes; i++) {
        lh_fake_disk_wipe(&w->node[i]->env);
        free(w->node[i]);
    }
    free(w->node);
    free(w->heap);
    free(w->place);
    free(w->free_slot);
    free(w);
}

struct lh_env *lh_fake_node(struct lh_fake_world *w, lh_fn on_death, void *arg)
{
    struct lh_fake_env *e = calloc(1, sizeof *e);
    w->node = realloc(w->node, (w->nodes + 1) * sizeof *w->node);
    LH_ASSERT(e && w->node);
    w->node[w->nodes++] = e;
    *e = (struct lh_fake_env){.env = {&fake_ops},
                              .world = w,
                              .on_death = on_death,
                              .arg = arg,
                              .random = splitmix(&w->random),
                              .crash_in = -1,
                              .fail_in = -1,
                              .still_in = -1,
                              .short_in = -1,
                              .sync_in = -1};
    fake_random(&e->env, e->boot, sizeof e->boot);
    return &e->env;
}

void lh_fake_boot(struct lh_env *env)
{
    struct lh_fake_env *e = (struct lh_fake_env *)env;
    LH_ASSERT(!e->alive);
    e->alive = true;
    e->no_room_in_place = false;
    e->life++;
    e->crash_in = -1;
}

bool lh_fake_alive(const struct lh_env *env)
{
    return ((const struct lh_fake_env *)env)->alive;
}

static void sort_again(struct lh_fake_world *w)
{
    for (size_t i = w->events / 2 + 1; i-- > 0;) sift_down(w, i);
}

// Makes the events that a stall delayed due, so that peers notice the node's death.
static void let_go(struct lh_fake_env *e)
{
    struct lh_fake_world *w = e->world;
    for (size_t i = 0; i < w->events; i++) {
        struct event *v = &w->heap[i];
        if (v->node == e && v->due < v->at) v->at = v->due > w->now ? v->due : w->now;
    }
    sort_again(w);
}

void lh_fake_kill(struct lh_env *env, bool power)
{
    struct lh_fake_env *e = (struct lh_fake_env *)env;
    e->alive = false;
    e->crash_in = -1;
    memset(e->begins, 0, sizeof e->begins);
    if (e->still_until) let_go(e);
    e->still_until = 0;
    e->still_in = -1;
    if (!power) return;
    lh_fake_files_power_cut(e);
    fake_random(env, e->boot, sizeof e->boot);
}

// Makes the jobs that wait for the disk due, in their order.
static void answer_again(struct lh_fake_env *e)
{
    struct lh_fake_world *w = e->world;
    for (size_t i = 0; i < w->events; i++) {
        struct event *v = &w->heap[i];
        if (v->node == e && v->fn == do_late && v->at > w->now) v->at = v->due = w->now;
    }
    for (int i = 0; i < LH_LANE_COUNT; i++)
        if (e->begins[i] > w->now) e->begins[i] = w->now;
    sort_again(w);
}

void lh_fake_hang(struct lh_env *env, int64_t ns)
{
    struct lh_fake_env *e = (struct lh_fake_env *)env;
    if (!ns && lh_fake_hangs(env)) answer_again(e);
    e->hangs_until = e->world->now + ns;
}

bool lh_fake_hangs(const struct lh_env *env)
{
    const struct lh_fake_env *e = (const struct lh_fake_env *)env;
    return e->hangs_until > e->world->now;
}

void lh_fake_crash_at(struct lh_env *env, int64_t file_operations, bool power)
{
    struct lh_fake_env *e = (struct lh_fake_env *)env;
    e->crash_in = file_operations;
    e->crash_power = power;
}

void lh_fake_slow(struct lh_env *env, int64_t ns)
{
    ((struct lh_fake_env *)env)->slow = ns;
}

static void stand_still(struct lh_fake_env *e, int64_t ns)
{
    int64_t until = e->world->now + ns;
    if (e->alive && until > e->still_until) e->still_until = until;
}

void lh_fake_stall_at(struct lh_env *env, int64_t file_operations, int64_t ns)
{
    struct lh_fake_env *e = (struct lh_fake_env *)env;
    e->still_in = file_operations;
    e->still_ns = ns;
    if (file_operations < 0) stand_still(e, ns);
}

bool lh_fake_stalled(const struct lh_env *env)
{
    const struct lh_fake_env *e = (const struct lh_fake_env *)env;
    return e->still_until > e->world->now;
}

void lh_fake_harm(struct lh_env *env, const struct lh_fake_harm *harm)
{
    ((struct lh_fake_env *)env)->harm = *harm;
}

void lh_fake_short_at(struct lh_env *env, int64_t writes)
{
    ((struct lh_fake_env *)env)->short_in = writes;
}

bool lh_fake_no_room_in_place(const struct lh_env *env)
{
    return ((const struct lh_fake_env *)env)->no_room_in_place;
}

void lh_fake_fail_sync_at(struct lh_env *env, int64_t syncs)
{
    struct lh_fake_env *e = (struct lh_fake_env *)env;
    e->sync_in = syncs;
    e->failed = false;
}

void lh_fake_jobs(struct lh_env *env, lh_fake_job_fn take_job, void *arg)
{
    struct lh_fake_env *e = (struct lh_fake_env *)env;
    e->take_job = take_job;
    e->jobs_arg = arg;
}

void lh_fake_look(struct lh_env *env, bool on)
{
    ((struct lh_fake_env *)env)->looking = on;
}

void lh_fake_fail_at(struct lh_env *env, int64_t file_operations, lh_err err)
{
    struct lh_fake_env *e = (struct lh_fake_env *)env;
    e->fail_in = file_operations;
    e->fail = err;
    e->failed = false;
}

bool lh_fake_failed(const struct lh_env *env)
{
    return ((const struct lh_fake_env *)env)->failed;
}

// Counts one file operation of a node; returns whether the node is (still) alive.
bool lh_fake_step(struct lh_fake_env *e)
{
    if (!e->alive) return false;
    if (e->still_in >= 0 && e->still_in-- == 0) stand_still(e, e->still_ns);
    if (e->crash_in < 0 || e->crash_in-- > 0) return true;
    lh_fake_kill(&e->env, e->crash_power);
    e->struck = e->world->struck = true;
    return false;
}

uint64_t lh_fake_harm_random(struct lh_fake_env *e)
{
    return splitmix(&e->harm.seed);
}

uint64_t lh_fake_env_random(struct lh_fake_env *e)
{
    return splitmix(&e->random);
}
