// Checkpoints of a shard's fold state: finding and reading. Layout: checkpoint.h.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/parallel.h"
#include "kernels/storage/checkpoint_format.h"
#include "kernels/storage/checkpoint_read.h"

// Ranges read one after the other, then checked and unsealed in parallel.
enum { AT_ONCE = 8 };

// ---------------------------------------------------------------- names

static const char *suffix(bool weights)
{
    return weights ? "weights" : "ckpt";
}

static lh_err path_of(const char *dir, const struct lk_checkpoint_name *name, const char *behind,
                      char out[LH_PATH_BYTES])
{
    return lh_path(out, LH_PATH_BYTES, dir, "%04x-%016llx.%s%s", name->shard,
                   (unsigned long long)name->version, suffix(name->weights), behind);
}

lh_err lk_checkpoint_path(const char *dir, const struct lk_checkpoint_name *name,
                          char out[LH_PATH_BYTES])
{
    return path_of(dir, name, "", out);
}

bool lk_checkpoint_name_parse(const char *file, struct lk_checkpoint_name *out)
{
    unsigned shard;
    unsigned long long version;
    char tail[9], again[40];
    if (sscanf(file, "%4x-%16llx.%8s", &shard, &version, tail) != 3) return false;
    *out = (struct lk_checkpoint_name){shard, version, !strcmp(tail, suffix(true))};
    snprintf(again, sizeof again, "%04x-%016llx.%s", shard, version, suffix(out->weights));
    return !strcmp(file, again);
}

// Suffix of files that lh_file_replace_by() has not renamed yet.
static const char UNFINISHED[] = ".tmp";

struct found {
    uint32_t shard;
    bool weights, unfinished;
    uint64_t *version;
    size_t count;
    lh_err err;
};

static void note(void *arg, const char *file)
{
    struct found *f = arg;
    struct lk_checkpoint_name name;
    char whole[64];
    size_t cut = f->unfinished ? sizeof UNFINISHED - 1 : 0, n = strlen(file);
    if (n < cut || n - cut >= sizeof whole || (cut && strcmp(file + n - cut, UNFINISHED) != 0))
        return;
    memcpy(whole, file, n - cut);
    whole[n - cut] = 0;
    if (!lk_checkpoint_name_parse(whole, &name) || name.shard != f->shard ||
        name.weights != f->weights)
        return;
    uint64_t *grown = realloc(f->version, (f->count + 1) * sizeof *grown);
    if (!grown) {
        f->err = LH_ERR_NO_MEMORY;
        return;
    }
    f->version = grown;
    f->version[f->count++] = name.version; // names, and so versions, are in ascending order
}

static lh_err find(const struct lk_checkpoint_conf *conf, struct found *f, uint64_t **version,
                   size_t *count)
{
    lh_err err = conf->env->ops->files->list(conf->env, conf->dir, note, f);
    if (!err) err = f->err;
    if (err) free(f->version);
    *version = err ? NULL : f->version;
    *count = err ? 0 : f->count;
    return err;
}

lh_err lk_checkpoint_versions(const struct lk_checkpoint_conf *conf, uint32_t shard, bool weights,
                              uint64_t **version, size_t *count)
{
    struct found f = {.shard = shard, .weights = weights};
    return find(conf, &f, version, count);
}

// ---------------------------------------------------------------- header

static lh_err read_header(struct lh_cursor *c, const char *path, struct lk_checkpoint_info *h)
{
    const uint8_t *start = c->at;
    memset(h, 0, sizeof *h);
    uint32_t magic = lh_get_u32(c);
    h->format = lh_get_u16(c);
    h->cipher = lh_get_u8(c);
    uint8_t flags = lh_get_u8(c);
    h->key_id = lh_get_u32(c);
    h->shard = lh_get_u32(c);
    h->shards = lh_get_u32(c);
    h->ranges = lh_get_u32(c);
    lh_get_into(c, h->job, LH_JOB_BYTES);
    lh_get_into(c, h->manifest.b, LH_HASH_BYTES);
    h->epoch = lh_get_u64(c);
    h->version = lh_get_u64(c);
    lh_get_into(c, h->chain.b, LH_HASH_BYTES);
    lh_get_into(c, h->digest.b, LH_HASH_BYTES);
    h->bytes = lh_get_u64(c);
    uint32_t crc = lh_get_u32(c);
    LH_ASSERT(!c->failed); // all of it was read
    if (magic != LK_CKPT_MAGIC || crc != lh_crc32c(0, start, LK_CKPT_HEADER_BYTES - 4))
        return lh_fail(LH_ERR_CORRUPT, "%s: not a whole checkpoint", path);
    if (h->format != LK_CKPT_VERSION || flags & ~(LK_CKPT_SIGNED | LK_CKPT_WEIGHTS))
        return lh_fail(LH_ERR_VERSION,
                       "%s: checkpoint of version %u with flags %u, this build "
                       "reads version %u",
                       path, h->format, flags, LK_CKPT_VERSION);
    h->is_signed = flags & LK_CKPT_SIGNED;
    h->weights = flags & LK_CKPT_WEIGHTS;
    if (!h->bytes || h->ranges != lk_ckpt_ranges(h->bytes))
        return lh_fail(LH_ERR_CORRUPT, "%s: checkpoint of another shape", path);
    return LH_OK;
}

// True: the file belongs to this run, model and shard.
static lh_err check_header(const struct lk_checkpoint_info *h, const struct lk_replica *r,
                           const char *path)
{
    if (memcmp(h->job, r->job, LH_JOB_BYTES) != 0)
        return lh_fail(LH_ERR_CONFIG, "%s: checkpoint of another run", path);
    if (!lh_hash_equal(&h->manifest, &r->manifest))
        return lh_fail(LH_ERR_MANIFEST, "%s: checkpoint of another model", path);
    if (h->shard != r->ledger.shard || h->shards != r->ledger.shards ||
        h->bytes > lk_replica_bytes_max(r->layout))
        return lh_fail(LH_ERR_CORRUPT, "%s: checkpoint of another shape", path);
    return LH_OK;
}

// ---------------------------------------------------------------- a file

// A file read from beginning to end.
struct reading {
    const struct lk_checkpoint_conf *conf;
    const char *path;
    struct lh_file *file;
    uint64_t at, size;
    struct lk_checkpoint_info info;
    uint8_t header[LK_CKPT_HEADER_BYTES];
    struct lh_buf b;      // one range
    struct lh_buf hashes; // hashes of all ranges
};

static lh_err read_at(struct reading *r, uint64_t at, size_t n, struct lh_buf *out)
{
    size_t got = 0;
    lh_buf_clear(out);
    uint8_t *to = lh_buf_grow(out, n);
    if (!to) return lh_buf_err(out);
    LH_TRY(r->conf->env->ops->files->read(r->file, at, to, n, &got));
    return got == n ? LH_OK
                    : lh_fail(LH_ERR_CORRUPT, "%s: cut short at byte %llu", r->path,
                              (unsigned long long)(at + got));
}

static lh_err read_next(struct reading *r, size_t n)
{
    LH_TRY(read_at(r, r->at, n, &r->b));
    r->at += n;
    return LH_OK;
}

// The header gives its place: behind the sealed ranges, up to the file's end.
static lh_err read_manifest(struct reading *r, struct lh_public *key,
                            uint8_t signature[LH_SIGN_BYTES])
{
    const struct lk_checkpoint_info *h = &r->info;
    size_t n = lk_ckpt_manifest_bytes(h->ranges);
    uint64_t before = LK_CKPT_HEADER_BYTES + h->bytes +
                      (uint64_t)h->ranges * (LK_CKPT_RANGE_HEAD_BYTES + LH_SEAL_TAG_BYTES);
    if (h->bytes > r->size || r->size != before + n)
        return lh_fail(LH_ERR_CORRUPT, "%s: checkpoint of the wrong length", r->path);
    LH_TRY(read_at(r, before, n, &r->hashes));
    struct lh_cursor c = lh_cursor(lh_buf_span(&r->hashes));
    uint32_t magic = lh_get_u32(&c), ranges = lh_get_u32(&c);
    struct lh_span hashes = lh_get(&c, (size_t)h->ranges * LH_HASH_BYTES);
    lh_get_into(&c, key->b, sizeof key->b);
    lh_get_into(&c, signature, LH_SIGN_BYTES);
    uint32_t crc = lh_get_u32(&c);
    if (magic != LK_CKPT_MANIFEST_MAGIC || ranges != h->ranges ||
        crc != lh_crc32c(0, r->hashes.data, n - 4))
        return lh_fail(LH_ERR_CORRUPT, "%s: its manifest is damaged (byte %llu)", r->path,
                       (unsigned long long)before);
    memmove(r->hashes.data, hashes.data, hashes.len);
    r->hashes.len = hashes.len;
    return LH_OK;
}

static lh_err check_signature(const struct reading *r, const struct lh_public *key,
                              const uint8_t signature[LH_SIGN_BYTES])
{
    const struct lh_trusted *trusted = r->conf->trusted;
    struct lh_span parts[] = {lh_span_str(LK_CKPT_LABEL), lh_span(r->header, LK_CKPT_HEADER_BYTES),
                              lh_buf_span(&r->hashes)};
    char hex[2 * LH_SIGN_PUBLIC_BYTES + 1];
    if (!r->info.is_signed)
        return trusted ? lh_fail(LH_ERR_UNAUTHENTICATED, "%s: is not signed", r->path) : LH_OK;
    if (!lh_sign_holds(key, parts, LH_COUNT(parts), signature))
        return lh_fail(LH_ERR_CORRUPT, "%s: its signature is invalid", r->path);
    lh_public_hex(key, hex);
    if (trusted && !lh_trusts(trusted, key))
        return lh_fail(LH_ERR_UNAUTHENTICATED, "%s: signed by %s, which is not trusted", r->path,
                       hex);
    return LH_OK;
}

static lh_err open_file(struct reading *r, const struct lk_checkpoint_conf *conf, const char *path)
{
    const struct lh_files_ops *files = conf->env->ops->files;
    struct lh_public key = {{0}};
    uint8_t signature[LH_SIGN_BYTES];
    *r = (struct reading){.conf = conf, .path = path};
    r->b = lh_buf(LK_CKPT_RANGE_HEAD_BYTES + LK_CKPT_RANGE_BYTES + LH_SEAL_TAG_BYTES);
    LH_TRY(files->open(conf->env, path, LH_OPEN_READ, &r->file));
    LH_TRY(files->size(r->file, &r->size));
    LH_TRY(read_next(r, LK_CKPT_HEADER_BYTES));
    memcpy(r->header, r->b.data, LK_CKPT_HEADER_BYTES);
    struct lh_cursor c = lh_cursor(lh_span(r->header, LK_CKPT_HEADER_BYTES));
    LH_TRY(read_header(&c, path, &r->info));
    r->hashes = lh_buf(lk_ckpt_manifest_bytes(r->info.ranges));
    LH_TRY(read_manifest(r, &key, signature));
    r->info.signer = key;
    return check_signature(r, &key, signature);
}

static void close_file(struct reading *r)
{
    if (r->file) r->conf->env->ops->files->close(r->file);
    lh_buf_free(&r->b);
    lh_buf_free(&r->hashes);
}

// A range that was read: its bytes of the state, its place in the file, and its destination.
struct range {
    const struct reading *of;
    uint32_t i, n;
    uint64_t at, start;
    struct lh_buf b;
    uint8_t *out;
    lh_err err;
};

// Reads range i, which begins at byte `at` of the state.
static lh_err read_range(struct reading *r, uint32_t i, uint64_t at, struct range *out)
{
    const struct lk_checkpoint_info *h = &r->info;
    uint64_t left = h->bytes - at;
    out->of = r;
    out->i = i;
    out->n = (uint32_t)(left < LK_CKPT_RANGE_BYTES ? left : LK_CKPT_RANGE_BYTES);
    out->at = at;
    out->start = r->at;
    out->b.max = LK_CKPT_RANGE_HEAD_BYTES + LK_CKPT_RANGE_BYTES + LH_SEAL_TAG_BYTES;
    r->at += LK_CKPT_RANGE_HEAD_BYTES + out->n + LH_SEAL_TAG_BYTES;
    return read_at(r, out->start, (size_t)(r->at - out->start), &out->b);
}

static lh_err damaged(const struct range *g)
{
    return lh_fail(LH_ERR_CORRUPT, "%s: range %u is damaged (bytes %llu to %llu)", g->of->path,
                   g->i, (unsigned long long)g->start, (unsigned long long)(g->start + g->b.len));
}

static lh_err check_head(const struct range *g)
{
    struct lh_cursor c = lh_cursor(lh_buf_span(&g->b));
    uint64_t first = lh_get_u64(&c);
    uint32_t n = lh_get_u32(&c);
    uint64_t version = lh_get_u64(&c);
    return first == g->at && n == g->n && version == g->of->info.version ? LH_OK : damaged(g);
}

static lh_err check_hash(const struct range *g)
{
    const struct reading *r = g->of;
    struct lh_span whole = lh_buf_span(&g->b);
    struct lh_hash hash = lh_hash_of((struct lh_span){0}, &whole, 1);
    bool listed = !memcmp(r->hashes.data + (size_t)g->i * LH_HASH_BYTES, hash.b, LH_HASH_BYTES);
    return listed ? LH_OK : damaged(g);
}

static lh_err open_range(const struct range *g)
{
    const struct lk_checkpoint_info *h = &g->of->info;
    struct lh_seal_context context = lk_ckpt_context(h->shard, h->version);
    const uint8_t *nonce = g->b.data + LK_CKPT_RANGE_HEAD_BYTES - LH_SEAL_NONCE_BYTES;
    struct lh_span sealed =
        lh_span(nonce + LH_SEAL_NONCE_BYTES, g->b.len - LK_CKPT_RANGE_HEAD_BYTES);
    LH_TRY(check_head(g));
    return lh_unseal(g->of->conf->keys, h->cipher, h->key_id, &context,
                     lh_span(g->of->header, LK_CKPT_HEADER_BYTES), nonce, sealed, g->out);
}

// The seals and the digest of the whole state reveal all damage. A range's hash, a second for 1 GB,
// is checked only if there is no key, and to explain why a seal did not open.
static void open_part(void *arg, size_t i)
{
    struct range *g = (struct range *)arg + i;
    g->err = open_range(g);
}

// The places of a state's bytes: the first `before`, and the rest of their last range, go to
// `head`; all others are parameters and go to their final place. First-touched memory dominates a
// start's time, so the parameters have no second copy unless an outer optimizer's state follows.
struct places {
    uint64_t before;
    struct lh_buf head;
    uint8_t *theta;
};

static void choose_places(struct places *p, const struct lk_checkpoint_info *h,
                          const struct lk_replica *r)
{
    uint64_t theta = r->layout->values * sizeof(float);
    // an optimizer doubles it; fewer bytes than theta wrap around
    bool last = !h->weights && h->bytes - theta - 1 < theta;
    p->before = last ? h->bytes - theta : h->bytes;
    p->head = lh_buf(lk_replica_bytes_max(r->layout) + LK_CKPT_RANGE_BYTES);
    p->theta = (uint8_t *)r->theta;
}

// Reads ranges [from, from + count). An error's text belongs to its thread, so a failed range is
// unsealed again here to get it.
static lh_err read_ranges(struct reading *r, uint32_t from, uint32_t count, struct range *range,
                          struct places *to)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t at = (uint64_t)(from + i) * LK_CKPT_RANGE_BYTES;
        struct range *g = &range[i];
        LH_TRY(read_range(r, from + i, at, g));
        g->out = at < to->before ? lh_buf_grow(&to->head, g->n) : to->theta + (at - to->before);
        LH_TRY(lh_buf_err(&to->head));
    }
    lh_parallel(count, open_part, range);
    for (uint32_t i = 0; i < count; i++) {
        if (!range[i].err) continue;
        LH_TRY(check_hash(&range[i]));
        return open_range(&range[i]);
    }
    return LH_OK;
}

static lh_err read_state(struct reading *r, struct places *to)
{
    const struct lk_checkpoint_info *h = &r->info;
    struct range range[AT_ONCE] = {0};
    lh_err err = lh_buf_reserve(&to->head, to->before);
    for (uint32_t i = 0; !err && i < h->ranges; i += AT_ONCE)
        err = read_ranges(r, i, h->ranges - i < AT_ONCE ? h->ranges - i : AT_ONCE, range, to);
    for (size_t i = 0; i < AT_ONCE; i++) lh_buf_free(&range[i].b);
    if (err) return err;
    memcpy(to->theta, to->head.data + to->before, to->head.len - to->before);
    return LH_OK;
}

static lh_err load_weights(const struct reading *r, struct lh_span state,
                           struct lk_replica *replica)
{
    struct lh_cursor c = lh_cursor(state);
    uint64_t values = lh_get_u64(&c);
    struct lh_span theta = lh_get(&c, replica->layout->values * sizeof(float));
    struct lh_hash digest = lh_hash_of((struct lh_span){0}, &state, 1);
    if (c.failed || lh_left(&c) || values != replica->layout->values)
        return lh_fail(LH_ERR_CORRUPT, "%s: weights of another shape", r->path);
    if (!lh_hash_equal(&digest, &r->info.digest))
        return lh_fail(LH_ERR_CORRUPT, "%s: its weights have another digest than it says", r->path);
    memcpy(replica->theta, theta.data, theta.len);
    return LH_OK;
}

static lh_err load_state(const struct reading *r, const struct places *from,
                         struct lk_replica *replica)
{
    struct lh_span head = lh_span(from->head.data, from->before);
    if (r->info.weights) return load_weights(r, head, replica);
    if (from->before < r->info.bytes)
        LH_TRY(lk_replica_load_head(replica, head));
    else
        LH_TRY(lk_replica_load(replica, head));
    struct lh_hash digest;
    LH_TRY(lk_replica_digest_try(replica, &digest));
    if (!lh_hash_equal(&digest, &r->info.digest) ||
        !lh_hash_equal(&replica->ledger.chain, &r->info.chain))
        return lh_fail(LH_ERR_CORRUPT, "%s: its state has another digest than it says", r->path);
    return LH_OK;
}

lh_err lk_checkpoint_read(const struct lk_checkpoint_conf *conf, const char *path,
                          struct lk_replica *r)
{
    struct reading reading;
    struct places places = {0};
    lh_err err = open_file(&reading, conf, path);
    if (!err) err = check_header(&reading.info, r, path);
    if (!err) choose_places(&places, &reading.info, r);
    if (!err) err = read_state(&reading, &places);
    close_file(&reading);
    if (!err) err = load_state(&reading, &places, r);
    lh_buf_free(&places.head);
    return err;
}

lh_err lk_checkpoint_check(const struct lk_checkpoint_conf *conf, const char *path,
                           struct lk_checkpoint_info *out)
{
    struct reading r;
    struct range range = {0};
    uint64_t at = 0;
    lh_err err = open_file(&r, conf, path);
    for (uint32_t i = 0; !err && i < r.info.ranges; i++) {
        err = read_range(&r, i, at, &range);
        if (!err) err = check_head(&range);
        if (!err) err = check_hash(&range);
        at += range.n;
    }
    lh_buf_free(&range.b);
    *out = r.info;
    close_file(&r);
    return err;
}

lh_err lk_checkpoint_peek(struct lh_env *env, const char *path, struct lk_checkpoint_info *out)
{
    const struct lk_checkpoint_conf conf = {.env = env};
    struct reading r;
    lh_err err = open_file(&r, &conf, path);
    *out = r.info;
    close_file(&r);
    return err;
}

// ---------------------------------------------------------------- a folder

static lh_err load_newest(const struct lk_checkpoint_conf *conf, struct lk_replica *r,
                          const uint64_t *version, size_t count,
                          void (*skipped)(void *arg, const char *file, lh_err err), void *arg)
{
    while (count) {
        struct lk_checkpoint_name name = {r->ledger.shard, version[--count], false};
        char path[LH_PATH_BYTES];
        LH_TRY(lk_checkpoint_path(conf->dir, &name, path));
        lh_err err = lk_checkpoint_read(conf, path, r);
        if (!err || err == LH_ERR_KILLED || err == LH_ERR_CONFIG || err == LH_ERR_MANIFEST ||
            err == LH_ERR_KEY_MISSING)
            return err; // not damage: an older file would fail too
        if (skipped) skipped(arg, path, err);
    }
    return lh_fail(LH_ERR_NOT_FOUND, "no checkpoint of shard %u in %s", r->ledger.shard, conf->dir);
}

lh_err lk_checkpoint_load(const struct lk_checkpoint_conf *conf, struct lk_replica *r,
                          void (*skipped)(void *arg, const char *file, lh_err err), void *arg)
{
    uint64_t *version;
    size_t count;
    LH_TRY(lk_checkpoint_versions(conf, r->ledger.shard, false, &version, &count));
    lh_err err = load_newest(conf, r, version, count, skipped, arg);
    free(version);
    return err;
}

lh_err lk_checkpoint_list(const struct lk_checkpoint_conf *conf, const struct lk_replica *r,
                          lk_checkpoint_fn each, void *arg)
{
    uint64_t *version;
    size_t count;
    lh_err err = LH_OK;
    LH_TRY(lk_checkpoint_versions(conf, r->ledger.shard, false, &version, &count));
    for (size_t i = 0; i < count && err != LH_ERR_KILLED; i++) {
        char path[LH_PATH_BYTES];
        struct lk_checkpoint_name name = {r->ledger.shard, version[i], false};
        struct lk_checkpoint_info h;
        err = lk_checkpoint_path(conf->dir, &name, path);
        if (!err) err = lk_checkpoint_peek(conf->env, path, &h);
        if (!err) err = check_header(&h, r, path);
        if (!err) each(arg, path, &h);
    }
    free(version);
    return err == LH_ERR_KILLED ? err : LH_OK; // unreadable files are skipped
}

// Removes the files of the first `n` of these versions.
static lh_err remove_files(const struct lk_checkpoint_conf *conf, uint32_t shard, bool weights,
                           const uint64_t *version, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char path[LH_PATH_BYTES];
        struct lk_checkpoint_name name = {shard, version[i], weights};
        LH_TRY(lk_checkpoint_path(conf->dir, &name, path));
        LH_TRY(conf->env->ops->files->remove(conf->env, path));
    }
    return LH_OK;
}

static lh_err drop_above(const struct lk_checkpoint_conf *conf, uint32_t shard, bool weights,
                         uint64_t above)
{
    uint64_t *version;
    size_t count, from = 0;
    LH_TRY(lk_checkpoint_versions(conf, shard, weights, &version, &count));
    while (from < count && version[from] <= above) from++;
    lh_err err = remove_files(conf, shard, weights, version + from, count - from);
    if (!err && from < count) err = conf->env->ops->files->sync_dir(conf->env, conf->dir);
    free(version);
    return err;
}

lh_err lk_checkpoint_drop_above(const struct lk_checkpoint_conf *conf, uint32_t shard,
                                uint64_t above)
{
    LH_TRY(drop_above(conf, shard, true, above));
    return drop_above(conf, shard, false, above);
}

lh_err lk_checkpoint_drop_below(const struct lk_checkpoint_conf *conf, uint32_t shard,
                                uint64_t below, unsigned *left)
{
    uint64_t *version;
    size_t count, to = 0;
    LH_TRY(lk_checkpoint_versions(conf, shard, false, &version, &count));
    while (to + 1 < count && version[to + 1] <= below) to++;
    lh_err err = remove_files(conf, shard, false, version, to);
    *left = (unsigned)(count - to);
    free(version);
    return err;
}

static lh_err clean(const struct lk_checkpoint_conf *conf, uint32_t shard, bool weights)
{
    struct found f = {.shard = shard, .weights = weights, .unfinished = true};
    uint64_t *version;
    size_t count;
    lh_err err = LH_OK;
    LH_TRY(find(conf, &f, &version, &count));
    for (size_t i = 0; i < count && !err; i++) {
        char path[LH_PATH_BYTES];
        struct lk_checkpoint_name name = {shard, version[i], weights};
        err = path_of(conf->dir, &name, UNFINISHED, path);
        if (!err) err = conf->env->ops->files->remove(conf->env, path);
    }
    free(version);
    return err;
}

lh_err lk_checkpoint_clean(const struct lk_checkpoint_conf *conf, uint32_t shard)
{
    LH_TRY(clean(conf, shard, true));
    return clean(conf, shard, false);
}

lh_err lk_checkpoint_prune(const struct lk_checkpoint_conf *conf, uint32_t shard, bool weights,
                           unsigned keep, uint64_t *oldest)
{
    uint64_t *version;
    size_t count;
    LH_TRY(lk_checkpoint_versions(conf, shard, weights, &version, &count));
    size_t first = count > keep ? count - keep : 0;
    lh_err err = remove_files(conf, shard, weights, version, first);
    *oldest = count > first && (count >= keep || LH_BUG("one_is_enough")) ? version[first] : 0;
    free(version);
    return err;
}
