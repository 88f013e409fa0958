// The lease of every data unit, a page at a time, as an operator asks for it.
//
// {"leases": [{"unit", "language", "home", "tokens", "state": "free|leased|credited", "lease":
//   "waits|begun|recalled" | null, "holder", "holder_region", "token", "age_s", "expires_s",
//   "credited_tokens"}], "next": unit | null}
//
// `lease` of a leased unit: it is leased ahead, trained in part (or whole, and its claim is on its
// way), or asked back from its holder, as that said last. `holder` of a credited unit: who held it
// last. `token` is the holder's granted incarnation: what it says under an older one is not heard.
// A lease is renewed by every word of its holder, about once a second; `expires_s` is what is left
// if it falls silent. A page is what is true now; over several pages a unit may move on in between.
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/format/json.h"
#include "longhaul/v1/member.pb-c.h"
#include "server/coordinator/coordinator.h"

enum { PAGE_MAX = 512, ROW_BYTES = 1000 }; // names of 63 bytes, escaped at worst
LH_STATIC_ASSERT(PAGE_MAX *ROW_BYTES <= LH_SMALL_BYTES, "a page fits a message");

static const char *state_of(const struct ps_coordinator *c, uint64_t unit)
{
    if (ps_co_credited(c, unit)) return "credited";
    return c->lease[unit] == CO_FREE ? "free" : "leased";
}

const char *ps_co_lease_name(const struct ps_coordinator *c, uint64_t unit)
{
    if (c->lease[unit] == CO_FREE || ps_co_credited(c, unit)) return NULL;
    return c->begun[unit] != CO_WAITS ? "begun" : c->wanted_by[unit] ? "recalled" : "waits";
}

static const struct ps_co_worker *holder_of(const struct ps_coordinator *c, uint64_t unit)
{
    return c->lease[unit] == CO_FREE ? NULL : &c->worker[c->lease[unit] - 1];
}

static bool matches(const char *wanted, const char *value)
{
    return !wanted[0] || strcmp(wanted, value) == 0;
}

static bool wanted(const struct ps_coordinator *c, const Longhaul__V1__StatusRequest *q,
                   uint64_t unit)
{
    const struct lh_unit *u = &c->conf.units->unit[unit];
    const struct ps_co_worker *w = holder_of(c, unit);
    return matches(q->state, state_of(c, unit)) && matches(q->home, u->home) &&
           matches(q->language, u->language) && matches(q->worker, w ? w->name : "");
}

static json_t *row_of(const struct ps_coordinator *c, uint64_t unit)
{
    const struct lh_unit *u = &c->conf.units->unit[unit];
    const struct ps_co_worker *w = holder_of(c, unit);
    bool credited = ps_co_credited(c, unit);
    json_t *row = json_pack(
        "{s:I s:s s:s s:I s:s s:s? s:s? s:s? s:I}", "unit", (json_int_t)unit, "language",
        u->language, "home", u->home, "tokens", (json_int_t)u->tokens, "state", state_of(c, unit),
        "lease", ps_co_lease_name(c, unit), "holder", w ? w->name : NULL, "holder_region",
        w ? w->region : NULL, "credited_tokens", (json_int_t)(credited ? u->tokens : 0));
    if (!w) return row;
    json_object_set_new(row, "token", json_integer(w->granted));
    if (credited) return row;
    int64_t age = c->conf.env->ops->wall_s(c->conf.env) - c->leased_s[unit];
    int64_t left = ps_co_worker_bound(c, w) - (c->listener.ns - w->seen_ns);
    if (c->leased_s[unit]) json_object_set_new(row, "age_s", json_integer(age > 0 ? age : 0));
    json_object_set_new(row, "expires_s", json_real(left > 0 ? (double)left / LH_SECOND : 0));
    return row;
}

lh_err ps_co_leases(const struct ps_coordinator *c, const ProtobufCMessage *request,
                    struct lh_buf *out)
{
    const Longhaul__V1__StatusRequest *q = (const Longhaul__V1__StatusRequest *)request;
    uint32_t limit = q->limit && q->limit < PAGE_MAX ? q->limit : PAGE_MAX;
    json_t *rows = json_array();
    uint64_t u = q->from;
    for (; u < c->conf.units->count && json_array_size(rows) < limit; u++)
        if (wanted(c, q, u)) json_array_append_new(rows, row_of(c, u));
    json_t *next = u < c->conf.units->count ? json_integer((json_int_t)u) : json_null();
    json_t *root = json_pack("{s:o s:o}", "leases", rows, "next", next);
    return lh_json_give(root, out);
}
