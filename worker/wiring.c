// Wiring: connects events to their listeners (README.md, "Who calls whom"). Only this file names
// both sides of an event.
#include "worker/member.h"
#include "worker/push/beside.h"
#include "worker/push/outcome.h"
#include "worker/push/round.h"
#include "worker/push/session.h"
#include "worker/replica/follow.h"
#include "worker/worker.h"

static void changed(struct wk_worker *w)
{
    wk_session_changed(w);
    wk_travel_look(w);
    if (w->returned_count) wk_lease_soon(w); // other workers may train them
    for (uint32_t i = 0; w->phase >= LH_PHASE_CLOSE && i < w->shards; i++)
        wk_follow_resume(&w->shard[i]); // no round follows, and the current step may hang
    if (w->conf.beside)
        wk_beside_look(w);
    else
        wk_round_boundary(w);
}

static void room(struct wk_shard *s)
{
    lh_err err = wk_outcome_room(s);
    if (err)
        wk_fatal(s->worker, err);
    else
        wk_changed(s->worker);
}

static void address(struct wk_shard *s)
{
    if (!wk_following(s)) wk_follow_start(s);
    if (s->ready) wk_session_start(s);
}

static void raised(struct wk_worker *w)
{
    for (uint32_t i = 0; i < w->shards; i++) {
        wk_session_lost(&w->shard[i]);
        wk_follow_stop(&w->shard[i]);
    }
}

const struct wk_hooks wk_wiring = {
    .changed = changed,
    .room = room,
    .address = address,
    .raised = raised,
};
