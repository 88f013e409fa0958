// Fetching a unit. See fetch.h.
#include "worker/data/fetch.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/format/tokens.h"

enum { HEADERS = 64 };

struct kept { // tokens of a unit that arrived over the network, until it is dropped
    struct kept *next;
    uint64_t unit;
    size_t n;
    uint8_t bytes[];
};

struct wk_fetch {
    const struct lh_units *units;
    struct wk_source *source;
    struct wk_cache *cache;
    _Atomic uint64_t fetched, cached, arrived, bytes;
    pthread_mutex_t lock; // guards the fields below
    struct kept *kept;    // a list: worker/units/travel.c bounds it to some hundred units
    // Recently read headers, so that a file's header is read once.
    struct {
        char file[sizeof((struct lh_unit *)0)->file];
        uint64_t count;
    } header[HEADERS];
    unsigned headers;
};

static lh_err bad_unit(const struct lh_unit *u, const char *what)
{
    return lh_fail(LH_ERR_CORRUPT,
                   "loader: unit %" PRIu64 " of %s: %s; restore the file or run `longhaul data "
                   "prepare` again",
                   u->id, u->file, what);
}

// ---------------------------------------------------------------- the source

static lh_err read_range(struct wk_fetch *f, const struct lh_unit *u, uint64_t at, void *out,
                         size_t n)
{
    size_t got = 0;
    lh_err err = f->source->ops->read(f->source, u->file, at, out, n, &got);
    atomic_fetch_add(&f->bytes, got);
    if (!err && got < n) return bad_unit(u, "the file ends too early");
    if (!err) return LH_OK;
    char what[400];
    snprintf(what, sizeof what, "%s", lh_err_text(err));
    const char *instead = "; restore the file or run `longhaul data prepare` again";
    return lh_fail(err, "loader: unit %" PRIu64 ": %s%s", u->id, what,
                   err == LH_ERR_NOT_FOUND ? instead : "");
}

static bool known_header(struct wk_fetch *f, const char *file, uint64_t *count)
{
    bool known = false;
    pthread_mutex_lock(&f->lock);
    for (unsigned i = 0; i < HEADERS && !known; i++) {
        known = f->header[i].file[0] && !strcmp(f->header[i].file, file);
        if (known) *count = f->header[i].count;
    }
    pthread_mutex_unlock(&f->lock);
    return known;
}

static lh_err read_header(struct wk_fetch *f, const struct lh_unit *u, uint64_t *count)
{
    uint8_t head[LH_TOKENS_HEADER_BYTES];
    if (known_header(f, u->file, count)) return LH_OK;
    LH_TRY(read_range(f, u, 0, head, sizeof head));
    lh_err err = lh_tokens_header(lh_span(head, sizeof head), f->units->token_bytes, count);
    if (err) {
        char what[256];
        snprintf(what, sizeof what, "%s", lh_err_text(err));
        return bad_unit(u, what);
    }
    pthread_mutex_lock(&f->lock);
    unsigned next = f->headers++ % HEADERS;
    snprintf(f->header[next].file, sizeof f->header[next].file, "%s", u->file);
    f->header[next].count = *count;
    pthread_mutex_unlock(&f->lock);
    return LH_OK;
}

static bool is_hash_right(const struct wk_fetch *f, const struct lh_unit *u, const uint8_t *bytes)
{
    uint8_t is[EVP_MAX_MD_SIZE];
    size_t n = u->tokens * f->units->token_bytes;
    return EVP_Digest(bytes, n, is, NULL, EVP_sha256(), NULL) == 1 &&
           memcmp(is, u->sha256, sizeof u->sha256) == 0;
}

static lh_err from_source(struct wk_fetch *f, const struct lh_unit *u, uint8_t *bytes)
{
    uint64_t count, width = f->units->token_bytes, end = u->from + u->tokens;
    LH_TRY(read_header(f, u, &count));
    if (end > count) return bad_unit(u, "the file has fewer tokens than the manifest says");
    uint64_t more = end < count; // reads on into the next unit
    LH_TRY(read_range(f, u, LH_TOKENS_HEADER_BYTES + u->from * width, bytes,
                      (u->tokens + more) * width));
    if (!more) memcpy(bytes + u->tokens * width, bytes + (u->tokens - 1) * width, width);
    if (!is_hash_right(f, u, bytes))
        return bad_unit(u, "sha256 is not the manifest's, the tokens changed");
    atomic_fetch_add(&f->fetched, 1);
    return LH_OK;
}

static lh_err check_ids(const struct wk_fetch *f, const struct lh_unit *u, const uint8_t *bytes)
{
    uint64_t beyond =
        lh_tokens_beyond(bytes, f->units->token_bytes, u->tokens + 1, f->units->vocabulary);
    if (beyond > u->tokens) return LH_OK;
    char what[96];
    snprintf(what, sizeof what, "token %" PRIu64 " is not below the vocabulary of %u", beyond,
             f->units->vocabulary);
    return bad_unit(u, what);
}

// ---------------------------------------------------------------- memory

// Finds the pointer to the unit; the list's end if it is absent. Call it with the lock held.
static struct kept **find(struct wk_fetch *f, uint64_t unit)
{
    struct kept **at = &f->kept;
    while (*at && (*at)->unit != unit) at = &(*at)->next;
    return at;
}

// Copies the n bytes; a unit that is already kept does not change.
static LH_MUST lh_err put(struct wk_fetch *f, uint64_t unit, const void *bytes, size_t n)
{
    struct kept *k = malloc(sizeof *k + n);
    if (!k) return lh_fail(LH_ERR_BUSY, "no memory for unit %" PRIu64 " now", unit);
    *k = (struct kept){.unit = unit, .n = n};
    memcpy(k->bytes, bytes, n);
    pthread_mutex_lock(&f->lock);
    struct kept **at = find(f, unit);
    bool there = *at != NULL;
    if (!there) *at = k;
    pthread_mutex_unlock(&f->lock);
    if (there) free(k);
    return LH_OK;
}

// Copies the unit's first n bytes out. False: it is absent or has fewer.
static bool get(struct wk_fetch *f, uint64_t unit, void *out, size_t n)
{
    pthread_mutex_lock(&f->lock);
    const struct kept *k = *find(f, unit);
    bool whole = k && k->n >= n;
    if (whole && n) memcpy(out, k->bytes, n);
    pthread_mutex_unlock(&f->lock);
    return whole;
}

void wk_fetch_drop(struct wk_fetch *f, uint64_t unit)
{
    pthread_mutex_lock(&f->lock);
    struct kept **at = find(f, unit), *k = *at;
    if (k) *at = k->next;
    pthread_mutex_unlock(&f->lock);
    free(k);
}

// ---------------------------------------------------------------- the cache

// Includes the manifest's own hash, because the unit's sha256 does not cover the token after it.
static void name_of(const struct wk_fetch *f, const struct lh_unit *u, char out[WK_CACHE_NAME])
{
    const uint8_t *m = f->units->hash.b;
    int n = snprintf(out, WK_CACHE_NAME, "%02x%02x%02x%02x-%" PRIu64 "-", m[0], m[1], m[2], m[3],
                     u->id);
    for (size_t i = 0; i < sizeof u->sha256 && n + 2 < WK_CACHE_NAME; i++, n += 2)
        snprintf(out + n, 3, "%02x", u->sha256[i]);
}

bool wk_fetch_is_cached(struct wk_fetch *f, uint64_t unit)
{
    char name[WK_CACHE_NAME];
    name_of(f, &f->units->unit[unit], name);
    return f->cache && wk_cache_has(f->cache, name);
}

size_t wk_fetch_bytes(const struct wk_fetch *f, uint64_t unit)
{
    return (size_t)(f->units->unit[unit].tokens + 1) * f->units->token_bytes;
}

// The token after an arrived unit belongs to another unit and did not arrive: repeats the last one.
static void repeat_last(const struct wk_fetch *f, const struct lh_unit *u, uint8_t *bytes)
{
    size_t width = f->units->token_bytes, n = (size_t)u->tokens * width;
    memcpy(bytes + n, bytes + n - width, width);
}

lh_err wk_fetch_unit(struct wk_fetch *f, uint64_t unit, uint8_t *bytes)
{
    const struct lh_unit *u = &f->units->unit[unit];
    char name[WK_CACHE_NAME];
    size_t n = wk_fetch_bytes(f, unit);
    if (get(f, unit, bytes, n - f->units->token_bytes)) { // it was checked
        repeat_last(f, u, bytes);
        atomic_fetch_add(&f->arrived, 1);
        return check_ids(f, u, bytes);
    }
    name_of(f, u, name);
    if (f->cache && wk_cache_get(f->cache, name, bytes, n) && is_hash_right(f, u, bytes)) {
        atomic_fetch_add(&f->cached, 1);
        return check_ids(f, u, bytes);
    }
    LH_TRY(from_source(f, u, bytes));
    LH_TRY(check_ids(f, u, bytes));
    if (f->cache) (void)wk_cache_put(f->cache, name, bytes, n); // without it only slower
    return LH_OK;
}

// ---------------------------------------------------------------- units that travel

// True: the file exists up to the unit's last token. read() reports any error.
static bool in_source(struct wk_fetch *f, const struct lh_unit *u)
{
    uint8_t last;
    size_t got = 0;
    uint64_t count;
    if (f->source->far) return read_header(f, u, &count) != LH_ERR_NOT_FOUND; // one a file
    uint64_t end = LH_TOKENS_HEADER_BYTES + (u->from + u->tokens) * f->units->token_bytes;
    lh_err err = f->source->ops->read(f->source, u->file, end - 1, &last, 1, &got);
    return err != LH_ERR_NOT_FOUND;
}

// A unit that only the cache has is loaded into memory: the cache may evict it before it is needed.
bool wk_fetch_find(struct wk_fetch *f, uint64_t unit, bool *kept)
{
    const struct lh_unit *u = &f->units->unit[unit];
    char name[WK_CACHE_NAME];
    size_t n = wk_fetch_bytes(f, unit);
    *kept = get(f, unit, NULL, 0);
    if (*kept || in_source(f, u)) return true;
    name_of(f, u, name);
    uint8_t *bytes = f->cache && wk_cache_has(f->cache, name) ? malloc(n) : NULL;
    *kept = bytes && wk_cache_get(f->cache, name, bytes, n) && is_hash_right(f, u, bytes) &&
            put(f, unit, bytes, n - f->units->token_bytes) == LH_OK;
    free(bytes);
    return *kept;
}

lh_err wk_fetch_keep(struct wk_fetch *f, uint64_t unit, const uint8_t *tokens, size_t n)
{
    const struct lh_unit *u = &f->units->unit[unit];
    char name[WK_CACHE_NAME];
    size_t all = wk_fetch_bytes(f, unit);
    LH_TRY(put(f, unit, tokens, n));
    uint8_t *bytes = f->cache ? malloc(all) : NULL;
    if (!bytes) return LH_OK;
    memcpy(bytes, tokens, n);
    repeat_last(f, u, bytes);
    name_of(f, u, name);
    (void)wk_cache_put(f->cache, name, bytes, all); // the next start finds it
    free(bytes);
    return LH_OK;
}

// ---------------------------------------------------------------- life

lh_err wk_fetch_open(const struct lh_units *units, struct wk_source *source, struct wk_cache *cache,
                     struct wk_fetch **out)
{
    struct wk_fetch *f = calloc(1, sizeof *f);
    if (!f) return lh_fail(LH_ERR_NO_MEMORY, "loader");
    f->units = units;
    f->source = source;
    f->cache = cache;
    pthread_mutex_init(&f->lock, NULL);
    *out = f;
    return LH_OK;
}

void wk_fetch_close(struct wk_fetch *f)
{
    if (!f) return;
    while (f->kept) wk_fetch_drop(f, f->kept->unit);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

struct wk_fetch_counts wk_fetch_counted(const struct wk_fetch *f)
{
    return (struct wk_fetch_counts){atomic_load(&f->fetched), atomic_load(&f->cached),
                                    atomic_load(&f->arrived), atomic_load(&f->bytes)};
}
