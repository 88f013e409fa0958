// Expelled: operators expel workers and servers, and let them back
// (server/docs/0000-protocol.md#rule-31).
//
// Keys of the store: expelled/ID (u8: 1 = server, region, name), let_back/ID (u32: number of times
// that the worker was let back). The plan lists both, so that every shard's log has them. An
// identity that never joined can be expelled by name and region.
#include "server/coordinator/watch/expelled.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/format/frame.h"
#include "common/net/wire_admin.h"
#include "server/coordinator/commit.h"

static const char EXPELLED[] = "expelled/", LET_BACK[] = "let_back/";

// ---------------------------------------------------------------- what is stored

static const char *read_expelled(struct ps_coordinator *c, const char *name, struct lh_cursor *at)
{
    if (c->expelled_count == LH_EXPELLED_MAX) return "is of one more than may be expelled";
    struct ps_co_expelled *e = &c->expelled[c->expelled_count];
    *e = (struct ps_co_expelled){0};
    if (!ps_co_row_number(name, 16, &e->id)) return "is of nobody";
    e->server = lh_get_u8(at) == 1;
    lh_get_str(at, e->region, sizeof e->region);
    lh_get_str(at, e->name, sizeof e->name);
    c->expelled_count++;
    return NULL;
}

static const char *read_let_back(struct ps_coordinator *c, const char *name, struct lh_cursor *at)
{
    if (c->lets_back == LH_LET_BACK_MAX) return "is of one more than may be let back";
    struct lh_let_back *b = &c->let_back[c->lets_back];
    if (!ps_co_row_number(name, 16, &b->worker)) return "is of nobody";
    b->count = lh_get_u32(at);
    c->lets_back++;
    return NULL;
}

lh_err ps_co_load_expelled(struct ps_coordinator *c)
{
    c->expelled_count = 0;
    return ps_co_load_named(c, EXPELLED, read_expelled);
}

lh_err ps_co_load_let_back(struct ps_coordinator *c)
{
    c->lets_back = 0;
    return ps_co_load_named(c, LET_BACK, read_let_back);
}

static uint32_t index_of(const struct ps_coordinator *c, uint64_t id)
{
    uint32_t i = 0;
    while (i < c->expelled_count && c->expelled[i].id != id) i++;
    return i;
}

bool ps_co_is_expelled(const struct ps_coordinator *c, uint64_t identity)
{
    return index_of(c, identity) < c->expelled_count;
}

static uint32_t let_back_index(const struct ps_coordinator *c, uint64_t worker)
{
    uint32_t i = 0;
    while (i < c->lets_back && c->let_back[i].worker != worker) i++;
    return i;
}

uint32_t ps_co_let_back(const struct ps_coordinator *c, uint64_t worker)
{
    uint32_t i = let_back_index(c, worker);
    return i < c->lets_back ? c->let_back[i].count : 0;
}

uint32_t ps_co_aside(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    uint32_t n = 0;
    for (uint32_t i = 0; w->admitted && i < c->conf.manifest->shards; i++)
        n += w->admitted[i].set_aside;
    return n;
}

bool ps_co_set_aside(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    return 2 * ps_co_aside(c, w) > c->conf.manifest->shards;
}

void ps_co_tell_aside(const struct ps_coordinator *c, const struct ps_co_worker *w, json_t *row)
{
    char why[100];
    uint32_t n = ps_co_aside(c, w), i = 0;
    json_object_set_new(row, "set_aside", json_boolean(n > 0));
    if (!n) return;
    while (!w->admitted[i].set_aside) i++;
    if (n == 1)
        snprintf(why, sizeof why, "shard %u refuses its pushes: far larger than others'", i);
    else
        snprintf(why, sizeof why, "%u of %u shards refuse its pushes: far larger than others'", n,
                 c->conf.manifest->shards);
    // Replaces stall.c's reason, which follows from this one.
    json_object_set_new(row, "why", json_string(why));
}

bool ps_co_barred(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    return ps_co_is_expelled(c, w->id) || ps_co_set_aside(c, w);
}

// ---------------------------------------------------------------- the plan

bool ps_co_plan_expelled(struct ps_coordinator *c)
{
    uint64_t list[LH_EXPELLED_MAX];
    struct lh_plan *p = &c->plan;
    size_t bytes = c->expelled_count * sizeof *list;
    for (uint32_t i = 0; i < c->expelled_count; i++) list[i] = c->expelled[i].id;
    ps_co_sort(list, c->expelled_count);
    bool same = p->expelled_count == c->expelled_count && p->lets_back == c->lets_back &&
                !memcmp(p->expelled, list, bytes);
    for (uint32_t i = 0; same && i < c->lets_back; i++)
        same = p->let_back[i].worker == c->let_back[i].worker &&
               p->let_back[i].count == c->let_back[i].count;
    if (same) return false;
    p->expelled_count = c->expelled_count;
    memcpy(p->expelled, list, bytes);
    p->lets_back = c->lets_back;
    memcpy(p->let_back, c->let_back, c->lets_back * sizeof *c->let_back);
    return true;
}

// ---------------------------------------------------------------- the operator's word

static LH_MUST lh_err store_expelled(struct ps_coordinator *c, const struct ps_co_expelled *e)
{
    struct lh_buf b = lh_buf(512);
    lh_put_u8(&b, e->server);
    lh_put_str(&b, e->region);
    lh_put_str(&b, e->name);
    return ps_co_put_of(c, EXPELLED, e->id, &b);
}

static LH_MUST lh_err expel(struct ps_coordinator *c, const struct ps_co_expelled *e, bool *changed)
{
    if (ps_co_is_expelled(c, e->id)) return LH_OK;
    if (c->expelled_count == LH_EXPELLED_MAX)
        return lh_fail(LH_ERR_TOO_LARGE,
                       "%d are expelled, which is the maximum: let one back, or revoke the "
                       "certificate's serial (tls.revoked)",
                       LH_EXPELLED_MAX);
    LH_TRY(store_expelled(c, e));
    c->expelled[c->expelled_count++] = *e;
    *changed = true;
    return LH_OK;
}

static LH_MUST lh_err let_back(struct ps_coordinator *c, uint64_t id)
{
    uint32_t i = let_back_index(c, id);
    if (i == LH_LET_BACK_MAX)
        return lh_fail(
            LH_ERR_TOO_LARGE,
            "%d workers were let back, which is the maximum: start this one under another name",
            LH_LET_BACK_MAX);
    struct lh_let_back next = {id, i < c->lets_back ? c->let_back[i].count + 1 : 1};
    struct lh_buf b = lh_buf(16);
    lh_put_u32(&b, next.count);
    LH_TRY(ps_co_put_of(c, LET_BACK, id, &b));
    c->let_back[i] = next;
    if (i == c->lets_back) c->lets_back++;
    return LH_OK;
}

// If a shard reports it again, it has set the worker aside again.
static void forget_set_aside(struct ps_coordinator *c, struct ps_co_worker *w)
{
    for (uint32_t i = 0; w->admitted && i < c->conf.manifest->shards; i++)
        w->admitted[i].set_aside = false;
}

static LH_MUST lh_err admit(struct ps_coordinator *c, const struct ps_co_expelled *e, bool *changed)
{
    uint32_t i = index_of(c, e->id), w = e->server ? LH_WORKERS_MAX : ps_co_worker_index(c, e->id);
    if (i < c->expelled_count) {
        LH_TRY(ps_co_remove_of(c, EXPELLED, e->id));
        c->expelled[i] = c->expelled[--c->expelled_count];
        *changed = true;
    }
    if (w < c->workers && ps_co_aside(c, &c->worker[w])) {
        LH_TRY(let_back(c, e->id));
        forget_set_aside(c, &c->worker[w]);
        *changed = true;
    }
    return LH_OK;
}

// ---------------------------------------------------------------- who is meant

// Notes a member of that name; false: a second one in another region, so the name is ambiguous.
static bool note(struct ps_co_expelled *out, const char *wanted, const char *region,
                 const char *name)
{
    bool meant = !strcmp(out->name, name) && (!wanted[0] || !strcmp(wanted, region));
    if (!meant || !strcmp(out->region, region)) return true;
    if (out->region[0]) return false;
    snprintf(out->region, sizeof out->region, "%s", region);
    return true;
}

static bool look(const struct ps_coordinator *c, const char *region, struct ps_co_expelled *out)
{
    bool only = true;
    for (uint32_t i = 0; i < c->expelled_count; i++)
        if (c->expelled[i].server == out->server)
            only &= note(out, region, c->expelled[i].region, c->expelled[i].name);
    for (uint32_t i = 0; !out->server && i < c->workers; i++)
        only &= note(out, region, c->worker[i].region, c->worker[i].name);
    for (uint32_t i = 0; out->server && i < c->conf.manifest->shards; i++) {
        const struct ps_co_shard *s = &c->shard[i];
        only &= note(out, region, s->region, s->name);
        for (int k = 0; k < PS_CO_STANDBYS; k++)
            if (s->standing[k].identity)
                only &= note(out, region, s->standing[k].region, s->standing[k].name);
    }
    return only;
}

// The identity is that of a certificate of this run, with the caller's run and domain.
lh_err ps_co_who(const struct ps_coordinator *c, const struct lh_peer *asker,
                 const struct lh_expel_request *m, struct ps_co_expelled *out)
{
    const char *kind = m->server ? "server" : "worker";
    *out = (struct ps_co_expelled){.server = m->server};
    struct lh_peer peer = *asker, parsed;
    char uri[LH_URI_BYTES];
    if (!m->name[0] || strlen(m->name) >= LH_NAME_BYTES || strlen(m->region) >= LH_NAME_BYTES)
        return lh_fail(LH_ERR_INVALID, "no name of a %s", kind);
    snprintf(out->name, sizeof out->name, "%s", m->name);
    if (!look(c, m->region, out))
        return lh_fail(LH_ERR_INVALID, "%s is a %s of several regions: name one, as REGION/%s",
                       out->name, kind, out->name);
    if (!out->region[0] && !m->region[0])
        return lh_fail(LH_ERR_NOT_FOUND, "no %s %s is known: name its region, as REGION/%s", kind,
                       out->name, out->name);
    if (!out->region[0]) snprintf(out->region, sizeof out->region, "%s", m->region);
    peer.role = m->server ? LH_S : LH_W;
    snprintf(peer.region, sizeof peer.region, "%s", out->region);
    snprintf(peer.name, sizeof peer.name, "%s", out->name);
    lh_peer_uri(&peer, uri);
    if (lh_peer_parse(lh_span_str(uri), &parsed))
        return lh_fail(LH_ERR_INVALID, "no name of a %s: %s", kind, uri);
    out->id = lh_worker_id(&peer);
    return LH_OK;
}

lh_err ps_co_expel(struct ps_coordinator *c, const struct lh_peer *asker,
                   const struct lh_expel_request *m, struct ps_co_expelled *who, bool *changed)
{
    *changed = false;
    LH_TRY(ps_co_who(c, asker, m, who));
    if (!m->admit) return expel(c, who, changed);
    LH_TRY(admit(c, who, changed));
    uint32_t index = ps_co_worker_index(c, who->id);
    if (who->server || index >= c->workers) return LH_OK;
    struct ps_co_stall *s = &c->worker[index].stall;
    *changed |= s->held > 0; // stall.c: others wait for it again
    s->held = 0;
    s->holds_ns = s->out_until_ns = 0;
    free(s->hold);
    s->hold = NULL;
    return LH_OK;
}
