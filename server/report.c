// Report: what the coordinator hears of the shards, and the plan it answers with.
//
// A coordinator that is down stops nothing: the report is simply tried again at the next tick.
#include <stdlib.h>
#include <string.h>

#include "common/head.h"
#include "common/rpc.h"
#include "longhaul/v1/member.pb-c.h"
#include "server/server.h"

static void tick(void *arg);

static void take_plan(struct ps_server *s, struct lh_span bytes)
{
    struct lh_plan *plan = malloc(sizeof *plan);
    if (!plan) return;
    lh_err err = lh_plan_parse(bytes, plan);
    if (err) lh_log_peer(s->conf.log, LH_WARN, "plan.malformed", "%s", lh_err_text(err));
    for (uint32_t i = 0; i < s->conf.shard_count && !err; i++) {
        struct ps_shard *shard = s->shard[i];
        if (plan->number <= shard->head->plan.number) continue;
        if (!shard->plan) shard->plan = malloc(sizeof *shard->plan);
        if (shard->plan) *shard->plan = *plan;
    }
    free(plan);
    ps_group_kick(s);
}

static void on_answer(void *self, lh_err err, const ProtobufCMessage *answer)
{
    struct ps_server *s = self;
    s->report = NULL;
    if (s->stopped) return;
    s->report_timer = lh_after(s->conf.env, s->conf.report_ns, tick, s);
    const Longhaul__V1__ReportReply *m = (const Longhaul__V1__ReportReply *)answer;
    if (!err) ps_move_told(s, m);
    if (!err) ps_vouch_told(s, m);
    if (!err && s->standby.standing) ps_standby_told(s, m);
    if (!err && s->serving && m->plan.len) take_plan(s, lh_span(m->plan.data, m->plan.len));
    if (err && lh_err_class(err) == LH_CLASS_REJECT)
        lh_log_peer(s->conf.log, LH_ERROR, "report.refused", "coordinator %s: %s",
                    s->conf.coordinator, lh_err_text(err));
    if (err == LH_ERR_FENCED) ps_fatal(s, err); // this history was given up: it may not be served
}

static lh_err send(struct ps_server *s)
{
    Longhaul__V1__ReportRequest m = LONGHAUL__V1__REPORT_REQUEST__INIT;
    Longhaul__V1__Wire wire = lh_head_wire();
    uint32_t n = s->conf.shard_count;
    Longhaul__V1__ShardReport *report = calloc(n, sizeof *report);
    Longhaul__V1__Point *point = calloc(n, sizeof *point);
    Longhaul__V1__ShardReport **list = calloc(n, sizeof *list);
    lh_err err = report && point && list ? LH_OK : LH_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < n && !err; i++) {
        struct lh_ledger *l = &s->shard[i]->replica.ledger;
        longhaul__v1__shard_report__init(&report[i]);
        point[i] = lh_head_point(l->shard, l->epoch, l->version, &l->chain);
        report[i].head = &point[i];
        report[i].tokens = l->tokens;
        report[i].credited = (ProtobufCBinaryData){l->credit_bytes, l->credit};
        report[i].plan = l->plan.number;
        report[i].phase = l->plan.phase;
        report[i].moving = ps_moving(s->shard[i]);
        report[i].begun = s->shard[i]->begun;
        report[i].in_sync = ps_insync_noted(s->shard[i], &report[i].changes);
        ps_vouch_answer(s->shard[i], &report[i]);
        list[i] = &report[i];
    }
    m.wire = &wire;
    lh_head_run(s->conf.job, &s->conf.manifest->hash, &m.job, &m.manifest);
    m.address = s->address;
    m.process = s->process;
    m.standby = s->standby.identity;
    m.standing = s->standby.standing;
    m.lost = s->standby.lost;
    m.vouches = true;
    m.n_shards = n;
    m.shards = list;
    if (!err)
        err = lh_unary_start(s->coordinator, LH_RPC_REPORT, 5 * LH_SECOND, &m.base,
                             &longhaul__v1__report_reply__descriptor, on_answer, s, &s->report);
    for (uint32_t i = 0; i < n; i++) ps_vouch_free(s->shard[i]); // it is answered once
    free(report);
    free(point);
    free(list);
    return err;
}

static void tick(void *arg)
{
    struct ps_server *s = arg;
    s->report_timer = 0;
    if (s->stopped) return;
    bool settles = !s->serving && !s->standby.standing; // of a history that may not last
    if (settles || send(s)) s->report_timer = lh_after(s->conf.env, s->conf.report_ns, tick, s);
}

void ps_report_start(struct ps_server *s)
{
    if (s->coordinator && !s->report && !s->report_timer) tick(s);
}

void ps_report_now(struct ps_server *s)
{
    lh_cancel(s->conf.env, &s->report_timer);
    ps_report_start(s); // or with the one that is under way, and a little later
}
