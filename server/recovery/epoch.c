// Epoch: the epochs that this directory has requested (server/docs/0000-protocol.md#rule-17). See
// epoch.h.
//
// DIR/epoch-<shard 4 hex> holds the highest one, durable before the request and before the next
// write to the log. It is a file of numbers (common/env/numbers.h), "LHEP": epoch, token. The token
// OLDER marks the directory as an older copy.
#include "common/env/numbers.h"
#include "server/core.h"
#include "server/recovery/epoch.h"

static const struct lh_numbers EPOCH = {.magic = 0x5045484c, // "LHEP"
                                        .version = 2,
                                        .count = 2,
                                        .remedy = "restore this file from a copy"};

enum { OLDER = 1 };

lh_err ps_epoch_read(struct lh_env *env, const char *dir, uint32_t shard, uint64_t *epoch,
                     uint64_t *token)
{
    char path[LH_PATH_BYTES];
    uint64_t number[2];
    LH_TRY(lh_path(path, sizeof path, dir, "epoch-%04x", shard));
    LH_TRY(lh_numbers_load(env, &EPOCH, path, number));
    *epoch = number[0];
    *token = number[1];
    return LH_OK;
}

lh_err ps_epoch_write(struct lh_env *env, const char *dir, uint32_t shard, uint64_t epoch,
                      uint64_t token)
{
    char path[LH_PATH_BYTES];
    LH_TRY(lh_path(path, sizeof path, dir, "epoch-%04x", shard));
    return lh_numbers_store(env, &EPOCH, path, (uint64_t[]){epoch, token});
}

lh_err ps_epoch_load(struct ps_shard *shard)
{
    const struct ps_conf *conf = &shard->server->conf;
    lh_err err = ps_epoch_read(conf->env, conf->dir, shard->id, &shard->begun, &shard->token);
    return err == LH_ERR_NOT_FOUND ? LH_OK : err;
}

lh_err ps_epoch_store(struct ps_shard *shard, uint64_t epoch)
{
    const struct ps_conf *conf = &shard->server->conf;
    uint64_t token = lh_random_u64(conf->env);
    if (token == OLDER) token++;
    LH_TRY(ps_epoch_write(conf->env, conf->dir, shard->id, epoch, token));
    shard->begun = epoch;
    shard->token = token;
    shard->drawn = true;
    return LH_OK;
}

lh_err ps_epoch_give_up(struct ps_shard *shard)
{
    const struct ps_conf *conf = &shard->server->conf;
    const struct lh_ledger *l = &shard->replica.ledger;
    uint64_t epoch = 1 + (l->epoch > l->move.epoch ? l->epoch : l->move.epoch);
    if (epoch < shard->begun) epoch = shard->begun;
    LH_TRY(ps_epoch_write(conf->env, conf->dir, shard->id, epoch, OLDER));
    shard->begun = epoch;
    shard->token = 0;
    return LH_OK;
}

bool ps_epoch_given_up(const struct ps_shard *shard)
{
    return ps_epoch_asked_for(shard) && shard->token == OLDER;
}

bool ps_epoch_asked_for(const struct ps_shard *shard)
{
    return shard->begun > shard->replica.ledger.epoch && !ps_shard_over(shard);
}

static bool due_alone(const struct ps_shard *shard)
{
    const struct ps_server *s = shard->server;
    const struct lh_ledger *l = &shard->replica.ledger;
    if (l->move.epoch && s->conf.below_stable) return true; // an operator takes the move back
    return s->log.damaged || !l->version || ps_epoch_asked_for(shard) ||
           l->epoch < shard->least_epoch;
}

// An operator's choice covers all of the server's shards: if one needs a new epoch, each begins
// one. Without that, the coordinator would refuse the server for the other shards.
bool ps_epoch_due(const struct ps_shard *shard)
{
    const struct ps_server *s = shard->server;
    for (uint32_t i = 0; s->conf.below_stable && i < s->conf.shard_count; i++)
        if (due_alone(s->shard[i])) return true;
    return due_alone(shard);
}
