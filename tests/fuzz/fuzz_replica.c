// A shard's fold state, as stored in checkpoints and sent in snapshots. An accepted state saves to
// the same bytes, whether it came whole or in pieces. A refused one changes nothing.
//
// Byte 0: the pieces' length (0: one piece). Byte 1 bit 0: every second piece is written straight
// to its place, as a sealed one is; bit 1: the state comes in two ranges, the second one first.
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/format/manifest.h"
#include "kernels/state/incoming.h"
#include "tests/fuzz/fuzz.h"

static lh_err take_piece(struct lk_incoming *in, const struct lk_replica *r, size_t at,
                         struct lh_span piece, bool placed)
{
    uint8_t *to = placed ? lk_incoming_place(in, r, at, piece.len) : NULL;
    if (!to) return lk_incoming_put(in, r, at, piece);
    memcpy(to, piece.data, piece.len);
    lk_incoming_placed(in, piece.len);
    return LH_OK;
}

// Takes the pieces from `from` to `until`.
static lh_err take_range(struct lk_incoming *in, const struct lk_replica *r, struct lh_span state,
                         size_t from, size_t until, size_t each, bool place)
{
    lh_err err = LH_OK;
    for (size_t at = from, i = 0; !err && at < until; at += each, i++) {
        size_t n = until - at < each ? until - at : each;
        err = take_piece(in, r, at, lh_span(state.data + at, n), place && i % 2);
    }
    return err;
}

// Takes the state as one range, or as two with the second one first (after the ledger's bytes).
static lh_err take_pieces(struct lk_replica *r, struct lh_span state, size_t each, bool place,
                          bool two)
{
    struct lk_incoming in = {0};
    size_t first = 0, middle = state.len;
    lh_err err = lk_incoming_begin(&in, r, state.len);
    for (; two && !err && !in.theta && first < state.len; first += each) {
        size_t n = state.len - first < each ? state.len - first : each;
        err = take_piece(&in, r, first, lh_span(state.data + first, n), false);
    }
    if (first > state.len) first = state.len;
    if (two) middle = first + (state.len - first) / 2;
    if (!err) err = take_range(&in, r, state, middle, state.len, each, place);
    if (!err) err = take_range(&in, r, state, first, middle, each, place);
    if (!err) err = lk_incoming_take(&in, r);
    lk_incoming_free(&in);
    return err;
}

static void judge(const struct lk_replica *r, struct lh_span state, const struct lh_hash *fresh,
                  lh_err err)
{
    struct lh_buf again = lh_buf(1 << 24);
    struct lh_hash is = lk_replica_digest(r);
    LH_ASSERT(!err || lh_hash_equal(&is, fresh));
    if (!err) {
        err = lk_replica_save(r, &again);
        LH_ASSERT(err == LH_OK);
        LH_ASSERT(lh_span_equal(lh_buf_span(&again), state));
    }
    lh_buf_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"w"};
    static const uint64_t shapes[][5] = {{40, 2, 0}};
    static const uint8_t job[LH_JOB_BYTES] = "fuzz";
    if (size < 2) return 0;
    struct lh_span state = lh_span(data + 2, size - 2);
    struct lh_manifest m = {0};
    struct lk_replica whole, pieces;
    lh_err err = lh_manifest_build(&m, 1, names, shapes, 1, NULL);
    if (!err) err = lk_replica_create(&whole, job, &m, 0, NULL);
    if (!err) err = lk_replica_create(&pieces, job, &m, 0, NULL);
    LH_ASSERT(err == LH_OK);
    struct lh_hash fresh = lk_replica_digest(&whole);

    err = lk_replica_load(&whole, state);
    judge(&whole, state, &fresh, err);
    lh_err apart = take_pieces(&pieces, state, data[0] ? data[0] : size, data[1] & 1, data[1] & 2);
    judge(&pieces, state, &fresh, apart);
    LH_ASSERT((err == LH_OK) == (apart == LH_OK));
    lk_replica_free(&whole);
    lk_replica_free(&pieces);
    lh_manifest_free(&m);
    return 0;
}
