// Core: functions that every file of the server may call; it calls no other file. See core.h.
#include "server/core.h"

struct ps_shard *ps_server_shard(struct ps_server *s, uint32_t id)
{
    for (uint32_t i = 0; i < s->conf.shard_count; i++)
        if (s->shard[i] && s->shard[i]->id == id) return s->shard[i];
    return NULL;
}

bool ps_expelled(const struct ps_server *s, uint64_t identity)
{
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        const struct ps_shard *shard = s->shard[i];
        if (!shard) continue;
        if (lh_plan_expelled(shard->plan ? shard->plan : &shard->replica.ledger.plan, identity))
            return true;
    }
    return false;
}

void ps_fatal(struct ps_server *s, lh_err err)
{
    if (s->phase == PS_STOPPED) return;
    s->phase = PS_STOPPED;
    lh_logf(s->conf.log, LH_ERROR, "server.stop", "%s", lh_err_text(err));
    if (s->conf.fatal) s->conf.fatal(s->conf.fatal_arg, err, lh_err_text(err));
}

void ps_lasted(struct ps_server *s, enum ps_span what, int64_t start_ns)
{
    double took_s = (double)(lh_now(s->conf.env) - start_ns) / LH_SECOND;
    lh_histogram_add(&s->span[what], &lh_scale_seconds, took_s);
}

void ps_took(struct ps_server *s, enum ps_loop what, int64_t start_ns)
{
    int64_t ns = lh_now(s->conf.env) - start_ns;
    if (ns > s->longest_ns[what]) s->longest_ns[what] = ns;
    if (what == PS_LOOP_DECIDE) ps_lasted(s, PS_SPAN_DECIDE, start_ns);
    if (what == PS_LOOP_FOLD) ps_lasted(s, PS_SPAN_FOLD, start_ns);
}

lh_err ps_check_run(const struct ps_server *s, const struct lh_run *run, const char *who)
{
    return lh_run_check(run, s->conf.job, &s->conf.manifest->hash, who);
}

void ps_become(struct ps_server *s, enum ps_phase phase)
{
    if (s->phase != PS_STOPPED) s->phase = phase;
}

int64_t ps_deadline(const struct ps_server *s, struct lh_link *link, int part)
{
    int64_t whole = s->conf.deadline_ns ? s->conf.deadline_ns : 10 * LH_SECOND;
    return link ? lh_link_deadline(link, whole / part, s->conf.deadline_max_ns) : whole / part;
}

struct lk_checkpoint_conf ps_checkpoint_conf(struct ps_server *s)
{
    return (struct lk_checkpoint_conf){.env = s->conf.env,
                                       .dir = s->checkpoint_dir,
                                       .keys = s->conf.keys,
                                       .cipher = s->conf.cipher,
                                       .key_id = s->conf.key_id,
                                       .signer = s->conf.signer,
                                       .trusted = s->conf.trusted};
}

// ---------------------------------------------------------------- events

static void deliver(void *arg)
{
    struct ps_server *s = arg;
    struct ps_events *e = &s->events;
    for (enum ps_event what = 0; what < PS_EVENTS && s->phase != PS_STOPPED; what++) {
        if (!(e->raised & 1u << what)) continue;
        e->raised &= ~(1u << what);
        for (size_t i = 0; i < PS_HEARERS_MAX && e->hearer[what][i]; i++) e->hearer[what][i](s);
    }
    e->posted =
        e->raised &&
        s->phase != PS_STOPPED; // a handler raised an event that was delivered already: next turn
    if (e->posted) lh_post(s->conf.env, deliver, s);
}

void ps_raise(struct ps_server *s, enum ps_event what)
{
    struct ps_events *e = &s->events;
    if (s->phase == PS_STOPPED) return;
    e->raised |= 1u << what;
    if (e->posted) return;
    e->posted = true;
    lh_post(s->conf.env, deliver, s);
}
