// Path: measures transfers and training. Rules: path.h.
#include "worker/push/path.h"

#include <math.h>
#include <string.h>

#include "common/net/wire_member.h"
#include "worker/push/idle.h"

enum { PATH_BYTES_MIN = 64 << 10 }; // smaller transfers show the round trip, not the rate

// Bytes a second of a transfer, excluding one round trip.
static void take_rate(struct wk_shard *s, struct lh_estimate *e, uint64_t bytes, int64_t took_ns)
{
    int64_t trip = s->session.link ? lh_link_trip(s->session.link).mean_ns : 0;
    if (bytes < PATH_BYTES_MIN || took_ns <= trip) return;
    lh_estimate_take(e, (double)bytes * LH_SECOND / (double)(took_ns - trip));
}

void wk_path_pushed(struct wk_shard *s)
{
    const struct wk_sender *p = &s->session.sender;
    int64_t took = lh_now(s->worker->conf.env) - p->sent_ns;
    if (!p->sent_ns || !p->entry || took <= 0) return;
    lh_histogram_add(&s->worker->pushed_s, &lh_scale_seconds, (double)took / LH_SECOND);
    lh_estimate_take(&s->path.push_s, (double)took / LH_SECOND);
    take_rate(s, &s->path.up, p->entry->bytes, took);
}

void wk_path_fetched(struct wk_shard *s, uint64_t bytes, int64_t asked_ns)
{
    if (asked_ns) take_rate(s, &s->path.down, bytes, lh_now(s->worker->conf.env) - asked_ns);
}

void wk_path_trained(struct wk_worker *w, double tokens_per_s, double weight)
{
    double off = fabs(tokens_per_s - w->tokens_per_s);
    bool first = w->tokens_per_s <= 0;
    w->tokens_spread =
        first ? tokens_per_s / 4 : w->tokens_spread + weight * (off - w->tokens_spread);
    w->tokens_per_s = first ? tokens_per_s : (1 - weight) * w->tokens_per_s + weight * tokens_per_s;
}

// ---------------------------------------------------------------- what is told of them

// Shards of one server share one path: the first measured one reports it.
static bool is_told(const struct wk_worker *w, uint32_t shard, size_t n)
{
    const char *address = w->shard[shard].session.address;
    for (size_t i = 0; i < n; i++)
        if (!strcmp(w->shard[w->told_path[i].shard].session.address, address)) return true;
    return false;
}

static size_t tell_paths(struct wk_worker *w)
{
    size_t n = 0;
    for (uint32_t i = 0; i < w->shards && n < LH_PATHS_MAX; i++) {
        struct wk_shard *s = &w->shard[i];
        if (!s->session.link || is_told(w, i, n)) continue;
        struct lh_path p = {i, lh_link_trip(s->session.link), s->path.push_s, s->path.up,
                            s->path.down};
        bool known = p.trip.mean_ns > 0 || p.push_s.mean > 0 || p.down_bytes_per_s.mean > 0;
        if (known) w->told_path[n++] = p;
    }
    return n;
}

// Share of the time since the last request that was spent in steps.
static double utilisation(struct wk_worker *w)
{
    int64_t now = lh_now(w->conf.env), passed = now - w->busy_since;
    int64_t busy = w->busy_ns + (w->stepping ? now - w->step_started : 0);
    if (w->busy_since && passed > 0) {
        double share = fmin((double)(busy - w->busy_told) / (double)passed, 1);
        lh_estimate_take(&w->utilised, fmax(share, 1e-3));
    }
    w->busy_since = now;
    w->busy_told = busy;
    return w->utilised.mean;
}

void wk_path_tell(struct wk_worker *w, struct lh_lease_request *m)
{
    m->speed = (struct lh_estimate){wk_idle_speed(w), w->tokens_spread};
    m->batch_s = w->batch_s;
    if (!w->conf.beside) m->utilisation = utilisation(w);
    m->loss = w->count.loss;
    m->n_paths = tell_paths(w);
    m->paths = w->told_path;
}
