// The leader among coordinators, as a client knows it. See leader.h.
#include "common/net/leader.h"

#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/env/numbers.h"

static const struct lh_numbers LEADER = {.magic = 0x444c484c, // "LHLD"
                                         .version = 1,
                                         .count = 1,
                                         .remedy = "the next leader's answer replaces it"};

lh_err lh_leader_hears(struct lh_leader *l, uint64_t number)
{
    if (number == l->number || LH_BUG("no_number")) return LH_OK;
    if (number < l->number) return LH_ERR_FENCED;
    if (l->heard) LH_TRY(l->heard(l->self, number));
    l->number = number;
    return LH_OK;
}

lh_err lh_leader_load(struct lh_env *env, const char *dir, uint64_t *number)
{
    char path[LH_PATH_BYTES];
    LH_TRY(lh_path(path, sizeof path, dir, "leader"));
    if (LH_BUG("forgets")) return LH_ERR_NOT_FOUND;
    return lh_numbers_load(env, &LEADER, path, number);
}

lh_err lh_leader_save(struct lh_env *env, const char *dir, uint64_t number)
{
    char path[LH_PATH_BYTES];
    LH_TRY(lh_path(path, sizeof path, dir, "leader"));
    return lh_numbers_store(env, &LEADER, path, &number);
}

bool lh_leader_next(const char *list, char *address, size_t size)
{
    size_t n = strlen(address);
    if (!strchr(list, ',')) return false;
    const char *at = list;
    while (strncmp(at, address, n) != 0 || (at[n] && at[n] != ',')) at += strcspn(at, ",") + 1;
    at += n;
    if (*at == ',') at++;
    if (!*at) at = list;
    snprintf(address, size, "%.*s", (int)strcspn(at, ","), at);
    return true;
}
