// The server's planted bugs. See server/bugs.h and README.md.
#include "server/bugs.h"

#include "common/base/check.h"
#include "server/core.h"
#include "server/report.h"

void ps_bug_answer_early(struct ps_server *s)
{
    for (struct ps_item *i = s->group; i; i = i->next)
        if (i->kind == PS_ITEM_PUSH && i->push && i->appended) {
            i->done(i, PS_DECIDED);
            i->push = NULL;
            i->done = NULL;
        }
}

// A process's knowledge of a shard. A simulation has many processes, one after another; the oldest
// ones are dropped.
struct knowledge {
    uint64_t process;
    uint32_t shard;
    bool frozen;
    uint64_t claimed; // epoch of a MOVE that is not durable
};

static struct knowledge *of(const struct ps_shard *s)
{
    static _Thread_local struct knowledge all[256];
    static _Thread_local size_t next;
    for (size_t i = 0; i < LH_COUNT(all); i++)
        if (all[i].process == s->server->process && all[i].shard == s->id) return &all[i];
    struct knowledge *k = &all[next++ % LH_COUNT(all)];
    *k = (struct knowledge){.process = s->server->process, .shard = s->id};
    return k;
}

void ps_bug_freeze(const struct ps_shard *s)
{
    of(s)->frozen = true;
}

bool ps_bug_frozen(const struct ps_shard *s)
{
    return of(s)->frozen;
}

void ps_bug_move_received(struct ps_shard *s, const struct lh_record *r, struct lh_span body)
{
    struct lh_move m;
    if (r->kind != LH_MOVE || lh_move_parse(body, &m) ||
        !lh_same_directory(m.target, s->server->standby.identity))
        return;
    of(s)->claimed = m.epoch;
    ps_report_now(s->server);
}

uint64_t ps_bug_claimed(const struct ps_shard *s)
{
    return of(s)->claimed;
}
