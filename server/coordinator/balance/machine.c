// Machine: see machine.h.
//
// 1. Texts are a peer's: they are cut, and what is not printable ASCII becomes '?'.
// 2. Nothing of it is stored: a worker says it anew with each join. After a restart of the
//    coordinator alone it is not known until then.
#include "server/coordinator/balance/machine.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "server/coordinator/commit.h"

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

static void take_text(struct lh_machine *m, const struct text *t, const char *said)
{
    char *to = (char *)m + t->at;
    size_t n = 0;
    for (; said[n] && n + 1 < t->size; n++) to[n] = said[n] >= ' ' && said[n] < 127 ? said[n] : '?';
    to[n] = 0;
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
        if (!strcmp(x, y)) continue;
        char line[256];
        int n = snprintf(line, sizeof line, "%s%s %s (%s)", out->len ? ", " : "", TEXTS[i].key,
                         x[0] ? x : "-", y[0] ? y : "-");
        lh_put(out, line, (size_t)n);
    }
    if (a->processors != b->processors) {
        char line[64];
        int n = snprintf(line, sizeof line, "%sprocessors %u (%u)", out->len ? ", " : "",
                         a->processors, b->processors);
        lh_put(out, line, (size_t)n);
    }
    double x = gib(a), y = gib(b);
    if (x > 1.1 * y || y > 1.1 * x) { // a kernel takes a little more or less for itself
        char line[64];
        int n = snprintf(line, sizeof line, "%smemory %.0f GiB (%.0f)", out->len ? ", " : "", x, y);
        lh_put(out, line, (size_t)n);
    }
    lh_put_u8(out, 0);
    return out->len > 1 && !lh_buf_err(out);
}

// Beside the first live worker that told.
static void say_differences(struct ps_coordinator *c, const struct ps_co_worker *w)
{
    const struct ps_co_worker *o = c->worker;
    while (o < c->worker + c->workers && (o == w || !o->live || !o->machine.version[0])) o++;
    if (o == c->worker + c->workers) return;
    struct lh_buf text = lh_buf(LH_SMALL_BYTES);
    if (name_differences(&w->machine, &o->machine, &text))
        ps_co_say(c, LH_INFO, "worker.differs", "%s of %s beside %s of %s: %s", w->name, w->region,
                  o->name, o->region, (const char *)text.data);
    lh_buf_free(&text);
}

void ps_co_take_machine(struct ps_coordinator *c, struct ps_co_worker *w,
                        const Longhaul__V1__Machine *m)
{
    w->machine = (struct lh_machine){.processors = 0};
    if (!m) return;
    const char *const said[] = {m->version, m->system, m->processor, m->gpu, m->codec, m->cipher};
    for (size_t i = 0; i < LH_COUNT(TEXTS); i++) take_text(&w->machine, &TEXTS[i], said[i]);
    w->machine.processors = m->processors;
    w->machine.memory_bytes = m->memory_bytes;
    if (w->machine.version[0]) say_differences(c, w);
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
