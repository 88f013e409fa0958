// lh_unseal on any bytes: a plaintext that it returns seals to the same bytes again.
//
// Input: cipher u8, key id u8, purpose u8, length of the header u8, nonce 24, header, sealed bytes.
// The key is that of tests/unit/common/security/seal.c: the bytes 1 to 32 under the id 7.
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/security/seal.h"
#include "tests/fuzz/fuzz.h"

static struct lh_keyring *make_ring(void)
{
    struct lh_keyring *ring;
    struct lh_seal_key key;
    for (size_t i = 0; i < sizeof key.b; i++) key.b[i] = (uint8_t)(1 + i);
    LH_ASSERT(lh_keyring_create(&ring) == LH_OK && lh_keyring_add(ring, 7, &key) == LH_OK);
    return ring;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lh_cursor c = lh_cursor(lh_span(data, size));
    enum lh_cipher cipher = lh_get_u8(&c);
    uint32_t key_id = lh_get_u8(&c);
    struct lh_seal_context context = {0x1122334455667788, 3, 0x99aabbccddeeff00, 5, LH_SEAL_FRAME};
    if (lh_get_u8(&c) & 1) context.purpose = LH_SEAL_AT_REST;
    size_t ad_len = lh_get_u8(&c);
    uint8_t nonce[LH_SEAL_NONCE_BYTES];
    lh_get_into(&c, nonce, sizeof nonce);
    struct lh_span ad = lh_get(&c, ad_len), sealed = lh_get(&c, lh_left(&c));
    if (c.failed) return 0;

    struct lh_keyring *ring = make_ring();
    uint8_t *plain = malloc(sealed.len + 1), *again = malloc(sealed.len + 1);
    LH_ASSERT(plain && again);
    lh_err err = lh_unseal(ring, cipher, key_id, &context, ad, nonce, sealed, plain);
    if (err == LH_OK) {
        struct lh_span text = lh_span(plain, sealed.len - LH_SEAL_TAG_BYTES);
        LH_ASSERT(lh_seal(ring, cipher, key_id, &context, ad, nonce, text, again) == LH_OK);
        LH_ASSERT(memcmp(again, sealed.data, sealed.len) == 0);
    } else {
        LH_ASSERT(err == LH_ERR_UNSEAL || err == LH_ERR_UNSUPPORTED || err == LH_ERR_KEY_MISSING);
    }
    free(again);
    free(plain);
    lh_keyring_destroy(ring);
    return 0;
}
