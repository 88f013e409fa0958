// The loader: background threads read announced units ahead, read() copies from memory.
//
// Invariants (all under `lock`, held for a copy at most, never across a fetch):
//   1. A unit is in one slot at most. A slot's bytes change only while it is READING; the
//      background thread that loads them owns them until it sets READY or FAILED.
//   2. An announcement never evicts a unit that is still needed: the unit read last, or one
//      announced but not read yet. Without a free slot it waits in the queue, and the next read()
//      of another unit frees one.
//   3. read() of a unit in no slot is a demand: served before announcements, and it may evict any
//      slot that is not READING. read() waits only then, or if prefetch is not done yet, and counts
//      the wait.
//   4. Data given by read() was checked (fetch.h).
#include "worker/data/loader.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/format/tokens.h"

enum { DEPTH_MAX = 1024, BEGINS = 32, BEGINS_FEW = 16 };
LH_STATIC_ASSERT(LH_WINDOW_MAX + LH_READ_AHEAD_MAX + 1 <= DEPTH_MAX,
                 "what is in work and read ahead fits in memory's slots");
#define NO_UNIT UINT64_MAX
static const double average_keep = 0.8, headroom = 1.5;

enum slot_state { EMPTY, READING, READY, FAILED };

struct slot {
    enum slot_state state;
    bool read;  // the trainer has read it since it was loaded
    bool again; // it was announced again while READING
    uint64_t unit;
    uint64_t used;  // rises with every use: the lowest is the least recently used
    uint8_t *bytes; // the unit's tokens and the one after them
    lh_err err;     // FAILED: the reason
    char text[400];
};

struct wk_loader {
    const struct lh_units *units;
    struct wk_source *source;
    struct wk_cache *cache;
    struct wk_fetch *fetch;
    pthread_t thread[WK_FETCHES_MAX];
    uint32_t threads;
    pthread_mutex_t lock;
    pthread_cond_t work, done; // a unit to load; a unit was loaded
    bool stop;
    uint64_t demand;  // the unit read() waits for, or NO_UNIT
    uint64_t last;    // the unit read last, or NO_UNIT
    uint64_t uses;    // source of slot.used
    uint64_t *wanted; // announced, not loaded yet, oldest first; at most `depth`
    uint32_t wanted_count;
    uint32_t depth;
    struct slot *slot;        // [depth]
    uint32_t fetching;        // threads that are fetching
    double fetch_s, unit_s;   // 0: not known yet
    int64_t begun_ns[BEGINS]; // start times of the trainer's last units, a ring
    uint64_t begun;
    // warm-up of the cache at the start
    char region[64];
    uint64_t warm_at, warm_left, warmed; // next unit to check; remaining units
    uint32_t warming;
    _Atomic int64_t waited_ns;
};

static int64_t monotonic_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// ---------------------------------------------------------------- pace (lock held)

static void took_to_fetch(struct wk_loader *l, int64_t ns)
{
    double s = (double)ns / 1e9;
    l->fetch_s = l->fetch_s > 0 ? average_keep * l->fetch_s + (1 - average_keep) * s : s;
}

// The trainer began a unit: measures how long units last, over many of them, because those of a
// window begin and end together. Time spent waiting for units is excluded.
static void came_to_a_unit(struct wk_loader *l)
{
    int64_t now = monotonic_ns() - atomic_load(&l->waited_ns);
    uint64_t units = l->begun < BEGINS ? l->begun : BEGINS;
    int64_t oldest = l->begun_ns[(l->begun - units) % BEGINS];
    if (units >= BEGINS_FEW) l->unit_s = (double)(now - oldest) / 1e9 / (double)units;
    l->begun_ns[l->begun++ % BEGINS] = now;
}

// Number of fetches that should run at once so that none is waited for. All, until both times are
// known: units announced at the start are needed soon.
static uint32_t at_once(const struct wk_loader *l)
{
    double want = l->unit_s > 0 ? ceil(headroom * l->fetch_s / l->unit_s) : l->threads;
    if (want > l->threads) return l->threads;
    return want > 1 ? (uint32_t)want : 1;
}

static uint32_t ahead_of(const struct wk_loader *l)
{
    double want = l->unit_s > 0 ? 2 * ceil(headroom * l->fetch_s / l->unit_s) : 0;
    return want > WK_AHEAD_MAX ? WK_AHEAD_MAX : want > WK_AHEAD_MIN ? (uint32_t)want : WK_AHEAD_MIN;
}

// ---------------------------------------------------------------- slots (lock held)

static struct slot *find(struct wk_loader *l, uint64_t unit)
{
    for (uint32_t i = 0; i < l->depth; i++)
        if (l->slot[i].state != EMPTY && l->slot[i].unit == unit) return &l->slot[i];
    return NULL;
}

// True: an announcement may evict this slot. See invariant 2.
static bool is_spent(const struct wk_loader *l, const struct slot *s)
{
    return s->state == FAILED || (s->state == READY && s->read && s->unit != l->last);
}

static struct slot *choose_victim(struct wk_loader *l, bool demanded)
{
    struct slot *oldest = NULL;
    for (uint32_t i = 0; i < l->depth; i++) {
        struct slot *s = &l->slot[i];
        if (s->state == EMPTY) return s;
        if (is_spent(l, s) && (!oldest || s->used < oldest->used)) oldest = s;
    }
    if (oldest || !demanded) return oldest;
    for (uint32_t i = 0; i < l->depth; i++) {
        struct slot *s = &l->slot[i];
        if (s->state != READING && (!oldest || s->used < oldest->used)) oldest = s;
    }
    return oldest; // NULL: all are READING; the first that is done is free
}

static void forget_wanted(struct wk_loader *l, uint64_t unit)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < l->wanted_count; i++)
        if (l->wanted[i] != unit) l->wanted[kept++] = l->wanted[i];
    l->wanted_count = kept;
}

// The next unit to load, and its slot; NULL: nothing to do now.
static struct slot *next_job(struct wk_loader *l)
{
    bool demanded = l->demand != NO_UNIT;
    if (!demanded && (!l->wanted_count || l->fetching >= at_once(l))) return NULL;
    uint64_t unit = demanded ? l->demand : l->wanted[0];
    struct slot *s = choose_victim(l, demanded);
    if (!s) return NULL;
    forget_wanted(l, unit);
    if (demanded) l->demand = NO_UNIT;
    s->state = READING;
    s->read = s->again = false;
    s->unit = unit;
    s->used = ++l->uses;
    return s;
}

// The next unit of the warm-up, or NO_UNIT. At least one thread stays free for needed units.
static uint64_t next_warm(struct wk_loader *l)
{
    if (l->demand != NO_UNIT || l->wanted_count || (l->warming && l->warming + 1 >= l->threads))
        return NO_UNIT;
    if (l->warm_left && !wk_cache_ready(l->cache)) return NO_UNIT;
    while (l->warm_left) {
        uint64_t unit = l->warm_at++;
        if (unit >= l->units->count) l->warm_left = 0;
        if (unit >= l->units->count || strcmp(l->units->unit[unit].home, l->region) != 0) continue;
        l->warm_left--;
        if (wk_fetch_is_cached(l->fetch, unit)) {
            l->warmed++;
        } else if (wk_cache_room(l->cache) < 2 * wk_fetch_bytes(l->fetch, unit)) {
            l->warm_left = 0; // full: more would only evict earlier units
        } else {
            return unit;
        }
    }
    return NO_UNIT;
}

static void want(struct wk_loader *l, uint64_t unit)
{
    forget_wanted(l, unit);
    if (l->wanted_count == l->depth) forget_wanted(l, l->wanted[0]);
    l->wanted[l->wanted_count++] = unit;
    pthread_cond_signal(&l->work);
}

// Called without the lock: the slot is READING, so no other thread touches its bytes.
static lh_err load(struct wk_loader *l, struct slot *s)
{
    free(s->bytes);
    s->bytes = malloc(wk_fetch_bytes(l->fetch, s->unit));
    if (!s->bytes) return lh_fail(LH_ERR_NO_MEMORY, "loader: no memory for unit %" PRIu64, s->unit);
    return wk_fetch_unit(l->fetch, s->unit, s->bytes);
}

static void fill_slot(struct wk_loader *l, struct slot *s)
{
    l->fetching++;
    pthread_mutex_unlock(&l->lock);
    int64_t from = monotonic_ns();
    lh_err err = load(l, s);
    int64_t took = monotonic_ns() - from;
    pthread_mutex_lock(&l->lock);
    l->fetching--;
    s->state = err ? FAILED : READY;
    s->err = err;
    if (err)
        snprintf(s->text, sizeof s->text, "%s", lh_err_text(err));
    else
        took_to_fetch(l, took);
    if (err && s->again) { // the missing data may have arrived since
        s->state = EMPTY;
        want(l, s->unit);
    }
    pthread_cond_broadcast(&l->done);
}

// A unit that can't be fetched now is reported when it is needed.
static void warm(struct wk_loader *l, uint64_t unit)
{
    l->warming++;
    pthread_mutex_unlock(&l->lock);
    uint8_t *bytes = malloc(wk_fetch_bytes(l->fetch, unit));
    lh_err err = bytes ? wk_fetch_unit(l->fetch, unit, bytes) : LH_ERR_NO_MEMORY;
    free(bytes);
    pthread_mutex_lock(&l->lock);
    l->warming--;
    l->warmed += !err;
}

static void *loader_thread(void *arg)
{
    struct wk_loader *l = arg;
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        struct slot *s = next_job(l);
        uint64_t unit = s ? NO_UNIT : next_warm(l);
        if (s || unit != NO_UNIT) pthread_cond_signal(&l->work); // another thread may have work
        if (s)
            fill_slot(l, s);
        else if (unit != NO_UNIT)
            warm(l, unit);
        else
            pthread_cond_wait(&l->work, &l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

// ---------------------------------------------------------------- the owner's side

static void free_loader(struct wk_loader *l)
{
    for (uint32_t i = 0; l->slot && i < l->depth; i++) free(l->slot[i].bytes);
    wk_fetch_close(l->fetch);
    wk_cache_close(l->cache);
    if (l->source) l->source->ops->close(l->source);
    free(l->slot);
    free(l->wanted);
    free(l);
}

void wk_loader_hush(struct wk_loader *l)
{
    if (l->source->ops->hush) l->source->ops->hush(l->source);
}

static void stop_threads(struct wk_loader *l)
{
    wk_loader_hush(l);
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (uint32_t i = 0; i < l->threads; i++) pthread_join(l->thread[i], NULL);
    pthread_cond_destroy(&l->done);
    pthread_cond_destroy(&l->work);
    pthread_mutex_destroy(&l->lock);
}

static void plan_warm_up(struct wk_loader *l, const struct wk_loader_conf *c)
{
    uint64_t own = 0;
    if (!l->cache || c->warm <= 0 || !c->region) return;
    snprintf(l->region, sizeof l->region, "%s", c->region);
    for (uint64_t u = 0; u < c->units->count; u++)
        own += strcmp(c->units->unit[u].home, l->region) == 0;
    l->warm_left = (uint64_t)ceil(c->warm * (double)own);
}

static lh_err open_parts(struct wk_loader *l, const struct wk_loader_conf *c)
{
    if (!l->source) LH_TRY(wk_source_folder(c->dir, &l->source));
    if (c->cache) LH_TRY(wk_cache_open(c->cache, c->cache_bytes, &l->cache));
    LH_TRY(wk_fetch_open(c->units, l->source, l->cache, &l->fetch));
    l->slot = calloc(c->depth, sizeof *l->slot);
    l->wanted = calloc(c->depth, sizeof *l->wanted);
    if (!l->slot || !l->wanted)
        return lh_fail(LH_ERR_NO_MEMORY, "loader: no memory for %u units", c->depth);
    return LH_OK;
}

static lh_err start_threads(struct wk_loader *l, uint32_t threads)
{
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->done, NULL);
    for (uint32_t i = 0; i < threads; i++) {
        pthread_mutex_lock(&l->lock); // the pacing reads their number
        int failed = pthread_create(&l->thread[i], NULL, loader_thread, l);
        l->threads += !failed;
        pthread_mutex_unlock(&l->lock);
        if (failed) {
            stop_threads(l);
            return lh_fail_errno(failed, "loader: cannot start its threads");
        }
    }
    return LH_OK;
}

lh_err wk_loader_open(const struct wk_loader_conf *conf, struct wk_loader **out)
{
    *out = NULL;
    if (conf->depth < 2 || conf->depth > DEPTH_MAX || conf->fetches > WK_FETCHES_MAX) {
        if (conf->source) conf->source->ops->close(conf->source);
        return lh_fail(LH_ERR_CONFIG,
                       "loader: a depth of %u units and %u fetches, expected 2 to %d "
                       "and at most %d",
                       conf->depth, conf->fetches, DEPTH_MAX, WK_FETCHES_MAX);
    }
    struct wk_loader *l = calloc(1, sizeof *l);
    if (!l) return lh_fail(LH_ERR_NO_MEMORY, "loader: no memory");
    l->units = conf->units;
    l->source = conf->source;
    l->depth = conf->depth;
    l->demand = l->last = NO_UNIT;
    lh_err err = open_parts(l, conf);
    if (!err) {
        plan_warm_up(l, conf);
        err = start_threads(l, conf->fetches ? conf->fetches : 1);
    }
    if (err)
        free_loader(l);
    else
        *out = l;
    return err;
}

void wk_loader_close(struct wk_loader *l)
{
    if (!l) return;
    stop_threads(l);
    free_loader(l);
}

uint64_t wk_loader_units(const struct wk_loader *l)
{
    return l->units->count;
}

void wk_loader_announce(struct wk_loader *l, uint64_t unit)
{
    if (unit >= l->units->count) return; // read() reports it
    pthread_mutex_lock(&l->lock);
    struct slot *s = find(l, unit);
    if (s && s->state == READY) {
        s->read = false; // it is wanted again: keep it
        s->used = ++l->uses;
    } else if (s && s->state == READING) {
        s->again = true;
    } else {
        if (s) s->state = EMPTY; // it failed; the missing data may have arrived since
        want(l, unit);
    }
    pthread_mutex_unlock(&l->lock);
}

void wk_loader_withdraw(struct wk_loader *l, uint64_t unit)
{
    pthread_mutex_lock(&l->lock);
    forget_wanted(l, unit);
    struct slot *s = find(l, unit);
    if (s) s->read = true; // evictable once it is READY
    if (s) s->again = false;
    pthread_cond_signal(&l->work);
    pthread_mutex_unlock(&l->lock);
}

// The slot that holds the unit, READY or FAILED; waits for it. Call it with the lock held.
static struct slot *wait_for(struct wk_loader *l, uint64_t unit)
{
    struct slot *s = find(l, unit);
    if (s && s->state != READING) return s;
    int64_t since = monotonic_ns();
    while (!(s = find(l, unit)) || s->state == READING) {
        if (!s) {
            l->demand = unit;
            pthread_cond_signal(&l->work);
        }
        pthread_cond_wait(&l->done, &l->lock);
    }
    atomic_fetch_add(&l->waited_ns, monotonic_ns() - since);
    return s;
}

lh_err wk_loader_read(struct wk_loader *l, uint64_t unit, uint64_t offset, uint64_t tokens,
                      uint32_t *ids)
{
    if (unit >= l->units->count)
        return lh_fail(LH_ERR_INVALID, "loader: unit %" PRIu64 "; the manifest has %" PRIu64, unit,
                       l->units->count);
    const struct lh_unit *u = &l->units->unit[unit];
    if (tokens < 1 || tokens > u->tokens || offset > u->tokens - tokens)
        return lh_fail(LH_ERR_INVALID,
                       "loader: %" PRIu64 " tokens from %" PRIu64 " of unit %" PRIu64
                       ", which has %" PRIu64,
                       tokens, offset, unit, u->tokens);
    lh_err err = LH_OK;
    bool began = false;
    pthread_mutex_lock(&l->lock);
    struct slot *s = wait_for(l, unit);
    if (s->state == FAILED) {
        err = lh_fail(s->err, "%s", s->text);
        s->state = EMPTY; // the next read tries again
    } else {
        uint32_t width = l->units->token_bytes;
        lh_tokens_decode(s->bytes + offset * width, width, tokens + 1, ids);
        began = !s->read;
        if (began) came_to_a_unit(l);
        s->read = true;
        s->used = ++l->uses;
        began |= l->last != unit;
        l->last = unit;
    }
    if (began || err) pthread_cond_signal(&l->work); // a slot read earlier may be free now
    pthread_mutex_unlock(&l->lock);
    return err;
}

void wk_loader_status(struct wk_loader *l, struct wk_loader_status *out)
{
    pthread_mutex_lock(&l->lock);
    *out = (struct wk_loader_status){
        .waited_ns = atomic_load(&l->waited_ns),
        .fetch_s = l->fetch_s,
        .unit_s = l->unit_s,
        .ahead = ahead_of(l),
        .away_ns = l->source->ops->away_ns ? l->source->ops->away_ns(l->source) : 0,
        .warmed = l->warmed,
        .counts = wk_fetch_counted(l->fetch),
    };
    pthread_mutex_unlock(&l->lock);
}

bool wk_loader_find(struct wk_loader *l, uint64_t unit, bool *kept)
{
    return wk_fetch_find(l->fetch, unit, kept);
}

lh_err wk_loader_keep(struct wk_loader *l, uint64_t unit, const uint8_t *tokens, size_t n)
{
    return wk_fetch_keep(l->fetch, unit, tokens, n);
}

void wk_loader_drop(struct wk_loader *l, uint64_t unit)
{
    wk_fetch_drop(l->fetch, unit);
}
