// Item. See item.h.
#include "server/push/item.h"

#include <stdlib.h>

#include "server/core.h"
#include "server/push/push_memory.h"

struct ps_item *ps_item_new(enum ps_item_kind kind, struct ps_shard *shard)
{
    struct ps_item *i = calloc(1, sizeof *i);
    if (!i) return NULL;
    i->kind = kind;
    i->shard = shard;
    i->body = lh_buf(LH_SMALL_BYTES);
    return i;
}

void ps_item_free(struct ps_item *i)
{
    struct ps_server *s = i->shard->server;
    lh_blob_release(i->payload);
    ps_push_memory_give_payload(s, i->payload_reserved);
    ps_push_memory_give_frame(s, i->frame);
    lh_buf_free(&i->body);
    free(i);
}

void ps_item_done(struct ps_item *i)
{
    if (i->done) i->done(i, PS_DECIDED);
    ps_item_free(i);
}

void ps_items_stop(struct ps_item *i)
{
    while (i) {
        struct ps_item *next = i->next;
        if (i->done) i->done(i, PS_STOPPING);
        ps_item_free(i);
        i = next;
    }
}

void ps_item_queue(struct ps_item *i)
{
    struct ps_server *s = i->shard->server;
    i->next = NULL;
    *s->queue_end = i;
    s->queue_end = &i->next;
    ps_raise(s, PS_WISHED);
}
