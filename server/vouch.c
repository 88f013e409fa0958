// Vouch: which copies that workers say they hold are of a shard's log
// (server/docs/0000-protocol.md#rule-13).
//
// The coordinator knows the log's chain at its head alone. It asks with the answer to a report, and
// is answered with the next one, from what is durable then. What is not answered is asked again.
#include <stdlib.h>
#include <string.h>

#include "common/net/head.h"
#include "longhaul/v1/member.pb-c.h"
#include "server/core.h"
#include "server/report.h"
#include "server/vouch.h"

void ps_vouch_free(struct ps_shard *s)
{
    free(s->asked.point);
    free(s->asked.item);
    free(s->asked.list);
    memset(&s->asked, 0, sizeof s->asked);
}

// Without memory it is not answered.
static void note(struct ps_asked *a, const Longhaul__V1__Point *p)
{
    if (a->count == a->cap) {
        size_t cap = a->cap ? 2 * a->cap : 8;
        struct lh_point *grown = realloc(a->point, cap * sizeof *grown);
        if (!grown) return;
        a->point = grown;
        a->cap = cap;
    }
    struct lh_point *to = &a->point[a->count++];
    *to = lh_point_of(p);
}

void ps_vouch_told(struct ps_server *s, const Longhaul__V1__ReportReply *m)
{
    for (uint32_t i = 0; i < s->conf.shard_count; i++) ps_vouch_free(s->shard[i]);
    for (size_t i = 0; i < m->n_copies; i++) {
        struct ps_shard *shard = ps_server_shard(s, m->copies[i]->shard);
        if (shard && m->copies[i]->chain.len == LH_HASH_BYTES) note(&shard->asked, m->copies[i]);
    }
}

// A record that was trimmed away here is one that no log can be compared with any more, at a start
// neither, so the worker is believed: one whose copies are all older would make no other.
static bool look_up(const struct ps_shard *s, const struct lh_point *p, bool *held)
{
    enum ps_stand stand;
    if (ps_shard_stand(s, p, &stand)) return false;
    *held = stand == PS_POINT_OURS || stand == PS_POINT_CUT;
    return *held || stand == PS_POINT_OTHER;
}

void ps_vouch_answer(struct ps_shard *s, Longhaul__V1__ShardReport *out)
{
    struct ps_asked *a = &s->asked;
    if (!a->count) return;
    a->item = calloc(a->count, sizeof *a->item);
    a->list = calloc(2 * a->count, sizeof *a->list);
    if (!a->item || !a->list) return;
    out->held = a->list;
    out->foreign = a->list + a->count;
    for (size_t i = 0; i < a->count; i++) {
        const struct lh_point *p = &a->point[i];
        bool held;
        if (!look_up(s, p, &held)) continue;
        a->item[i] = lh_head_point(s->id, p->epoch, p->version, &p->chain);
        if (held)
            out->held[out->n_held++] = &a->item[i];
        else
            out->foreign[out->n_foreign++] = &a->item[i];
    }
}
