// Watch: what the cores tell while they run, kept for the judge. Of a worker every step, cut and
// decision, so that what its deaths take is known to the token; of a server every durable record.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/cluster.h"

static struct sim_cut *find_cut(struct sim_history *h, struct lh_incarnation i, uint64_t step)
{
    for (uint32_t k = h->cuts; k--;)
        if (lh_incarnation_equal(h->cut[k].incarnation, i) && h->cut[k].step == step)
            return &h->cut[k];
    return NULL;
}

static void saw_stepped(void *arg, const struct wk_step_in *in)
{
    struct sim_node *n = arg;
    struct sim_training *t = &n->sim->training[n->index];
    for (uint32_t p = 0; p < in->pieces; p++) {
        const struct wk_piece *piece = &in->piece[p];
        for (uint64_t at = piece->offset; at < piece->offset + piece->tokens; at += SIM_SEQUENCE) {
            uint16_t bit = (uint16_t)(1u << at / SIM_SEQUENCE);
            if (t->seen[piece->unit] & bit) t->twice += SIM_SEQUENCE;
            t->seen[piece->unit] |= bit;
            t->tokens += SIM_SEQUENCE;
            for (uint32_t k = 0; k < n->sim->shards; k++) {
                n->sim->history[n->index][k].uncut_of[piece->unit] |= bit;
                n->sim->history[n->index][k].uncut += SIM_SEQUENCE;
            }
        }
    }
}

// A cut takes what is uncut; another attempt after a full disk takes what the first one had, too.
static void note_cutting(struct sim_history *h)
{
    for (uint32_t u = 0; u < SIM_UNITS; u++) h->cutting_of[u] |= h->uncut_of[u];
    memset(h->uncut_of, 0, sizeof h->uncut_of);
    h->cutting += h->uncut;
    h->uncut = 0;
}

static void note_cut(struct sim_history *h)
{
    for (uint32_t u = 0; u < SIM_UNITS; u++) h->cut_of[u] |= h->cutting_of[u];
    memset(h->cutting_of, 0, sizeof h->cutting_of);
    h->cutting = 0;
}

// The process is gone. What a cut was being made of is in its push, or not.
void sim_saw_death(struct sim_node *n)
{
    uint64_t most = 0;
    for (uint32_t k = 0; n->worker && k < n->sim->shards; k++) {
        struct sim_history *h = &n->sim->history[n->index][k];
        uint64_t lost = h->uncut + h->cutting;
        h->lost_least += h->uncut;
        h->lost_most += lost;
        if (lost > most) most = lost;
        note_cut(h);
        memset(h->uncut_of, 0, sizeof h->uncut_of);
        h->uncut = 0;
    }
    if (n->worker) n->sim->training[n->index].again += most;
}

// The newest cut is committed, or is not and never will be.
static void settle_pending(struct sim_history *h, uint64_t values, bool committed)
{
    for (uint64_t k = 0; h->pending && k < values; k++) {
        if (committed) h->raw[k] += h->last[k];
        h->kept[k] -= h->last[k];
    }
    h->pending = false;
}

static void check_quanta(struct sim *s, const double *delta, uint64_t values)
{
    for (uint64_t k = 0; k < values; k++)
        if (fmod(delta[k], (double)SIM_QUANTUM) != 0)
            sim_fail(s, "a delta of %.17g: the run is not in fixed point", delta[k]);
}

static void saw_kept(void *arg, uint32_t shard, struct lh_incarnation i, uint64_t step,
                     const float *delta, uint64_t values)
{
    struct sim_node *n = arg;
    struct sim_history *h = &n->sim->history[n->index][shard];
    if (h->cuts == SIM_CUTS_MAX) {
        sim_fail(n->sim, "%s pushes without end", n->name);
        return;
    }
    note_cutting(h);
    settle_pending(h, values, false); // it was taken back: the delta that comes holds it
    h->pending = true;
    if (!find_cut(h, i, step)) // else: kept before, crashed before its commit, made anew
        h->cut[h->cuts++] = (struct sim_cut){.incarnation = i, .step = step};
    for (uint64_t k = 0; k < values; k++) h->last[k] = (double)delta[k];
    if (n->sim->conf.exact) check_quanta(n->sim, h->last, values);
    for (uint64_t k = 0; k < values; k++) h->kept[k] += h->last[k];
}

static void saw_cut(void *arg, uint32_t shard, struct lh_incarnation i, uint64_t step)
{
    struct sim_node *n = arg;
    struct sim_history *h = &n->sim->history[n->index][shard];
    struct sim_cut *cut = find_cut(h, i, step);
    note_cut(h);
    if (!cut) return;
    cut->committed = true;
    settle_pending(h, n->sim->manifest.shard[shard].values, true);
    sim_trace(n->sim, "%s cuts shard %u: %llx/%llu", n->name, shard, (unsigned long long)i.number,
              (unsigned long long)step);
}

static void saw_decided(void *arg, uint32_t shard, struct lh_incarnation i, uint64_t step,
                        bool admitted)
{
    struct sim_node *n = arg;
    struct sim_history *h = &n->sim->history[n->index][shard];
    sim_trace(n->sim, "%s hears shard %u: %llx/%llu %s", n->name, shard,
              (unsigned long long)i.number, (unsigned long long)step,
              admitted ? "admitted" : "refused");
    h->refused_in_turn = admitted ? 0 : h->refused_in_turn + 1;
    if (h->refused_in_turn > SIM_REFUSED_MAX)
        sim_fail(n->sim, "shard %u: %s makes no progress, %u pushes were refused in turn", shard,
                 n->name, h->refused_in_turn);
    struct sim_cut *cut = find_cut(h, i, step);
    if (!cut) return;
    cut->told_admitted |= admitted;
    cut->told_refused |= !admitted;
}

static void saw_lost(void *arg, uint32_t shard, const char *what)
{
    struct sim_node *n = arg;
    const struct sim_conf *conf = &n->sim->conf;
    const struct sim_faults *f = &conf->faults;
    n->sim->history[n->index][shard].lost = true;
    bool cut = f->worker_power || conf->crash_power;
    if (!cut && !f->worker_lost && !f->io && !f->sync && !f->damage)
        sim_fail(n->sim, "%s declares shard %u: %s lost, but was only ever killed", n->name, shard,
                 what);
    sim_trace(n->sim, "%s declares shard %u: %s lost", n->name, shard, what);
}

// A durable record: a version that was there before must be the same, unless a damaged tail was cut
// and a new epoch says so.
void sim_saw_folded(void *arg, uint32_t shard, const struct lh_record *r)
{
    struct sim *s = arg;
    if (r->version >= SIM_VERSIONS_MAX) return;
    if (r->kind > LH_REFUSE)
        sim_trace(s, "shard %u: version %llu kind %u", shard, (unsigned long long)r->version,
                  r->kind);
    struct lh_buf b = lh_buf(1 << 22);
    lh_record_write_header(r, &b);
    lh_put(&b, r->body.data, r->body.len);
    struct lh_blob **kept = &s->kept[shard][r->version];
    if (*kept && !lh_span_equal(lh_blob_span(*kept), lh_buf_span(&b))) {
        struct lh_record old;
        uint32_t body;
        lh_err err = lh_record_parse_header(lh_blob_span(*kept), &old, &body);
        bool stood_by = s->conf.faults.standby && !err;  // what no standby confirmed may go
        bool put_back = s->conf.faults.rollback && !err; // an old directory is read, and not served
        if ((stood_by || put_back) && r->epoch < old.epoch) { // its former owner does not know yet
            lh_buf_free(&b);
            return;
        }
        if (!s->history_lost[shard] && !stood_by)
            sim_fail(s, "shard %u: version %llu was seen and is another one now", shard,
                     (unsigned long long)r->version);
        else if (!err && r->epoch <= old.epoch)
            sim_fail(s, "shard %u: version %llu changed without a new epoch", shard,
                     (unsigned long long)r->version);
        for (uint64_t v = r->version; v < SIM_VERSIONS_MAX && s->kept[shard][v]; v++) {
            lh_blob_release(s->kept[shard][v]); // an abandoned branch
            s->kept[shard][v] = NULL;
        }
    }
    if (!*kept) *kept = lh_blob_copy(lh_buf_span(&b));
    lh_buf_free(&b);
}

// After a death without loss the slot tells whether the newest cut was committed.
void sim_saw_start(struct sim_node *n)
{
    for (uint32_t k = 0; k < n->sim->shards; k++) {
        const struct wk_shard *ws = &n->worker->shard[k];
        struct sim_history *h = &n->sim->history[n->index][k];
        struct sim_cut *cut = h->cuts ? &h->cut[h->cuts - 1] : NULL;
        if (!h->pending) continue;
        bool same = lh_incarnation_equal(cut->incarnation, n->worker->incarnation);
        if (same && !h->lost) settle_pending(h, ws->layout->values, ws->next > cut->step);
        h->pending = false; // else it may come back, or not
    }
}

void sim_watch(struct sim_node *n)
{
    n->observer = (struct wk_observer){n, saw_stepped, saw_kept, saw_cut, saw_decided, saw_lost};
}
