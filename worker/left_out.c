// Left out: see left_out.h. The worker logs its losses, follows the logs to their end if it can,
// and ends. If it can't, for instance because the path to a server is cut, it ends without the
// run's last state. A worker that drained in time has lost nothing: it waits for that state as long
// as it takes, and says so.
//
// Events: run.left_out, run.end_awaited.
#include "worker/left_out.h"

#include <inttypes.h>

#include "common/base/text.h"
#include "worker/worker.h"

static const int64_t PATIENCE_NS = 30 * LH_SECOND; // without a record of any shard, after END

static void count_lost(struct wk_worker *w)
{
    struct wk_left_out *l = &w->left_out;
    uint64_t most = 0;
    l->pushes = l->tokens = 0;
    for (uint32_t i = 0; i < w->shards; i++) {
        const struct wk_shard *s = &w->shard[i];
        const struct wk_entry *e = wk_outbox_undecided(&s->outbox);
        uint64_t tokens = s->slot.committed->tokens + s->progress.tokens;
        l->pushes += e != NULL;
        if (e) tokens += e->head.tokens;
        if (tokens > most) most = tokens;
    }
    l->tokens = most; // each shard's push stands for the same training
}

static void say_awaited(const struct wk_worker *w)
{
    uint32_t i = 0;
    while (w->shard[i].ended) i++;
    const char *address = w->shard[i].session.address;
    lh_logf(w->conf.log, LH_WARN, "run.end_awaited",
            "the run has ended with all pushes of this worker, but shard %u's last state has not "
            "come from its server%s%s for %d s: this worker waits for it. Check the path to that "
            "server, or end this worker and take final.weights from another region",
            i, address[0] ? " at " : "", address, (int)(PATIENCE_NS / LH_SECOND));
}

static uint64_t folded(const struct wk_worker *w)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < w->shards; i++) sum += w->shard[i].replica.ledger.version;
    return sum;
}

static void look_for_the_end(struct wk_worker *w)
{
    struct wk_left_out *l = &w->left_out;
    int64_t now = lh_now(w->conf.env);
    uint64_t versions = folded(w);
    if (w->phase != LH_PHASE_END) { // a run that goes on has another end
        l->since_ns = 0;
        l->said = false;
        return;
    }
    if (wk_all_ended(w)) return;
    if (!l->since_ns || versions > l->versions) l->since_ns = now;
    l->versions = versions;
    if (now - l->since_ns < PATIENCE_NS) return;
    if (!l->is) {
        if (!l->said) say_awaited(w);
        l->said = true;
        return;
    }
    wk_fatal(w, lh_fail(LH_ERR_DEADLINE,
                        "the run ended without this worker, and its last state can't be fetched: "
                        "%" PRIu64 " pushes and about %" PRIu64 " tokens are in no model",
                        l->pushes, l->tokens));
}

void wk_left_out_told(struct wk_worker *w, bool left_out)
{
    struct wk_left_out *l = &w->left_out;
    if (!left_out) {
        l->is = false;
        l->pushes = l->tokens = 0;
    } else if (!l->is) {
        l->is = true;
        count_lost(w);
        lh_logf(w->conf.log, LH_WARN, "run.left_out",
                "the run closes without this worker, which did not drain in time "
                "(coordinator.stall_floor_s): up to %" PRIu64 " push%s and about "
                "%" PRIu64 " token%s are in no model",
                l->pushes, l->pushes == 1 ? "" : "es", l->tokens, lh_s(l->tokens));
    }
    look_for_the_end(w);
}
