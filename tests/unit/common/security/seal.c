// Sealing: known answers, tampering with every byte and every part of the context, key files.
//
// The known answers were computed without libsodium: subkeys by Python's hashlib.blake2b, AES-GCM
// and ChaCha20-Poly1305 by OpenSSL, HChaCha20 by hand after draft-irtf-cfrg-xchacha, 2.2 (and
// checked against the vector of its 2.2.1).
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/security/seal.h"
#include "tests/test.h"

static const char PLAIN[] = "forty two bytes of a frame, sealed at home";
enum { PLAIN_BYTES = sizeof PLAIN - 1, SEALED_BYTES = PLAIN_BYTES + LH_SEAL_TAG_BYTES };

struct scene {
    struct lh_keyring *ring;
    struct lh_seal_key key;
    struct lh_seal_context context;
    uint8_t nonce[LH_SEAL_NONCE_BYTES], ad[6], sealed[SEALED_BYTES];
    char dir[32], file[48];
};

static int set_up(void **state)
{
    struct scene *s = calloc(1, sizeof *s);
    if (!s || lh_keyring_create(&s->ring)) return -1;
    for (size_t i = 0; i < sizeof s->key.b; i++) s->key.b[i] = (uint8_t)(1 + i);
    for (size_t i = 0; i < sizeof s->nonce; i++) s->nonce[i] = (uint8_t)(100 + i);
    memcpy(s->ad, "header", 6);
    s->context =
        (struct lh_seal_context){0x1122334455667788, 3, 0x99aabbccddeeff00, 5, LH_SEAL_FRAME};
    snprintf(s->dir, sizeof s->dir, "/tmp/seal-XXXXXX");
    if (!mkdtemp(s->dir)) return -1;
    snprintf(s->file, sizeof s->file, "%s/key", s->dir);
    *state = s;
    return lh_keyring_add(s->ring, 7, &s->key) ? -1 : 0;
}

static int tear_down(void **state)
{
    struct scene *s = *state;
    lh_keyring_destroy(s->ring);
    unlink(s->file);
    int failed = rmdir(s->dir);
    free(s);
    return failed;
}

static lh_err seal(struct scene *s, enum lh_cipher cipher)
{
    return lh_seal(s->ring, cipher, 7, &s->context, lh_span(s->ad, sizeof s->ad), s->nonce,
                   lh_span(PLAIN, PLAIN_BYTES), s->sealed);
}

static lh_err open_again(struct scene *s, enum lh_cipher cipher, uint8_t out[PLAIN_BYTES])
{
    return lh_unseal(s->ring, cipher, 7, &s->context, lh_span(s->ad, sizeof s->ad), s->nonce,
                     lh_span(s->sealed, SEALED_BYTES), out);
}

// The ciphers available on this machine; not every processor has AES-GCM.
static size_t ciphers(enum lh_cipher out[2])
{
    out[0] = LH_CIPHER_XCHACHA20;
    out[1] = LH_CIPHER_AES256GCM;
    return lh_cipher_available(LH_CIPHER_AES256GCM) ? 2 : 1;
}

#define IN_SCENE(name, parameter) TEST_WITH(name, parameter, set_up, tear_down)

IN_SCENE(known_answers, struct scene *s)
{
    char hex[2 * SEALED_BYTES + 1];
    assert_int_equal(seal(s, LH_CIPHER_XCHACHA20), LH_OK);
    assert_string_equal(sodium_bin2hex(hex, sizeof hex, s->sealed, SEALED_BYTES),
                        "6777735aa4cf68e675bfdd4b95074398d366967e95258cb8f468b0e254ae842401efffc411"
                        "e28c069429cb7aec52a17337f7d9f8cd8dedea3140");
    s->context.purpose = LH_SEAL_AT_REST;
    if (!lh_cipher_available(LH_CIPHER_AES256GCM)) {
        assert_int_equal(seal(s, LH_CIPHER_AES256GCM), LH_ERR_UNSUPPORTED);
        return;
    }
    assert_int_equal(seal(s, LH_CIPHER_AES256GCM), LH_OK);
    assert_string_equal(sodium_bin2hex(hex, sizeof hex, s->sealed, SEALED_BYTES),
                        "9a6ddaeb798457108c5e1185adec9c4c8ccc96e444e7b3f6f093c099ccfdfcfeee82e151f5"
                        "a74f261dfadc64aa52140297c153c95d97aa0c62d3");
}

IN_SCENE(opens_what_was_sealed, struct scene *s)
{
    enum lh_cipher cipher[2];
    uint8_t out[PLAIN_BYTES], tag[LH_SEAL_TAG_BYTES];
    for (size_t i = 0, n = ciphers(cipher); i < n; i++) {
        assert_int_equal(seal(s, cipher[i]), LH_OK);
        assert_int_equal(open_again(s, cipher[i], out), LH_OK);
        assert_memory_equal(out, PLAIN, PLAIN_BYTES);
        // No plaintext and no associated data: the result is a tag alone.
        assert_int_equal(lh_seal(s->ring, cipher[i], 7, &s->context, lh_span(NULL, 0), s->nonce,
                                 lh_span(NULL, 0), tag),
                         LH_OK);
        assert_int_equal(lh_unseal(s->ring, cipher[i], 7, &s->context, lh_span(NULL, 0), s->nonce,
                                   lh_span(tag, sizeof tag), NULL),
                         LH_OK);
    }
}

static void assert_closed(struct scene *s, enum lh_cipher cipher, const char *what, size_t at)
{
    uint8_t out[PLAIN_BYTES];
    memset(out, 0x5a, sizeof out);
    if (open_again(s, cipher, out) != LH_ERR_UNSEAL) fail_msg("%s %zu", what, at);
    for (size_t i = 0; i + 4 <= sizeof out; i++) assert_memory_not_equal(out + i, PLAIN + i, 4);
}

IN_SCENE(tampering_shows_at_every_bit, struct scene *s)
{
    enum lh_cipher cipher[2];
    for (size_t i = 0, n = ciphers(cipher); i < n; i++) {
        size_t nonce_bits = cipher[i] == LH_CIPHER_AES256GCM ? 96 : 192;
        assert_int_equal(seal(s, cipher[i]), LH_OK);
        for (size_t bit = 0; bit < 8 * SEALED_BYTES; bit++) {
            s->sealed[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_closed(s, cipher[i], "bit of the sealed bytes", bit);
            s->sealed[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        for (size_t bit = 0; bit < 8 * sizeof s->ad; bit++) {
            s->ad[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_closed(s, cipher[i], "bit of the header", bit);
            s->ad[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        for (size_t bit = 0; bit < nonce_bits; bit++) {
            s->nonce[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_closed(s, cipher[i], "bit of the nonce", bit);
            s->nonce[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        uint8_t out[PLAIN_BYTES];
        assert_int_equal(open_again(s, cipher[i], out), LH_OK); // unchanged again
    }
}

IN_SCENE(every_length_but_the_right_one_is_refused, struct scene *s)
{
    uint8_t longer[SEALED_BYTES + 1] = {0}, out[SEALED_BYTES];
    assert_int_equal(seal(s, LH_CIPHER_XCHACHA20), LH_OK);
    memcpy(longer, s->sealed, SEALED_BYTES);
    for (size_t n = 0; n <= sizeof longer; n++)
        assert_int_equal(lh_unseal(s->ring, LH_CIPHER_XCHACHA20, 7, &s->context,
                                   lh_span(s->ad, sizeof s->ad), s->nonce, lh_span(longer, n), out),
                         n == SEALED_BYTES ? LH_OK : LH_ERR_UNSEAL);
}

IN_SCENE(opens_in_its_own_place_only, struct scene *s)
{
    const struct lh_seal_context home = s->context;
    struct lh_seal_context away[] = {home, home, home, home, home};
    away[0].worker ^= 1ull << 63;
    away[1].incarnation++;
    away[2].incarnation_random ^= 1;
    away[3].shard ^= 1u << 31;
    away[4].purpose = LH_SEAL_AT_REST;
    enum lh_cipher cipher[2];
    uint8_t out[PLAIN_BYTES];
    for (size_t i = 0, n = ciphers(cipher); i < n; i++) {
        assert_int_equal(seal(s, cipher[i]), LH_OK);
        for (size_t k = 0; k < LH_COUNT(away); k++) {
            s->context = away[k];
            assert_closed(s, cipher[i], "context", k);
        }
        s->context = home;
        assert_int_equal(open_again(s, cipher[i], out), LH_OK);
    }
    if (lh_cipher_available(LH_CIPHER_AES256GCM)) {
        assert_int_equal(seal(s, LH_CIPHER_AES256GCM), LH_OK);
        assert_closed(s, LH_CIPHER_XCHACHA20, "cipher", 0);
    }
}

IN_SCENE(another_key_does_not_open, struct scene *s)
{
    struct lh_seal_key other = s->key;
    struct lh_keyring *ring;
    uint8_t out[PLAIN_BYTES];
    other.b[31] ^= 1;
    assert_int_equal(seal(s, LH_CIPHER_XCHACHA20), LH_OK);
    assert_int_equal(lh_keyring_create(&ring), LH_OK);
    assert_int_equal(lh_keyring_add(ring, 7, &other), LH_OK);
    assert_int_equal(lh_keyring_add(ring, 8, &s->key), LH_OK); // the right key under another id
    for (uint32_t id = 7; id <= 8; id++)
        assert_int_equal(lh_unseal(ring, LH_CIPHER_XCHACHA20, id, &s->context,
                                   lh_span(s->ad, sizeof s->ad), s->nonce,
                                   lh_span(s->sealed, SEALED_BYTES), out),
                         LH_ERR_UNSEAL);
    assert_int_equal(lh_unseal(ring, LH_CIPHER_XCHACHA20, 9, &s->context,
                               lh_span(s->ad, sizeof s->ad), s->nonce,
                               lh_span(s->sealed, SEALED_BYTES), out),
                     LH_ERR_KEY_MISSING);
    assert_int_equal(lh_seal(ring, LH_CIPHER_XCHACHA20, 9, &s->context, lh_span(NULL, 0), s->nonce,
                             lh_span(PLAIN, PLAIN_BYTES), s->sealed),
                     LH_ERR_KEY_MISSING);
    lh_keyring_destroy(ring);
}

IN_SCENE(unknown_ciphers_are_refused, struct scene *s)
{
    uint8_t out[PLAIN_BYTES];
    for (int cipher = -1; cipher < 300; cipher++) {
        if (cipher == LH_CIPHER_XCHACHA20 || cipher == LH_CIPHER_AES256GCM) continue;
        assert_int_equal(open_again(s, (enum lh_cipher)cipher, out), LH_ERR_UNSUPPORTED);
        assert_false(lh_cipher_available((enum lh_cipher)cipher));
    }
}

// ---------------------------------------------------------------- keys

IN_SCENE(a_ring_keeps_its_keys, struct scene *s)
{
    struct lh_seal_key key = s->key, zero = {{0}};
    assert_int_equal(lh_keyring_first(s->ring), 7);
    assert_int_equal(lh_keyring_add(s->ring, 7, &s->key), LH_OK); // the same key again is fine
    key.b[0] ^= 1;
    assert_int_equal(lh_keyring_add(s->ring, 7, &key), LH_ERR_EXISTS);
    assert_int_equal(lh_keyring_add(s->ring, 0, &key), LH_ERR_INVALID);
    assert_int_equal(lh_keyring_add(s->ring, 1, &zero), LH_ERR_INVALID);
    for (uint32_t id = 100; id < 100 + LH_KEYRING_MAX - 1; id++)
        assert_int_equal(lh_keyring_add(s->ring, id, &key), LH_OK);
    assert_int_equal(lh_keyring_add(s->ring, 200, &key), LH_ERR_TOO_LARGE);
    assert_int_equal(lh_keyring_first(s->ring), 7);
}

static lh_err load(struct scene *s, const char *text, struct lh_keyring **out)
{
    FILE *file = fopen(s->file, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(chmod(s->file, 0600), 0);
    assert_int_equal(lh_keyring_create(out), LH_OK);
    return lh_keyring_load(*out, s->file);
}

#define DIGITS_1 "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20"
#define DIGITS_2 "ABCDEF0405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20"

IN_SCENE(key_files_are_read, struct scene *s)
{
    struct lh_keyring *ring;
    uint8_t a[SEALED_BYTES];
    static const char *const one[] = {DIGITS_1, DIGITS_1 "\n", "# the job's\n\n" DIGITS_1 " \r\n",
                                      "1:" DIGITS_1 "\n1:" DIGITS_1};
    for (size_t i = 0; i < LH_COUNT(one); i++) {
        assert_int_equal(load(s, one[i], &ring), LH_OK);
        assert_int_equal(lh_keyring_first(ring), 1);
        lh_keyring_destroy(ring);
    }
    assert_int_equal(load(s, "4294967295:" DIGITS_2 "\n7:" DIGITS_1 "\n", &ring), LH_OK);
    assert_int_equal(lh_keyring_first(ring), UINT32_MAX);
    assert_int_equal(seal(s, LH_CIPHER_XCHACHA20), LH_OK);
    assert_int_equal(lh_seal(ring, LH_CIPHER_XCHACHA20, 7, &s->context,
                             lh_span(s->ad, sizeof s->ad), s->nonce, lh_span(PLAIN, PLAIN_BYTES),
                             a),
                     LH_OK);
    assert_memory_equal(a, s->sealed, SEALED_BYTES); // the file's digits are the key's bytes
    lh_keyring_destroy(ring);
}

IN_SCENE(bad_key_files_are_refused_without_showing_them, struct scene *s)
{
    static const char *const bad[] = {
        "",
        "\n# nothing\n",
        "abc\n",
        DIGITS_1 "0\n",
        ":" DIGITS_1,
        "0:" DIGITS_1,
        "-1:" DIGITS_1,
        "4294967296:" DIGITS_1,
        "01:" DIGITS_1,
        "2 :" DIGITS_1,
        "2:" DIGITS_1 "00",
        "g102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20",
        "2:0x02030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20",
        " " DIGITS_1,
        DIGITS_1 "\n" DIGITS_1 "\nx",
    };
    for (size_t i = 0; i < LH_COUNT(bad); i++) {
        struct lh_keyring *ring;
        if (load(s, bad[i], &ring) != LH_ERR_CONFIG) fail_msg("took '%s'", bad[i]);
        assert_null(strstr(lh_err_text(LH_ERR_CONFIG), "0102"));
        lh_keyring_destroy(ring);
    }
    struct lh_keyring *ring;
    assert_int_equal(load(s, DIGITS_1 "\n1:" DIGITS_2 "\n", &ring), LH_ERR_EXISTS);
    assert_int_equal(chmod(s->file, 0644), 0);
    assert_int_equal(lh_keyring_load(ring, s->file), LH_ERR_DENIED);
    assert_non_null(strstr(lh_err_text(LH_ERR_DENIED), "chmod 600"));
    assert_int_equal(lh_keyring_load(ring, "/tmp/none/key"), LH_ERR_NOT_FOUND);
    lh_keyring_destroy(ring);
}

IN_SCENE(generated_keys_load_and_differ, struct scene *s)
{
    struct lh_keyring *a, *b;
    uint8_t sealed[2][SEALED_BYTES];
    assert_int_equal(lh_keyring_create(&a), LH_OK);
    assert_int_equal(lh_keyring_create(&b), LH_OK);
    assert_int_equal(lh_key_generate(s->file), LH_OK);
    assert_int_equal(lh_key_generate(s->file), LH_ERR_EXISTS);
    assert_int_equal(lh_keyring_load(a, s->file), LH_OK);
    assert_int_equal(unlink(s->file), 0);
    assert_int_equal(lh_key_generate(s->file), LH_OK);
    assert_int_equal(lh_keyring_load(b, s->file), LH_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(lh_seal(i ? b : a, LH_CIPHER_XCHACHA20, 1, &s->context, lh_span(NULL, 0),
                                 s->nonce, lh_span(PLAIN, PLAIN_BYTES), sealed[i]),
                         LH_OK);
    assert_memory_not_equal(sealed[0], sealed[1], SEALED_BYTES);
    lh_keyring_destroy(a);
    lh_keyring_destroy(b);
}
