// The rows of the coordinator's store. Shape and rules: rows.h.
//
// Invariants: 1. A row is in one chain and in one list. 2. While the table grows (`old` is set),
// the chains of `old` below `moved` are empty, and new rows go to `chain`. 3. Lists and tables
// never shrink, so a removed row can be put back without allocation.
#include "server/coordinator/store/rows.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"

enum {
    CHAINS_MIN = 64,
    CHAINS_MAX = 1 << 24,
    MOVED_AT_ONCE = 2, // chains moved per change; above one, to end before the next growth
    KINDS_MAX = 256,
    SWAPPED_MAX = 64, // a longer value's row takes the place of the former one's
};

struct kind {
    char name[PS_ROW_KEY_BYTES]; // ends with a slash; "": keys without one
    size_t name_bytes;
    struct ps_row **row;
    uint32_t rows, cap;
};

struct ps_rows {
    struct ps_row **chain, **old; // old: NULL, or the table before it began to grow
    uint32_t chains, olds, moved; // powers of two; number of chains of `old` moved so far
    struct kind *kind;
    uint32_t kinds;
    uint64_t count, bytes;
};

// ---------------------------------------------------------------- table

// Neighbouring numbers at the ends of keys get neighbouring, distinct hashes, so rows of units,
// which come in order, are found without jumps through memory. Rows of ranges have numbers that are
// multiples of 64: the shift gives them all chains, not one of 64.
static uint32_t hash_of(const char *key)
{
    uint32_t h = 0;
    for (; *key; key++) h = 10 * h + (uint8_t)*key;
    return h ^ h >> 6;
}

struct ps_rows *ps_rows_create(uint64_t expected)
{
    struct ps_rows *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->chains = CHAINS_MIN;
    while (t->chains < expected && t->chains < CHAINS_MAX) t->chains *= 2;
    t->chain = calloc(t->chains, sizeof *t->chain);
    if (t->chain) return t;
    free(t);
    return NULL;
}

void ps_rows_destroy(struct ps_rows *t)
{
    if (!t) return;
    for (uint32_t k = 0; k < t->kinds; k++) {
        for (uint32_t i = 0; i < t->kind[k].rows; i++) free(t->kind[k].row[i]);
        free(t->kind[k].row);
    }
    free(t->kind);
    free(t->chain);
    free(t->old);
    free(t);
}

static void move_chains(struct ps_rows *t, uint32_t n)
{
    for (; t->old && n; n--) {
        struct ps_row *r = t->old[t->moved], *behind;
        for (; r; r = behind) {
            struct ps_row **head = &t->chain[r->hash & (t->chains - 1)];
            behind = r->behind;
            r->behind = *head;
            *head = r;
        }
        t->old[t->moved++] = NULL;
        if (t->moved < t->olds) continue;
        free(t->old);
        t->old = NULL;
    }
}

// Begins to grow if there are more rows than chains. Without memory, chains become longer.
static void grow(struct ps_rows *t)
{
    if (t->old || t->count < t->chains || t->chains >= CHAINS_MAX) return;
    struct ps_row **larger = calloc(2 * (size_t)t->chains, sizeof *larger);
    if (!larger) return;
    t->old = t->chain;
    t->olds = t->chains;
    t->moved = 0;
    t->chain = larger;
    t->chains *= 2;
}

// The pointer to this key's row, or to the NULL at the end of its chain.
static struct ps_row **look_in(struct ps_row **chain, uint32_t chains, uint32_t hash,
                               const char *key)
{
    struct ps_row **at = &chain[hash & (chains - 1)];
    while (*at && ((*at)->hash != hash || strcmp((*at)->key, key) != 0)) at = &(*at)->behind;
    return at;
}

static struct ps_row **place_of(const struct ps_rows *t, uint32_t hash, const char *key)
{
    struct ps_row **at = look_in(t->chain, t->chains, hash, key);
    if (!*at && t->old) at = look_in(t->old, t->olds, hash, key);
    return at;
}

struct ps_row *ps_rows_find(const struct ps_rows *t, const char *key)
{
    return *place_of(t, hash_of(key), key);
}

struct lh_span ps_row_value(const struct ps_row *r)
{
    return lh_span(r->key + r->key_bytes + 1, r->bytes);
}

// ---------------------------------------------------------------- kinds

static lh_err find_kind(struct ps_rows *t, const char *key, uint16_t *out)
{
    const char *slash = strchr(key, '/');
    size_t n = slash ? (size_t)(slash - key) + 1 : 0;
    for (uint32_t k = 0; k < t->kinds; k++)
        if (t->kind[k].name_bytes == n && memcmp(t->kind[k].name, key, n) == 0) {
            *out = (uint16_t)k;
            return LH_OK;
        }
    if (t->kinds == KINDS_MAX)
        return lh_fail(LH_ERR_TOO_LARGE, "more than %d kinds of rows: %.40s", KINDS_MAX, key);
    struct kind *grown = realloc(t->kind, (t->kinds + 1) * sizeof *grown);
    if (!grown) return LH_ERR_NO_MEMORY;
    t->kind = grown;
    t->kind[t->kinds] = (struct kind){.name_bytes = n};
    memcpy(t->kind[t->kinds].name, key, n);
    *out = (uint16_t)t->kinds++;
    return LH_OK;
}

static lh_err make_place(struct kind *k)
{
    if (k->rows < k->cap) return LH_OK;
    uint32_t cap = 2 * k->cap + 16;
    struct ps_row **grown = realloc(k->row, cap * sizeof *grown);
    if (!grown) return LH_ERR_NO_MEMORY;
    k->row = grown;
    k->cap = cap;
    return LH_OK;
}

// ---------------------------------------------------------------- changes

lh_err ps_rows_make(struct ps_rows *t, const char *key, struct lh_span value, struct ps_row **out)
{
    size_t n = strlen(key);
    uint16_t kind = 0;
    LH_ASSERT(n > 0 && n < PS_ROW_KEY_BYTES && value.len < UINT32_MAX);
    LH_TRY(find_kind(t, key, &kind));
    LH_TRY(make_place(&t->kind[kind]));
    struct ps_row *r = malloc(sizeof *r + n + 1 + value.len);
    if (!r) return LH_ERR_NO_MEMORY;
    *r = (struct ps_row){
        .hash = hash_of(key), .bytes = (uint32_t)value.len, .kind = kind, .key_bytes = (uint16_t)n};
    memcpy(r->key, key, n + 1);
    if (value.len) memcpy(r->key + n + 1, value.data, value.len);
    *out = r;
    return LH_OK;
}

// Swaps values of equal length, without touching any list or chain.
static void swap_values(struct ps_row *a, struct ps_row *b)
{
    uint8_t *x = (uint8_t *)a->key + a->key_bytes + 1, *y = (uint8_t *)b->key + b->key_bytes + 1;
    uint8_t part[256];
    for (size_t at = 0, n; at < a->bytes; at += n) {
        n = a->bytes - at < sizeof part ? a->bytes - at : sizeof part;
        memcpy(part, x + at, n);
        memcpy(x + at, y + at, n);
        memcpy(y + at, part, n);
    }
}

struct ps_row *ps_rows_put(struct ps_rows *t, struct ps_row *r)
{
    move_chains(t, MOVED_AT_ONCE);
    struct ps_row **at = place_of(t, r->hash, r->key), *was = *at;
    struct kind *k = &t->kind[r->kind];
    if (was && was->bytes == r->bytes && r->bytes <= SWAPPED_MAX) {
        swap_values(was, r);
        return r;
    }
    t->bytes += r->key_bytes + r->bytes;
    if (was) {
        r->behind = was->behind;
        *at = r;
        r->place = was->place;
        t->bytes -= was->key_bytes + was->bytes;
    } else {
        LH_ASSERT(k->rows < k->cap);
        at = &t->chain[r->hash & (t->chains - 1)];
        r->behind = *at;
        *at = r;
        r->place = k->rows++;
        t->count++;
    }
    k->row[r->place] = r;
    grow(t);
    return was;
}

struct ps_row *ps_rows_take(struct ps_rows *t, const char *key)
{
    move_chains(t, MOVED_AT_ONCE);
    struct ps_row **at = place_of(t, hash_of(key), key), *r = *at;
    if (!r) return NULL;
    *at = r->behind;
    struct kind *k = &t->kind[r->kind];
    k->row[r->place] = k->row[--k->rows];
    k->row[r->place]->place = r->place;
    t->count--;
    t->bytes -= r->key_bytes + r->bytes;
    return r;
}

uint64_t ps_rows_count(const struct ps_rows *t)
{
    return t->count;
}

uint64_t ps_rows_bytes(const struct ps_rows *t)
{
    return t->bytes;
}

// ---------------------------------------------------------------- in their order

// A row with its key after the prefix as numbers that compare like strcmp().
struct sorted {
    uint64_t head, next;
    const struct ps_row *row;
};

static uint64_t eight_bytes(const char *key, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < 8; i++) v = v << 8 | (i < n ? (uint8_t)key[i] : 0);
    return v;
}

static struct sorted sorted_of(const struct ps_row *r, size_t prefix)
{
    const char *rest = r->key + prefix;
    size_t n = r->key_bytes - prefix;
    return (struct sorted){eight_bytes(rest, n), n > 8 ? eight_bytes(rest + 8, n - 8) : 0, r};
}

static int by_key(const void *a, const void *b)
{
    const struct sorted *x = a, *y = b;
    if (x->head != y->head) return x->head < y->head ? -1 : 1;
    if (x->next != y->next) return x->next < y->next ? -1 : 1;
    return strcmp(x->row->key, y->row->key);
}

// Rows are often sorted already, or in reverse after a walk has written them.
static void sort(struct sorted *s, size_t n)
{
    size_t rises = 0, falls = 0;
    for (size_t i = 1; i < n; i++) {
        int order = by_key(&s[i - 1], &s[i]);
        rises += order < 0;
        falls += order > 0;
    }
    if (!falls) return;
    if (rises) qsort(s, n, sizeof *s, by_key);
    for (size_t i = 0; !rises && i < n / 2; i++) {
        struct sorted one = s[i];
        s[i] = s[n - 1 - i];
        s[n - 1 - i] = one;
    }
}

static bool may_have(const struct kind *k, const char *prefix, size_t n)
{
    return memcmp(k->name, prefix, n < k->name_bytes ? n : k->name_bytes) == 0;
}

static size_t gather(const struct kind *k, const char *prefix, size_t n, struct sorted *out)
{
    size_t found = 0;
    for (uint32_t i = 0; i < k->rows; i++)
        if (strncmp(k->row[i]->key, prefix, n) == 0) out[found++] = sorted_of(k->row[i], n);
    return found;
}

lh_err ps_rows_each(const struct ps_rows *t, const char *prefix,
                    void (*each)(void *arg, const char *key, struct lh_span value), void *arg)
{
    size_t n = strlen(prefix), most = 0, found = 0;
    for (uint32_t k = 0; k < t->kinds; k++)
        if (may_have(&t->kind[k], prefix, n)) most += t->kind[k].rows;
    if (!most) return LH_OK;
    struct sorted *list = malloc(most * sizeof *list);
    if (!list) return LH_ERR_NO_MEMORY;
    for (uint32_t k = 0; k < t->kinds; k++)
        if (may_have(&t->kind[k], prefix, n)) found += gather(&t->kind[k], prefix, n, list + found);
    sort(list, found);
    for (size_t i = 0; i < found; i++) each(arg, list[i].row->key, ps_row_value(list[i].row));
    free(list);
    return LH_OK;
}

// ---------------------------------------------------------------- a walk

// Walks a list down from its end. If a row below is removed, the last one moves there and is
// visited again; appended rows are above the walk.
struct ps_rows_walk ps_rows_walk(const struct ps_rows *t)
{
    return (struct ps_rows_walk){t->kinds, t->kinds ? t->kind[t->kinds - 1].rows : 0};
}

const struct ps_row *ps_rows_next(const struct ps_rows *t, struct ps_rows_walk *w)
{
    while (w->kind) {
        const struct kind *k = &t->kind[w->kind - 1];
        if (w->place > k->rows) w->place = k->rows;
        if (w->place) return k->row[--w->place];
        w->kind--;
        w->place = w->kind ? t->kind[w->kind - 1].rows : 0;
    }
    return NULL;
}
