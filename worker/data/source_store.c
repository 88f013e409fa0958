// An object store as a source. See source.h.
//
// A handle of the store serves one thread at a time: a read takes an idle one, or opens another.
// As many stay as threads read at once.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/objects/address.h"
#include "worker/data/source.h"

enum { IDLE_MAX = 40 }; // more than the loader's threads and the lane that looks for units

struct store {
    struct wk_source base; // first
    struct lh_objects_conf conf;
    char address[LH_PATH_BYTES];
    atomic_bool stop;
    pthread_mutex_t lock; // guards the rest
    struct lh_objects *idle[IDLE_MAX];
    unsigned count;
    int64_t away_ns;   // until then reads fail at once
    int64_t failed_ns; // begin of the first failed read since the last good one; 0: none
    char why[300];
};

static LH_MUST lh_err take_handle(struct store *s, struct lh_objects **out)
{
    lh_err err = LH_OK;
    *out = NULL;
    pthread_mutex_lock(&s->lock);
    if (lh_now(s->conf.env) < s->away_ns)
        err = lh_fail(LH_ERR_UNAVAILABLE, "%s", s->why);
    else if (s->count)
        *out = s->idle[--s->count];
    pthread_mutex_unlock(&s->lock);
    return err || *out ? err : lh_objects_open(&s->conf, out);
}

static void give_handle(struct store *s, struct lh_objects *o)
{
    pthread_mutex_lock(&s->lock);
    bool kept = s->count < IDLE_MAX;
    if (kept) s->idle[s->count++] = o;
    pthread_mutex_unlock(&s->lock);
    if (!kept) lh_objects_close(o);
}

// A store that answers with a refusal is as far away as one that does not answer: a key may have
// ended, and another one comes.
static lh_err away(struct store *s, int64_t began, lh_err why)
{
    pthread_mutex_lock(&s->lock);
    if (!s->failed_ns) s->failed_ns = began;
    s->away_ns = lh_now(s->conf.env) + WK_SOURCE_AWAY_S * LH_SECOND;
    snprintf(s->why, sizeof s->why, "%s", lh_err_text(why));
    lh_err err = lh_fail(LH_ERR_UNAVAILABLE, "%s", s->why);
    pthread_mutex_unlock(&s->lock);
    return err;
}

static void answered(struct store *s)
{
    pthread_mutex_lock(&s->lock);
    s->failed_ns = 0;
    pthread_mutex_unlock(&s->lock);
}

static lh_err read_object(struct wk_source *base, const char *file, uint64_t at, void *out,
                          size_t n, size_t *got)
{
    struct store *s = (struct store *)base;
    struct lh_objects *o;
    *got = 0;
    if (!lh_object_key_fits(file))
        return lh_fail(LH_ERR_NOT_FOUND, "%s: no object of a store is named %.100s", s->address,
                       file);
    LH_TRY(take_handle(s, &o));
    int64_t began = lh_now(s->conf.env);
    lh_err err = o->ops->get_range(o, file, at, out, n, got);
    give_handle(s, o);
    switch (err) {
    case LH_OK:
    case LH_ERR_CORRUPT: answered(s); return err;
    case LH_ERR_CANCELLED:
    case LH_ERR_NO_MEMORY: return err;
    case LH_ERR_NOT_FOUND: answered(s); return lh_fail(err, "there is no %s/%s", s->address, file);
    default: return away(s, began, err);
    }
}

static int64_t away_for(struct wk_source *base)
{
    struct store *s = (struct store *)base;
    pthread_mutex_lock(&s->lock);
    int64_t ns = s->failed_ns ? lh_now(s->conf.env) - s->failed_ns : 0;
    pthread_mutex_unlock(&s->lock);
    return ns;
}

static void hush_store(struct wk_source *base)
{
    atomic_store(&((struct store *)base)->stop, true);
}

static void close_store(struct wk_source *base)
{
    struct store *s = (struct store *)base;
    while (s->count) lh_objects_close(s->idle[--s->count]);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

lh_err wk_source_store(const struct lh_objects_conf *conf, struct wk_source **out)
{
    static const struct wk_source_ops ops = {read_object, close_store, hush_store, away_for};
    struct lh_objects *first;
    struct store *s = calloc(1, sizeof *s);
    if (!s) return lh_fail(LH_ERR_NO_MEMORY, "source %s", conf->address);
    s->base = (struct wk_source){&ops, true};
    s->conf = *conf;
    s->conf.address = s->address;
    s->conf.stop = &s->stop;
    snprintf(s->address, sizeof s->address, "%s", conf->address);
    pthread_mutex_init(&s->lock, NULL);
    lh_err err = lh_objects_open(&s->conf, &first);
    if (err) {
        close_store(&s->base);
        return lh_fail(err, "data.dir: %s", lh_err_text(err));
    }
    give_handle(s, first);
    *out = &s->base;
    return LH_OK;
}
