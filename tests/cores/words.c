// Lease requests by hand: see words.h.
#include "tests/cores/words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/balance/assign.h"

struct heard say(struct rig *r, uint32_t w, const struct words *s)
{
    Longhaul__V1__LeaseRequest m = rig_lease_request(r, w);
    Longhaul__V1__Estimate batch = LONGHAUL__V1__ESTIMATE__INIT;
    ProtobufCMessage *answer;
    m.want = s->want;
    m.ahead = s->ahead;
    m.tokens_per_s = s->units_per_s * WORDS_TOKENS;
    Longhaul__V1__Progress progress = LONGHAUL__V1__PROGRESS__INIT;
    progress.idle_ms = s->idle_ms;
    progress.step_ms = s->step_ms;
    progress.waits_ms = s->waits_ms;
    m.progress = &progress;
    m.failing = s->failing;
    m.evaluates = s->evaluates;
    m.loop_away = s->loop_away;
    m.drained = s->drained;
    batch.mean = s->batch_s;
    if (s->batch_s > 0) m.batch_s = &batch;
    Longhaul__V1__Path path = LONGHAUL__V1__PATH__INIT, *paths[] = {&path};
    Longhaul__V1__Estimate push = LONGHAUL__V1__ESTIMATE__INIT;
    push.mean = s->push_s;
    path.push_s = &push;
    m.paths = paths;
    m.n_paths = s->push_s > 0;
    m.holding = (uint64_t *)(uintptr_t)s->holding; // none of these arrays is written to
    m.n_holding = s->holds;
    m.begun = (uint64_t *)(uintptr_t)s->begun;
    m.n_begun = s->begins;
    m.begun_tokens = s->begun_tokens;
    m.returned = (uint64_t *)(uintptr_t)s->returned;
    m.n_returned = s->returns;
    m.claimed = (uint64_t *)(uintptr_t)s->claimed;
    m.n_claimed = s->claims;
    m.refused = (uint64_t *)(uintptr_t)s->refused;
    m.n_refused = s->refuses;
    Longhaul__V1__Away away = LONGHAUL__V1__AWAY__INIT, *aways[] = {&away};
    Longhaul__V1__Estimate rate = LONGHAUL__V1__ESTIMATE__INIT;
    if (s->away) {
        away.region = (char *)(uintptr_t)s->away; // not written to
        away.closed = s->closed;
        away.arrived_bytes = s->arrived_bytes;
        away.process = s->process;
        rate.mean = s->away_bytes_per_s;
        if (rate.mean > 0) away.bytes_per_s = &rate;
        m.away = aways;
        m.n_away = 1;
    }
    assert_int_equal(rig_ask(r, r->to_c[w], LH_RPC_LEASE, &m.base, &answer), LH_OK);
    Longhaul__V1__LeaseReply *a = (Longhaul__V1__LeaseReply *)answer;
    struct heard out = {.units = a->n_units, .recalls = a->n_recalled, .window = a->window};
    assert_true(out.units <= WORDS_SLOTS && out.recalls <= WORDS_SLOTS);
    if (out.units) memcpy(out.unit, a->units, out.units * sizeof *out.unit);
    if (out.recalls) memcpy(out.recalled, a->recalled, out.recalls * sizeof *out.recalled);
    out.givers = a->n_givers;
    if (a->n_givers) snprintf(out.giver, sizeof out.giver, "%s", a->givers[0]->address);
    rig_free_message(answer);
    return out;
}

bool is_in(const uint64_t *list, size_t n, uint64_t unit)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == unit) return true;
    return false;
}

struct rig *begun_run(uint32_t units, int64_t ride_out_ns)
{
    return begun_epochs(units, 1, ride_out_ns);
}

static struct rig *begun(struct rig *r, uint32_t units, uint32_t epochs, int64_t ride_out_ns)
{
    r->epochs = epochs;
    lh_units_free(&r->units);
    setup_units(&r->units, units, WORDS_TOKENS, RIG_WORKERS);
    rig_start_coordinator(r);
    r->coordinator->conf.ride_out_ns = ride_out_ns;
    r->coordinator->conf.worker_timeout_ns = 15 * LH_SECOND;
    assert_int_equal(rig_start_server(r, false), LH_OK);
    for (uint32_t w = 0; w < RIG_WORKERS; w++) assert_int_equal(rig_join(r, w, 11, 0).granted, 1);
    rig_run(r, 5 * LH_SECOND);
    return r;
}

struct rig *begun_epochs(uint32_t units, uint32_t epochs, int64_t ride_out_ns)
{
    return begun(rig_new(1), units, epochs, ride_out_ns);
}

struct rig *begun_shards(uint32_t units, int64_t ride_out_ns)
{
    struct rig *r = rig_new(1);
    rig_two_shards(r);
    return begun(r, units, 1, ride_out_ns);
}

void balance_by(struct rig *r, enum ps_balance_kind kind)
{
    r->coordinator->conf.balance = (struct ps_co_balance_conf){true, kind};
    free(r->coordinator->balancer);
    assert_int_equal(ps_co_balancer_make(r->coordinator), LH_OK);
}

struct rig *balanced(uint32_t units, enum ps_balance_kind kind)
{
    struct rig *r = begun_run(units, 300 * LH_SECOND);
    r->coordinator->conf.budget_tokens = (uint64_t)units * WORDS_TOKENS; // all units
    balance_by(r, kind);
    return r;
}

void introduce(struct rig *r, uint32_t w, double units_per_s)
{
    struct words s = {.want = 1, .ahead = 1, .units_per_s = units_per_s};
    assert_int_equal(say(r, w, &s).units, 1);
}

uint64_t count_home(const struct rig *r, const struct heard *h, uint32_t w)
{
    uint64_t n = 0;
    for (size_t i = 0; i < h->units; i++)
        n += !strcmp(lh_units_at(&r->units, h->unit[i])->home, r->w[w].self.region);
    return n;
}
