// History: what is known here of a shard's history, and which servers are behind it
// (server/docs/0000-protocol.md#rule-27).
#include "worker/push/history.h"

static void raise_known(struct wk_shard *s, uint64_t epoch, uint64_t version)
{
    bool more = epoch > s->history.asked.epoch ||
                (epoch == s->history.asked.epoch && version > s->history.asked.version);
    if (!more) return;
    s->history.asked.epoch = epoch;
    s->history.asked.version = version;
}

// Also what is under way: the answer to it is of a server that has begun the epoch, or is not
// heard. The version binds the next greeting only: the server may have answered this one before.
void wk_history_told(struct wk_shard *s, uint64_t epoch, uint64_t version)
{
    if (epoch > s->history.told_epoch) s->history.told_version = 0;
    if (epoch > s->history.told_epoch) s->history.told_epoch = epoch;
    if (epoch == s->history.told_epoch && version > s->history.told_version)
        s->history.told_version = version;
    raise_known(s, epoch, 0);
}

bool wk_history_over(const struct wk_shard *s, uint64_t epoch)
{
    return epoch < s->history.heard_epoch || epoch < s->history.told_epoch;
}

// Notes what is known of the shard's history when a hello is sent: of the replica, of the last
// server that was believed, of the slot: the epoch of the last decision that it notes, of the
// coordinator: the newest epoch, what was reported or is stable of it, and the stable point. After
// a restart the coordinator is the only one that knows an epoch of which nothing was folded here,
// or what was folded after the replica's durable copy.
void wk_history_ask(struct wk_shard *s)
{
    const struct lh_ledger *l = &s->replica.ledger;
    s->history.asked.epoch = s->history.heard_epoch;
    s->history.asked.version = 0;
    raise_known(s, s->history.decided_epoch, 0);
    raise_known(s, s->history.told_epoch, s->history.told_version);
    raise_known(s, s->stable.epoch, s->stable.version);
    if (s->ready) raise_known(s, l->epoch, l->version);
}

static bool row_below(const Longhaul__V1__HelloReply *m, uint64_t incarnation, uint64_t step)
{
    if (m->last_incarnation != incarnation) return m->last_incarnation < incarnation;
    return m->last_step < step;
}

// Whoever answers for an epoch below the one that is known here, or in that epoch for less than was
// known when it was asked, is an old copy, or an owner that does not know of its successor
// (server/docs/0000-protocol.md#rule-27): what it lacks is not lost, and nothing of it may be taken
// back. Within an epoch history never goes back: what was folded, stable or heard decided in it is
// still there.
bool wk_history_older(const struct wk_shard *s, const Longhaul__V1__HelloReply *m)
{
    if (!m->epoch || m->epoch < s->history.asked.epoch) return true;
    uint64_t decided = s->slot.committed->decided, number = s->worker->incarnation.number;
    if (m->epoch == s->history.decided_epoch && decided && row_below(m, number, decided))
        return true;
    if (m->epoch > s->history.asked.epoch) return false;
    return m->version < s->history.asked.version;
}
