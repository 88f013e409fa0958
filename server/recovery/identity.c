// Identity: the number that names a directory which may stand by. See identity.h.
//
// DIR/standby (common/env/numbers.h) holds it. Its lower half changes when the directory may lack
// records that it confirmed under that name; the upper half stays and is used in MOVE records
// (common/format/ledger.h). A second number is 1 from the moment that such a loss is found until
// the name has changed: the coordinator must first hear of the loss under the old name, and a
// killed start leaves a log without the torn tail.
#include "common/env/numbers.h"
#include "server/core.h"
#include "server/recovery/identity.h"

static const struct lh_numbers IDENTITY = {.magic = 0x4253484c, // "LHSB"
                                           .version = 2,
                                           .count = 2,
                                           .remedy =
                                               "remove it, and this directory is a new standby's"};

static lh_err identity_path(struct ps_server *s, char out[LH_PATH_BYTES])
{
    return lh_path(out, LH_PATH_BYTES, s->conf.dir, "standby");
}

lh_err ps_identity_renew(struct ps_server *s)
{
    char path[LH_PATH_BYTES];
    uint64_t old = s->standby.identity, fresh = lh_random_u64(s->conf.env) | 1;
    uint64_t identity = old ? (old & ~(uint64_t)UINT32_MAX) | (fresh & UINT32_MAX) : fresh;
    LH_TRY(identity_path(s, path));
    LH_TRY(lh_numbers_store(s->conf.env, &IDENTITY, path, (uint64_t[]){identity, 0}));
    s->standby.identity = identity;
    return LH_OK;
}

lh_err ps_identity_torn(struct ps_server *s)
{
    char path[LH_PATH_BYTES];
    uint64_t number[2];
    if (!s->conf.standby) return LH_OK;
    LH_TRY(identity_path(s, path));
    lh_err err = lh_numbers_load(s->conf.env, &IDENTITY, path, number);
    if (err == LH_ERR_NOT_FOUND) return LH_OK;
    number[1] = 1;
    return err ? err : lh_numbers_store(s->conf.env, &IDENTITY, path, number);
}

lh_err ps_identity_load(struct ps_server *s)
{
    char path[LH_PATH_BYTES];
    uint64_t number[2] = {0};
    LH_TRY(identity_path(s, path));
    lh_err err = lh_numbers_load(s->conf.env, &IDENTITY, path, number);
    s->standby.identity = number[0];
    s->standby.lost = number[1] || s->log.torn || s->log.damaged;
    if (!err && !s->standby.identity)
        err = lh_fail(LH_ERR_CORRUPT, "%s has no identity; %s", path, IDENTITY.remedy);
    return err == LH_ERR_NOT_FOUND ? ps_identity_renew(s) : err;
}
