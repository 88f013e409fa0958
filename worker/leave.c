// Leave: the end of a worker after a signal. It trains no further step, pushes its progress, and
// gives back the units that it has not begun (server/docs/0000-protocol.md#rule-20), so that
// another worker may train them at once and need not wait for this one's timeout.
//
// 1. A begun unit stays with its worker: its directory has the training, so a restarted worker goes
//    on with it. Otherwise the unit becomes free after the worker's timeout.
// 2. The worker does not wait for an unreachable peer: the outbox keeps the push, and the timeout
//    frees the units.
// 3. A loop beside the worker may outlive it, so it is not told to end. A private worker makes no
//    smaller push than usual.
#include "worker/leave.h"

#include "worker/member.h"
#include "worker/push/outbox.h"

void wk_leave(struct wk_worker *w)
{
    w->leave.asked = true;
    wk_member_leave(w);
    wk_changed(w);
}

static bool pushed(const struct wk_shard *s)
{
    struct wk_worker *w = s->worker;
    bool cuts = wk_leave_cuts(w) && wk_everything_ready(w);
    if (s->cut) return false;
    if (s->ended || !s->session.process) return true;
    if (cuts && (s->progress.steps || s->progress.tokens)) return false;
    return !wk_outbox_undecided(&s->outbox);
}

bool wk_left(const struct wk_worker *w)
{
    bool settles = w->conf.beside && w->beside.ending && !w->beside.over;
    bool heard = w->joined && !w->member_tries;
    if (w->stopped || w->leave.cut_short) return true;
    if (w->stepping || settles || (heard && !w->leave.returned)) return false;
    for (uint32_t i = 0; i < w->shards; i++)
        if (!pushed(&w->shard[i])) return false;
    return true;
}
