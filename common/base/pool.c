// The pool of large blobs. See pool.h.
//
// `holders` counts the owner and every blob in use; the last one frees the pool. `bytes` counts all
// blobs, in use and cached.
#include "common/base/pool.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/base/check.h"

enum {
    KEPT_MAX = 16,
    SMALL = 1 << 20, // below this malloc() is as fast
    GRAINS = 16,     // capacities are multiples of about len / 16: shards have similar sizes
};

struct lh_pool {
    pthread_mutex_t lock;
    size_t bytes_max, bytes, holders, kept;
    struct lh_blob *keep[KEPT_MAX];
    bool closed;
};

struct lh_pool *lh_pool_create(size_t bytes_max)
{
    struct lh_pool *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    pthread_mutex_init(&p->lock, NULL);
    p->bytes_max = bytes_max;
    p->holders = 1;
    return p;
}

static void drop_kept(struct lh_pool *p, size_t i)
{
    p->bytes -= p->keep[i]->cap;
    free(p->keep[i]);
    p->keep[i] = p->keep[--p->kept];
}

// Drops one holder and releases the lock.
static void let_go(struct lh_pool *p)
{
    bool last = --p->holders == 0;
    pthread_mutex_unlock(&p->lock);
    if (!last) return;
    pthread_mutex_destroy(&p->lock);
    free(p);
}

void lh_pool_trim(struct lh_pool *p)
{
    pthread_mutex_lock(&p->lock);
    while (p->kept) drop_kept(p, p->kept - 1);
    pthread_mutex_unlock(&p->lock);
}

void lh_pool_keep(struct lh_pool *p, size_t bytes_max)
{
    pthread_mutex_lock(&p->lock);
    p->bytes_max = bytes_max;
    while (p->kept && p->bytes > bytes_max) drop_kept(p, 0);
    pthread_mutex_unlock(&p->lock);
}

size_t lh_pool_bytes(struct lh_pool *p)
{
    pthread_mutex_lock(&p->lock);
    size_t bytes = p->bytes;
    pthread_mutex_unlock(&p->lock);
    return bytes;
}

void lh_pool_destroy(struct lh_pool *p)
{
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    while (p->kept) drop_kept(p, p->kept - 1);
    p->closed = true;
    let_go(p);
}

// The smallest cached blob of `len` to 2 * `len` bytes.
static struct lh_blob *fitting(struct lh_pool *p, size_t len)
{
    size_t best = KEPT_MAX;
    for (size_t i = 0; i < p->kept; i++)
        if (p->keep[i]->cap >= len && p->keep[i]->cap / 2 <= len &&
            (best == KEPT_MAX || p->keep[i]->cap < p->keep[best]->cap))
            best = i;
    if (best == KEPT_MAX) return NULL;
    struct lh_blob *b = p->keep[best];
    p->keep[best] = p->keep[--p->kept];
    return b;
}

struct lh_blob *lh_pool_blob(struct lh_pool *p, size_t len)
{
    if (len < SMALL || len > SIZE_MAX / 2) return lh_blob_new(len);
    size_t grain = SMALL;
    while (grain * GRAINS * 2 <= len) grain *= 2;
    size_t cap = (len + grain - 1) / grain * grain;
    pthread_mutex_lock(&p->lock);
    struct lh_blob *b = fitting(p, len);
    while (!b && p->kept && p->bytes + cap > p->bytes_max) drop_kept(p, 0);
    if (!b && (b = lh_blob_new(cap)) != NULL) p->bytes += b->cap;
    if (b) {
        b->home = p;
        b->len = len;
        atomic_store_explicit(&b->owners, 1, memory_order_relaxed);
        p->holders++;
    }
    pthread_mutex_unlock(&p->lock);
    return b;
}

// Drops small blobs first: large ones cost more to make, and a snapshot's many small ones would
// fill every slot.
static void make_place(struct lh_pool *p, size_t cap)
{
    while (p->kept == KEPT_MAX || p->bytes > p->bytes_max) {
        size_t least = 0;
        for (size_t i = 1; i < p->kept; i++)
            if (p->keep[i]->cap < p->keep[least]->cap) least = i;
        if (!p->kept || p->keep[least]->cap >= cap) return;
        drop_kept(p, least);
    }
}

void lh_pool_take_back(struct lh_pool *p, struct lh_blob *b)
{
    pthread_mutex_lock(&p->lock);
    make_place(p, b->cap);
    if (!p->closed && p->kept < KEPT_MAX && p->bytes <= p->bytes_max) {
        p->keep[p->kept++] = b;
    } else {
        p->bytes -= b->cap;
        free(b);
    }
    let_go(p);
}
