// Messages of every RPC, as a peer's bytes arrive: in slices, with and without bulk.
//
// Byte 0 chooses the message's type, byte 1 the length of the slices (0: one slice).
#include <stdlib.h>

#include "common/base/check.h"
#include "common/net/rpc.h"
#include "common/net/wire_admin.h"
#include "common/net/wire_data.h"
#include "common/net/wire_member.h"
#include "common/net/wire_shard.h"
#include "tests/fuzz/fuzz.h"

static const struct lh_wire_type *const types[] = {
    &lh_wire_health_check_request,
    &lh_wire_join_request,
    &lh_wire_join_reply,
    &lh_wire_lease_request,
    &lh_wire_lease_reply,
    &lh_wire_report_request,
    &lh_wire_report_reply,
    &lh_wire_status_reply,
    &lh_wire_hello_request,
    &lh_wire_hello_reply,
    &lh_wire_push_head,
    &lh_wire_push_resume,
    &lh_wire_push_reply,
    &lh_wire_follow_request,
    &lh_wire_snapshot_request,
    &lh_wire_part_head,
    &lh_wire_epoch_request,
    &lh_wire_epoch_reply,
    &lh_wire_in_sync_request,
    &lh_wire_in_sync_reply,
    &lh_wire_confirm_request,
    &lh_wire_confirm_reply,
    &lh_wire_offer_request,
    &lh_wire_offer_reply,
    &lh_wire_restore_head,
    &lh_wire_status_request,
    &lh_wire_drain_request,
    &lh_wire_drain_reply,
    &lh_wire_move_request,
    &lh_wire_move_reply,
    &lh_wire_restore_reply,
    &lh_wire_shard_status_request,
    &lh_wire_health_check_response,
    &lh_wire_unit_request,
    &lh_wire_unit_head,
};

// A decoded message can be encoded, and decodes to the same message again.
static void write_again(const struct lh_wire_type *type, const struct lh_got *got)
{
    struct lh_buf once = lh_buf(SIZE_MAX / 2), twice = lh_buf(SIZE_MAX / 2);
    struct lh_got again;
    lh_err err = lh_wire_put(type, got->message, &once);
    LH_ASSERT(!err);
    err = lh_wire_get(type, lh_buf_span(&once), &again);
    LH_ASSERT(!err);
    err = lh_wire_put(type, again.message, &twice);
    LH_ASSERT(!err && lh_span_equal(lh_buf_span(&once), lh_buf_span(&twice)));
    lh_got_free(&again);
    lh_buf_free(&once);
    lh_buf_free(&twice);
}

static void parse(const struct lh_msg *msg, const struct lh_wire_type *type)
{
    struct lh_got got;
    size_t at = 0;
    lh_err err = lh_take(msg, type, &got);
    LH_ASSERT(err == LH_OK || err == LH_ERR_MALFORMED || err == LH_ERR_TOO_LARGE);
    LH_ASSERT((got.message != NULL) == (err == LH_OK));
    if (!err) write_again(type, &got);
    lh_got_free(&got);

    err = lh_take_bulk(msg, type, &got, &at);
    LH_ASSERT(err == LH_OK || err == LH_ERR_MALFORMED || err == LH_ERR_TOO_LARGE);
    LH_ASSERT((got.message != NULL) == (err == LH_OK));
    LH_ASSERT(err || at <= msg->len);
    lh_got_free(&got);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3) return 0;
    const struct lh_wire_type *type = types[data[0] % LH_COUNT(types)];
    size_t len = size - 2, slice = data[1] ? data[1] : len;
    size_t parts = (len + slice - 1) / slice;
    struct lh_span *part = malloc(parts * sizeof *part);
    LH_ASSERT(part);
    for (size_t i = 0; i < parts; i++) {
        size_t at = i * slice;
        part[i] = lh_span(data + 2 + at, len - at < slice ? len - at : slice);
    }
    struct lh_msg msg = {.part = part, .parts = parts, .len = len};
    parse(&msg, type);
    free(part);
    return 0;
}
