// Machine: see machine.h.
//
// 1. Texts come from a peer: reading the message cut them and made them printable (wire.h).
// 2. A worker reports its machine at each join; the store keeps it for a coordinator's restart.
//
// Store: machine/<worker, 16 hex> = version, system, processor, gpu, codec, cipher (strings),
// processors u32, memory in bytes u64. A row is written if it changes, and removed if a worker
// reports nothing.
#include "server/coordinator/watch/machine.h"

#include <stddef.h>
#include <string.h>

#include "common/base/check.h"
#include "common/format/json.h"
#include "server/coordinator/commit.h"

static const char ROWS[] = "machine/";

#define TEXT(key)                                                                                  \
    {                                                                                              \
#key, offsetof(struct lh_machine, key), sizeof((struct lh_machine *)0)->key                \
    }
static const struct text {
    const char *key;
    size_t at, size;
} TEXTS[] = {TEXT(version), TEXT(system), TEXT(processor), TEXT(gpu), TEXT(codec), TEXT(cipher)};

static const char *text_of(const struct lh_machine *m, const struct text *t)
{
    return (const char *)m + t->at;
}

static double gib(const struct lh_machine *m)
{
    return (double)m->memory_bytes / (1 << 30);
}

// ---------------------------------------------------------------- what differs

static bool name_differences(const struct lh_machine *a, const struct lh_machine *b,
                             struct lh_buf *out)
{
    for (size_t i = 0; i < LH_COUNT(TEXTS); i++) {
        const char *x = text_of(a, &TEXTS[i]), *y = text_of(b, &TEXTS[i]);
        if (strcmp(x, y) != 0)
            lh_json_put(out, "%s%s %s (%s)", out->len ? ", " : "", TEXTS[i].key, x[0] ? x : "-",
                        y[0] ? y : "-");
    }
    if (a->processors != b->processors)
        lh_json_put(out, "%sprocessors %u (%u)", out->len ? ", " : "", a->processors,
                    b->processors);
    double x = gib(a), y = gib(b);
    if (x > 1.1 * y || y > 1.1 * x) // kernels reserve slightly different amounts
        lh_json_put(out, "%smemory %.0f GiB (%.0f)", out->len ? ", " : "", x, y);
    lh_put_u8(out, 0);
    return out->len > 1 && !lh_buf_err(out);
}

// Compares with the first live worker that reported.
static void say_differences(struct ps_coordinator *c, const struct ps_co_worker *w)
{
    const struct ps_co_worker *o = c->worker;
    while (o < c->worker + c->workers && (o == w || !o->live || !o->machine.version[0])) o++;
    if (o == c->worker + c->workers) return;
    struct lh_buf text = lh_buf(LH_SMALL_BYTES);
    if (name_differences(&w->machine, &o->machine, &text))
        ps_co_say_peer(c, LH_INFO, "worker.differs", "%s of %s beside %s of %s: %s", w->name,
                       w->region, o->name, o->region, (const char *)text.data);
    lh_buf_free(&text);
}

// ---------------------------------------------------------------- rows

static const char *read_row(struct ps_coordinator *c, const char *name, struct lh_cursor *at)
{
    struct lh_machine m = {.processors = 0};
    uint32_t i;
    const char *why = ps_co_row_worker(c, name, &i);
    if (why) return why;
    for (size_t k = 0; k < LH_COUNT(TEXTS); k++)
        lh_get_str(at, (char *)&m + TEXTS[k].at, TEXTS[k].size);
    m.processors = lh_get_u32(at);
    m.memory_bytes = lh_get_u64(at);
    if (!at->failed) c->worker[i].machine = m;
    return NULL;
}

lh_err ps_co_load_machines(struct ps_coordinator *c)
{
    for (uint32_t i = 0; i < c->workers; i++)
        c->worker[i].machine = (struct lh_machine){.processors = 0};
    return ps_co_load_named(c, ROWS, read_row);
}

static lh_err store(struct ps_coordinator *c, const struct ps_co_worker *w, bool known)
{
    struct ps_co_key key = ps_co_key(ROWS, w->id);
    struct lh_span has = {0};
    bool there = ps_store_get(c->store, key.text, &has);
    if (!known) return ps_co_remove(c, key.text);
    struct lh_buf row = lh_buf(LH_SMALL_BYTES);
    for (size_t i = 0; i < LH_COUNT(TEXTS); i++) lh_put_str(&row, text_of(&w->machine, &TEXTS[i]));
    lh_put_u32(&row, w->machine.processors);
    lh_put_u64(&row, w->machine.memory_bytes);
    if (!there || row.err || !lh_span_equal(has, lh_buf_span(&row)))
        return ps_co_put_buf(c, key.text, &row);
    lh_buf_free(&row);
    return LH_OK;
}

lh_err ps_co_take_machine(struct ps_coordinator *c, struct ps_co_worker *w,
                          const struct lh_machine *said)
{
    w->machine = said ? *said : (struct lh_machine){.processors = 0};
    if (!said) return store(c, w, false);
    if (w->machine.version[0]) say_differences(c, w);
    return store(c, w, true);
}

// ---------------------------------------------------------------- what operators see

void ps_co_tell_machine(const struct ps_co_worker *w, json_t *row)
{
    const struct lh_machine *m = &w->machine;
    for (size_t i = 0; i < LH_COUNT(TEXTS); i++)
        if (text_of(m, &TEXTS[i])[0])
            json_object_set_new(row, TEXTS[i].key, json_string(text_of(m, &TEXTS[i])));
    if (m->processors) json_object_set_new(row, "processors", json_integer(m->processors));
    if (m->memory_bytes) json_object_set_new(row, "memory_gib", json_real(gib(m)));
}
