// Checkpoints of a shard's fold state: taking and writing. Layout: checkpoint.h; reading:
// checkpoint_read.c.
#include "kernels/storage/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/storage/checkpoint_format.h"
#include "kernels/storage/checkpoint_read.h"

// ---------------------------------------------------------------- taking

static struct lk_outer scalars(const struct lk_outer *o)
{
    struct lk_outer out = *o;
    out.u = out.m = NULL;
    return out;
}

lh_err lk_checkpoint_begin(const struct lk_checkpoint_conf *conf, const struct lk_replica *r,
                           struct lk_checkpoint *out)
{
    *out = (struct lk_checkpoint){
        .conf = *conf, .copy = {.layout = r->layout, .keys = r->keys, .manifest = r->manifest}};
    memcpy(out->copy.job, r->job, LH_JOB_BYTES);
    out->copy.theta = malloc(r->layout->values * sizeof *out->copy.theta);
    lh_err err = out->copy.theta ? LH_OK : LH_ERR_NO_MEMORY;
    if (!err) err = lk_outer_allocate(&out->copy.outer, r->outer.kind, r->layout->values);
    out->seen = scalars(&r->outer);
    if (err) lk_checkpoint_free(out);
    return err;
}

void lk_checkpoint_touch(struct lk_checkpoint *c)
{
    float *const arrays[] = {c->copy.theta, c->copy.outer.u, c->copy.outer.m};
    for (size_t i = 0; i < LH_COUNT(arrays);
         i++) // a failure here recurs when the slices are written
        (void)lh_populate(arrays[i], c->copy.layout->values * sizeof *arrays[i]);
}

static void copy_part(float *to, const float *from, uint64_t at, uint64_t n)
{
    memcpy(to + at, from + at, n * sizeof *to);
}

lh_err lk_checkpoint_copy(struct lk_checkpoint *c, const struct lk_replica *r, uint64_t bytes_max)
{
    const struct lk_outer *from = &r->outer;
    struct lk_outer *to = &c->copy.outer, arrays = *to;
    uint64_t each = sizeof *r->theta + lk_outer_bytes_per_value(from->kind);
    uint64_t n = r->layout->values - c->copied, most = bytes_max / each;
    if (c->whole) return LH_OK;
    if (n > most) n = most ? most : 1;
    copy_part(c->copy.theta, r->theta, c->copied, n);
    if (to->u && from->u) copy_part(to->u, from->u, c->copied, n);
    if (to->m && from->m) copy_part(to->m, from->m, c->copied, n);
    c->copied += n;
    if (c->copied < r->layout->values) return LH_OK;
    LH_TRY(lh_ledger_copy(&c->copy.ledger, &r->ledger));
    *to = *from;
    to->u = arrays.u;
    to->m = arrays.m;
    c->epoch = r->ledger.epoch;
    c->version = r->ledger.version;
    c->chain = r->ledger.chain;
    c->whole = true;
    return LH_OK;
}

lh_err lk_checkpoint_folded(struct lk_checkpoint *c, const struct lk_replica *r,
                            const struct lh_record *record, struct lk_checkpoint_late *out)
{
    struct lh_frame f;
    struct lh_frame_parts parts;
    bool plan = record->kind == LH_PLAN;
    LH_ASSERT(plan || record->kind == LH_ADMIT);
    *out = (struct lk_checkpoint_late){.scale = record->scale};
    if (c->whole) return LH_OK;
    out->outer = lk_outer_what(&c->seen, &r->outer, &r->ledger.plan, plan);
    c->seen = scalars(&r->outer);
    LH_TRY(lk_outer_allocate(&c->copy.outer, r->outer.kind, r->layout->values));
    if (!c->copied || !lk_outer_changes(&out->outer)) return LH_OK;
    if (!plan) {
        LH_TRY(lh_frame_parse(record->body, &f, &parts));
        LH_TRY(lk_frame_codec(&f, &out->codec));
    }
    out->arrays = c->copy.outer;
    out->below = c->copied;
    return LH_OK;
}

void lk_checkpoint_repeat(struct lk_checkpoint *c, const struct lk_checkpoint_late *late,
                          struct lh_span plain)
{
    lk_outer_repeat(&late->outer, &late->codec, c->copy.layout, plain, late->scale, late->below,
                    &late->arrays, c->copy.theta);
}

lh_err lk_checkpoint_take(const struct lk_checkpoint_conf *conf, const struct lk_replica *r,
                          struct lk_checkpoint *out)
{
    lh_err err = lk_checkpoint_begin(conf, r, out);
    if (!err) err = lk_checkpoint_copy(out, r, UINT64_MAX);
    if (err) lk_checkpoint_free(out);
    return err;
}

void lk_checkpoint_free(struct lk_checkpoint *c)
{
    lk_replica_free(&c->copy);
}

// ---------------------------------------------------------------- writing

// Digest of a weights-only state: of its bytes, count and parameters.
static struct lh_hash weights_digest(const float *theta, uint64_t values)
{
    uint8_t bytes[8];
    struct lh_buf count = lh_buf_over(bytes, sizeof bytes);
    lh_put_u64(&count, values);
    struct lh_span parts[] = {lh_buf_span(&count), lh_span(theta, values * sizeof *theta)};
    return lh_hash_of((struct lh_span){0}, parts, 2);
}

enum { PIECES = 5, SYNC_RANGES = 16 };

// The state's bytes in pieces; together they equal those of lk_replica_save().
struct writing {
    struct lk_checkpoint *c;
    struct lh_buf ledger, outer, manifest;
    struct lh_span piece[PIECES];
    uint64_t bytes;
    uint8_t header[LK_CKPT_HEADER_BYTES];
};

static lh_err gather(struct writing *w)
{
    const struct lk_replica *r = &w->c->copy;
    size_t values = r->layout->values * sizeof(float);
    bool outer = !w->c->weights && r->outer.kind != LH_OPT_SGD;
    if (!w->c->weights) lh_ledger_write(&r->ledger, &w->ledger);
    lh_put_u64(&w->ledger, r->layout->values);
    if (outer) lk_outer_write_head(&r->outer, &w->outer);
    LH_TRY(lh_buf_err(&w->ledger));
    LH_TRY(lh_buf_err(&w->outer));
    w->piece[0] = lh_buf_span(&w->ledger);
    w->piece[1] = lh_span(r->theta, values); // little endian, as is the machine
    w->piece[2] = lh_buf_span(&w->outer);
    LH_ASSERT(!outer || (r->outer.u && r->outer.m)); // every kind with a state has both
    if (outer) w->piece[3] = lh_span(r->outer.u, values);
    if (outer) w->piece[4] = lh_span(r->outer.m, values);
    for (int i = 0; i < PIECES; i++) w->bytes += w->piece[i].len;
    return LH_OK;
}

// Appends bytes [at, at + n) of the state.
static void put_state(const struct writing *w, uint64_t at, size_t n, struct lh_buf *out)
{
    for (int i = 0; i < PIECES && n; i++) {
        struct lh_span p = w->piece[i];
        if (at >= p.len) {
            at -= p.len;
            continue;
        }
        size_t take = p.len - at < n ? p.len - at : n;
        lh_put(out, p.data + at, take);
        n -= take;
        at = 0;
    }
}

static lh_err write_header(struct writing *w)
{
    struct lk_checkpoint *c = w->c;
    const struct lk_replica *r = &c->copy;
    struct lh_buf b = lh_buf_over(w->header, sizeof w->header);
    if (c->weights)
        c->digest = weights_digest(r->theta, r->layout->values);
    else
        LH_TRY(lk_replica_digest_try(r, &c->digest));
    lh_put_u32(&b, LK_CKPT_MAGIC);
    lh_put_u16(&b, LK_CKPT_VERSION);
    lh_put_u8(&b, c->conf.cipher);
    lh_put_u8(
        &b, (uint8_t)((c->conf.signer ? LK_CKPT_SIGNED : 0) | (c->weights ? LK_CKPT_WEIGHTS : 0)));
    lh_put_u32(&b, c->conf.key_id);
    lh_put_u32(&b, r->ledger.shard);
    lh_put_u32(&b, r->ledger.shards);
    lh_put_u32(&b, lk_ckpt_ranges(w->bytes));
    lh_put(&b, r->job, LH_JOB_BYTES);
    lh_put(&b, r->manifest.b, LH_HASH_BYTES);
    lh_put_u64(&b, c->epoch);
    lh_put_u64(&b, c->version);
    lh_put(&b, c->chain.b, LH_HASH_BYTES);
    lh_put(&b, c->digest.b, LH_HASH_BYTES);
    lh_put_u64(&b, w->bytes);
    lh_put_u32(&b, lh_crc32c(0, b.data, b.len));
    LH_ASSERT(!b.err && b.len == LK_CKPT_HEADER_BYTES);
    return LH_OK;
}

// Appends the rest of the manifest after the hashes that are already in w->manifest.
static void finish_manifest(struct writing *w)
{
    const struct lh_signer *signer = w->c->conf.signer;
    struct lh_buf *b = &w->manifest;
    struct lh_public key = {{0}};
    uint8_t signature[LH_SIGN_BYTES] = {0};
    struct lh_span parts[] = {lh_span_str(LK_CKPT_LABEL), lh_span(w->header, LK_CKPT_HEADER_BYTES),
                              lh_span(b->data + 8, b->len - 8)};
    if (signer) key = lh_signer_public(signer);
    if (signer) lh_sign(signer, parts, LH_COUNT(parts), signature);
    lh_put(b, key.b, sizeof key.b);
    lh_put(b, signature, sizeof signature);
    lh_put_u32(b, lh_crc32c(0, b->data, b->len));
}

// Writes one range after the other, so no second copy of the state is needed. The manifest is
// written with the last range.
static lh_err write_ranges(struct writing *w, struct lh_file *file, struct lh_buf *plain,
                           struct lh_buf *b)
{
    const struct lk_checkpoint *c = w->c;
    struct lh_seal_context context = lk_ckpt_context(c->copy.ledger.shard, c->version);
    uint64_t to = 0;
    LH_TRY(lh_buf_reserve(&w->manifest, w->manifest.max));
    lh_put_u32(&w->manifest, LK_CKPT_MANIFEST_MAGIC);
    lh_put_u32(&w->manifest, lk_ckpt_ranges(w->bytes));
    lh_put(b, w->header, LK_CKPT_HEADER_BYTES);
    for (uint64_t at = 0; at < w->bytes; at += LK_CKPT_RANGE_BYTES) {
        uint64_t left = w->bytes - at;
        size_t n = left < LK_CKPT_RANGE_BYTES ? (size_t)left : LK_CKPT_RANGE_BYTES;
        size_t start = b->len;
        uint8_t nonce[LH_SEAL_NONCE_BYTES];
        lh_buf_clear(plain);
        put_state(w, at, n, plain);
        LH_TRY(lh_buf_err(plain));
        lh_random(c->conf.env, nonce, sizeof nonce);
        lh_put_u64(b, at);
        lh_put_u32(b, (uint32_t)n);
        lh_put_u64(b, c->version);
        lh_put(b, nonce, sizeof nonce);
        uint8_t *out = lh_buf_grow(b, n + LH_SEAL_TAG_BYTES);
        if (!out) return lh_buf_err(b);
        LH_TRY(lh_seal(c->conf.keys, c->conf.cipher, c->conf.key_id, &context,
                       lh_span(w->header, LK_CKPT_HEADER_BYTES), nonce, lh_buf_span(plain), out));
        struct lh_span range = lh_span(b->data + start, b->len - start);
        struct lh_hash hash = lh_hash_of((struct lh_span){0}, &range, 1);
        lh_put(&w->manifest, hash.b, LH_HASH_BYTES);
        if (left == n) {
            finish_manifest(w);
            LH_ASSERT(!w->manifest.err); // its memory was reserved
            lh_put(b, w->manifest.data, w->manifest.len);
            LH_TRY(lh_buf_err(b));
        }
        LH_TRY(c->conf.env->ops->files->write(file, to, lh_buf_span(b)));
        to += b->len;
        lh_buf_clear(b);
        // a backlog would delay the log's syncs, and the reads and syncs of a start
        if ((at / LK_CKPT_RANGE_BYTES + 1) % SYNC_RANGES == 0)
            LH_TRY(c->conf.env->ops->files->sync(file));
    }
    return LH_OK;
}

static lh_err write_file(void *arg, struct lh_file *file)
{
    struct writing *w = arg;
    struct lh_buf plain = lh_buf(LK_CKPT_RANGE_BYTES);
    struct lh_buf b = lh_buf(LK_CKPT_HEADER_BYTES + LK_CKPT_RANGE_HEAD_BYTES + LK_CKPT_RANGE_BYTES +
                             LH_SEAL_TAG_BYTES + w->manifest.max);
    lh_err err = write_ranges(w, file, &plain, &b);
    lh_buf_free(&plain);
    lh_buf_free(&b);
    return err;
}

lh_err lk_checkpoint_write(struct lk_checkpoint *c)
{
    char path[LH_PATH_BYTES];
    struct writing w = {.c = c};
    size_t most = lk_replica_bytes_max(c->copy.layout);
    LH_ASSERT(c->whole);
    w.ledger = lh_buf(most);
    w.outer = lh_buf(4096);
    struct lk_checkpoint_name name = {c->copy.ledger.shard, c->version, c->weights};
    lh_err err = lk_checkpoint_path(c->conf.dir, &name, path);
    if (!err) err = gather(&w);
    if (!err) err = write_header(&w);
    w.manifest = lh_buf(lk_ckpt_manifest_bytes(lk_ckpt_ranges(w.bytes)));
    if (!err) err = lh_file_replace_by(c->conf.env, path, write_file, &w);
    lh_buf_free(&w.ledger);
    lh_buf_free(&w.outer);
    lh_buf_free(&w.manifest);
    return err;
}
