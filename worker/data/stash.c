// The stash. See stash.h.
//
// A list: its user (worker/units/travel.c) bounds it to some hundred units.
#include "worker/data/stash.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct kept {
    struct kept *next;
    uint64_t unit;
    size_t n;
    uint8_t bytes[];
};

struct wk_stash {
    pthread_mutex_t lock;
    struct kept *first;
};

// Finds the pointer to the unit; the list's end if it is absent. Call it with the lock held.
static struct kept **find(struct wk_stash *s, uint64_t unit)
{
    struct kept **at = &s->first;
    while (*at && (*at)->unit != unit) at = &(*at)->next;
    return at;
}

lh_err wk_stash_open(struct wk_stash **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return lh_fail(LH_ERR_NO_MEMORY, "no memory for units that travel");
    pthread_mutex_init(&(*out)->lock, NULL);
    return LH_OK;
}

void wk_stash_close(struct wk_stash *s)
{
    if (!s) return;
    while (s->first) wk_stash_drop(s, s->first->unit);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

lh_err wk_stash_put(struct wk_stash *s, uint64_t unit, const void *bytes, size_t n)
{
    struct kept *k = malloc(sizeof *k + n);
    if (!k) return lh_fail(LH_ERR_BUSY, "no memory for unit %" PRIu64 " now", unit);
    k->unit = unit;
    k->n = n;
    memcpy(k->bytes, bytes, n);
    pthread_mutex_lock(&s->lock);
    struct kept **at = find(s, unit);
    bool there = *at != NULL;
    if (!there) {
        k->next = NULL;
        *at = k;
    }
    pthread_mutex_unlock(&s->lock);
    if (there) free(k);
    return LH_OK;
}

bool wk_stash_get(struct wk_stash *s, uint64_t unit, void *out, size_t n)
{
    pthread_mutex_lock(&s->lock);
    const struct kept *k = *find(s, unit);
    bool whole = k && k->n >= n;
    if (whole && n) memcpy(out, k->bytes, n);
    pthread_mutex_unlock(&s->lock);
    return whole;
}

bool wk_stash_has(struct wk_stash *s, uint64_t unit)
{
    return wk_stash_get(s, unit, NULL, 0);
}

void wk_stash_drop(struct wk_stash *s, uint64_t unit)
{
    pthread_mutex_lock(&s->lock);
    struct kept **at = find(s, unit), *k = *at;
    if (k) *at = k->next;
    pthread_mutex_unlock(&s->lock);
    free(k);
}
