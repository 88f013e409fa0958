// Head: the ledger ahead of the disk takes a record only if it follows; no other reaches the log.
#include <stdlib.h>

#include "server/core.h"
#include "server/push/head.h"
#include "server/push/item.h"
#include "tests/test.h"

TEST(a_record_that_does_not_follow_is_not_logged)
{
    struct ps_server *server = calloc(1, sizeof *server); // it has no log
    struct ps_shard *s = calloc(1, sizeof *s);
    server->shard = &s;
    server->conf.shard_count = 1;
    s->server = server;
    s->replica.ledger.shards = 1;
    assert_int_equal(ps_head_create(s), LH_OK);
    for (uint64_t version = 0; version < 3; version += 2) {
        struct ps_item i = {.shard = s, .record = {.version = version, .kind = LH_FENCE}};
        lh_err refused = LH_OK;
        assert_int_equal(ps_head_append(&i, &refused), LH_OK);
        assert_int_equal(refused, LH_ERR_CONFLICT);
        assert_false(i.appended);
        assert_int_equal(s->head->version, 0);
        ps_head_committed(server); // nothing is ahead of the disk
    }
    ps_head_free(s);
    free(s);
    free(server);
}
