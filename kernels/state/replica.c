// A replica. See replica.h.
#include "kernels/state/replica.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/parallel.h"

enum { DIGEST_RANGE = 4 << 20 };

lh_err lk_replica_create(struct lk_replica *r, const uint8_t job[LH_JOB_BYTES],
                         const struct lh_manifest *m, uint32_t shard, struct lh_keyring *keys)
{
    memset(r, 0, sizeof *r);
    r->layout = &m->shard[shard];
    r->keys = keys;
    r->manifest = m->hash;
    r->plain = lh_buf(LH_FRAME_BYTES_MAX);
    memcpy(r->job, job, LH_JOB_BYTES);
    r->theta = lh_zeros(r->layout->values, sizeof *r->theta);
    if (!r->theta) return LH_ERR_NO_MEMORY;
    return lh_ledger_create(&r->ledger, job, &m->hash, shard, m->shards);
}

void lk_replica_free(struct lk_replica *r)
{
    lh_ledger_free(&r->ledger);
    lh_buf_free(&r->plain);
    lk_outer_free(&r->outer);
    free(r->theta);
    memset(r, 0, sizeof *r);
}

lh_err lk_frame_codec(const struct lh_frame *f, struct lk_codec *out)
{
    *out = (struct lk_codec){f->index_code, f->value_code, f->density};
    if (strcmp(lk_codec_name(out), "unknown") == 0)
        return lh_fail(LH_ERR_MALFORMED, "frame of unknown codec %u/%u", f->index_code,
                       f->value_code);
    return LH_OK;
}

// Checks the header fields that this replica can check: the frame's owner and subject.
static lh_err check_head(const struct lk_replica *r, const struct lh_frame *f)
{
    if (memcmp(f->job, r->job, LH_JOB_BYTES) != 0)
        return lh_fail(LH_ERR_INVALID,
                       "frame of another job; check the certificates (tls.cert) of both sides");
    if (!lh_hash_equal(&f->manifest, &r->manifest))
        return lh_fail(LH_ERR_MANIFEST, "frame made for another model's manifest; give servers and "
                                        "workers the same model.manifest");
    if (f->shard != r->ledger.shard)
        return lh_fail(LH_ERR_INVALID, "frame of shard %u sent to shard %u", f->shard,
                       r->ledger.shard);
    for (uint32_t i = 0; i < f->claims && !LH_BUG("credit_each") && !LH_BUG("credit_any"); i++)
        if (f->claim[i] % r->ledger.shards != f->shard)
            return lh_fail(LH_ERR_INVALID, "unit %llu is claimed in the log of shard %u",
                           (unsigned long long)f->claim[i], f->shard);
    return LH_OK;
}

lh_err lk_replica_unseal_into(const struct lk_replica *r, struct lh_span frame,
                              struct lh_buf *plain, bool *opened, struct lk_payload_info *info)
{
    struct lh_frame f;
    struct lh_frame_parts parts;
    struct lk_codec codec;
    *opened = false;
    LH_TRY(lh_frame_parse(frame, &f, &parts));
    lh_buf_clear(plain);
    if (!lh_buf_grow(plain, f.plain_bytes) && f.plain_bytes) return lh_buf_err(plain);
    struct lh_seal_context context = {f.worker, f.incarnation.number, f.incarnation.random, f.shard,
                                      LH_SEAL_FRAME};
    LH_TRY(lh_unseal(r->keys, f.cipher, f.key_id, &context, parts.head, f.nonce, parts.sealed,
                     plain->data));
    *opened = true;
    LH_TRY(check_head(r, &f));
    LH_TRY(lk_frame_codec(&f, &codec));
    LH_TRY(lk_payload_check(&codec, r->layout, lh_buf_span(plain), info));
    if (info->values != f.values)
        return lh_fail(LH_ERR_MALFORMED, "payload of %llu values, its header says %llu",
                       (unsigned long long)info->values, (unsigned long long)f.values);
    return LH_OK;
}

lh_err lk_replica_unseal(struct lk_replica *r, struct lh_span frame, struct lh_span *plain,
                         bool *opened, struct lk_payload_info *info)
{
    LH_TRY(lk_replica_unseal_into(r, frame, &r->plain, opened, info));
    if (plain) *plain = lh_buf_span(&r->plain);
    return LH_OK;
}

lh_err lk_replica_apply_plain(struct lk_replica *r, const struct lh_record *record,
                              struct lh_span plain)
{
    struct lh_frame f;
    struct lk_codec codec;
    struct lh_frame_parts parts;
    LH_ASSERT(record->kind == LH_ADMIT);
    LH_TRY(lh_frame_parse(record->body, &f, &parts));
    LH_TRY(lk_frame_codec(&f, &codec));
    LH_TRY(lh_ledger_apply(&r->ledger, record));
    lh_err err = lk_outer_fold(&r->outer, &r->ledger.plan, &codec, r->layout, plain, record->scale,
                               r->theta);
    LH_ASSERT(err == LH_OK); // the payload was checked: a failure here would corrupt the replica
    return LH_OK;
}

// A DIGEST record of this history must match this state.
static lh_err check_digest(const struct lk_replica *r, const struct lh_record *record)
{
    struct lh_hash chain = lh_record_chain(&r->ledger.chain, record);
    bool next = record->version == r->ledger.version + 1 && lh_hash_equal(&chain, &record->chain);
    if (record->kind != LH_DIGEST_RECORD || !next || record->body.len != LH_HASH_BYTES)
        return LH_OK; // the ledger reports any error in it
    struct lh_hash mine;
    LH_TRY(lk_replica_digest_try(r, &mine));
    if (memcmp(mine.b, record->body.data, LH_HASH_BYTES) == 0) return LH_OK;
    return lh_fail(LH_ERR_CORRUPT,
                   "shard %u version %llu: this replica's state differs from the owner's",
                   r->ledger.shard, (unsigned long long)r->ledger.version);
}

// Allocates the new plan's optimizer first: a record that can't be applied changes nothing.
static lh_err apply_plan(struct lk_replica *r, const struct lh_record *record)
{
    struct lh_plan *plan = malloc(sizeof *plan);
    if (!plan) return LH_ERR_NO_MEMORY;
    lh_err err = lh_plan_parse(record->body, plan);
    if (!err) err = lk_outer_reserve(&r->outer, plan, r->layout->values);
    if (!err) err = lh_ledger_apply(&r->ledger, record);
    if (!err) lk_outer_plan(&r->outer, plan);
    free(plan);
    return err;
}

lh_err lk_replica_apply(struct lk_replica *r, const struct lh_record *record)
{
    LH_TRY(check_digest(r, record));
    if (record->kind == LH_PLAN) return apply_plan(r, record);
    if (record->kind != LH_ADMIT) return lh_ledger_apply(&r->ledger, record);
    struct lh_span plain;
    struct lk_payload_info info;
    bool opened;
    LH_TRY(lk_replica_unseal(r, record->body, &plain, &opened, &info));
    return lk_replica_apply_plain(r, record, plain);
}

// Digests of an array's ranges of 4 MiB, in order: a second for 1 GB on one thread.
struct ranges {
    const uint8_t *bytes;
    size_t total;
    uint8_t *hash;
};

static void hash_range(void *arg, size_t i)
{
    const struct ranges *r = arg;
    size_t at = i * DIGEST_RANGE, n = r->total - at < DIGEST_RANGE ? r->total - at : DIGEST_RANGE;
    struct lh_span part = lh_span(r->bytes + at, n);
    struct lh_hash h = lh_hash_of((struct lh_span){0}, &part, 1);
    memcpy(r->hash + i * LH_HASH_BYTES, h.b, LH_HASH_BYTES);
}

// Hashes of at most `most` ranges of an array from byte `at` on.
static void put_ranges(struct lk_digest *d, struct lh_span array, uint64_t most)
{
    struct ranges r = {.bytes = array.data + d->at, .total = array.len - d->at};
    uint64_t n = (r.total + DIGEST_RANGE - 1) / DIGEST_RANGE;
    if (n > most) n = most;
    r.hash = lh_buf_grow(&d->all, n * LH_HASH_BYTES);
    if (r.hash) lh_parallel(n, hash_range, &r); // after a failure the buffer reports it
    d->at += n * DIGEST_RANGE;
}

lh_err lk_digest_begin(const struct lk_replica *r, struct lk_digest *out)
{
    *out = (struct lk_digest){.r = r, .all = lh_buf(SIZE_MAX)};
    lh_ledger_write(&r->ledger, &out->all);
    lh_err err = lh_buf_err(&out->all);
    if (err) lh_buf_free(&out->all);
    return err;
}

lh_err lk_digest_step(struct lk_digest *d, uint64_t bytes_max)
{
    const struct lk_outer *o = &d->r->outer;
    size_t bytes = d->r->layout->values * sizeof(float);
    const float *const arrays[] = {d->r->theta, o->u, o->m};
    int count = o->kind == LH_OPT_SGD ? 1 : LH_COUNT(arrays);
    put_ranges(d, lh_span(arrays[d->array], arrays[d->array] ? bytes : 0),
               bytes_max / DIGEST_RANGE + 1);
    if (d->at < bytes) return lh_buf_err(&d->all);
    if (d->array == 0 && count > 1) lk_outer_write_head(o, &d->all);
    d->at = 0;
    d->done = ++d->array == count;
    return lh_buf_err(&d->all);
}

void lk_digest_end(struct lk_digest *d, struct lh_hash *out)
{
    struct lh_span whole = lh_buf_span(&d->all);
    if (d->done) *out = lh_hash_of((struct lh_span){0}, &whole, 1);
    lh_buf_free(&d->all);
}

lh_err lk_replica_digest_try(const struct lk_replica *r, struct lh_hash *out)
{
    struct lk_digest d;
    lh_err err = lk_digest_begin(r, &d);
    if (err) return err;
    while (!err && !d.done) err = lk_digest_step(&d, UINT64_MAX);
    lk_digest_end(&d, out);
    return err;
}

struct lh_hash lk_replica_digest(const struct lk_replica *r)
{
    struct lh_hash out;
    lh_err err = lk_replica_digest_try(r, &out);
    LH_ASSERT(err == LH_OK); // no memory for a ledger's bytes
    return out;
}

size_t lk_replica_bytes_max(const struct lh_shard_layout *layout)
{
    return 3 * layout->values * sizeof(float) + LH_WORKERS_MAX * 256u + LH_UNITS_MAX / 8u +
           LH_SHARDS_MAX * 8u + LH_WORKERS_MAX * 8u + 4096;
}

size_t lk_frame_bytes_max(const struct lh_shard_layout *layout)
{
    return LH_FRAME_HEADER_BYTES + LH_CLAIM_BYTES * LH_CLAIMS_MAX + LH_SEAL_TAG_BYTES +
           lk_payload_most(layout);
}

size_t lk_record_bytes_max(const struct lh_shard_layout *layout)
{
    size_t frame = lk_frame_bytes_max(layout);
    return frame > LH_SMALL_BYTES ? frame : LH_SMALL_BYTES; // a plan
}

lh_err lk_replica_save(const struct lk_replica *r, struct lh_buf *out)
{
    lh_ledger_write(&r->ledger, out);
    lh_put_u64(out, r->layout->values);
    lh_put(out, r->theta, r->layout->values * sizeof(float)); // little endian, as is the machine
    lk_outer_write(&r->outer, out);
    return lh_buf_err(out);
}

lh_err lk_replica_parts(const struct lk_replica *r, struct lh_buf *heads,
                        struct lh_span part[LK_REPLICA_PARTS])
{
    const struct lk_outer *o = &r->outer;
    lh_buf_clear(heads);
    lh_ledger_write(&r->ledger, heads);
    lh_put_u64(heads, r->layout->values);
    size_t first = heads->len;
    lk_outer_write_head(o, heads);
    LH_TRY(lh_buf_err(heads));
    part[0] = lh_span(heads->data, first);
    part[1] = lh_span(r->theta, r->layout->values * sizeof *r->theta);
    part[2] = lh_span(heads->data + first, heads->len - first);
    lk_outer_parts(o, part + 3);
    return LH_OK;
}

// The outer optimizer of the ledger's plan, with its state.
static lh_err read_outer(struct lk_outer *o, const struct lh_ledger *l, uint64_t values,
                         struct lh_cursor *c)
{
    LH_TRY(lk_outer_reserve(o, &l->plan, values));
    lk_outer_plan(o, &l->plan); // only the kind is set
    return lk_outer_read(o, c);
}

// With `theta_bytes` of parameters between the ledger and the optimizer, or 0 if they are already
// in place.
static lh_err load(struct lk_replica *r, struct lh_span bytes, size_t theta_bytes)
{
    struct lh_cursor c = lh_cursor(bytes);
    struct lh_ledger ledger = {.shard = r->ledger.shard, .shards = r->ledger.shards};
    struct lk_outer outer = {0};
    lh_err err;
    LH_TRY_TO(out, err, lh_ledger_read(&ledger, &c));
    uint64_t values = lh_get_u64(&c);
    struct lh_span theta = lh_get(&c, theta_bytes);
    if (c.failed || values != r->layout->values) {
        err = lh_fail(LH_ERR_MALFORMED, "fold state of %llu values for a shard of %llu",
                      (unsigned long long)values, (unsigned long long)r->layout->values);
        goto out;
    }
    LH_TRY_TO(out, err, read_outer(&outer, &ledger, values, &c));
    lh_parallel_copy(r->theta, theta.data, theta.len);
    lh_ledger_free(&r->ledger);
    r->ledger = ledger;
    lk_outer_free(&r->outer);
    r->outer = outer;
    return LH_OK;
out:
    lk_outer_free(&outer);
    lh_ledger_free(&ledger);
    return err;
}

lh_err lk_replica_load(struct lk_replica *r, struct lh_span bytes)
{
    return load(r, bytes, r->layout->values * sizeof(float));
}

lh_err lk_replica_load_head(struct lk_replica *r, struct lh_span head)
{
    return load(r, head, 0);
}
