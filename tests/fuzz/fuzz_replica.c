// A shard's fold state, as it lies in checkpoints and comes in snapshots: accepted, it writes the
// same bytes again, and in pieces as it came whole; refused, it changed nothing.
//
// Byte 0: the pieces' length (0: one piece); byte 1 bit 0: every second one is written to its place
// beforehand, as a sealed one is.
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "common/manifest.h"
#include "kernels/incoming.h"
#include "tests/fuzz/fuzz.h"

static lh_err take_piece(struct lk_incoming *in, const struct lk_replica *r, struct lh_span piece,
                         bool placed)
{
    uint8_t *to = placed ? lk_incoming_place(in, r, piece.len) : NULL;
    if (!to) return lk_incoming_put(in, r, piece);
    memcpy(to, piece.data, piece.len);
    lk_incoming_placed(in, piece.len);
    return LH_OK;
}

static lh_err take_pieces(struct lk_replica *r, struct lh_span state, size_t each, bool place)
{
    struct lk_incoming in = {0};
    lh_err err = LH_OK;
    for (size_t at = 0, i = 0; !err && at < state.len; at += each, i++) {
        size_t n = state.len - at < each ? state.len - at : each;
        err = take_piece(&in, r, lh_span(state.data + at, n), place && i % 2);
    }
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
    static const uint8_t job[LH_JOB] = "fuzz";
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
    lh_err apart = take_pieces(&pieces, state, data[0] ? data[0] : size, data[1] & 1);
    judge(&pieces, state, &fresh, apart);
    LH_ASSERT((err == LH_OK) == (apart == LH_OK));
    lk_replica_free(&whole);
    lk_replica_free(&pieces);
    lh_manifest_free(&m);
    return 0;
}
