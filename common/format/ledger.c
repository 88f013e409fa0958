// The ledger. See ledger.h for its contents and invariants.
#include "common/format/ledger.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Version of the ledger's encoding.
enum { LEDGER_VERSION = 4 };

lh_err lh_ledger_create(struct lh_ledger *l, const uint8_t job[LH_JOB_BYTES],
                        const struct lh_hash *manifest, uint32_t shard, uint32_t shards)
{
    LH_ASSERT(shard < shards && shards <= LH_SHARDS_MAX);
    memset(l, 0, sizeof *l);
    l->shard = shard;
    l->shards = shards;
    l->epoch = 1;
    struct lh_buf place = lh_buf(16);
    lh_put_u32(&place, shard);
    lh_put_u32(&place, shards);
    struct lh_span parts[4] = {lh_span_str("longhaul log 1"), lh_span(job, LH_JOB_BYTES),
                               lh_span(manifest->b, LH_HASH_BYTES), lh_buf_span(&place)};
    l->chain = lh_hash_of((struct lh_span){0}, parts, 4);
    lh_err err = lh_buf_err(&place);
    lh_buf_free(&place);
    return err;
}

void lh_ledger_free(struct lh_ledger *l)
{
    free(l->row);
    free(l->credit);
    memset(l, 0, sizeof *l);
}

lh_err lh_ledger_copy(struct lh_ledger *to, const struct lh_ledger *from)
{
    struct lh_row *row = malloc((from->rows + 1) * sizeof *row);
    uint8_t *credit = malloc(from->credit_bytes + 1);
    if (!row || !credit) {
        free(row);
        free(credit);
        return LH_ERR_NO_MEMORY;
    }
    if (from->rows) memcpy(row, from->row, from->rows * sizeof *row);
    if (from->credit_bytes) memcpy(credit, from->credit, from->credit_bytes);
    free(to->row);
    free(to->credit);
    *to = *from;
    to->row = row;
    to->credit = credit;
    return LH_OK;
}

// ---------------------------------------------------------------- rows

static uint32_t row_place(const struct lh_ledger *l, uint64_t worker)
{
    uint32_t low = 0, high = l->rows;
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (l->row[mid].worker < worker)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

const struct lh_row *lh_ledger_row(const struct lh_ledger *l, uint64_t worker)
{
    uint32_t at = row_place(l, worker);
    return at < l->rows && l->row[at].worker == worker ? &l->row[at] : NULL;
}

uint64_t lh_row_step(const struct lh_row *row)
{
    return row && lh_incarnation_equal(row->last, row->incarnation) ? row->last_step : 0;
}

// Inserts a row at index `at`; the array has space for it.
static struct lh_row *row_insert(struct lh_ledger *l, uint32_t at, uint64_t worker)
{
    struct lh_row *row = l->row + at;
    memmove(row + 1, row, (l->rows - at) * sizeof *row);
    *row = (struct lh_row){.worker = worker};
    l->rows++;
    return row;
}

static lh_err row_make(struct lh_ledger *l, uint64_t worker, struct lh_row **out)
{
    uint32_t at = row_place(l, worker);
    if (at == l->rows || l->row[at].worker != worker) {
        if (l->rows == LH_WORKERS_MAX)
            return lh_fail(LH_ERR_TOO_LARGE, "shard %u: more than %d workers", l->shard,
                           LH_WORKERS_MAX);
        struct lh_row *row = realloc(l->row, (l->rows + 1) * sizeof *row);
        if (!row) return LH_ERR_NO_MEMORY;
        l->row = row;
        (void)row_insert(l, at, worker);
    }
    *out = &l->row[at];
    return LH_OK;
}

uint64_t lh_ledger_others(const struct lh_ledger *l, uint64_t worker)
{
    const struct lh_row *row = lh_ledger_row(l, worker);
    return l->admitted - (row ? row->admitted : 0);
}

uint64_t lh_ledger_staleness(const struct lh_ledger *l, uint64_t worker, uint64_t base_others)
{
    uint64_t others = lh_ledger_others(l, worker);
    uint64_t turn = l->plan.live > 1 ? l->plan.live - 1 : 0;
    uint64_t since = others > base_others ? others - base_others : 0;
    return since > turn ? since - turn : 0;
}

// ---------------------------------------------------------------- credit

bool lh_ledger_credited(const struct lh_ledger *l, uint64_t unit)
{
    return unit / 8 < l->credit_bytes && (l->credit[unit / 8] >> (unit % 8) & 1);
}

static lh_err credit(struct lh_ledger *l, uint64_t unit)
{
    // Only one log may credit a unit (server/docs/0000-protocol.md#rule-19).
    if (unit % l->shards != l->shard && !LH_BUG("credit_each") && !LH_BUG("credit_any"))
        return LH_OK;
    if (lh_ledger_credited(l, unit)) return LH_OK; // the first claim won
    size_t need = (size_t)(unit / 8) + 1;
    if (need > l->credit_bytes) {
        uint8_t *bits = realloc(l->credit, need);
        if (!bits) return LH_ERR_NO_MEMORY;
        memset(bits + l->credit_bytes, 0, need - l->credit_bytes);
        l->credit = bits;
        l->credit_bytes = need;
    }
    l->credit[unit / 8] |= (uint8_t)(1u << (unit % 8));
    l->credited++;
    return LH_OK;
}

// ---------------------------------------------------------------- apply

void lh_ledger_next(const struct lh_ledger *l, struct lh_record *r)
{
    r->version = l->version + 1;
    if (r->kind != LH_EPOCH) r->epoch = l->epoch;
    r->chain = lh_record_chain(&l->chain, r);
}

static lh_err impossible(const struct lh_ledger *l, const struct lh_record *r, const char *what)
{
    return lh_fail(LH_ERR_CORRUPT, "shard %u version %llu: %s", l->shard,
                   (unsigned long long)r->version, what);
}

static uint64_t slowest_other(const struct lh_ledger *l, uint64_t worker)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < l->plan.live; i++) {
        if (l->plan.worker[i] == worker) continue;
        const struct lh_row *row = lh_ledger_row(l, l->plan.worker[i]);
        uint64_t round = row ? row->round : 0;
        if (round < least) least = round;
    }
    return least == UINT64_MAX ? 0 : least;
}

static lh_err apply_push(struct lh_ledger *l, const struct lh_record *r)
{
    struct lh_frame f;
    struct lh_frame_parts parts;
    bool stub = r->kind == LH_REFUSE || r->flags & LH_RECORD_ELIDED;
    LH_TRY(stub ? lh_frame_parse_stub(r->body, &f) : lh_frame_parse(r->body, &f, &parts));
    const struct lh_row *have = lh_ledger_row(l, f.worker);
    if (!have || !lh_incarnation_equal(have->incarnation, f.incarnation))
        return impossible(l, r, "a push of another incarnation than the row's");
    if (f.step != lh_row_step(have) + 1 && !LH_BUG("drop_dedupe") && !LH_BUG("unlogged_reject"))
        return impossible(l, r, "a push whose step is not the next one");
    if (f.shard != l->shard) return impossible(l, r, "a push of another shard");
    struct lh_row *row = &l->row[have - l->row];
    row->last = f.incarnation;
    row->last_step = f.step;
    row->last_version = r->version;
    row->last_digest = lh_frame_digest(r->body, &f);
    row->last_reason = r->kind == LH_ADMIT ? 0 : r->reason;
    uint64_t slowest = slowest_other(l, f.worker);
    row->round = row->round + 1 > slowest ? row->round + 1 : slowest;
    if (r->kind == LH_REFUSE) {
        row->refused++;
        l->refused++;
        return LH_OK;
    }
    row->admitted++;
    row->tokens += f.tokens;
    row->charged = f.charged;
    l->admitted++;
    l->tokens += f.tokens;
    struct lh_norm norm = lh_record_norm(r);
    uint32_t steps = f.steps ? lh_norms_steps(l, f.worker, f.steps) : 0;
    lh_norms_note(l, &row->norms, &norm, steps);
    for (uint32_t i = 0; i < f.claims; i++) LH_TRY(credit(l, f.claim[i]));
    return LH_OK;
}

void lh_fence_write(uint64_t worker, struct lh_incarnation i, struct lh_buf *out)
{
    lh_put_u64(out, worker);
    lh_put_u64(out, i.number);
    lh_put_u64(out, i.random);
}

lh_err lh_fence_parse(struct lh_span body, uint64_t *worker, struct lh_incarnation *out)
{
    struct lh_cursor c = lh_cursor(body);
    *worker = lh_get_u64(&c);
    out->number = lh_get_u64(&c);
    out->random = lh_get_u64(&c);
    if (c.failed || lh_left(&c)) return lh_fail(LH_ERR_MALFORMED, "fence of the wrong length");
    return LH_OK;
}

static lh_err apply_fence(struct lh_ledger *l, const struct lh_record *r)
{
    uint64_t worker;
    struct lh_incarnation i;
    LH_TRY(lh_fence_parse(r->body, &worker, &i));
    const struct lh_row *have = lh_ledger_row(l, worker);
    if (have && have->incarnation.number >= i.number)
        return impossible(l, r, "a fence that does not raise the incarnation");
    if (!have && lh_plan_retires(&l->plan, i.number))
        return impossible(l, r, "a fence of a number that retired names had");
    struct lh_row *row = NULL;
    LH_TRY(row_make(l, worker, &row));
    row->incarnation = i;
    return LH_OK;
}

// An operator let a worker back: resets its norms.
static void let_back(struct lh_ledger *l, const struct lh_let_back *b)
{
    const struct lh_row *have = lh_ledger_row(l, b->worker);
    if (!have || have->norms.let_back >= b->count) return;
    l->row[have - l->row].norms = (struct lh_norms){.let_back = b->count};
}

// Removes a retired name's row, unless its incarnation is above the numbers of retired names.
static void retire(struct lh_ledger *l, const struct lh_plan *plan, uint64_t worker)
{
    const struct lh_row *have = lh_ledger_row(l, worker);
    if (!have || !lh_plan_retires(plan, have->incarnation.number)) return;
    size_t at = (size_t)(have - l->row);
    memmove(l->row + at, l->row + at + 1, (l->rows - at - 1) * sizeof *l->row);
    l->rows--;
}

// Removes rows of retired names. Each live worker without a row gets one at the highest number
// retired before, above which no push of it was ever decided, so that it may still push.
static lh_err apply_retired(struct lh_ledger *l, const struct lh_plan *plan)
{
    uint32_t before = l->plan.retired_up_to, most = l->rows + plan->live;
    struct lh_row *row = realloc(l->row, (most + 1) * sizeof *row);
    if (!row) return LH_ERR_NO_MEMORY;
    l->row = row;
    for (uint32_t i = 0; i < plan->retired_count; i++) retire(l, plan, plan->retired[i]);
    for (uint32_t i = 0; i < plan->live && l->rows < LH_WORKERS_MAX; i++) {
        if (lh_ledger_row(l, plan->worker[i]) || lh_plan_is_retired(plan, plan->worker[i]))
            continue;
        row = row_insert(l, row_place(l, plan->worker[i]), plan->worker[i]);
        row->incarnation.number = (uint64_t)before << 32 | UINT32_MAX;
    }
    return LH_OK;
}

static lh_err apply_plan(struct lh_ledger *l, const struct lh_record *r)
{
    struct lh_plan plan;
    LH_TRY(lh_plan_parse(r->body, &plan));
    if (plan.number <= l->plan.number)
        return impossible(l, r, "a plan older than the one in force");
    if (l->plan.privacy.level && !lh_privacy_equal(&plan.privacy, &l->plan.privacy))
        return impossible(l, r, "a plan with other terms of privacy than the run's");
    if (plan.retired_up_to < l->plan.retired_up_to)
        return impossible(l, r, "a plan that forgets the numbers of retired names");
    if (plan.retired_count) LH_TRY(apply_retired(l, &plan));
    l->plan = plan;
    for (uint32_t i = 0; i < plan.lets_back; i++) let_back(l, &plan.let_back[i]);
    return LH_OK;
}

static lh_err apply_epoch(struct lh_ledger *l, const struct lh_record *r)
{
    struct lh_cursor c = lh_cursor(r->body);
    uint64_t epoch = lh_get_u64(&c), base = lh_get_u64(&c);
    if (c.failed || lh_left(&c) || epoch != r->epoch || epoch <= l->epoch || base != l->version ||
        epoch < l->move.epoch)
        return impossible(l, r, "an epoch that does not follow");
    l->epoch = epoch;
    l->move = (struct lh_move){0};
    return LH_OK;
}

void lh_move_write(const struct lh_move *m, struct lh_buf *out)
{
    lh_put_u64(out, m->epoch);
    lh_put_u64(out, m->target);
}

bool lh_same_directory(uint64_t identity, uint64_t other)
{
    return identity && other && identity >> 32 == other >> 32;
}

lh_err lh_move_parse(struct lh_span body, struct lh_move *out)
{
    struct lh_cursor c = lh_cursor(body);
    out->epoch = lh_get_u64(&c);
    out->target = lh_get_u64(&c);
    if (c.failed || lh_left(&c)) return lh_fail(LH_ERR_MALFORMED, "a move of the wrong length");
    return LH_OK;
}

static lh_err apply_move(struct lh_ledger *l, const struct lh_record *r)
{
    struct lh_move m;
    LH_TRY(lh_move_parse(r->body, &m));
    if (m.epoch <= l->epoch || !m.target)
        return impossible(l, r, "a move into an epoch that does not follow, or to nobody");
    l->move = m;
    return LH_OK;
}

static lh_err apply_kind(struct lh_ledger *l, const struct lh_record *r)
{
    if (l->move.epoch && r->kind != LH_EPOCH && !LH_BUG("freeze_mem"))
        return impossible(l, r, "a record after the shard was moved");
    switch (r->kind) {
    case LH_ADMIT:
    case LH_REFUSE: return apply_push(l, r);
    case LH_FENCE: return apply_fence(l, r);
    case LH_PLAN: return apply_plan(l, r);
    case LH_EPOCH: return apply_epoch(l, r);
    case LH_MOVE: return apply_move(l, r);
    case LH_DIGEST_RECORD:
        return r->body.len == LH_HASH_BYTES ? LH_OK : impossible(l, r, "a digest of wrong length");
    default: return impossible(l, r, "a record of a kind that this build can't fold");
    }
}

lh_err lh_ledger_apply(struct lh_ledger *l, const struct lh_record *r)
{
    if (r->version != l->version + 1)
        return lh_fail(LH_ERR_CONFLICT, "shard %u: version %llu after %llu", l->shard,
                       (unsigned long long)r->version, (unsigned long long)l->version);
    struct lh_hash chain = lh_record_chain(&l->chain, r);
    if (!lh_hash_equal(&chain, &r->chain) && !LH_BUG("no_chain"))
        return lh_fail(LH_ERR_CONFLICT, "shard %u version %llu: another history (chain differs)",
                       l->shard, (unsigned long long)r->version);
    if (r->kind != LH_EPOCH && r->epoch != l->epoch && !LH_BUG("no_chain"))
        return lh_fail(LH_ERR_CONFLICT, "shard %u version %llu: epoch %llu, ours is %llu", l->shard,
                       (unsigned long long)r->version, (unsigned long long)r->epoch,
                       (unsigned long long)l->epoch);
    LH_TRY(apply_kind(l, r));
    l->version = r->version;
    l->chain = chain;
    return LH_OK;
}

// ---------------------------------------------------------------- bytes

static void write_incarnation(struct lh_incarnation i, struct lh_buf *out)
{
    lh_put_u64(out, i.number);
    lh_put_u64(out, i.random);
}

static void write_norms(const struct lh_norms *n, struct lh_buf *out)
{
    for (int i = 0; i < LH_NORMS; i++) lh_put_f32(out, n->last[i]);
    lh_put_u32(out, n->count);
    lh_put_u32(out, n->steps);
    lh_put_u8(out, n->clipped);
    lh_put_u32(out, n->outliers);
    lh_put_u32(out, n->let_back);
}

void lh_ledger_write(const struct lh_ledger *l, struct lh_buf *out)
{
    lh_put_u16(out, LEDGER_VERSION);
    lh_put_u32(out, l->shard);
    lh_put_u32(out, l->shards);
    lh_put_u64(out, l->epoch);
    lh_put_u64(out, l->version);
    lh_put(out, l->chain.b, LH_HASH_BYTES);
    lh_put_u64(out, l->admitted);
    lh_put_u64(out, l->refused);
    lh_put_u64(out, l->tokens);
    lh_put_f64(out, l->norm_reference);
    lh_move_write(&l->move, out);
    lh_put_u32(out, l->rows);
    for (uint32_t i = 0; i < l->rows; i++) {
        const struct lh_row *r = &l->row[i];
        lh_put_u64(out, r->worker);
        write_incarnation(r->incarnation, out);
        write_incarnation(r->last, out);
        lh_put_u64(out, r->last_step);
        lh_put_u64(out, r->last_version);
        lh_put(out, r->last_digest.b, LH_DIGEST_BYTES);
        lh_put_u32(out, r->last_reason);
        lh_put_u64(out, r->admitted);
        lh_put_u64(out, r->refused);
        lh_put_u64(out, r->tokens);
        lh_put_u64(out, r->round);
        lh_put_u64(out, r->charged);
        write_norms(&r->norms, out);
    }
    lh_put_u32(out, (uint32_t)l->credit_bytes);
    lh_put(out, l->credit, l->credit_bytes);
    struct lh_buf plan = lh_buf(LH_SMALL_BYTES);
    lh_plan_write(&l->plan, &plan);
    lh_put_u32(out, (uint32_t)plan.len);
    lh_put(out, plan.data, plan.len);
    if (plan.err) out->err = plan.err; // no memory for the plan: the ledger is not usable
    lh_buf_free(&plan);
}

static bool is_norm(double norm)
{
    return isfinite(norm) && norm >= 0;
}

static bool read_norms(struct lh_norms *n, struct lh_cursor *c)
{
    bool good = true;
    for (int i = 0; i < LH_NORMS; i++) good &= is_norm((double)(n->last[i] = lh_get_f32(c)));
    n->count = lh_get_u32(c);
    n->steps = lh_get_u32(c);
    uint8_t clipped = lh_get_u8(c);
    n->clipped = clipped;
    n->outliers = lh_get_u32(c);
    n->let_back = lh_get_u32(c);
    if (!good || clipped > 1 || n->count > LH_NORMS || n->steps > LH_NORM_STEPS_MAX) return false;
    lh_norms_find_median(n);
    return true;
}

static lh_err read_rows(struct lh_ledger *l, struct lh_cursor *c)
{
    uint32_t rows = lh_get_u32(c);
    if (c->failed || rows > LH_WORKERS_MAX) return lh_fail(LH_ERR_MALFORMED, "%u rows", rows);
    l->row = calloc(rows + 1, sizeof *l->row);
    if (!l->row) return LH_ERR_NO_MEMORY;
    for (l->rows = 0; l->rows < rows; l->rows++) {
        struct lh_row *r = &l->row[l->rows];
        r->worker = lh_get_u64(c);
        r->incarnation.number = lh_get_u64(c);
        r->incarnation.random = lh_get_u64(c);
        r->last.number = lh_get_u64(c);
        r->last.random = lh_get_u64(c);
        r->last_step = lh_get_u64(c);
        r->last_version = lh_get_u64(c);
        lh_get_into(c, r->last_digest.b, LH_DIGEST_BYTES);
        r->last_reason = lh_get_u32(c);
        r->admitted = lh_get_u64(c);
        r->refused = lh_get_u64(c);
        r->tokens = lh_get_u64(c);
        r->round = lh_get_u64(c);
        r->charged = lh_get_u64(c);
        if (!read_norms(&r->norms, c)) c->failed = true;
        if (l->rows && r->worker <= l->row[l->rows - 1].worker) c->failed = true;
    }
    return LH_OK;
}

static lh_err read_credit(struct lh_ledger *l, struct lh_cursor *c)
{
    uint32_t bytes = lh_get_u32(c);
    if (c->failed || bytes > LH_UNITS_MAX / 8)
        return lh_fail(LH_ERR_MALFORMED, "credit of %u bytes", bytes);
    struct lh_span bits = lh_get(c, bytes);
    l->credit = calloc(bits.len + 1, 1);
    if (!l->credit) return LH_ERR_NO_MEMORY;
    l->credit_bytes = bits.len;
    l->credited = 0;
    if (bits.len) memcpy(l->credit, bits.data, bits.len);
    for (size_t i = 0; i < bits.len; i++) l->credited += (uint64_t)__builtin_popcount(bits.data[i]);
    return LH_OK;
}

static lh_err read_move(struct lh_ledger *l, struct lh_cursor *c)
{
    LH_TRY(lh_move_parse(lh_get(c, 16), &l->move));
    bool none = !l->move.epoch && !l->move.target;
    if (!none && (l->move.epoch <= l->epoch || !l->move.target))
        return lh_fail(LH_ERR_MALFORMED, "a fold state whose move names no target");
    return LH_OK;
}

lh_err lh_ledger_read(struct lh_ledger *l, struct lh_cursor *c)
{
    uint32_t shard = l->shard, shards = l->shards;
    uint16_t version = lh_get_u16(c);
    if (version != LEDGER_VERSION)
        return lh_fail(LH_ERR_MALFORMED, "fold state of version %u", version);
    if (lh_get_u32(c) != shard || lh_get_u32(c) != shards)
        return lh_fail(LH_ERR_MALFORMED, "fold state of another shard than %u of %u", shard,
                       shards);
    lh_ledger_free(l);
    l->shard = shard;
    l->shards = shards;
    l->epoch = lh_get_u64(c);
    l->version = lh_get_u64(c);
    lh_get_into(c, l->chain.b, LH_HASH_BYTES);
    l->admitted = lh_get_u64(c);
    l->refused = lh_get_u64(c);
    l->tokens = lh_get_u64(c);
    l->norm_reference = lh_get_f64(c);
    if (!is_norm(l->norm_reference)) c->failed = true;
    LH_TRY(read_move(l, c));
    LH_TRY(read_rows(l, c));
    LH_TRY(read_credit(l, c));
    struct lh_span plan = lh_get(c, lh_get_u32(c));
    if (c->failed) return lh_fail(LH_ERR_MALFORMED, "fold state cut short");
    return lh_plan_parse(plan, &l->plan);
}
