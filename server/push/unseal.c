// Unseal: unseals a push and checks its payload on the compute lane, before it is queued
// (DESIGN.md#section-5 step 9), so that the loop and the disk continue.
//
// At the same time the disk lane writes a large frame to the log, at its record's place (wal.h).
// Those bytes mean nothing until the record's header and checksum are written.
//
// The lane judges only the frame's bytes. The loop makes every decision afterwards, in queue order.
// A push that could not be admitted now is not unsealed; if its group decides otherwise, it is
// unsealed there.
#include "server/push/unseal.h"

#include <stdio.h>

#include "server/core.h"
#include "server/push/decide.h"
#include "server/push/push_memory.h"

void ps_unseal_now(struct ps_item *i)
{
    struct lh_env *env = i->shard->server->conf.env;
    int64_t start = lh_now(env);
    i->unseal_tried = true;
    i->payload = lh_pool_blob(i->shard->server->push_memory.pool, i->head.plain_bytes);
    if (i->payload) {
        struct lh_buf plain = lh_buf_over(i->payload->data, i->payload->len);
        i->unseal_result = lk_replica_unseal_into(&i->shard->replica, lh_blob_span(i->frame),
                                                  &plain, &i->unsealed, &i->info);
    } else {
        i->unseal_result = lh_fail(LH_ERR_NO_MEMORY, "no memory for this payload now");
    }
    i->unseal_ns = lh_now(env) - start;
    if (i->unseal_result) snprintf(i->text, sizeof i->text, "%s", lh_err_text(i->unseal_result));
}

static int64_t unseal_job(void *arg)
{
    ps_unseal_now(arg);
    return 0;
}

static void unseal_done(void *arg)
{
    struct ps_item *i = arg;
    struct ps_server *s = i->shard->server;
    if (s->phase == PS_STOPPED) return; // the list is freed by ps_server_stop
    struct ps_item **at = &s->unsealing;
    while (*at != i) at = &(*at)->next;
    *at = i->next;
    lh_log_traced(s->conf.log, LH_DEBUG, i->trace, "push.unsealed", "shard %u: %llx/%llu",
                  i->shard->id, (unsigned long long)i->head.incarnation.number,
                  (unsigned long long)i->head.step);
    ps_item_queue(i);
}

// ---------------------------------------------------------------- ahead

static int64_t ahead_job(void *arg)
{
    struct ps_server *s = arg;
    ps_wal_write_ahead(s->wal, lh_blob_span(s->ahead));
    return 0;
}

static void ahead_done(void *arg)
{
    (void)arg; // the next commit runs after it on the same lane
}

// The disk is idle while a push is unsealed, so a large frame is written to its record's place. The
// frame is shared until a commit uses it or leaves it behind, so that its memory is not reused
// before; a frame without a record is held until another one's commit.
static void write_ahead(struct ps_server *s, const struct ps_item *i)
{
    uint64_t least = s->conf.ahead_bytes_min ? s->conf.ahead_bytes_min : LH_AHEAD_BYTES;
    if (s->ahead || s->committing || i->frame->len < least) return;
    s->ahead = lh_blob_share(i->frame);
    s->conf.env->ops->work(s->conf.env, LH_LANE_DISK, ahead_job, ahead_done, s);
}

// ---------------------------------------------------------------- one after another

// False: no memory for its payload now.
static bool start(struct ps_server *s, struct ps_item *i)
{
    struct ps_decision now;
    ps_decide_step(i->shard, &i->head, &i->digest, &now);
    if (now.verdict == PS_DECIDED_NOW && !ps_push_memory_payload(s, i->head.plain_bytes))
        return false;
    s->received = i->next;
    if (!s->received) s->received_end = &s->received;
    if (now.verdict != PS_DECIDED_NOW) {
        ps_item_queue(i);
        return true;
    }
    i->payload_reserved = i->head.plain_bytes;
    i->next = s->unsealing;
    s->unsealing = i;
    write_ahead(s, i);
    s->conf.env->ops->work(s->conf.env, LH_LANE_COMPUTE, unseal_job, unseal_done, i);
    return true;
}

void ps_unseal_waiting(struct ps_server *s)
{
    while (s->received && start(s, s->received)) continue;
}

void ps_unseal(struct ps_item *i)
{
    struct ps_server *s = i->shard->server;
    i->next = NULL;
    *s->received_end = i;
    s->received_end = &i->next;
    ps_unseal_waiting(s);
}
