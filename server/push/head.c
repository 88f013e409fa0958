// Head: the state that decisions read, for every shard: the durable fold state plus the group that
// is being made durable (server/docs/0000-protocol.md#rule-26: commit, then memory).
//
// One call adds a record to the head and to the log's next group, and to nothing else. Then either
// the group is committed and all its records are folded, or it is taken back from the log's group
// and from every shard's head. Other code only reads the heads.
//
// Invariants: 1. If no group is under way, each head equals its replica's ledger. 2. A record that
// a shard needs (a plan, a move, a digest) stays due until it is durable: making a group reads the
// need and does not clear it. 3. No answer and no publication is made from a head.
#include <stdlib.h>

#include "server/core.h"
#include "server/push/head.h"

struct ps_head {
    struct lh_ledger ledger;
    bool ahead; // holds records of the current group: ahead of the replica
};

static bool settled(const struct ps_shard *s)
{
    const struct lh_ledger *head = &s->speculative->ledger, *durable = &s->replica.ledger;
    return head->version == durable->version && lh_hash_equal(&head->chain, &durable->chain);
}

lh_err ps_head_create(struct ps_shard *s)
{
    s->speculative = calloc(1, sizeof *s->speculative);
    if (!s->speculative) return LH_ERR_NO_MEMORY;
    s->head = &s->speculative->ledger;
    return ps_head_settle(s);
}

void ps_head_free(struct ps_shard *s)
{
    if (s->speculative) lh_ledger_free(&s->speculative->ledger);
    free(s->speculative);
}

lh_err ps_head_settle(struct ps_shard *s)
{
    LH_TRY(lh_ledger_copy(&s->speculative->ledger, &s->replica.ledger));
    s->speculative->ahead = false;
    return LH_OK;
}

lh_err ps_head_append(struct ps_item *i, lh_err *refused)
{
    struct ps_shard *s = i->shard;
    struct ps_head *h = s->speculative;
    LH_ASSERT(!i->appended && (h->ahead || settled(s)));
    *refused = lh_ledger_apply(&h->ledger, &i->record);
    if (*refused) return *refused == LH_ERR_NO_MEMORY ? LH_ERR_NO_MEMORY : LH_OK;
    h->ahead = true;
    LH_TRY(ps_wal_add(s->server->wal, s->id, &i->record, &i->place));
    i->appended = true;
    return LH_OK;
}

void ps_head_committed(struct ps_server *s)
{
    for (uint32_t k = 0; k < s->conf.shard_count; k++) {
        LH_ASSERT(settled(s->shard[k]));
        s->shard[k]->speculative->ahead = false;
    }
}

lh_err ps_head_take_back(struct ps_server *s)
{
    ps_wal_drop_group(s->wal);
    for (uint32_t k = 0; k < s->conf.shard_count; k++)
        if (s->shard[k]->speculative->ahead) LH_TRY(ps_head_settle(s->shard[k]));
    ps_head_committed(s); // nothing is under way
    return LH_OK;
}
