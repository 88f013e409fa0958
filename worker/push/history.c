// History: the known history of a shard, and the servers that are behind it
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

// Applies the epoch to a greeting in flight too: an answer from a server of an older epoch is then
// ignored. The version binds only the next greeting, because the server may have answered this one
// before it reached that version.
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

bool wk_history_named(const struct wk_shard *s, uint64_t epoch)
{
    return epoch <= s->history.told_epoch;
}

// Notes the newest known point of the shard's history when a hello is sent. It comes from the
// replica, the last accepted server, the epoch of the slot's last decision, and the coordinator's
// newest epoch, reported version and stable point. After a restart only the coordinator knows
// epochs and versions newer than the replica's durable copy.
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

static bool row_below(const struct lh_hello_reply *m, uint64_t incarnation, uint64_t step)
{
    if (m->last_incarnation != incarnation) return m->last_incarnation < incarnation;
    return m->last_step < step;
}

// A server that answers with an epoch older than the known one, or with a lower version of it than
// was known when asked, is an old copy or a former owner (server/docs/0000-protocol.md#rule-27).
// Data that it lacks is not lost, so the worker takes nothing back. Within an epoch history never
// goes back: every folded, stable or decided version of it is still there.
bool wk_history_older(const struct wk_shard *s, const struct lh_hello_reply *m)
{
    if (!m->epoch || m->epoch < s->history.asked.epoch) return true;
    uint64_t decided = s->slot.committed->decided, number = s->worker->incarnation.number;
    if (m->epoch == s->history.decided_epoch && decided && row_below(m, number, decided))
        return true;
    if (m->epoch > s->history.asked.epoch) return false;
    return m->version < s->history.asked.version;
}
