// Checkpoints of a shard's fold state. Layout: checkpoint.h.
#include "kernels/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t MAGIC = 0x4b43484c; // "LHCK"
enum { RANGE_BYTES = 16 << 20, RANGE_HEAD = 8 + 4 + 8 + LH_NONCE, HEADER = 164 };

lh_err lk_checkpoint_take(const struct lk_checkpoint_conf *conf, const struct lk_replica *r,
                          struct lk_checkpoint *out)
{
    *out = (struct lk_checkpoint){.conf = *conf,
                                  .manifest = r->manifest,
                                  .chain = r->ledger.chain,
                                  .shard = r->ledger.shard,
                                  .shards = r->ledger.shards,
                                  .epoch = r->ledger.epoch,
                                  .version = r->ledger.version,
                                  .state = lh_buf(lk_replica_bytes_max(r->layout))};
    memcpy(out->job, r->job, LH_JOB);
    out->digest = lk_replica_digest(r);
    lh_err err = lk_replica_save(r, &out->state);
    if (err) lk_checkpoint_free(out);
    return err;
}

void lk_checkpoint_free(struct lk_checkpoint *c)
{
    lh_buf_free(&c->state);
}

static uint32_t range_count(uint64_t bytes)
{
    return (uint32_t)((bytes + RANGE_BYTES - 1) / RANGE_BYTES);
}

static void write_header(const struct lk_checkpoint *c, struct lh_buf *b)
{
    lh_put_u32(b, MAGIC);
    lh_put_u16(b, 1);
    lh_put_u8(b, c->conf.cipher);
    lh_put_u8(b, 0);
    lh_put_u32(b, c->conf.key_id);
    lh_put_u32(b, c->shard);
    lh_put_u32(b, c->shards);
    lh_put_u32(b, range_count(c->state.len));
    lh_put(b, c->job, LH_JOB);
    lh_put(b, c->manifest.b, LH_HASH_BYTES);
    lh_put_u64(b, c->epoch);
    lh_put_u64(b, c->version);
    lh_put(b, c->chain.b, LH_HASH_BYTES);
    lh_put(b, c->digest.b, LH_HASH_BYTES);
    lh_put_u64(b, c->state.len);
    if (!b->err) lh_put_u32(b, lh_crc32c(0, b->data, b->len));
    LH_ASSERT(b->err || b->len == HEADER);
}

static struct lh_seal_context context_of(uint32_t shard, uint64_t version)
{
    return (struct lh_seal_context){.worker = 0,
                                    .incarnation = version,
                                    .incarnation_random = 0,
                                    .shard = shard,
                                    .purpose = LH_SEAL_AT_REST};
}

// One range after the other, so that no second copy of the state is needed.
static lh_err write_ranges(const struct lk_checkpoint *c, struct lh_file *file, struct lh_buf *b)
{
    const struct lh_files_ops *files = c->conf.env->ops->files;
    uint8_t header[HEADER];
    struct lh_seal_context context = context_of(c->shard, c->version);
    uint64_t to = 0;
    write_header(c, b);
    LH_TRY(lh_buf_err(b));
    memcpy(header, b->data, HEADER);
    for (size_t at = 0; at < c->state.len; at += RANGE_BYTES) {
        size_t n = c->state.len - at < RANGE_BYTES ? c->state.len - at : RANGE_BYTES;
        uint8_t nonce[LH_NONCE];
        lh_random(c->conf.env, nonce, sizeof nonce);
        lh_put_u64(b, at);
        lh_put_u32(b, (uint32_t)n);
        lh_put_u64(b, c->version);
        lh_put(b, nonce, sizeof nonce);
        uint8_t *out = lh_buf_grow(b, n + LH_SEAL_TAG);
        if (!out) return lh_buf_err(b);
        LH_TRY(lh_seal(c->conf.keys, c->conf.cipher, c->conf.key_id, &context,
                       lh_span(header, HEADER), nonce, lh_span(c->state.data + at, n), out));
        LH_TRY(files->write(file, to, lh_buf_span(b)));
        to += b->len;
        lh_buf_clear(b);
    }
    return LH_OK;
}

static lh_err write_file(void *arg, struct lh_file *file)
{
    struct lh_buf b = lh_buf(HEADER + RANGE_HEAD + RANGE_BYTES + LH_SEAL_TAG);
    lh_err err = write_ranges(arg, file, &b);
    lh_buf_free(&b);
    return err;
}

lh_err lk_checkpoint_write(struct lk_checkpoint *c)
{
    char path[LH_PATH_SIZE];
    LH_TRY(lh_path(path, sizeof path, c->conf.dir, "%04x-%016llx.ckpt", c->shard,
                   (unsigned long long)c->version));
    return lh_file_replace_by(c->conf.env, path, write_file, c);
}

// ---------------------------------------------------------------- reading

struct found {
    uint32_t shard;
    uint64_t *version;
    size_t count;
    lh_err err;
};

bool lk_checkpoint_name_parse(const char *file, struct lk_checkpoint_name *out)
{
    unsigned shard;
    unsigned long long version;
    char tail[8], again[40];
    if (sscanf(file, "%4x-%16llx.%7s", &shard, &version, tail) != 3) return false;
    *out = (struct lk_checkpoint_name){shard, version};
    snprintf(again, sizeof again, "%04x-%016llx.ckpt", shard, version);
    return !strcmp(file, again);
}

static void note(void *arg, const char *file)
{
    struct found *f = arg;
    struct lk_checkpoint_name name;
    if (!lk_checkpoint_name_parse(file, &name) || name.shard != f->shard) return;
    uint64_t *grown = realloc(f->version, (f->count + 1) * sizeof *grown);
    if (!grown) {
        f->err = LH_ERR_NO_MEMORY;
        return;
    }
    f->version = grown;
    f->version[f->count++] = name.version; // names, and so versions, come ascending
}

lh_err lk_checkpoint_versions(const struct lk_checkpoint_conf *conf, uint32_t shard,
                              uint64_t **version, size_t *count)
{
    struct found f = {.shard = shard};
    lh_err err = conf->env->ops->files->list(conf->env, conf->dir, note, &f);
    if (!err) err = f.err;
    if (err) free(f.version);
    *version = err ? NULL : f.version;
    *count = err ? 0 : f.count;
    return err;
}

static lh_err read_header(struct lh_cursor *c, const char *path, struct lk_checkpoint_info *h)
{
    const uint8_t *start = c->at;
    uint32_t magic = lh_get_u32(c);
    uint16_t version = lh_get_u16(c);
    h->cipher = lh_get_u8(c);
    (void)lh_get_u8(c);
    h->key_id = lh_get_u32(c);
    h->shard = lh_get_u32(c);
    h->shards = lh_get_u32(c);
    h->ranges = lh_get_u32(c);
    lh_get_into(c, h->job, LH_JOB);
    lh_get_into(c, h->manifest.b, LH_HASH_BYTES);
    h->epoch = lh_get_u64(c);
    h->version = lh_get_u64(c);
    lh_get_into(c, h->chain.b, LH_HASH_BYTES);
    lh_get_into(c, h->digest.b, LH_HASH_BYTES);
    h->bytes = lh_get_u64(c);
    uint32_t crc = lh_get_u32(c);
    if (c->failed || magic != MAGIC || crc != lh_crc32c(0, start, HEADER - 4))
        return lh_fail(LH_ERR_CORRUPT, "%s: not a whole checkpoint", path);
    if (version != 1) return lh_fail(LH_ERR_VERSION, "%s: checkpoint of version %u", path, version);
    if (h->ranges != range_count(h->bytes))
        return lh_fail(LH_ERR_CORRUPT, "%s: checkpoint of another shape", path);
    return LH_OK;
}

lh_err lk_checkpoint_peek(struct lh_env *env, const char *path, struct lk_checkpoint_info *out)
{
    uint8_t bytes[HEADER];
    struct lh_file *file;
    size_t got = 0;
    LH_TRY(env->ops->files->open(env, path, LH_OPEN_READ, &file));
    lh_err err = env->ops->files->read(file, 0, bytes, sizeof bytes, &got);
    env->ops->files->close(file);
    if (err) return err;
    struct lh_cursor c = lh_cursor(lh_span(bytes, got));
    return read_header(&c, path, out);
}

// Whether the file is of this run, model and shard.
static lh_err check_header(const struct lk_checkpoint_info *h, const struct lk_replica *r,
                           const char *path)
{
    if (memcmp(h->job, r->job, LH_JOB) != 0)
        return lh_fail(LH_ERR_CONFIG, "%s: checkpoint of another run", path);
    if (!lh_hash_equal(&h->manifest, &r->manifest))
        return lh_fail(LH_ERR_MANIFEST, "%s: checkpoint of another model", path);
    if (h->shard != r->ledger.shard || h->shards != r->ledger.shards ||
        h->bytes > lk_replica_bytes_max(r->layout))
        return lh_fail(LH_ERR_CORRUPT, "%s: checkpoint of another shape", path);
    return LH_OK;
}

// A file that is read from its beginning to its end.
struct reading {
    const struct lk_checkpoint_conf *conf;
    const char *path;
    struct lh_file *file;
    uint64_t at;
};

static lh_err read_next(struct reading *r, size_t n, struct lh_buf *out)
{
    size_t got = 0;
    lh_buf_clear(out);
    uint8_t *to = lh_buf_grow(out, n);
    if (!to) return lh_buf_err(out);
    LH_TRY(r->conf->env->ops->files->read(r->file, r->at, to, n, &got));
    r->at += got;
    return got == n ? LH_OK
                    : lh_fail(LH_ERR_CORRUPT, "%s: cut short at byte %llu", r->path,
                              (unsigned long long)r->at);
}

static lh_err open_range(struct reading *r, struct lh_span header,
                         const struct lk_checkpoint_info *h, uint32_t i, struct lh_buf *b,
                         struct lh_buf *state)
{
    struct lh_seal_context context = context_of(h->shard, h->version);
    uint8_t nonce[LH_NONCE];
    LH_TRY(read_next(r, RANGE_HEAD, b));
    struct lh_cursor c = lh_cursor(lh_buf_span(b));
    uint64_t at = lh_get_u64(&c);
    uint32_t n = lh_get_u32(&c);
    uint64_t version = lh_get_u64(&c);
    lh_get_into(&c, nonce, sizeof nonce);
    if (at != state->len || n > h->bytes - at || n > RANGE_BYTES || version != h->version)
        return lh_fail(LH_ERR_CORRUPT, "%s: range %u is damaged", r->path, i);
    LH_TRY(read_next(r, (size_t)n + LH_SEAL_TAG, b));
    uint8_t *out = lh_buf_grow(state, n);
    if (!out) return lh_buf_err(state);
    return lh_open(r->conf->keys, h->cipher, h->key_id, &context, header, nonce, lh_buf_span(b),
                   out);
}

static lh_err read_state(struct reading *r, const struct lk_replica *replica,
                         struct lk_checkpoint_info *h, struct lh_buf *b, struct lh_buf *state)
{
    uint8_t header[HEADER];
    uint64_t size;
    LH_TRY(r->conf->env->ops->files->size(r->file, &size));
    LH_TRY(read_next(r, HEADER, b));
    memcpy(header, b->data, HEADER);
    struct lh_cursor c = lh_cursor(lh_span(header, HEADER));
    LH_TRY(read_header(&c, r->path, h));
    LH_TRY(check_header(h, replica, r->path));
    LH_TRY(lh_buf_reserve(state, h->bytes));
    for (uint32_t i = 0; i < h->ranges; i++)
        LH_TRY(open_range(r, lh_span(header, HEADER), h, i, b, state));
    if (state->len != h->bytes || r->at != size)
        return lh_fail(LH_ERR_CORRUPT, "%s: checkpoint of the wrong length", r->path);
    return LH_OK;
}

lh_err lk_checkpoint_read(const struct lk_checkpoint_conf *conf, const char *path,
                          struct lk_replica *r)
{
    const struct lh_files_ops *files = conf->env->ops->files;
    struct lk_checkpoint_info h;
    struct reading reading = {.conf = conf, .path = path};
    LH_TRY(files->open(conf->env, path, LH_OPEN_READ, &reading.file));
    struct lh_buf b = lh_buf(RANGE_BYTES + LH_SEAL_TAG);
    struct lh_buf state = lh_buf(lk_replica_bytes_max(r->layout));
    lh_err err = read_state(&reading, r, &h, &b, &state);
    files->close(reading.file);
    lh_buf_free(&b);
    if (!err) err = lk_replica_load(r, lh_buf_span(&state));
    lh_buf_free(&state);
    if (err) return err;
    struct lh_hash digest = lk_replica_digest(r);
    if (!lh_hash_equal(&digest, &h.digest) || !lh_hash_equal(&r->ledger.chain, &h.chain))
        return lh_fail(LH_ERR_CORRUPT, "%s: its state has another digest than it says", path);
    return LH_OK;
}

lh_err lk_checkpoint_load(const struct lk_checkpoint_conf *conf, struct lk_replica *r,
                          void (*skipped)(void *arg, const char *file, lh_err err), void *arg)
{
    uint64_t *version;
    size_t count;
    lh_err err;
    LH_TRY(lk_checkpoint_versions(conf, r->ledger.shard, &version, &count));
    while (count) {
        char path[LH_PATH_SIZE];
        LH_TRY_TO(out, err,
                  lh_path(path, sizeof path, conf->dir, "%04x-%016llx.ckpt", r->ledger.shard,
                          (unsigned long long)version[--count]));
        err = lk_checkpoint_read(conf, path, r);
        if (!err || err == LH_ERR_KILLED || err == LH_ERR_CONFIG || err == LH_ERR_MANIFEST ||
            err == LH_ERR_KEY_MISSING)
            goto out; // not damage: an older file would say the same
        if (skipped) skipped(arg, path, err);
    }
    err = lh_fail(LH_ERR_NOT_FOUND, "no checkpoint of shard %u in %s", r->ledger.shard, conf->dir);
out:
    free(version);
    return err;
}

lh_err lk_checkpoint_prune(const struct lk_checkpoint_conf *conf, uint32_t shard, unsigned keep,
                           uint64_t *oldest)
{
    uint64_t *version;
    size_t count;
    lh_err err = LH_OK;
    LH_TRY(lk_checkpoint_versions(conf, shard, &version, &count));
    size_t first = count > keep ? count - keep : 0;
    for (size_t i = 0; i < first && !err; i++) {
        char path[LH_PATH_SIZE];
        err = lh_path(path, sizeof path, conf->dir, "%04x-%016llx.ckpt", shard,
                      (unsigned long long)version[i]);
        if (!err) err = conf->env->ops->files->remove(conf->env, path);
    }
    *oldest = count > first ? version[first] : 0;
    free(version);
    return err;
}
