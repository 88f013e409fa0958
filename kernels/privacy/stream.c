// Secret random bits with libsodium's ChaCha20. See stream.h.
//
// Invariants: 1. One stream uses a key, and a nonce only once. 2. lk_stream_end() leaves nothing of
// a stream in memory.
#include "kernels/privacy/stream.h"

#include <sodium.h>
#include <string.h>

#include "common/base/check.h"

LH_STATIC_ASSERT(LK_STREAM_KEY_BYTES == crypto_stream_chacha20_KEYBYTES, "key");
LH_STATIC_ASSERT(sizeof(uint64_t) == crypto_stream_chacha20_NONCEBYTES, "nonce");

void lk_stream_keyed(struct lk_stream *s, const uint8_t key[LK_STREAM_KEY_BYTES])
{
    memcpy(s->key, key, LK_STREAM_KEY_BYTES);
    s->blocks = 0;
    s->at = LK_STREAM_WORDS;
}

void lk_stream_begin(struct lk_stream *s, struct lh_env *env)
{
    uint8_t key[LK_STREAM_KEY_BYTES] = {0};
    if (!LH_BUG("noise_key_same")) lh_random(env, key, sizeof key);
    lk_stream_keyed(s, key);
    sodium_memzero(key, sizeof key);
}

void lk_stream_refill(struct lk_stream *s)
{
    uint8_t nonce[sizeof s->blocks];
    memcpy(nonce, &s->blocks, sizeof nonce);
    crypto_stream_chacha20((uint8_t *)s->word, sizeof s->word, nonce, s->key);
    s->blocks++;
    s->at = 0;
}

void lk_stream_end(struct lk_stream *s)
{
    sodium_memzero(s, sizeof *s);
    s->at = LK_STREAM_WORDS;
}
