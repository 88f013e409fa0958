// A sealed fold state from a peer: its head and its pieces. A piece that unseals seals to the same
// bytes again. A refused one does not advance the receiver.
//
// Input: the state's total bytes u32, length of the head u16, head (Seal), then pieces, each after
// its length u16. The receiver has job "fuzz", shard 5, key 7 of
// tests/unit/common/security/seal.c, and 16 bytes of 0x33 as its challenge; put_sealed in seeds.c
// seals with the same.
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/net/state_seal.h"
#include "tests/fuzz/fuzz.h"

enum { TOTAL_MAX = 1 << 16 };

static void seal_again(const struct lh_state_seal *before, struct lh_span plain,
                       struct lh_span sealed)
{
    struct lh_state_seal s = *before;
    uint8_t *again = malloc(sealed.len);
    LH_ASSERT(again && lh_state_seal_piece(&s, &plain, 1, again) == LH_OK);
    LH_ASSERT(memcmp(again, sealed.data, sealed.len) == 0);
    free(again);
}

static void open_pieces(struct lh_state_seal *s, struct lh_cursor *c)
{
    while (lh_left(c)) {
        size_t len = lh_get_u16(c);
        struct lh_span bytes = lh_get(c, len < lh_left(c) ? len : lh_left(c));
        struct lh_state_seal before = *s;
        size_t n = lh_state_seal_next(s), half = bytes.len / 2;
        const struct lh_span two[] = {lh_span(bytes.data, half),
                                      lh_span(bytes.data + half, bytes.len - half)};
        const struct lh_msg msg = {.part = two, .parts = 2, .len = bytes.len};
        uint8_t *out = malloc(n + 1);
        LH_ASSERT(out);
        memset(out, 1, n + 1);
        lh_err err = lh_state_unseal_piece(s, &msg, 0, out);
        LH_ASSERT(out[n] == 1);
        if (!err) seal_again(&before, lh_span(out, n), bytes);
        LH_ASSERT(!err || err == LH_ERR_MALFORMED || err == LH_ERR_UNSEAL ||
                  err == LH_ERR_UNSUPPORTED);
        LH_ASSERT(s->at == before.at + (err ? 0 : n) && s->at <= s->total);
        free(out);
        if (err) return;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t job[LH_JOB_BYTES] = "fuzz";
    static const struct lh_hash manifest;
    struct lh_cursor c = lh_cursor(lh_span(data, size));
    struct lh_state_seal s;
    struct lh_seal_key key;
    struct lh_keyring *ring;
    uint8_t challenge[LH_STATE_RANDOM_BYTES];
    uint32_t total = lh_get_u32(&c);
    size_t n = lh_get_u16(&c);
    struct lh_span head = lh_get(&c, n);
    if (c.failed || total > TOTAL_MAX) return 0;
    struct lh_got m;
    if (lh_wire_get(&lh_wire_seal, head, &m)) return 0;
    for (size_t i = 0; i < sizeof key.b; i++) key.b[i] = (uint8_t)(1 + i);
    LH_ASSERT(lh_keyring_create(&ring) == LH_OK && lh_keyring_add(ring, 7, &key) == LH_OK);
    memset(challenge, 0x33, sizeof challenge);
    lh_err err = lh_state_seal_init(&s, LH_SEAL_SNAPSHOT, ring, job, &manifest, 5,
                                    lh_span(challenge, sizeof challenge));
    LH_ASSERT(!err);
    err = lh_state_unseal_begin(&s, m.message, total);
    LH_ASSERT(!err || err == LH_ERR_MALFORMED || err == LH_ERR_UNSUPPORTED);
    if (!err) open_pieces(&s, &c);
    lh_got_free(&m);
    lh_keyring_destroy(ring);
    return 0;
}
