// A small history. See history.h.
#include "tests/history/history.h"

#include <stdlib.h>
#include <string.h>

#include "common/app/node.h"
#include "common/base/check.h"
#include "server/state/disk_full.h"

enum { WORKER = 11, TARGET = 77, LARGE = 5000, SEGMENT_BYTES = 4096 };
static const struct lh_incarnation LIFE = {UINT64_C(1) << 32, 5};

static void must(lh_err err)
{
    if (err) lh_assert_failed(lh_err_text(err), __FILE__, __LINE__);
}

void history_key(uint8_t key[32])
{
    for (int i = 0; i < 32; i++) key[i] = (uint8_t)(1 + i);
}

static void build_manifest(struct lh_manifest *m, uint64_t large)
{
    static const char *const names[] = {"small", "large"};
    const uint64_t shapes[][5] = {{40, 2, 0}, {large, 0}};
    must(lh_manifest_build(m, 2, names, shapes, HISTORY_SHARDS, NULL));
}

void history_manifest(struct lh_manifest *m)
{
    build_manifest(m, LARGE);
}

void history_initial(uint64_t first, uint64_t n, float *out)
{
    for (uint64_t i = 0; i < n; i++) out[i] = (float)((int)((first + i) % 97) - 48) / 64;
}

void history_start(struct history *h, struct lh_env *env, const char *dir)
{
    history_start_as(h, env, dir, &(struct history_kind){0});
}

void history_start_as(struct history *h, struct lh_env *env, const char *dir,
                      const struct history_kind *kind)
{
    struct lh_seal_key key;
    *h = (struct history){.env = env, .dir = dir, .kind = *kind};
    if (!h->kind.large) h->kind.large = LARGE;
    if (!h->kind.segment_bytes) h->kind.segment_bytes = SEGMENT_BYTES;
    if (!h->kind.cipher) h->kind.cipher = LH_CIPHER_XCHACHA20;
    if (!h->kind.codec) h->kind.codec = "topk-sign";
    if (!(h->kind.density > 0)) h->kind.density = 0.05f;
    history_key(key.b);
    build_manifest(&h->manifest, h->kind.large);
    lh_job_id(HISTORY_DOMAIN, HISTORY_RUN, h->job);
    must(lh_path(h->log, sizeof h->log, dir, "log"));
    must(lh_path(h->checkpoints, sizeof h->checkpoints, dir, "checkpoints"));
    must(env->ops->files->make_dir(env, h->checkpoints));
    h->conf = (struct lk_checkpoint_conf){.env = env,
                                          .dir = h->checkpoints,
                                          .cipher = (uint8_t)h->kind.cipher,
                                          .key_id = HISTORY_KEY_ID};
    must(lh_keyring_create(&h->conf.keys));
    must(lh_keyring_add(h->conf.keys, HISTORY_KEY_ID, &key));
    for (uint32_t i = 0; i < HISTORY_SHARDS; i++) {
        const struct lh_shard_layout *l = &h->manifest.shard[i];
        must(lk_replica_create(&h->replica[i], h->job, &h->manifest, i, h->conf.keys));
        history_initial(l->first, l->values, h->replica[i].theta);
        h->residual[i] = calloc(l->values, sizeof(float));
        LH_ASSERT(h->residual[i]);
        h->digest[i][0] = lk_replica_digest(&h->replica[i]);
        h->chain[i][0] = h->replica[i].ledger.chain;
    }
    history_reopen(h);
}

void history_finish(struct history *h)
{
    ps_wal_close(h->wal);
    for (uint32_t i = 0; i < HISTORY_SHARDS; i++) {
        lk_replica_free(&h->replica[i]);
        free(h->residual[i]);
    }
    lh_keyring_destroy(h->conf.keys);
    lh_manifest_free(&h->manifest);
    memset(h, 0, sizeof *h);
}

static lh_err known(void *arg, uint32_t shard, const struct lh_record *r, struct ps_place place)
{
    (void)arg, (void)shard, (void)r, (void)place;
    return LH_OK;
}

void history_reopen(struct history *h)
{
    struct ps_wal_conf conf = {
        .env = h->env, .dir = h->log, .segment_bytes = h->kind.segment_bytes};
    bool torn;
    memcpy(conf.job, h->job, LH_JOB_BYTES);
    ps_wal_close(h->wal);
    must(ps_wal_open(&conf, known, NULL, &torn, &h->wal));
    LH_ASSERT(!torn);
}

// ---------------------------------------------------------------- bodies

// Makes the next push: a delta that depends only on shard and step, through the history's codec.
void history_frame(struct history *h, uint32_t shard, struct lh_buf *out)
{
    const struct lh_shard_layout *layout = &h->manifest.shard[shard];
    const struct lh_ledger *l = &h->replica[shard].ledger;
    struct lk_codec codec = {.density = h->kind.density};
    struct lk_payload_info info;
    struct lh_buf plain = lh_buf(1 << 20);
    float *residual = h->residual[shard];
    uint64_t step = lh_row_step(lh_ledger_row(l, WORKER)) + 1;
    uint64_t shift = step * (h->kind.steady ? 7 : 131);
    for (uint64_t i = 0; i < layout->values; i++)
        residual[i] += (float)((int)((i * 7919 + shift) % 2003) - 1001) / 65536;
    must(lk_codec_parse(h->kind.codec, &codec));
    must(lk_encode(&codec, layout, residual, &plain, &info));
    struct lh_frame f = {.index_code = codec.index,
                         .value_code = codec.value,
                         .cipher = (uint8_t)h->kind.cipher,
                         .density = codec.density,
                         .key_id = HISTORY_KEY_ID,
                         .shard = shard,
                         .worker = WORKER,
                         .incarnation = LIFE,
                         .step = step,
                         .base_version = l->version,
                         .base_epoch = l->epoch,
                         .tokens = 512,
                         .steps = 4,
                         .claims = 1,
                         .values = info.values,
                         .plain_bytes = (uint32_t)plain.len,
                         .manifest = h->manifest.hash,
                         .claim = {shard + step * HISTORY_SHARDS}};
    const struct lh_row *row = lh_ledger_row(l, WORKER);
    if (h->privacy.level) f.charged = (row ? row->charged : 0) + f.steps;
    memcpy(f.job, h->job, LH_JOB_BYTES);
    lh_random(h->env, f.nonce, sizeof f.nonce);
    lh_frame_write_head(&f, out);
    size_t head = out->len;
    struct lh_seal_context context = {f.worker, f.incarnation.number, f.incarnation.random, shard,
                                      LH_SEAL_FRAME};
    LH_ASSERT(lh_buf_grow(out, plain.len + LH_SEAL_TAG_BYTES));
    must(lh_seal(h->conf.keys, h->kind.cipher, f.key_id, &context, lh_span(out->data, head),
                 f.nonce, lh_buf_span(&plain), out->data + head));
    lh_buf_free(&plain);
}

static void put_refused(struct history *h, uint32_t shard, struct lh_buf *out)
{
    struct lh_buf whole = lh_buf(1 << 20);
    struct lh_frame f;
    struct lh_frame_parts parts;
    history_frame(h, shard, &whole);
    must(lh_frame_parse(lh_buf_span(&whole), &f, &parts));
    lh_frame_write_stub(lh_buf_span(&whole), &f, out);
    lh_buf_free(&whole);
}

static void put_plan(const struct history *h, const struct lh_ledger *l, struct lh_buf *out)
{
    struct lh_plan plan = {.number = l->plan.number + 1,
                           .phase = h->phase ? h->phase : LH_PHASE_RUN,
                           .eta = 1,
                           .damping = 0.5f,
                           .staleness_per_live = 4,
                           .live = 1,
                           .worker = {WORKER},
                           .expelled_count = 1,
                           .expelled = {TARGET},
                           .lets_back = 1,
                           .let_back = {{WORKER, (uint32_t)l->plan.number + 1}},
                           .optimizer = h->optimizer,
                           .privacy = h->privacy};
    if (h->optimizer) plan.momentum = 0.5f;
    if (h->optimizer) plan.outer_every = 2;
    if (h->optimizer) plan.effective_step_max = h->bound;
    if (plan.phase == LH_PHASE_END) plan.ends = HISTORY_SHARDS;
    for (uint32_t i = 0; i < plan.ends; i++) plan.end[i] = h->replica[i].ledger.version;
    lh_plan_write(&plan, out);
}

static void put_body(struct history *h, uint32_t shard, struct lh_record *r, struct lh_buf *out)
{
    const struct lh_ledger *l = &h->replica[shard].ledger;
    struct lh_hash digest;
    switch (r->kind) {
    case LH_ADMIT:
        r->scale = 0.75f;
        r->reason = lh_record_norm_bits(&(struct lh_norm){.at_equal_h = 1 + (float)(l->version % 5),
                                                          .clipped = l->version % 3 == 0,
                                                          .outlier = l->version % 6 == 0});
        return history_frame(h, shard, out);
    case LH_REFUSE: r->reason = LH_ERR_STALE; return put_refused(h, shard, out);
    case LH_FENCE: return lh_fence_write(WORKER, LIFE, out);
    case LH_PLAN: return put_plan(h, l, out);
    case LH_DIGEST_RECORD:
        digest = lk_replica_digest(&h->replica[shard]);
        return lh_put(out, digest.b, sizeof digest.b);
    case LH_MOVE: return lh_move_write(&(struct lh_move){l->epoch + 1, TARGET}, out);
    default:
        LH_ASSERT(r->kind == LH_EPOCH);
        r->epoch = l->epoch + 1;
        lh_put_u64(out, r->epoch);
        lh_put_u64(out, l->version);
    }
}

// ---------------------------------------------------------------- records

static void repeat_in_copy(struct history *h, const struct lk_replica *replica,
                           const struct lh_record *r)
{
    struct history_late *late = &h->late[h->late_count];
    must(lk_checkpoint_folded(h->taking, replica, r, &late->what));
    if (!late->what.below) return;
    LH_ASSERT(h->late_count < LH_COUNT(h->late));
    late->plain = lh_blob_copy(lh_buf_span(&replica->plain)); // it was unsealed to fold it
    LH_ASSERT(late->plain);
    h->late_count++;
    if (!h->hold_late) history_repeat(h, h->taking);
}

void history_repeat(struct history *h, struct lk_checkpoint *taking)
{
    for (size_t i = 0; i < h->late_count; i++) {
        lk_checkpoint_repeat(taking, &h->late[i].what, lh_blob_span(h->late[i].plain));
        lh_blob_release(h->late[i].plain);
    }
    h->late_count = 0;
}

void history_add(struct history *h, uint32_t shard, enum lh_kind kind)
{
    struct lk_replica *replica = &h->replica[shard];
    struct lh_record r = {.kind = (uint16_t)kind};
    struct lh_buf body = lh_buf(1 << 20);
    struct ps_place place;
    put_body(h, shard, &r, &body);
    must(lh_buf_err(&body));
    r.body = lh_buf_span(&body);
    lh_ledger_next(&replica->ledger, &r);
    LH_ASSERT(r.version < HISTORY_VERSIONS);
    must(ps_wal_add(h->wal, shard, &r, &place));
    must(ps_wal_commit(h->wal));
    ps_wal_group_done(h->wal);
    must(lk_replica_apply(replica, &r));
    if (h->taking && (kind == LH_ADMIT || kind == LH_PLAN)) repeat_in_copy(h, replica, &r);
    h->digest[shard][r.version] = lk_replica_digest(replica);
    h->chain[shard][r.version] = r.chain;
    lh_buf_free(&body);
}

void history_mark(struct history *h)
{
    LH_ASSERT(ps_wal_mark(h->wal));
    must(ps_wal_commit(h->wal));
    ps_wal_group_done(h->wal);
}

void history_write(struct history *h, uint32_t shard, bool weights)
{
    struct lk_checkpoint c;
    must(lk_checkpoint_begin(&h->conf, &h->replica[shard], &c));
    c.weights = weights;
    must(lk_checkpoint_copy(&c, &h->replica[shard], UINT64_MAX));
    must(lk_checkpoint_write(&c));
    lk_checkpoint_free(&c);
}

struct lk_replica history_scratch(const struct history *h, uint32_t shard)
{
    struct lk_replica out;
    must(lk_replica_create(&out, h->job, &h->manifest, shard, h->conf.keys));
    return out;
}

void history_usual(struct history *h)
{
    static const struct {
        uint32_t shard;
        enum lh_kind kind;
    } step[] = {{0, LH_PLAN},   {1, LH_PLAN},          {0, LH_FENCE},         {1, LH_FENCE},
                {0, LH_ADMIT},  {1, LH_ADMIT},         {0, LH_ADMIT},         {1, LH_ADMIT},
                {0, LH_REFUSE}, {0, LH_DIGEST_RECORD}, {1, LH_DIGEST_RECORD}, {0, LH_ADMIT},
                {0, LH_ADMIT},  {1, LH_ADMIT},         {0, LH_ADMIT},         {0, LH_ADMIT},
                {0, LH_ADMIT},  {0, LH_EPOCH},         {1, LH_EPOCH},         {0, LH_ADMIT},
                {1, LH_ADMIT},  {0, LH_ADMIT},         {0, LH_PLAN},          {0, LH_DIGEST_RECORD},
                {1, LH_ADMIT}};
    for (size_t i = 0; i < LH_COUNT(step); i++) {
        if (step[i].kind == LH_EPOCH && step[i].shard == 0) history_reopen(h);
        history_add(h, step[i].shard, step[i].kind);
        uint64_t version = h->replica[step[i].shard].ledger.version;
        if (step[i].shard == 0 ? version == 5 || version == 11 : version == 4)
            history_write(h, step[i].shard, false);
    }
    history_mark(h);
}
