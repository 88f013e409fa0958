// Sealed pieces of a fold state. See state_seal.h for the layout.
#include "common/net/state_seal.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/env/env.h"

static const char LABEL[] = "longhaul state 1";
enum { LABEL_BYTES = 16, AD_BYTES = 160 };
LH_STATIC_ASSERT(sizeof LABEL - 1 == LABEL_BYTES, "as state_seal.h says");
LH_STATIC_ASSERT(sizeof((struct lh_seal *)0)->stream == LH_STATE_RANDOM_BYTES, "one `stream`");

lh_err lh_state_seal_init(struct lh_state_seal *s, enum lh_seal_purpose purpose,
                          const struct lh_keyring *keys, const uint8_t job[LH_JOB_BYTES],
                          const struct lh_hash *manifest, uint32_t shard, struct lh_span challenge)
{
    if (!keys)
        return lh_fail(LH_ERR_INVALID, "shard %u: a sealed state needs job keys (seal.keys)",
                       shard);
    if (challenge.len != LH_STATE_RANDOM_BYTES)
        return lh_fail(LH_ERR_MALFORMED, "shard %u: a challenge of %zu bytes, not %d", shard,
                       challenge.len, LH_STATE_RANDOM_BYTES);
    *s = (struct lh_state_seal){
        .keys = keys, .purpose = purpose, .shard = shard, .manifest = *manifest};
    memcpy(s->job, job, LH_JOB_BYTES);
    memcpy(s->challenge, challenge.data, LH_STATE_RANDOM_BYTES);
    return LH_OK;
}

size_t lh_state_seal_next(const struct lh_state_seal *s)
{
    uint64_t left = s->total - s->at;
    return left < LH_STATE_PIECE_BYTES ? (size_t)left : LH_STATE_PIECE_BYTES;
}

lh_err lh_state_seal_from(struct lh_state_seal *s, uint64_t from)
{
    if (from % LH_STATE_PIECE_BYTES || from > s->total)
        return lh_fail(LH_ERR_MALFORMED, "shard %u: no piece of a sealed state begins at byte %llu",
                       s->shard, (unsigned long long)from);
    s->at = from;
    return LH_OK;
}

// All pieces but the last have the same size.
static uint64_t piece_of(const struct lh_state_seal *s)
{
    return s->at / LH_STATE_PIECE_BYTES;
}

static void associated_data(const struct lh_state_seal *s, struct lh_buf *out)
{
    lh_put(out, LABEL, LABEL_BYTES);
    lh_put(out, s->job, LH_JOB_BYTES);
    lh_put(out, s->manifest.b, LH_HASH_BYTES);
    lh_put(out, s->chain.b, LH_HASH_BYTES);
    lh_put(out, s->challenge, LH_STATE_RANDOM_BYTES);
    lh_put_u32(out, s->shard);
    lh_put_u32(out, (uint32_t)lh_state_seal_next(s));
    lh_put_u64(out, s->epoch);
    lh_put_u64(out, s->version);
    lh_put_u64(out, s->total);
    lh_put_u64(out, piece_of(s));
    lh_put_u64(out, s->at);
    LH_ASSERT(!out->err && out->len == AD_BYTES);
}

// The nonce and associated data (in `bytes`) of a piece.
struct place {
    struct lh_seal_context context;
    uint8_t nonce[LH_SEAL_NONCE_BYTES], bytes[AD_BYTES];
};

static struct lh_span place_of(const struct lh_state_seal *s, struct place *p)
{
    struct lh_buf ad = lh_buf_over(p->bytes, sizeof p->bytes);
    struct lh_buf nonce = lh_buf_over(p->nonce, sizeof p->nonce);
    struct lh_cursor stream = lh_cursor(lh_span(s->stream, sizeof s->stream));
    p->context = (struct lh_seal_context){.shard = s->shard, .purpose = s->purpose};
    p->context.worker = lh_get_u64(&stream);
    p->context.incarnation = lh_get_u64(&stream);
    lh_put_u64(&nonce, piece_of(s));
    lh_put_zeros(&nonce, sizeof p->nonce - nonce.len);
    associated_data(s, &ad);
    return lh_buf_span(&ad);
}

// ---------------------------------------------------------------- sender

void lh_state_seal_begin(struct lh_state_seal *s, struct lh_env *env, enum lh_cipher cipher,
                         uint32_t key_id, uint64_t epoch, uint64_t version,
                         const struct lh_hash *chain, uint64_t total)
{
    s->cipher = cipher;
    s->key_id = key_id;
    s->epoch = epoch;
    s->version = version;
    s->chain = *chain;
    s->total = total;
    lh_random(env, s->stream, sizeof s->stream);
}

struct lh_seal lh_state_seal_head(const struct lh_state_seal *s)
{
    struct lh_seal head = {.key_id = s->key_id, .cipher = s->cipher, .has_of = true};
    head.of = lh_shard_point(s->shard, s->epoch, s->version, &s->chain);
    memcpy(head.stream, s->stream, sizeof head.stream);
    return head;
}

lh_err lh_state_seal_piece(struct lh_state_seal *s, const struct lh_span *plain, size_t parts,
                           uint8_t *out)
{
    struct place p;
    struct lh_span ad = place_of(s, &p);
    size_t n = 0;
    for (size_t i = 0; i < parts; i++) n += plain[i].len;
    LH_ASSERT(n && n == lh_state_seal_next(s));
    LH_TRY(
        lh_seal_parts(s->keys, s->cipher, s->key_id, &p.context, ad, p.nonce, plain, parts, out));
    s->at += lh_state_seal_next(s);
    return LH_OK;
}

// ---------------------------------------------------------------- receiver

lh_err lh_state_unseal_begin(struct lh_state_seal *s, const struct lh_seal *seal, uint64_t total)
{
    const struct lh_shard_point *of = &seal->of;
    if (!seal->has_of || !of->chained || of->shard != s->shard || !total)
        return lh_fail(LH_ERR_MALFORMED, "shard %u: a sealed state whose header can't be read",
                       s->shard);
    if (seal->cipher != LH_CIPHER_XCHACHA20 && seal->cipher != LH_CIPHER_AES256GCM)
        return lh_fail(LH_ERR_UNSUPPORTED,
                       "shard %u: a state sealed by cipher %u, which this build does not know: "
                       "upgrade it",
                       s->shard, seal->cipher);
    s->cipher = (enum lh_cipher)seal->cipher;
    s->key_id = seal->key_id;
    s->epoch = of->at.epoch;
    s->version = of->at.version;
    s->total = total;
    s->at = 0;
    s->chain = of->at.chain;
    memcpy(s->stream, seal->stream, sizeof s->stream);
    return LH_OK;
}

// Only the peer claims that the missing key exists, so it must not stop this process.
static lh_err refused(const struct lh_state_seal *s, lh_err err)
{
    if (err == LH_ERR_KEY_MISSING)
        return lh_fail(LH_ERR_UNSEAL,
                       "shard %u: a state sealed under job key %u, which is not in this node's key "
                       "file (seal.keys): give every node the same keys",
                       s->shard, s->key_id);
    if (err != LH_ERR_UNSEAL) return err;
    return lh_fail(LH_ERR_UNSEAL,
                   "shard %u: piece %llu of the state does not open under job key %u: its sender "
                   "has another key (compare the files of seal.keys), or it was changed on the way",
                   s->shard, (unsigned long long)piece_of(s), s->key_id);
}

// The spans of bytes [at, at + n) of a message, which must be complete. Gives; NULL: no memory.
static struct lh_span *spans_of(const struct lh_msg *msg, size_t at, size_t n, size_t *count)
{
    struct lh_span *out = malloc((msg->parts + 1) * sizeof *out);
    *count = 0;
    for (size_t i = 0; out && i < msg->parts && n; i++) {
        struct lh_span part = msg->part[i];
        size_t skip = at < part.len ? at : part.len, k = part.len - skip;
        if (k > n) k = n;
        if (k) out[(*count)++] = lh_span(part.data + skip, k);
        at -= skip;
        n -= k;
    }
    return out;
}

lh_err lh_state_unseal_piece(struct lh_state_seal *s, const struct lh_msg *msg, size_t at,
                             uint8_t *out)
{
    size_t n = lh_state_seal_next(s), count;
    uint8_t tag[LH_SEAL_TAG_BYTES];
    struct place p;
    if (!n || msg->len - at != n + sizeof tag || !lh_msg_copy(msg, at + n, tag, sizeof tag))
        return lh_fail(LH_ERR_MALFORMED,
                       "shard %u: piece %llu of a sealed state has %zu bytes, not %zu and a tag",
                       s->shard, (unsigned long long)piece_of(s), msg->len - at, n);
    struct lh_span ad = place_of(s, &p), *part = spans_of(msg, at, n, &count);
    if (!part) return LH_ERR_NO_MEMORY;
    lh_err err = lh_unseal_parts(s->keys, s->cipher, s->key_id, &p.context, ad, p.nonce, part,
                                 count, tag, out);
    free(part);
    if (err) return refused(s, err);
    s->at += lh_state_seal_next(s);
    return LH_OK;
}
