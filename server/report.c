// Report: sends the shards' state to the coordinator and takes the plan from its answer.
//
// A coordinator that is down stops nothing: the next tick reports again. No server waits for an
// answer before its next report: a report to a host that died silently is unanswered until its
// deadline. By then a restarted coordinator would have deposed a silent owner, and a standby could
// not take over (server/docs/0000-protocol.md#rule-28). A long round trip needs a long deadline,
// and reports are less frequent, so that one is free when the next is due.
#include <stdlib.h>

#include "common/base/limits.h"
#include "common/format/credit.h"
#include "common/net/rpc.h"
#include "common/net/wire_member.h"
#include "server/core.h"
#include "server/push/insync.h"
#include "server/recovery/refold.h"
#include "server/report.h"
#include "server/vouch.h"

// If the credits of all shards in a report take more bytes than this, they are packed to one bit
// per unit, so that a report always fits a message.
enum { CREDIT_BYTES = LH_SMALL_BYTES / 4 };

// The run continues after its end, but this log lost a tail there: only a start begins the epoch
// that it needs.
static bool must_start_anew(const struct ps_shard *shard, const struct lh_plan *plan)
{
    const struct lh_ledger *l = &shard->replica.ledger;
    return l->plan.phase == LH_PHASE_END && plan->phase < LH_PHASE_END && shard->begun > l->epoch;
}

static void take_plan(struct ps_server *s, struct lh_span bytes)
{
    struct lh_plan *plan = malloc(sizeof *plan);
    if (!plan) return;
    lh_err err = lh_plan_parse(bytes, plan);
    if (err) lh_log_peer(s->conf.log, LH_WARN, "plan.malformed", "%s", lh_err_text(err));
    for (uint32_t i = 0; i < s->conf.shard_count && !err; i++) {
        struct ps_shard *shard = s->shard[i];
        if (plan->number <= shard->head->plan.number) continue;
        if (must_start_anew(shard, plan)) {
            err = lh_fail(LH_ERR_FENCED,
                          "the run goes on, but the log of shard %u lost its tail at the run's "
                          "end, so it needs a new epoch: start this server again",
                          shard->id);
            ps_fatal(s, err);
            continue;
        }
        if (!shard->plan) shard->plan = malloc(sizeof *shard->plan);
        if (shard->plan) *shard->plan = *plan;
    }
    free(plan);
    ps_raise(s, PS_WISHED);
}

static void take_answer(struct ps_server *s, const struct lh_report_reply *m)
{
    ps_vouch_told(s, m);
    ps_grants_told(s, m);
    if (s->phase == PS_STOPPED) return;
    if (s->phase == PS_SERVING) ps_peers_told(s, m);
    s->events.answered(s, m);
    if (s->phase == PS_SERVING && m->plan.len) take_plan(s, m->plan);
}

static void on_answer(void *self, lh_err err, const void *answer)
{
    struct ps_report *report = self;
    struct ps_server *s = report->server;
    report->call = NULL;
    if (s->phase == PS_STOPPED) return;
    bool late = report->number < s->report_heard; // a later report was answered before
    if (!err && !late) {
        s->report_heard = report->number;
        take_answer(s, answer);
    }
    if (err && lh_err_class(err) == LH_CLASS_REJECT)
        lh_log_peer(s->conf.log, LH_ERROR, "report.refused", "coordinator %s: %s",
                    s->conf.coordinator, lh_err_text(err));
    if (err == LH_ERR_FENCED) ps_fatal(s, err); // this history was given up and may not be served
}

// A free report slot, or NULL. A standby whose directory may lack records that it confirmed gives
// up its name with the next answer, and sends nothing more under that name: it waits for that
// answer.
static struct ps_report *free_report(struct ps_server *s)
{
    struct ps_report *report = NULL;
    for (struct ps_report *r = s->report; r < s->report + PS_REPORTS_MAX; r++) {
        if (r->call && s->phase == PS_STANDBY && s->standby.lost) return NULL;
        if (!r->call) report = r;
    }
    return report;
}

// Packs a shard's credits. Returns the bytes that the report borrows; NULL: no memory.
static uint8_t *pack_credit(const struct lh_ledger *l, struct lh_shard_report *r)
{
    uint8_t *out = malloc(lh_credit_packed_bytes(l->credit_bytes, l->shards));
    if (!out) return NULL;
    lh_credit_pack(l->credit, l->credit_bytes, l->shard, l->shards, out);
    r->credited_packed = lh_span(out, lh_credit_packed_bytes(l->credit_bytes, l->shards));
    return out;
}

// ---------------------------------------------------------------- what was admitted of whom

struct told_rows {
    struct lh_admitted item[LH_REPORT_ROWS_MAX];
    uint32_t count;
};

// Lists a shard's rows from `from` on, as far as the report has space. Returns the next row.
static uint32_t tell_rows(const struct lh_ledger *l, uint32_t from, struct told_rows *t,
                          struct lh_shard_report *out)
{
    uint32_t begin = t->count;
    for (; from < l->rows && t->count < LH_REPORT_ROWS_MAX; from++, t->count++) {
        const struct lh_row *row = &l->row[from];
        t->item[t->count] = (struct lh_admitted){.worker = row->worker,
                                                 .pushes = row->admitted,
                                                 .tokens = row->tokens,
                                                 .set_aside = lh_norms_set_aside(&row->norms),
                                                 .let_back = row->norms.let_back,
                                                 .charged = row->charged,
                                                 .round = row->round};
    }
    out->admitted = t->item + begin;
    out->n_admitted = t->count - begin;
    return from;
}

// Each shard once, from where the last report ended; the first shard's earlier rows come last.
static void tell_admitted(struct ps_server *s, struct told_rows *t, struct lh_shard_report *out)
{
    uint32_t n = s->conf.shard_count, first = s->report_shard % n, row = s->report_row;
    for (uint32_t i = 0; i < n && t->count < LH_REPORT_ROWS_MAX; i++) {
        uint32_t k = (first + i) % n;
        const struct lh_ledger *l = &s->shard[k]->replica.ledger;
        row = tell_rows(l, i || row < l->rows ? row : 0, t, &out[k]);
        s->report_shard = row < l->rows ? k : (k + 1) % n;
        s->report_row = row = row < l->rows ? row : 0;
    }
}

static bool credit_is_large(const struct ps_server *s)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < s->conf.shard_count; i++)
        bytes += s->shard[i]->replica.ledger.credit_bytes;
    return bytes > CREDIT_BYTES;
}

static void send(struct ps_server *s)
{
    struct ps_report *next = free_report(s);
    if (!next) return;
    int64_t deadline = ps_deadline(s, s->coordinator, PS_HALF_OF_DEADLINE);
    uint32_t n = s->conf.shard_count;
    struct lh_shard_report *report = calloc(n, sizeof *report);
    uint8_t **packed = calloc(n, sizeof *packed);
    struct told_rows *rows = calloc(1, sizeof *rows);
    bool large = credit_is_large(s);
    lh_err err = report && packed && rows ? LH_OK : LH_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < n && !err; i++) {
        struct lh_ledger *l = &s->shard[i]->replica.ledger;
        report[i].has_head = true;
        report[i].head = lh_shard_point(l->shard, l->epoch, l->version, &l->chain);
        report[i].tokens = l->tokens;
        if (large)
            packed[i] = pack_credit(l, &report[i]);
        else
            report[i].credited = lh_span(l->credit, l->credit_bytes);
        if (large && !packed[i]) err = LH_ERR_NO_MEMORY;
        report[i].plan = l->plan.number;
        report[i].phase = l->plan.phase;
        report[i].moving = ps_shard_moving(s->shard[i]);
        report[i].begun = s->shard[i]->begun;
        report[i].in_sync = ps_insync_noted(s->shard[i], &report[i].changes);
        ps_vouch_answer(s->shard[i], &report[i]);
    }
    if (!err) tell_admitted(s, rows, report);
    struct lh_report_request m = {
        .wire = lh_versions_ours(),
        .run = lh_run_of(s->conf.job, &s->conf.manifest->hash),
        .address = s->address,
        .process = s->process,
        .n_shards = n,
        .shards = report,
        .standby = s->standby.identity,
        .standing = s->phase == PS_STANDBY,
        .lost = s->standby.lost,
        .trip = lh_link_trip(s->coordinator),
        .number = ++s->reports_sent,
        .gives = ps_gives(s),
    };
    m.has_refold = ps_refold_report(s, &m.refold);
    *next = (struct ps_report){.server = s, .number = m.number};
    if (!err)
        err = lh_ask(s->coordinator, LH_RPC_REPORT, deadline, LH_MESSAGE(report_request, &m),
                     on_answer, next, &next->call);
    if (err) next->call = NULL;                                    // the next tick tries again
    for (uint32_t i = 0; i < n; i++) ps_vouch_forget(s->shard[i]); // it is answered once
    for (uint32_t i = 0; i < n && packed; i++) free(packed[i]);
    free(packed);
    free(rows);
    free(report);
}

static int64_t interval(const struct ps_server *s)
{
    int64_t deadline = ps_deadline(s, s->coordinator, PS_HALF_OF_DEADLINE);
    bool longer = deadline > ps_deadline(s, NULL, PS_HALF_OF_DEADLINE);
    int64_t least = longer ? deadline / PS_REPORTS_MAX : 0;
    return s->conf.report_ns > least ? s->conf.report_ns : least;
}

// If the disk hangs and a standby in sync could go on, stays silent, so that the standby takes over
// (server/docs/0000-protocol.md#rule-21).
static bool gives_way(const struct ps_server *s)
{
    bool hangs = lh_slow_age_s(&s->slow, lh_now(s->conf.env)) >= (double)LH_DISK_SLOW / LH_SECOND;
    for (uint32_t i = 0; i < s->conf.shard_count && hangs; i++)
        hangs = s->shard[i]->insync.state == PS_IN_SYNC;
    if (LH_BUG("hung_talks")) return false;
    return hangs && s->conf.replicated && s->phase == PS_SERVING;
}

static void tick(void *arg)
{
    struct ps_server *s = arg;
    s->report_timer = 0;
    if (s->phase == PS_STOPPED) return;
    s->report_timer = lh_after(s->conf.env, interval(s), tick, s);
    lh_slow_look(&s->slow, lh_now(s->conf.env), s->conf.log, "a group of the log", "the disk",
                 "pushes are not answered");
    // A history that is being settled may not last, so it is not reported.
    bool settles = s->phase <= PS_SETTLING;
    if (!settles && !gives_way(s)) send(s);
}

void ps_report_start(struct ps_server *s)
{
    if (s->coordinator && !s->report_timer) tick(s);
}

void ps_report_now(struct ps_server *s)
{
    lh_cancel(s->conf.env, &s->report_timer);
    ps_report_start(s);
}

void ps_report_forget(struct ps_server *s)
{
    for (struct ps_report *r = s->report; r < s->report + PS_REPORTS_MAX; r++) {
        if (r->call) lh_unary_cancel(r->call);
        r->call = NULL;
    }
}
