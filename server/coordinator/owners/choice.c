// Choice. See choice.h; server/recovery/choose.c decides which state a rebuild takes.
//
// Store: choice/<shard 4 hex> = the first bytes of the state's digest. The row is removed with the
// shard's next epoch. The shard's server gets it in the answer to its epoch request.
#include "server/coordinator/owners/choice.h"

#include <stdio.h>
#include <string.h>

#include "common/net/wire_admin.h"
#include "server/coordinator/commit.h"

static const char KEY[] = "choice/";
enum { WORD_BYTES_MIN = 8 };

static lh_err read_row(struct ps_co_shard *s, struct lh_cursor *at)
{
    s->choice_bytes = 0;
    if (!at) return LH_OK;
    size_t n = lh_left(at);
    if (n < WORD_BYTES_MIN || n > LH_HASH_BYTES) at->failed = true;
    if (at->failed) return LH_OK;
    lh_get_into(at, s->choice.b, n);
    s->choice_bytes = n;
    return LH_OK;
}

lh_err ps_co_load_choices(struct ps_coordinator *c)
{
    return ps_co_load_rows(c, KEY, read_row);
}

lh_err ps_co_choose_state(struct ps_coordinator *c, const struct lh_adopt_request *m,
                          uint32_t *shards)
{
    *shards = 0;
    if (m->state.len < WORD_BYTES_MIN || m->state.len > LH_HASH_BYTES)
        return lh_fail(LH_ERR_INVALID,
                       "expected 16 to 64 hexadecimal digits of the state's digest, from the "
                       "server's status or the event rebuild.claim");
    for (size_t i = 0; i < m->n_shards; i++)
        if (m->shards[i] >= c->conf.manifest->shards)
            return lh_fail(LH_ERR_INVALID, "the model has no shard %u", m->shards[i]);
    for (size_t i = 0; i < m->n_shards; i++, ++*shards) {
        struct ps_co_shard *s = &c->shard[m->shards[i]];
        struct lh_buf b = lh_buf(LH_HASH_BYTES);
        memcpy(s->choice.b, m->state.data, m->state.len);
        s->choice_bytes = m->state.len;
        lh_put(&b, s->choice.b, s->choice_bytes);
        LH_TRY(ps_co_put_row(c, KEY, m->shards[i], &b));
    }
    if (!*shards) return lh_fail(LH_ERR_INVALID, "no shard is given: pass --shards");
    return LH_OK;
}

lh_err ps_co_forget_choice(struct ps_coordinator *c, uint32_t shard)
{
    char key[sizeof KEY + 4];
    if (!c->shard[shard].choice_bytes) return LH_OK;
    c->shard[shard].choice_bytes = 0;
    snprintf(key, sizeof key, "%s%04x", KEY, shard & 0xffff);
    return ps_co_remove(c, key);
}
