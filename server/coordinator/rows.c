// Rows of the store of which every shard has one: KIND/<shard, 4 hex digits>. What is in them is
// said where they are written: epochs.c, insync.c, move.c, coordinator.c.
#include <inttypes.h>
#include <stdio.h>

#include "common/format/manifest.h"
#include "server/coordinator/coordinator.h"

lh_err ps_co_put_row(struct ps_coordinator *c, const char *kind, uint32_t shard, struct lh_buf *row)
{
    char key[32];
    snprintf(key, sizeof key, "%s%04" PRIx32, kind, shard);
    lh_err err = lh_buf_err(row);
    if (!err) err = ps_co_put(c, key, lh_buf_span(row));
    lh_buf_free(row);
    return err;
}

lh_err ps_co_load_rows(struct ps_coordinator *c, const char *kind, ps_co_read_row *read)
{
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++) {
        char key[32];
        struct lh_span row = {0};
        snprintf(key, sizeof key, "%s%04" PRIx32, kind, i);
        bool there = ps_store_get(c->store, key, &row);
        struct lh_cursor at = lh_cursor(row);
        LH_TRY(read(&c->shard[i], there ? &at : NULL));
        if (at.failed) return lh_fail(LH_ERR_CORRUPT, "%s of the store can't be read", key);
    }
    return LH_OK;
}
