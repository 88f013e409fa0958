// The channel's layout, words and messages. See channel.h and worker/docs/0001-boundary.md.
//
// 1. The layout is computed, and no value read from the memory is used as an offset unchecked.
// 2. Only little endian machines, as with the other mapped formats.
#include "worker/external/channel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(struct wk_channel_head) == 96, "bytes of the page of the head");
_Static_assert(offsetof(struct wk_channel_head, life) == 16, "as written");
_Static_assert(offsetof(struct wk_channel_head, ranks) == 48, "as written");
_Static_assert(offsetof(struct wk_channel_head, manifest) == 64, "as written");
_Static_assert(sizeof(struct wk_channel_worker) == 64, "a cache line");
_Static_assert(sizeof(struct wk_channel_worker_rank) == 64, "a cache line");
_Static_assert(sizeof(struct wk_channel_rank) == 192, "three cache lines");
_Static_assert(sizeof(struct wk_channel_entry) == 32, "as written");
_Static_assert(sizeof(struct wk_channel_part) == 64 + 32 * WK_CHANNEL_LIVE, "as written");
_Static_assert(sizeof(struct wk_channel_act) == 64, "a cache line");
_Static_assert(sizeof(struct wk_channel_done) == 128, "two cache lines");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the memory is read as it lies");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2, "words of two processes");

// ---------------------------------------------------------------- layout

static uint64_t paged(uint64_t bytes)
{
    return (bytes + WK_CHANNEL_PAGE - 1) / WK_CHANNEL_PAGE * WK_CHANNEL_PAGE;
}

static uint64_t lined(uint64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

// Bytes for one dense correction, and half as much for sparse ones.
uint64_t wk_channel_ring_bytes(uint64_t values)
{
    uint64_t tables = 8 * (wk_channel_chunks(values) + 1) * 4;
    return paged(lined(4 * values) + lined(2 * values + tables) + 4 * 64);
}

static bool first_rises(const struct wk_channel_shape *s)
{
    if (s->first[0] || s->first[s->parts] != s->values) return false;
    for (uint32_t i = 0; i < s->parts; i++)
        if (s->first[i] >= s->first[i + 1]) return false;
    return true;
}

bool wk_channel_plan(const struct wk_channel_shape *s, struct wk_channel_layout *out)
{
    bool sound = s->values && s->values <= WK_CHANNEL_VALUES_MAX && s->parts &&
                 s->parts <= WK_CHANNEL_PARTS_MAX && s->ranks && s->ranks <= WK_CHANNEL_RANKS_MAX &&
                 s->leases && s->leases <= WK_CHANNEL_LEASES_MAX && s->journal &&
                 s->journal <= WK_CHANNEL_JOURNAL_MAX;
    if (!sound || !first_rises(s)) return false;
    struct wk_channel_layout l = {0};
    uint64_t at = WK_CHANNEL_PAGE; // the header
    l.first_at = at, at += paged(8 * ((uint64_t)s->parts + 1));
    l.worker_at = at, at += paged(sizeof(struct wk_channel_worker));
    l.worker_rank_at = at, at += paged(sizeof(struct wk_channel_worker_rank) * s->ranks);
    l.part_at = at, at += paged(sizeof(struct wk_channel_part) * s->parts);
    l.lease_at = at, at += paged(sizeof(struct wk_channel_lease) * s->leases * s->ranks);
    l.rank_at = at, at += paged(sizeof(struct wk_channel_rank) * s->ranks);
    l.act_at = at, at += paged(sizeof(struct wk_channel_act) * s->parts);
    l.done_at = at, at += paged(sizeof(struct wk_channel_done) * s->parts * s->ranks);
    l.note_at = at, at += paged(sizeof(struct wk_channel_note) * s->journal * s->ranks);
    for (int i = 0; i < 2; i++) l.slot_at[i] = at, at += paged(4 * s->values);
    l.ring_at = at;
    for (uint32_t i = 0; i < s->parts; i++)
        at += wk_channel_ring_bytes(s->first[i + 1] - s->first[i]);
    l.bytes = at;
    *out = l;
    return true;
}

bool wk_channel_open(struct wk_channel *c, const struct wk_channel_shape *s, void *base)
{
    *c = (struct wk_channel){.base = base, .shape = *s};
    size_t bytes = ((size_t)s->parts + 1) * sizeof *c->first;
    if (!wk_channel_plan(s, &c->layout)) return false;
    c->first = malloc(bytes);
    c->ring_of = malloc(bytes);
    if (!c->first || !c->ring_of) {
        wk_channel_close(c);
        return false;
    }
    memcpy(c->first, s->first, bytes);
    c->shape.first = c->first;
    c->ring_of[0] = c->layout.ring_at;
    for (uint32_t i = 0; i < s->parts; i++)
        c->ring_of[i + 1] = c->ring_of[i] + wk_channel_ring_bytes(s->first[i + 1] - s->first[i]);
    return true;
}

void wk_channel_close(struct wk_channel *c)
{
    free(c->first);
    free(c->ring_of);
    *c = (struct wk_channel){0};
}

void wk_channel_format(const struct wk_channel *c, const uint8_t life[WK_CHANNEL_LIFE],
                       const uint8_t manifest[WK_CHANNEL_HASH])
{
    struct wk_channel_head *h = wk_channel_head(c);
    *h = (struct wk_channel_head){.magic = WK_CHANNEL_MAGIC,
                                  .abi = WK_CHANNEL_ABI,
                                  .parts = c->shape.parts,
                                  .values = c->shape.values,
                                  .bytes = c->layout.bytes,
                                  .ranks = c->shape.ranks,
                                  .leases = c->shape.leases,
                                  .journal = c->shape.journal};
    memcpy(h->life, life, WK_CHANNEL_LIFE);
    memcpy(h->manifest, manifest, WK_CHANNEL_HASH);
    memcpy(c->base + c->layout.first_at, c->first, 8 * ((size_t)c->shape.parts + 1));
}

const char *wk_channel_read(struct wk_channel *c, void *base, uint64_t bytes)
{
    struct wk_channel_head h;
    *c = (struct wk_channel){0};
    if (bytes < 2 * WK_CHANNEL_PAGE) return "shorter than its head";
    memcpy(&h, base, sizeof h); // one copy: the other side could change it meanwhile
    if (h.magic != WK_CHANNEL_MAGIC) return "not the memory of a boundary";
    if (h.abi != WK_CHANNEL_ABI) return "of another version";
    if (h.bytes != bytes) return "of another size than it says";
    if (!h.parts || h.parts > WK_CHANNEL_PARTS_MAX) return "too many parts";
    uint64_t table = 8 * ((uint64_t)h.parts + 1);
    if (table > bytes - WK_CHANNEL_PAGE) return "shorter than its table";
    uint64_t *first = malloc(table);
    if (!first) return "no memory for its table";
    memcpy(first, (uint8_t *)base + WK_CHANNEL_PAGE, table);
    struct wk_channel_shape s = {h.values, h.parts, h.ranks, h.leases, h.journal, first};
    struct wk_channel_layout l;
    const char *wrong = NULL;
    if (!wk_channel_plan(&s, &l))
        wrong = "a number beyond its limit";
    else if (l.bytes != bytes)
        wrong = "of another size than its numbers";
    else if (!wk_channel_open(c, &s, base))
        wrong = "no memory for its tables";
    free(first);
    return wrong;
}

// ---------------------------------------------------------------- places

static void *at(const struct wk_channel *c, uint64_t area, size_t each, uint64_t i)
{
    return c->base + area + each * i;
}

struct wk_channel_head *wk_channel_head(const struct wk_channel *c)
{
    return (struct wk_channel_head *)c->base;
}

struct wk_channel_worker *wk_channel_worker(const struct wk_channel *c)
{
    return at(c, c->layout.worker_at, 0, 0);
}

struct wk_channel_worker_rank *wk_channel_worker_rank(const struct wk_channel *c, uint32_t rank)
{
    return at(c, c->layout.worker_rank_at, sizeof(struct wk_channel_worker_rank), rank);
}

struct wk_channel_rank *wk_channel_rank(const struct wk_channel *c, uint32_t rank)
{
    return at(c, c->layout.rank_at, sizeof(struct wk_channel_rank), rank);
}

struct wk_channel_part *wk_channel_part(const struct wk_channel *c, uint32_t part)
{
    return at(c, c->layout.part_at, sizeof(struct wk_channel_part), part);
}

struct wk_channel_act *wk_channel_act(const struct wk_channel *c, uint32_t part)
{
    return at(c, c->layout.act_at, sizeof(struct wk_channel_act), part);
}

struct wk_channel_done *wk_channel_done(const struct wk_channel *c, uint32_t part, uint32_t rank)
{
    return at(c, c->layout.done_at, sizeof(struct wk_channel_done),
              (uint64_t)part * c->shape.ranks + rank);
}

struct wk_channel_lease *wk_channel_lease(const struct wk_channel *c, uint32_t rank, uint64_t n)
{
    return at(c, c->layout.lease_at, sizeof(struct wk_channel_lease),
              (uint64_t)rank * c->shape.leases + n % c->shape.leases);
}

struct wk_channel_note *wk_channel_note(const struct wk_channel *c, uint32_t rank, uint64_t n)
{
    return at(c, c->layout.note_at, sizeof(struct wk_channel_note),
              (uint64_t)rank * c->shape.journal + n % c->shape.journal);
}

float *wk_channel_slot(const struct wk_channel *c, uint64_t number)
{
    return at(c, c->layout.slot_at[number % 2], 0, 0);
}

uint8_t *wk_channel_ring(const struct wk_channel *c, uint32_t part)
{
    return c->base + c->ring_of[part];
}

// ---------------------------------------------------------------- corrections

uint64_t wk_channel_correction_bytes(enum wk_channel_kind kind, uint64_t values, uint64_t count)
{
    if (kind == WK_CHANNEL_DENSE) return lined(4 * values);
    return lined(8 * (wk_channel_chunks(values) + 1) + 6 * count);
}

bool wk_channel_correction(const struct wk_channel *c, uint32_t part, uint64_t number,
                           struct wk_channel_correction *out)
{
    struct wk_channel_entry e = wk_channel_part(c, part)->entry[number % WK_CHANNEL_LIVE];
    uint64_t values = c->first[part + 1] - c->first[part];
    uint64_t room = c->ring_of[part + 1] - c->ring_of[part];
    bool dense = e.kind == WK_CHANNEL_DENSE;
    if (e.number != number || (!dense && e.kind != WK_CHANNEL_SPARSE)) return false;
    if (e.count > values || (dense && e.count != values) || e.at > room || e.at % 64) return false;
    if (wk_channel_correction_bytes(e.kind, values, e.count) > room - e.at) return false;
    const uint8_t *p = wk_channel_ring(c, part) + e.at;
    *out = (struct wk_channel_correction){e.kind, values, e.count, (const float *)p, NULL, NULL};
    if (dense) return true;
    out->begin = (const uint64_t *)p;
    out->value = (const float *)(p + 8 * (wk_channel_chunks(values) + 1));
    out->index = (const uint16_t *)(out->value + e.count);
    return true;
}

void wk_channel_foresee(const struct wk_channel_correction *r, uint64_t k, uint64_t from,
                        uint64_t n, const float *to)
{
    if (r->kind == WK_CHANNEL_DENSE) return;
    uint64_t begin = r->begin[k], end = r->begin[k + 1], skip = from - k * WK_CHANNEL_CHUNK;
    if (begin > end || end > r->count) return;
    for (uint64_t i = begin; i < end; i++)
        if (r->index[i] - skip < n) __builtin_prefetch(&to[r->index[i] - skip], 1);
}

bool wk_channel_add(const struct wk_channel_correction *r, uint64_t k, uint64_t from, uint64_t n,
                    float *restrict to)
{
    if (r->kind == WK_CHANNEL_DENSE) {
        const float *restrict value = r->value + from;
#pragma omp simd
        for (uint64_t i = 0; i < n; i++) to[i] += value[i];
        return true;
    }
    uint64_t begin = r->begin[k], end = r->begin[k + 1], skip = from - k * WK_CHANNEL_CHUNK;
    if (begin > end || end > r->count) return false;
    for (uint64_t i = begin; i < end; i++) {
        uint64_t index = r->index[i];
        if (index >= WK_CHANNEL_CHUNK) return false;
        if (index >= skip && index - skip < n) to[index - skip] += r->value[i];
    }
    return true;
}

// ---------------------------------------------------------------- messages

struct writer {
    uint8_t *out;
    size_t len;
    bool failed;
};
struct reader {
    const uint8_t *at, *end;
    bool failed;
};

static void put(struct writer *w, uint64_t v, size_t bytes)
{
    if (w->len + bytes > WK_CHANNEL_MESSAGE) w->failed = true;
    if (w->failed) return;
    for (size_t i = 0; i < bytes; i++) w->out[w->len++] = (uint8_t)(v >> 8 * i);
}

static void put_bytes(struct writer *w, const void *p, size_t n)
{
    for (size_t i = 0; i < n; i++) put(w, ((const uint8_t *)p)[i], 1);
}

static void put_text(struct writer *w, const char *text, size_t size)
{
    size_t n = strnlen(text, size);
    if (n >= size) w->failed = true;
    put(w, n, 2);
    put_bytes(w, text, n);
}

static uint64_t get(struct reader *r, size_t bytes)
{
    uint64_t v = 0;
    if ((size_t)(r->end - r->at) < bytes) r->failed = true;
    if (r->failed) return 0;
    for (size_t i = 0; i < bytes; i++) v |= (uint64_t)*r->at++ << 8 * i;
    return v;
}

static void get_bytes(struct reader *r, void *p, size_t n)
{
    for (size_t i = 0; i < n; i++) ((uint8_t *)p)[i] = (uint8_t)get(r, 1);
}

static void get_text(struct reader *r, char *out, size_t size)
{
    size_t n = (size_t)get(r, 2);
    if (n >= size) r->failed = true;
    if (r->failed) return;
    get_bytes(r, out, n);
    if (memchr(out, 0, n)) r->failed = true;
}

static bool get_bool(struct reader *r)
{
    uint64_t v = get(r, 1);
    if (v > 1) r->failed = true;
    return v == 1;
}

uint64_t wk_channel_tensor_values(const struct wk_channel_tensor *t)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->dims; i++) {
        if (!t->shape[i] || n > WK_CHANNEL_VALUES_MAX / t->shape[i]) return 0;
        n *= t->shape[i];
    }
    return n;
}

static bool tensor_sound(const struct wk_channel_tensor *t)
{
    if (t->index >= WK_CHANNEL_TENSORS_MAX || t->dims > WK_CHANNEL_DIMS) return false;
    if (t->dtype != WK_CHANNEL_FP32 && t->dtype != WK_CHANNEL_BF16) return false;
    uint64_t n = wk_channel_tensor_values(t);
    if (!n || t->first > n || t->count > n - t->first) return false;
    return t->name[0] && (!t->replica || (t->first == 0 && t->count == n));
}

static bool hello_sound(const struct wk_channel_hello *h)
{
    return h->ranks && h->ranks <= WK_CHANNEL_RANKS_MAX && h->rank < h->ranks && h->tensors &&
           h->tensors <= WK_CHANNEL_TENSORS_MAX;
}

static bool sound(const struct wk_channel_message *m)
{
    if (m->kind == WK_CHANNEL_HELLO) return hello_sound(&m->as.hello);
    if (m->kind == WK_CHANNEL_TENSOR) return tensor_sound(&m->as.tensor);
    if (m->kind == WK_CHANNEL_REFUSED)
        return m->as.refused.why && m->as.refused.why < WK_CHANNEL_REFUSALS;
    if (m->kind == WK_CHANNEL_REPORT) return m->as.report.name[0] && isfinite(m->as.report.value);
    return m->kind && m->kind < WK_CHANNEL_KINDS;
}

static void put_tensor(struct writer *w, const struct wk_channel_tensor *t)
{
    put(w, t->index, 4);
    put(w, t->dtype, 1);
    put(w, t->replica, 1);
    put(w, t->first, 8);
    put(w, t->count, 8);
    put(w, t->dims, 1);
    for (uint32_t i = 0; i < t->dims; i++) put(w, t->shape[i], 8);
    put_text(w, t->name, sizeof t->name);
}

static void get_tensor(struct reader *r, struct wk_channel_tensor *t)
{
    t->index = (uint32_t)get(r, 4);
    t->dtype = (uint32_t)get(r, 1);
    t->replica = get_bool(r);
    t->first = get(r, 8);
    t->count = get(r, 8);
    t->dims = (uint32_t)get(r, 1);
    for (uint32_t i = 0; i < t->dims && i < WK_CHANNEL_DIMS; i++) t->shape[i] = get(r, 8);
    get_text(r, t->name, sizeof t->name);
}

size_t wk_channel_encode(const struct wk_channel_message *m, uint8_t out[WK_CHANNEL_MESSAGE])
{
    struct writer w = {out, 0, false};
    if (!sound(m)) return 0;
    put(&w, 0, 4);
    put(&w, m->abi, 2);
    put(&w, m->kind, 2);
    if (m->kind == WK_CHANNEL_HELLO) {
        put(&w, m->as.hello.rank, 4);
        put(&w, m->as.hello.ranks, 4);
        put(&w, m->as.hello.tensors, 4);
        put(&w, m->as.hello.resumes, 1);
        put_bytes(&w, m->as.hello.life, WK_CHANNEL_LIFE);
    } else if (m->kind == WK_CHANNEL_TENSOR) {
        put_tensor(&w, &m->as.tensor);
    } else if (m->kind == WK_CHANNEL_WELCOME) {
        put(&w, m->as.welcome.bytes, 8);
        put(&w, m->as.welcome.resumed, 1);
        put_bytes(&w, m->as.welcome.life, WK_CHANNEL_LIFE);
    } else if (m->kind == WK_CHANNEL_REFUSED) {
        put(&w, m->as.refused.why, 4);
        put_text(&w, m->as.refused.text, sizeof m->as.refused.text);
    } else if (m->kind == WK_CHANNEL_REPORT) {
        uint64_t bits;
        memcpy(&bits, &m->as.report.value, sizeof bits);
        put(&w, bits, 8);
        put_text(&w, m->as.report.name, sizeof m->as.report.name);
    } else if (m->kind == WK_CHANNEL_DAMAGED) {
        put(&w, m->as.damaged, 8);
    }
    if (w.failed) return 0;
    size_t len = w.len;
    w.len = 0;
    put(&w, len, 4);
    return len;
}

static void get_body(struct reader *r, struct wk_channel_message *m)
{
    if (m->kind == WK_CHANNEL_HELLO) {
        m->as.hello.rank = (uint32_t)get(r, 4);
        m->as.hello.ranks = (uint32_t)get(r, 4);
        m->as.hello.tensors = (uint32_t)get(r, 4);
        m->as.hello.resumes = get_bool(r);
        get_bytes(r, m->as.hello.life, WK_CHANNEL_LIFE);
    } else if (m->kind == WK_CHANNEL_TENSOR) {
        get_tensor(r, &m->as.tensor);
    } else if (m->kind == WK_CHANNEL_WELCOME) {
        m->as.welcome.bytes = get(r, 8);
        m->as.welcome.resumed = get_bool(r);
        get_bytes(r, m->as.welcome.life, WK_CHANNEL_LIFE);
    } else if (m->kind == WK_CHANNEL_REFUSED) {
        m->as.refused.why = (uint32_t)get(r, 4);
        get_text(r, m->as.refused.text, sizeof m->as.refused.text);
    } else if (m->kind == WK_CHANNEL_REPORT) {
        uint64_t bits = get(r, 8);
        memcpy(&m->as.report.value, &bits, sizeof bits);
        get_text(r, m->as.report.name, sizeof m->as.report.name);
    } else if (m->kind == WK_CHANNEL_DAMAGED) {
        m->as.damaged = get(r, 8);
    }
}

bool wk_channel_decode(const uint8_t *bytes, size_t n, struct wk_channel_message *out)
{
    struct reader r = {bytes, bytes + n, n > WK_CHANNEL_MESSAGE};
    *out = (struct wk_channel_message){0};
    if (get(&r, 4) != n) return false;
    out->abi = (uint16_t)get(&r, 2);
    out->kind = (uint16_t)get(&r, 2);
    if (r.failed || !out->kind || out->kind >= WK_CHANNEL_KINDS) return false;
    if (out->abi != WK_CHANNEL_ABI) return true;
    get_body(&r, out);
    return !r.failed && r.at == r.end && sound(out);
}
