// Measure: speeds and paths reported by workers. See measure.h.
//
// 1. A peer's number counts only within the range of plausible measurements.
// 2. A request without paths clears the known ones: the process that measured them may be gone.
// 3. Nothing here is stored: workers repeat it about once a second.
#include "server/coordinator/balance/measure.h"

#include <math.h>
#include <stdlib.h>

#include "server/coordinator/cadence.h"
#include "server/coordinator/commit.h"
#include "server/coordinator/watch/expelled.h"

enum { LINK_ROWS_MAX = 16384 }; // limit of a status: 4 MiB

double ps_co_said_number(double x)
{
    const double least = 1e-9, most = 1e15;
    return x >= least && x <= most ? x : 0; // NaN fails both
}

static struct lh_estimate plausible(struct lh_estimate e)
{
    return (struct lh_estimate){ps_co_said_number(e.mean), ps_co_said_number(e.spread)};
}

static void take_paths(struct ps_coordinator *c, struct ps_co_worker *w,
                       const struct lh_lease_request *m)
{
    w->measured.paths = 0;
    if (m->n_paths && !w->measured.path)
        w->measured.path = calloc(LH_PATHS_MAX, sizeof(struct ps_co_path));
    for (size_t i = 0; w->measured.path && i < m->n_paths; i++) {
        const struct lh_path *p = &m->paths[i];
        if (p->shard >= c->conf.manifest->shards) continue;
        w->measured.path[w->measured.paths++] = (struct ps_co_path){
            p->shard,
            p->trip,
            plausible(p->push_s),
            plausible(p->up_bytes_per_s),
            plausible(p->down_bytes_per_s),
        };
    }
}

void ps_co_measured(struct ps_coordinator *c, struct ps_co_worker *w,
                    const struct lh_lease_request *m)
{
    w->measured.tokens_spread = ps_co_said_number(m->speed.spread);
    w->measured.begun_tokens = m->begun_tokens;
    w->measured.batch_s = plausible(m->batch_s);
    w->measured.utilisation = fmin(ps_co_said_number(m->utilisation), 1);
    w->measured.loss = ps_co_said_number(m->loss);
    take_paths(c, w, m);
}

// ---------------------------------------------------------------- what servers admitted

// A reported speed counts up to this multiple of the admitted tokens in the same time.
static const double SLACK = 4;
// Without evidence, a speed this many times above the others' counts as theirs.
static const double UNUSUAL = 16;
static const double HALF_LIFE_S = 1800;
static const double PATIENCE_S = 120;

void ps_co_note_admitted(struct ps_coordinator *c, struct ps_co_worker *w)
{
    struct ps_co_evidence *e = &w->evidence;
    uint64_t tokens = ps_co_admitted_tokens(c, w);
    int64_t now = ps_co_now(c);
    bool runs = c->plan.phase == LH_PHASE_RUN && !c->pause.is && w->tokens_said > 0 && !w->idle;
    if (e->since_ns && runs) {
        e->seconds += (double)(now - e->since_ns) / LH_SECOND;
        if (tokens > e->seen) e->tokens += (double)(tokens - e->seen);
    }
    e->since_ns = runs ? now : 0;
    e->seen = tokens;
    if (e->seconds <= HALF_LIFE_S) return;
    e->seconds /= 2;
    e->tokens /= 2;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

// The lower median of the other live workers' speeds, bounded by their evidence. 0: none.
static double usual_speed(const struct ps_coordinator *c, const struct ps_co_worker *but)
{
    double speed[LH_WORKERS_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_worker *o = &c->worker[i];
        if (o == but || !o->live || !(o->tokens_per_s > 0)) continue;
        speed[n++] = o->tokens_per_s;
    }
    qsort(speed, n, sizeof *speed, by_size);
    return n ? speed[(n - 1) / 2] : 0;
}

double ps_co_believed_speed(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    const struct ps_co_evidence *e = &w->evidence;
    double said = w->tokens_said;
    if (e->tokens > 0 && e->seconds > 0) return fmin(said, SLACK * e->tokens / e->seconds);
    double usual = usual_speed(c, w);
    double round_s = w->measured.batch_s.mean * ps_co_local_steps(c, w);
    bool proves_nothing = w->admitted && e->seconds > fmax(PATIENCE_S, SLACK * round_s);
    if (usual > 0 && proves_nothing) return fmin(said, usual / UNUSUAL);
    return usual > 0 && said > UNUSUAL * usual ? usual : said;
}

void ps_co_take_admitted(struct ps_coordinator *c, const struct lh_shard_report *r)
{
    for (size_t i = 0; i < r->n_admitted; i++) { // the message's table bounds them
        const struct lh_admitted *m = &r->admitted[i];
        uint32_t index = ps_co_worker_index(c, m->worker);
        if (index >= c->workers) continue;
        struct ps_co_worker *w = &c->worker[index];
        if (!w->admitted) w->admitted = calloc(c->conf.manifest->shards, sizeof *w->admitted);
        if (!w->admitted) continue;
        struct ps_co_admitted *was = &w->admitted[r->head.shard];
        if (m->pushes > was->pushes) w->admitted_ns = ps_co_now(c);
        bool aside = m->set_aside && m->let_back >= ps_co_let_back(c, m->worker);
        if (aside && !was->set_aside)
            ps_co_say(c, LH_WARN, "worker.set_aside",
                      "%s of %s: shard %u refuses its pushes, because ten in a row were far larger "
                      "than other workers'. If the worker is sound, let it back: longhaul admit %s",
                      w->name, w->region, r->head.shard, w->name);
        *was = (struct ps_co_admitted){m->pushes, m->tokens, m->charged, aside, m->round};
    }
}

double ps_co_exchange_s(const struct ps_co_worker *w)
{
    double slowest = 0;
    for (uint32_t i = 0; i < w->measured.paths; i++) {
        const struct ps_co_path *p = &w->measured.path[i];
        double trip = (double)p->trip.mean_ns / LH_SECOND;
        slowest = fmax(slowest, p->push_s.mean > 0 ? p->push_s.mean : trip);
    }
    return slowest;
}

// ---------------------------------------------------------------- what operators see

static void tell(json_t *row, const char *key, double value)
{
    if (value > 0) json_object_set_new(row, key, json_real(value));
}

void ps_co_tell_measured(const struct ps_co_worker *w, json_t *row)
{
    tell(row, "tokens_spread", w->measured.tokens_spread);
    tell(row, "batch_ms", w->measured.batch_s.mean * 1e3);
    tell(row, "batch_spread_ms", w->measured.batch_s.spread * 1e3);
    tell(row, "loss", w->measured.loss);
    tell(row, "utilisation", w->measured.utilisation);
}

static json_t *link_row(const struct ps_coordinator *c, const struct ps_co_worker *w,
                        const struct ps_co_path *p)
{
    const struct ps_co_shard *s = &c->shard[p->shard];
    const double mbit = 8e-6;
    json_t *row = json_pack("{s:s s:s s:s s:s s:i}", "worker", w->name, "region", w->region,
                            "server", s->name[0] ? s->name : s->address, "server_region",
                            s->region[0] ? s->region : "-", "shard", (int)p->shard);
    tell(row, "rtt_ms", (double)p->trip.mean_ns / LH_MS);
    tell(row, "rtt_spread_ms", (double)p->trip.spread_ns / LH_MS);
    tell(row, "push_ms", p->push_s.mean * 1e3);
    tell(row, "push_spread_ms", p->push_s.spread * 1e3);
    tell(row, "up_mbit_s", p->up.mean * mbit);
    tell(row, "up_spread", p->up.spread * mbit);
    tell(row, "down_mbit_s", p->down.mean * mbit);
    tell(row, "down_spread", p->down.spread * mbit);
    return row;
}

json_t *ps_co_links(const struct ps_coordinator *c)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_worker *w = &c->worker[i];
        for (uint32_t k = 0; k < w->measured.paths && json_array_size(rows) < LINK_ROWS_MAX; k++)
            json_array_append_new(rows, link_row(c, w, &w->measured.path[k]));
    }
    return rows;
}
