// Rows of the store of which every shard has one: KIND/<shard, 4 hex digits>. What is in them is
// said where they are written: epochs.c, insync.c, move.c, coordinator.c.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/manifest.h"
#include "server/coordinator/coordinator.h"

lh_err ps_co_put_row(struct ps_coordinator *c, const char *kind, uint32_t shard, struct lh_buf *row)
{
    char key[32];
    snprintf(key, sizeof key, "%s%04" PRIx32, kind, shard);
    lh_err err = lh_buf_err(row);
    if (!err) err = ps_store_put(c->store, key, lh_buf_span(row));
    lh_buf_free(row);
    return err;
}

struct loading {
    struct ps_coordinator *c;
    const char *kind;
    ps_co_read_row *read;
    lh_err err;
};

static void load(void *arg, const char *key, struct lh_span value)
{
    struct loading *l = arg;
    unsigned long shard = strtoul(key + strlen(l->kind), NULL, 16);
    if (shard >= l->c->conf.manifest->shards || l->err) return;
    struct lh_cursor at = lh_cursor(value);
    l->err = l->read(&l->c->shard[shard], &at);
    if (!l->err && at.failed)
        l->err = lh_fail(LH_ERR_CORRUPT, "%s of the store can't be read", key);
}

lh_err ps_co_load_rows(struct ps_coordinator *c, const char *kind, ps_co_read_row *read)
{
    struct loading l = {c, kind, read, LH_OK};
    ps_store_each(c->store, kind, load, &l);
    return l.err;
}
