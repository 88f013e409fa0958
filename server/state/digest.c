// Digest: computes the fold state's digest, beside the loop if the state is large
// (kernels/state/replica.h).
//
// The digest reads the whole state of a shard: half a second for 1 GB. A DIGEST record describes
// the version right before its own, so the shard decides nothing in between (`held`): its pushes
// wait, while other shards and the rest of the loop go on. The digest at the run's end is for the
// status. The compute lane makes it in steps and unseals other shards' pushes in between. A move
// needs the digests of all shards in one group, so no shard decides anything until the last one is
// made. If nothing would wait, the digest is computed at once.
#include <string.h>

#include "server/core.h"
#include "server/state/digest.h"

enum { AT_ONCE_BYTES = 16 << 20, STEP_BYTES = 64 << 20 }; // about 20 ms each, 60 ms on one core

static bool known(const struct ps_shard *s)
{
    return s->digest.known && lh_hash_equal(&s->digest.chain, &s->replica.ledger.chain);
}

bool ps_digest_busy(const struct ps_shard *s)
{
    return s->digest.busy || s->digest.held;
}

bool ps_digest_holds(const struct ps_shard *s)
{
    return s->digest.held;
}

static int64_t step_job(void *arg)
{
    struct ps_digest *d = arg;
    d->result = lk_digest_step(&d->making, STEP_BYTES);
    return 0;
}

static void step_done(void *arg)
{
    struct ps_digest *d = arg;
    struct ps_server *s = d->shard->server;
    if (!d->result && !d->making.done && s->phase != PS_STOPPED) {
        s->conf.env->ops->work(s->conf.env, LH_LANE_COMPUTE, step_job, step_done, d);
        return;
    }
    d->busy = false;
    d->known = !d->result && d->making.done;
    d->held &= d->known; // no memory for it now
    lk_digest_end(&d->making, &d->hash);
    ps_raise(s, PS_WISHED);
}

static void start(struct ps_shard *shard)
{
    struct ps_digest *d = &shard->digest;
    struct ps_server *s = shard->server;
    d->known = false;
    if (lk_digest_begin(&shard->replica, &d->making)) return;
    d->shard = shard;
    d->chain = shard->replica.ledger.chain;
    d->busy = true;
    s->conf.env->ops->work(s->conf.env, LH_LANE_COMPUTE, step_job, step_done, d);
}

struct lh_hash ps_digest_now(struct ps_shard *s)
{
    if (known(s)) return s->digest.hash;
    int64_t start = lh_now(s->server->conf.env);
    struct lh_hash hash = lk_replica_digest(&s->replica);
    ps_took(s->server, PS_LOOP_DIGEST, start);
    if (s->digest.busy) return hash; // the lane finishes its own
    s->digest.hash = hash;
    s->digest.chain = s->replica.ledger.chain;
    s->digest.known = true;
    return hash;
}

static bool at_once(const struct ps_shard *s)
{
    uint64_t most = s->server->conf.digest_now_bytes;
    uint64_t each = sizeof(float) + lk_outer_bytes_per_value(s->replica.outer.kind);
    return s->replica.layout->values * each <= (most ? most : AT_ONCE_BYTES);
}

bool ps_digest_ready(struct ps_shard *s, bool holds)
{
    struct ps_digest *d = &s->digest;
    // while a history is being settled, all state may be replaced
    bool beside = s->server->phase == PS_SERVING || s->server->phase == PS_STANDBY;
    if (!d->busy && !known(s)) {
        if (!beside || s->server->ending || at_once(s))
            (void)ps_digest_now(s);
        else
            start(s);
    }
    bool ready = !d->busy && known(s);
    if (holds) d->held = d->busy;
    return ready;
}

bool ps_digest_all_ready(struct ps_server *s)
{
    bool busy = false;
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        if (ps_shard_frozen(s->shard[i])) continue;
        (void)ps_digest_ready(s->shard[i], true);
        busy |= s->shard[i]->digest.busy; // a digest that fails for lack of memory is made at once
    }
    for (uint32_t i = 0; i < s->conf.shard_count; i++)
        s->shard[i]->digest.held = busy && !ps_shard_frozen(s->shard[i]);
    return !busy;
}

void ps_digest_free(struct ps_shard *s)
{
    struct lh_hash none;
    if (s->digest.busy) lk_digest_end(&s->digest.making, &none);
}

lh_err ps_digest_fold(struct ps_shard *s, const struct lh_record *r)
{
    bool same =
        r->body.len == LH_HASH_BYTES && !memcmp(r->body.data, s->digest.hash.b, LH_HASH_BYTES);
    if (known(s) && same) return lh_ledger_apply(&s->replica.ledger, r);
    return lk_replica_apply(&s->replica, r);
}
