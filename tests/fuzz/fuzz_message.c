// Messages of every RPC, as a peer's bytes arrive: in slices, with and without bulk.
//
// Byte 0 chooses the RPC, and its request or its answer; byte 1 the length of the slices (0: one
// slice).
#include <stdlib.h>

#include "common/base/check.h"
#include "common/net/rpc.h"
#include "tests/fuzz/fuzz.h"

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
    enum lh_rpc rpc = (enum lh_rpc)(data[0] / 2 % LH_RPC_COUNT);
    const struct lh_wire_type *type = data[0] % 2 ? lh_rpc_answer(rpc) : lh_rpc_request(rpc);
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
