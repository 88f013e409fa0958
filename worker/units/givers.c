// Givers: reports absent homes in a lease request, and takes the servers (givers) that the answer
// names. Requests to givers: travel.c.
#include <stdlib.h>
#include <string.h>

#include "common/net/wire_member.h"
#include "worker/units/travel_state.h"

enum { ANSWERS_WITHOUT = 4 }; // answers that name no giver before the home is closed

// ---------------------------------------------------------------- the coordinator

static void hang_up(struct wk_travel_giver *g)
{
    if (g->link) g->link->transport_ops->hangup(g->link);
    *g = (struct wk_travel_giver){0};
}

void wk_travel_tell(struct wk_worker *w, struct lh_lease_request *m)
{
    struct wk_travel *t = w->travel;
    for (uint32_t i = 0; t && i < t->homes; i++) {
        struct wk_travel_home *h = &t->home[i];
        if (!h->away) continue;
        t->row[m->n_away] = (struct lh_away){.region = h->region,
                                             .closed = h->closed,
                                             .bytes_per_s = h->bytes_per_s,
                                             .arrived_bytes = h->arrived_bytes,
                                             .process = t->process};
        if (h->givers) t->row[m->n_away].trip = lh_link_trip(h->giver[0].link);
        m->n_away++;
    }
    for (uint32_t i = 0; t && i < t->refused_count; i++)
        if (!t->refused[i].open) t->told[m->n_refused++] = t->refused[i].unit;
    if (t) m->away = t->row;
    if (t) m->refused = t->told;
    if (!t)
        m->refused = w->damaged,
        m->n_refused = w->damaged_count; // an external loop reads its own files
}

static bool is_named(const struct wk_travel_home *h, const char *address, size_t n,
                     const struct lh_giver *list)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(list[i].region, h->region) && !strcmp(list[i].address, address)) return true;
    return false;
}

static void add_giver(struct wk_worker *w, struct wk_travel_home *h, const char *address)
{
    struct lh_transport *t = w->conf.transport;
    for (uint32_t i = 0; i < h->givers; i++)
        if (!strcmp(h->giver[i].address, address)) return;
    if (h->givers == LH_GIVERS_MAX || strlen(address) >= LH_ADDRESS_BYTES) return;
    struct wk_travel_giver *g = &h->giver[h->givers];
    if (t->ops->dial(t, address, LH_S, LH_LINE_FIRST, &g->link)) return;
    memcpy(g->address, address, strlen(address) + 1);
    h->givers++;
    h->open_ns = 0; // the new giver may have what others lacked
}

// A restarted coordinator names no giver until servers have reported: the known givers stay for
// ANSWERS_WITHOUT answers.
static void take_givers(struct wk_worker *w, struct wk_travel_home *h, size_t n,
                        const struct lh_giver *list)
{
    uint32_t kept = 0;
    bool any = false;
    for (size_t i = 0; i < n; i++) any |= !strcmp(list[i].region, h->region);
    if (!any && h->givers && ++h->without < ANSWERS_WITHOUT) return;
    for (uint32_t i = 0; i < h->givers; i++) {
        if (is_named(h, h->giver[i].address, n, list))
            h->giver[kept++] = h->giver[i];
        else
            hang_up(&h->giver[i]);
    }
    h->givers = kept;
    for (size_t i = 0; i < n; i++)
        if (!strcmp(list[i].region, h->region)) add_giver(w, h, list[i].address);
    h->without = h->givers ? 0 : h->without + 1;
    if (h->without < ANSWERS_WITHOUT) return;
    wk_travel_close_home(
        w, h,
        "no server of that region gives units: set data.dir of one that runs there, "
        "or give this worker the files (data.dir)");
}

void wk_travel_told(struct wk_worker *w, size_t count, const struct lh_giver *givers)
{
    struct wk_travel *t = w->travel;
    for (uint32_t i = 0; t && i < t->homes; i++)
        if (t->home[i].away) take_givers(w, &t->home[i], count, givers);
}

// ---------------------------------------------------------------- life

lh_err wk_travel_start(struct wk_worker *w)
{
    if (!w->conf.travel) return LH_OK;
    w->travel = calloc(1, sizeof *w->travel);
    if (!w->travel) return lh_fail(LH_ERR_NO_MEMORY, "no memory for units that travel");
    w->travel->process = lh_random_u64(w->conf.env);
    return LH_OK;
}

void wk_travel_close(struct wk_worker *w)
{
    struct wk_travel *t = w->travel;
    if (!t) return;
    lh_cancel(w->conf.env, &t->timer);
    for (uint32_t i = 0; i < t->homes; i++)
        for (uint32_t k = 0; k < t->home[i].givers; k++) hang_up(&t->home[i].giver[k]);
    for (uint32_t i = 0; i < t->homes; i++) t->home[i].givers = 0;
}

void wk_travel_free(struct wk_worker *w)
{
    struct wk_travel *t = w->travel;
    for (uint32_t i = 0; t && i < WK_ARRIVALS_MAX; i++) lh_buf_free(&t->arrival[i].got);
    free(t);
    w->travel = NULL;
}

json_t *wk_travel_status(const struct wk_worker *w)
{
    const struct wk_travel *t = w->travel;
    json_t *homes = json_array();
    for (uint32_t i = 0; t && i < t->homes; i++) {
        const struct wk_travel_home *h = &t->home[i];
        if (h->away)
            json_array_append_new(homes, json_pack("{s:s s:b s:i s:f}", "home", h->region, "closed",
                                                   h->closed, "givers", (int)h->givers, "mbit_s",
                                                   h->bytes_per_s.mean * 8e-6));
    }
    if (!json_array_size(homes) && !(t && t->count.refusals)) {
        json_decref(homes);
        return NULL;
    }
    json_t *refused = json_array();
    for (uint32_t i = 0; i < t->refused_count; i++)
        if (!t->refused[i].open)
            json_array_append_new(refused, json_integer((json_int_t)t->refused[i].unit));
    return json_pack("{s:I s:I s:I s:I s:I s:I s:I s:I s:o s:o}", "units",
                     (json_int_t)t->count.units, "bytes", (json_int_t)t->count.bytes, "wire_bytes",
                     (json_int_t)t->count.wire_bytes, "returned", (json_int_t)t->count.returned,
                     "given_up", (json_int_t)t->count.given_up, "failed",
                     (json_int_t)t->count.failed, "refusals", (json_int_t)t->count.refusals,
                     "held_bytes", (json_int_t)t->bytes, "refused", refused, "away", homes);
}
