// Vouch: checks workers' claimed copies against a shard's log, and gives the proof that a holder
// can make (server/docs/0000-protocol.md#rule-13).
//
// The coordinator knows the log's chain at its head only. It asks in the answer to a report; the
// next report answers, from the durable state. Unanswered points are asked again.
//
// An answer contains a challenge about the state at that point, and the right response. The server
// has that state only right after it has folded the record, so it computes the response then, for
// every version, with a challenge derived from a secret of this process: no worker can know the
// challenge before it claims a copy. That reads a few KiB per record. The server can't answer for
// versions older than the last MARKS, or folded before this process except for its present version.
#include "server/vouch.h"

#include <stdlib.h>

#include "common/net/wire_member.h"
#include "kernels/state/possession.h"
#include "server/core.h"

enum { MARKS = 4096 };

struct ps_mark {
    struct lh_point at;
    struct lh_hash challenge, answer;
};

void ps_vouch_forget(struct ps_shard *s)
{
    free(s->asked.point);
    free(s->asked.held);
    free(s->asked.foreign);
    s->asked = (struct ps_asked){.marks = s->asked.marks, .secret = s->asked.secret};
}

void ps_vouch_free(struct ps_shard *s)
{
    ps_vouch_forget(s);
    free(s->asked.marks);
    s->asked.marks = NULL;
}

// ---------------------------------------------------------------- marks

static struct ps_mark mark_of(const struct ps_shard *s)
{
    const struct lh_ledger *l = &s->replica.ledger;
    const struct lh_hash *secret = &s->asked.secret;
    struct ps_mark m = {.at = {l->epoch, l->version, l->chain}};
    struct lh_span part = lh_span(l->chain.b, LH_HASH_BYTES);
    m.challenge = lh_hash_of(lh_span(secret->b, LH_HASH_BYTES), &part, 1);
    m.answer = lk_possession(&s->replica, &m.challenge);
    return m;
}

// Without memory for marks, only the present version can be answered.
static bool has_marks(struct ps_shard *s)
{
    struct lh_env *env = s->server->conf.env;
    static const struct lh_hash none;
    struct ps_asked *a = &s->asked;
    if (lh_hash_equal(&a->secret, &none)) lh_random(env, a->secret.b, sizeof a->secret.b);
    if (!a->marks) a->marks = calloc(MARKS, sizeof *a->marks);
    return a->marks != NULL;
}

void ps_vouch_folded(struct ps_shard *s)
{
    if (has_marks(s)) s->asked.marks[s->replica.ledger.version % MARKS] = mark_of(s);
}

// ---------------------------------------------------------------- what is asked

// Without memory, the point stays unanswered.
static void note(struct ps_asked *a, const struct lh_point *p)
{
    if (a->count == a->cap) {
        size_t cap = a->cap ? 2 * a->cap : 8;
        struct lh_point *grown = realloc(a->point, cap * sizeof *grown);
        if (!grown) return;
        a->point = grown;
        a->cap = cap;
    }
    a->point[a->count++] = *p;
}

void ps_vouch_told(struct ps_server *s, const struct lh_report_reply *m)
{
    for (uint32_t i = 0; i < s->conf.shard_count; i++) ps_vouch_forget(s->shard[i]);
    for (size_t i = 0; i < m->n_copies; i++) {
        const struct lh_shard_point *p = &m->copies[i];
        struct ps_shard *shard = ps_server_shard(s, p->shard);
        if (shard && p->chained) note(&shard->asked, &p->at);
    }
}

// ---------------------------------------------------------------- what is answered

// *held: the log has the point, and `out` is its challenge and response. False: it can't tell now.
static bool look_up(struct ps_shard *s, const struct lh_point *p, bool *held, struct ps_mark *out)
{
    const struct lh_ledger *l = &s->replica.ledger;
    struct lh_point now = {l->epoch, l->version, l->chain};
    enum ps_stand stand;
    bool marks = has_marks(s);
    *out = marks ? s->asked.marks[p->version % MARKS] : (struct ps_mark){0};
    if (lh_point_equal(&now, p)) *out = mark_of(s);
    *held = lh_point_equal(&out->at, p);
    return *held || (!ps_shard_stand(s, p, &stand) && stand == PS_POINT_OTHER);
}

void ps_vouch_answer(struct ps_shard *s, struct lh_shard_report *out)
{
    struct ps_asked *a = &s->asked;
    if (!a->count) return;
    a->held = calloc(a->count, sizeof *a->held);
    a->foreign = calloc(a->count, sizeof *a->foreign);
    if (!a->held || !a->foreign) return;
    out->held = a->held;
    out->foreign = a->foreign;
    for (size_t i = 0; i < a->count; i++) {
        const struct lh_point *p = &a->point[i];
        struct ps_mark mark;
        bool held;
        if (!look_up(s, p, &held, &mark)) continue;
        struct lh_shard_point of = {s->id, true, *p};
        if (held)
            a->held[out->n_held++] = (struct lh_vouched){true, of, mark.challenge, mark.answer};
        else
            a->foreign[out->n_foreign++] = of;
    }
}
