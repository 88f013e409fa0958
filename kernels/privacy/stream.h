// Secret random bits: ChaCha20 under its own key, which lives for one use.
#ifndef LK_PRIVACY_STREAM_H
#define LK_PRIVACY_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include "common/env/env.h"

enum { LK_STREAM_KEY_BYTES = 32, LK_STREAM_WORDS = 256 };

struct lk_stream {
    uint8_t key[LK_STREAM_KEY_BYTES];
    uint64_t blocks; // refills so far: the next one's nonce
    size_t at;       // next unused word
    uint64_t word[LK_STREAM_WORDS];
};

// Draws a key from the env. Any thread; one stream belongs to one thread at a time.
void lk_stream_begin(struct lk_stream *s, struct lh_env *env);
// The same under a given key, for tests that repeat a stream.
void lk_stream_keyed(struct lk_stream *s, const uint8_t key[LK_STREAM_KEY_BYTES]);
void lk_stream_refill(struct lk_stream *s);
void lk_stream_end(struct lk_stream *s); // wipes all of it

static inline uint64_t lk_stream_next(struct lk_stream *s)
{
    if (s->at == LK_STREAM_WORDS) lk_stream_refill(s);
    return s->word[s->at++];
}

#endif
