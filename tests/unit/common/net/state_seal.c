// Sealed pieces of a fold state: a sealed piece unseals however its messages are split; everything
// else is refused.
#include <stdlib.h>
#include <string.h>

#include "common/net/state_seal.h"
#include "tests/test.h"
#include "tests/world/env_fake.h"

enum { PIECES = 3, TOTAL = 2 * LH_STATE_PIECE_BYTES + 1000, HEAD = 5, PARTS_MAX = 64 };

struct scene {
    struct lh_fake_world *world;
    struct lh_env *env;
    struct lh_keyring *keys, *others;
    uint8_t job[LH_JOB_BYTES], challenge[LH_STATE_RANDOM_BYTES];
    struct lh_hash manifest, chain;
    uint8_t *plain, *out, *piece[PIECES];
    size_t len[PIECES];
    struct lh_state_seal sender;
    struct lh_seal head;
};

static struct lh_keyring *ring_of(uint8_t first)
{
    const struct lh_seal_key key = {{first, 2, 3}};
    struct lh_keyring *ring;
    assert_int_equal(lh_keyring_create(&ring), LH_OK);
    assert_int_equal(lh_keyring_add(ring, 7, &key), LH_OK);
    return ring;
}

static void died(void *arg)
{
    (void)arg;
}

static int set_up(void **state)
{
    struct scene *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->world = lh_fake_world_create(5);
    s->env = lh_fake_node(s->world, died, NULL);
    s->keys = ring_of(1);
    s->others = ring_of(9);
    memset(s->job, 'j', sizeof s->job);
    memset(s->challenge, 'c', sizeof s->challenge);
    memset(s->chain.b, 'h', sizeof s->chain.b);
    s->plain = malloc(TOTAL);
    s->out = malloc(TOTAL);
    assert_true(s->plain && s->out);
    for (size_t i = 0; i < TOTAL; i++) s->plain[i] = (uint8_t)(i * 31 + i / 257);
    for (size_t i = 0; i < PIECES; i++) s->piece[i] = malloc(LH_PART_BYTES);
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *s = *state;
    for (size_t i = 0; i < PIECES; i++) free(s->piece[i]);
    free(s->plain);
    free(s->out);
    lh_keyring_destroy(s->keys);
    lh_keyring_destroy(s->others);
    lh_fake_world_destroy(s->world);
    free(s);
    return 0;
}

static struct lh_state_seal end_of(const struct scene *s, const struct lh_keyring *keys)
{
    struct lh_state_seal e;
    assert_int_equal(lh_state_seal_init(&e, LH_SEAL_SNAPSHOT, keys, s->job, &s->manifest, 3,
                                        lh_span(s->challenge, sizeof s->challenge)),
                     LH_OK);
    return e;
}

static void seal_all(struct scene *s, enum lh_cipher cipher)
{
    size_t at = 0;
    s->sender = end_of(s, s->keys);
    lh_state_seal_begin(&s->sender, s->env, cipher, 7, 2, 40, &s->chain, TOTAL);
    for (size_t i = 0; i < PIECES; i++) {
        size_t n = lh_state_seal_next(&s->sender);
        const struct lh_span two[] = {lh_span(s->plain + at, n / 3),
                                      lh_span(s->plain + at + n / 3, n - n / 3)};
        assert_int_equal(lh_state_seal_piece(&s->sender, two, 2, s->piece[i]), LH_OK);
        s->len[i] = n + LH_SEAL_TAG_BYTES;
        at += n;
    }
    assert_int_equal(lh_state_seal_next(&s->sender), 0);
    s->head = lh_state_seal_head(&s->sender);
    const struct lh_shard_point *of = &s->head.of;
    assert_true(s->head.has_of && of->shard == 3 && of->at.epoch == 2 && of->at.version == 40);
    assert_true(of->chained);
    assert_memory_equal(of->at.chain.b, s->chain.b, LH_HASH_BYTES);
    assert_true(s->head.key_id == 7 && s->head.cipher == cipher);
}

static struct lh_state_seal receiver(struct scene *s)
{
    struct lh_state_seal e = end_of(s, s->keys);
    assert_int_equal(lh_state_unseal_begin(&e, &s->head, TOTAL), LH_OK);
    return e;
}

// Unseals `len` bytes that follow a head and come in parts of `cut` bytes.
static lh_err take(struct lh_state_seal *e, const uint8_t *piece, size_t len, size_t cut,
                   uint8_t *out)
{
    struct lh_span part[PARTS_MAX];
    // exact length, so that a sanitizer sees a read past the end
    uint8_t *bytes = malloc(HEAD + len);
    struct lh_msg msg = {.part = part, .len = HEAD + len};
    assert_non_null(bytes);
    memset(bytes, 0xee, HEAD);
    memcpy(bytes + HEAD, piece, len);
    for (size_t at = 0; at < msg.len; at += part[msg.parts++].len) {
        assert_true(msg.parts < PARTS_MAX);
        part[msg.parts] = lh_span(bytes + at, msg.len - at < cut ? msg.len - at : cut);
    }
    lh_err err = lh_state_unseal_piece(e, &msg, HEAD, out);
    free(bytes);
    return err;
}

static lh_err take_piece(struct scene *s, struct lh_state_seal *e, size_t i)
{
    return take(e, s->piece[i], s->len[i], LH_PART_BYTES, s->out);
}

#define IN_SCENE(name, parameter) TEST_WITH(name, parameter, set_up, tear_down)

IN_SCENE(a_sealed_state_unseals_however_it_was_split, struct scene *s)
{
    const enum lh_cipher ciphers[] = {LH_CIPHER_XCHACHA20, LH_CIPHER_AES256GCM};
    for (size_t c = 0; c < 2; c++) {
        if (!lh_cipher_available(ciphers[c])) continue; // unavailable here, so nothing to test
        seal_all(s, ciphers[c]);
        for (size_t cut = 16385; cut < 2 * LH_PART_BYTES; cut = cut * 3 + 1) {
            struct lh_state_seal e = receiver(s);
            for (size_t i = 0; i < PIECES; i++)
                assert_int_equal(take(&e, s->piece[i], s->len[i], cut, s->out + e.at), LH_OK);
            assert_int_equal(lh_state_seal_next(&e), 0);
            assert_memory_equal(s->out, s->plain, TOTAL);
            memset(s->out, 0, TOTAL);
        }
    }
}

IN_SCENE(a_stream_may_be_of_a_range_of_the_pieces, struct scene *s)
{
    seal_all(s, LH_CIPHER_XCHACHA20); // the whole state; a piece unseals only at its own place
    for (size_t from = 0; from < PIECES; from++) {
        struct lh_state_seal e = receiver(s);
        assert_int_equal(lh_state_seal_from(&e, from * LH_STATE_PIECE_BYTES), LH_OK);
        for (size_t i = 0; i < from; i++) assert_int_not_equal(take_piece(s, &e, i), LH_OK);
        for (size_t i = from; i < PIECES; i++) assert_int_equal(take_piece(s, &e, i), LH_OK);
        assert_int_equal(lh_state_seal_next(&e), 0);
    }
    struct lh_state_seal e = receiver(s);
    assert_int_equal(lh_state_seal_from(&e, 1), LH_ERR_MALFORMED);
    assert_int_equal(lh_state_seal_from(&e, PIECES * LH_STATE_PIECE_BYTES), LH_ERR_MALFORMED);
    assert_int_equal(take_piece(s, &e, 0), LH_OK);
}

IN_SCENE(no_byte_may_change, struct scene *s)
{
    seal_all(s, LH_CIPHER_XCHACHA20);
    struct lh_state_seal e = receiver(s);
    size_t last = s->len[0] - 1;
    for (size_t at = 0; at <= last; at += at < last - 70000 ? 65521 : at < last - 16 ? 7919 : 1) {
        s->piece[0][at] ^= 1;
        memset(s->out, 1, LH_STATE_PIECE_BYTES);
        assert_int_equal(take_piece(s, &e, 0), LH_ERR_UNSEAL);
        for (size_t i = 0; i < LH_STATE_PIECE_BYTES; i += 4093) assert_int_equal(s->out[i], 0);
        s->piece[0][at] ^= 1;
    }
    assert_int_equal(take_piece(s, &e, 0), LH_OK);
}

// By changing one of these fields, an attacker could deliver a state to the wrong place, or an old
// one.
IN_SCENE(every_field_is_bound, struct scene *s)
{
    seal_all(s, LH_CIPHER_XCHACHA20);
    for (int field = 0; field < 12; field++) {
        struct lh_state_seal e = receiver(s);
        e.job[15] ^= field == 1;
        e.manifest.b[31] ^= field == 2;
        e.chain.b[31] ^= field == 3;
        e.challenge[15] ^= field == 4;
        e.shard ^= field == 5;
        e.epoch ^= field == 6;
        e.version ^= field == 7;
        e.total += field == 8; // only this field says where the piece is in its whole
        e.at += field == 9 ? LH_STATE_PIECE_BYTES : 0;
        e.stream[15] ^= field == 10;
        if (field == 11) e.purpose = LH_SEAL_RESTORE;
        assert_int_equal(take_piece(s, &e, 0), field ? LH_ERR_UNSEAL : LH_OK);
    }
    struct lh_state_seal e = receiver(s);
    if (lh_cipher_available(LH_CIPHER_AES256GCM)) {
        e.cipher = LH_CIPHER_AES256GCM;
        assert_int_equal(take_piece(s, &e, 0), LH_ERR_UNSEAL);
    }
    e = receiver(s);
    e.keys = s->others; // same id, another key
    assert_int_equal(take_piece(s, &e, 0), LH_ERR_UNSEAL);
    e = receiver(s);
    e.key_id = 8; // a peer's key id must not stop this process
    assert_int_equal(take_piece(s, &e, 0), LH_ERR_UNSEAL);
    e = receiver(s);
    e.cipher = (enum lh_cipher)99; // the error blames the cipher, not the keys
    assert_int_equal(take_piece(s, &e, 0), LH_ERR_UNSUPPORTED);
}

IN_SCENE(pieces_come_in_order_and_whole, struct scene *s)
{
    seal_all(s, LH_CIPHER_XCHACHA20);
    struct lh_state_seal e = receiver(s);
    assert_int_equal(take_piece(s, &e, 1), LH_ERR_UNSEAL);
    assert_int_equal(take_piece(s, &e, 2), LH_ERR_MALFORMED); // shorter than the piece that is due
    assert_int_equal(take_piece(s, &e, 0), LH_OK);
    assert_int_equal(take_piece(s, &e, 0), LH_ERR_UNSEAL); // the same piece again
    assert_int_equal(take(&e, s->piece[1], s->len[1] - 1, LH_PART_BYTES, s->out), LH_ERR_MALFORMED);
    assert_int_equal(take(&e, s->piece[1], 3, 2, s->out), LH_ERR_MALFORMED);
    assert_int_equal(take_piece(s, &e, 1), LH_OK);
    assert_int_equal(e.at, 2 * LH_STATE_PIECE_BYTES); // a stream that ends here is incomplete
    assert_int_equal(lh_state_seal_next(&e), 1000);
    assert_int_equal(take_piece(s, &e, 2), LH_OK);
    assert_int_equal(take_piece(s, &e, 2), LH_ERR_MALFORMED); // no piece is due
    seal_all(s, LH_CIPHER_XCHACHA20); // the same state again gets a new stream id
    assert_memory_not_equal(e.stream, s->sender.stream, LH_STATE_RANDOM_BYTES);
    assert_int_equal(take(&e, s->piece[0], s->len[0], LH_PART_BYTES, s->out), LH_ERR_MALFORMED);
    struct lh_state_seal mixed = e;
    mixed.at = 0;
    assert_int_equal(take_piece(s, &mixed, 0), LH_ERR_UNSEAL);
    assert_int_equal(lh_state_unseal_begin(&e, &s->head, TOTAL), LH_OK); // from its first piece
    assert_int_equal(take_piece(s, &e, 0), LH_OK);
}

IN_SCENE(a_head_is_checked, struct scene *s)
{
    seal_all(s, LH_CIPHER_XCHACHA20);
    struct lh_state_seal e = end_of(s, s->keys);
    struct lh_seal bad = s->head; // stream lengths: tests/unit/common/net/wire.c
    bad.has_of = false;
    assert_int_equal(lh_state_unseal_begin(&e, &bad, TOTAL), LH_ERR_MALFORMED);
    bad = s->head;
    bad.cipher = 3;
    assert_int_equal(lh_state_unseal_begin(&e, &bad, TOTAL), LH_ERR_UNSUPPORTED);
    assert_int_equal(lh_state_unseal_begin(&e, &s->head, 0), LH_ERR_MALFORMED);
    s->head.of.shard++;
    assert_int_equal(lh_state_unseal_begin(&e, &s->head, TOTAL), LH_ERR_MALFORMED);
    s->head.of.shard--;
    s->head.of.chained = false;
    assert_int_equal(lh_state_unseal_begin(&e, &s->head, TOTAL), LH_ERR_MALFORMED);
    assert_int_equal(lh_state_seal_init(&e, LH_SEAL_SNAPSHOT, s->keys, s->job, &s->manifest, 3,
                                        lh_span(s->challenge, 15)),
                     LH_ERR_MALFORMED);
    assert_int_equal(lh_state_seal_init(&e, LH_SEAL_SNAPSHOT, NULL, s->job, &s->manifest, 3,
                                        lh_span(s->challenge, 16)),
                     LH_ERR_INVALID);
}
