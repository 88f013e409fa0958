// Implements refold.h: the judge's fold.
//
// Invariants: 1. A record follows the log by version, epoch and chain, or is not part of it. 2. A
// push has its row's incarnation and the step after the row's last. 3. A unit is credited by its
// first claim, in the log of shard `unit mod shards`. 4. Each product and each difference of
// parameters is rounded to fp32 by itself, in index order.
#include "tests/sim/refold.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"

enum { ADMIT = 1, REFUSE, FENCE, PLAN, DIGEST, EPOCH, MOVE };
enum { RECORD_HEADER = 64, FRAME_HEADER = 200, CLAIM = 24, TAG = 16 };
enum { SGD };
enum { PHASE_CLOSE = 3 };

// ---------------------------------------------------------------- bytes

static uint64_t number(const uint8_t *at, size_t bytes)
{
    uint64_t n = 0;
    for (size_t i = bytes; i--;) n = n << 8 | at[i];
    return n;
}

static float real(const uint8_t *at)
{
    uint32_t bits = (uint32_t)number(at, 4);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

bool sim_read_record(struct lh_span bytes, struct sim_record *out)
{
    const uint8_t *b = bytes.data;
    if (bytes.len < RECORD_HEADER || bytes.len - RECORD_HEADER != number(b + 28, 4)) return false;
    *out = (struct sim_record){.version = number(b, 8),
                               .epoch = number(b + 8, 8),
                               .kind = (uint16_t)number(b + 16, 2),
                               .flags = (uint16_t)number(b + 18, 2),
                               .reason = (uint32_t)number(b + 20, 4),
                               .scale = real(b + 24),
                               .body = lh_span(b + RECORD_HEADER, bytes.len - RECORD_HEADER)};
    memcpy(out->chain.b, b + 32, LH_HASH_BYTES);
    return true;
}

bool sim_read_frame(struct lh_span bytes, struct sim_frame *out)
{
    const uint8_t *b = bytes.data;
    if (bytes.len < FRAME_HEADER + TAG || memcmp(b, "LHF1", 4) != 0) return false;
    uint64_t claims = number(b + 108, 4), head = FRAME_HEADER + CLAIM * claims;
    if (number(b + 6, 2) != FRAME_HEADER || bytes.len < head + TAG) return false;
    *out = (struct sim_frame){.index = b[8],
                              .value = b[9],
                              .cipher = b[10],
                              .density = real(b + 12),
                              .key = (uint32_t)number(b + 16, 4),
                              .shard = (uint32_t)number(b + 20, 4),
                              .steps = (uint32_t)number(b + 104, 4),
                              .claims = (uint32_t)claims,
                              .plain_bytes = (uint32_t)number(b + 120, 4),
                              .worker = number(b + 40, 8),
                              .incarnation = number(b + 48, 8),
                              .random = number(b + 56, 8),
                              .step = number(b + 64, 8),
                              .base_version = number(b + 72, 8),
                              .base_epoch = number(b + 80, 8),
                              .base_others = number(b + 88, 8),
                              .tokens = number(b + 96, 8),
                              .charged = number(b + 192, 8),
                              .job = lh_span(b + 24, 16),
                              .nonce = lh_span(b + 160, 24),
                              .claim = lh_span(b + FRAME_HEADER, CLAIM * claims),
                              .head = lh_span(b, head),
                              .sealed = lh_span(b + head, bytes.len - head)};
    return out->step > 0;
}

// Checks a plan's tail: the workers without which the run closed, retired names, a change of the
// budget, a pause. Parts that are empty at the end are left out.
static bool is_tail(struct lh_span bytes)
{
    const uint8_t *b = bytes.data;
    if (!bytes.len) return true;
    if (bytes.len < 4) return false;
    uint64_t end = 4 + 8 * number(b, 4);
    if (bytes.len <= end) return bytes.len == end;
    if (bytes.len < end + 8) return false;
    end += 8 + 8 * number(b + end + 4, 4);
    return bytes.len == end || bytes.len == end + 24 || (bytes.len == end + 25 && b[end + 24] == 1);
}

bool sim_read_plan(struct lh_span bytes, struct sim_plan *out)
{
    const uint8_t *b = bytes.data;
    *out = (struct sim_plan){0};
    if (bytes.len < 29) return false;
    uint64_t version = number(b, 2), live = number(b + 25, 4), ends_at = 29 + 8 * live;
    *out = (struct sim_plan){.number = number(b + 2, 8),
                             .phase = b[10],
                             .mode = b[11],
                             .eta = real(b + 13),
                             .damping = real(b + 17),
                             .live = (uint32_t)live};
    if (live > SIM_FOLD_ROWS || bytes.len < ends_at + 4) return false;
    for (uint64_t i = 0; i < live; i++) out->worker[i] = number(b + 29 + 8 * i, 8);
    uint64_t expelled_at = ends_at + 4 + 8 * number(b + ends_at, 4);
    if (bytes.len < expelled_at + 4) return false;
    uint64_t backs_at = expelled_at + 4 + 8 * number(b + expelled_at, 4);
    if (bytes.len < backs_at + 4) return false;
    uint64_t rest = backs_at + 4 + 12 * number(b + backs_at, 4);
    enum { OPTIMIZER = 13, BOUNDS = 13, EXCEPTION = 9, TERMS = 65 };
    uint64_t list = rest + OPTIMIZER + BOUNDS;
    if (version != 4 || bytes.len < list + 4) return false;
    uint64_t end = list + 4 + EXCEPTION * number(b + list, 4);
    if (bytes.len <= end) return false;
    end += b[end] ? TERMS : 1; // level of privacy; 0 has no terms
    if (!is_tail(lh_span(b + end, bytes.len - end))) return false;
    out->optimizer = b[rest];
    out->momentum = real(b + rest + 1);
    out->outer_every = (uint32_t)number(b + rest + 5, 4);
    out->step_max = real(b + rest + 9);
    return true;
}

// ---------------------------------------------------------------- the chain

static struct lh_span tag_of(struct lh_span body)
{
    return lh_span(body.data + body.len - TAG, TAG);
}

struct lh_hash sim_chain(const struct lh_hash *before, const struct sim_record *r)
{
    uint8_t fixed[26];
    struct lh_buf b = lh_buf_over(fixed, sizeof fixed);
    lh_put_u64(&b, r->version);
    lh_put_u64(&b, r->epoch);
    lh_put_u16(&b, r->kind);
    lh_put_u32(&b, r->reason);
    lh_put_f32(&b, r->scale);
    struct sim_frame f;
    struct lh_span part[4] = {lh_span(before->b, LH_HASH_BYTES), lh_buf_span(&b), r->body};
    size_t parts = 3;
    if (r->kind == ADMIT && sim_read_frame(r->body, &f)) {
        part[2] = f.head;
        part[parts++] = tag_of(r->body);
    }
    LH_ASSERT(b.len == sizeof fixed);
    return lh_hash_of((struct lh_span){0}, part, parts);
}

void sim_frame_digest(struct lh_span body, const struct sim_frame *f, uint8_t out[16])
{
    struct lh_span part[2] = {f->head, tag_of(body)};
    struct lh_hash h = lh_hash_of(f->job, part, 2);
    memcpy(out, h.b, 16);
}

// ---------------------------------------------------------------- begin and end

static float *zeros(uint64_t values)
{
    float *array = calloc(values + 1, sizeof *array);
    LH_ASSERT(array);
    return array;
}

void sim_fold_begin(struct sim_fold *f, struct lh_span job, const struct lh_hash *manifest,
                    uint32_t shard, uint32_t shards, float *theta, uint64_t values)
{
    *f = (struct sim_fold){
        .shard = shard, .shards = shards, .epoch = 1, .values = values, .theta = theta};
    uint8_t place[8];
    struct lh_buf b = lh_buf_over(place, sizeof place);
    lh_put_u32(&b, shard);
    lh_put_u32(&b, shards);
    struct lh_span part[4] = {lh_span("longhaul log 1", 14), job,
                              lh_span(manifest->b, LH_HASH_BYTES), lh_buf_span(&b)};
    f->chain = lh_hash_of((struct lh_span){0}, part, 4);
    f->u = zeros(values);
    f->m = zeros(values);
}

void sim_fold_end(struct sim_fold *f)
{
    free(f->u);
    free(f->m);
    *f = (struct sim_fold){0};
}

// ---------------------------------------------------------------- rows and credits

const struct sim_row *sim_fold_row(const struct sim_fold *f, uint64_t worker)
{
    for (uint32_t i = 0; i < f->rows; i++)
        if (f->row[i].worker == worker) return &f->row[i];
    return NULL;
}

// Counts a worker's admitted pushes with versions above `after` and up to `last`.
static uint64_t pushes_of(const struct sim_row *row, uint64_t after, uint64_t last)
{
    uint64_t n = 0;
    for (uint32_t i = 0; row && i < SIM_FOLD_SEEN; i++)
        n += row->seen[i] > after && row->seen[i] <= last;
    return n;
}

// Returns twice the lower median of the live workers' pushes; the pusher counts this one too.
static uint64_t most_counted(const struct sim_fold *f, const struct sim_frame *push, uint64_t last)
{
    uint64_t base = push->base_version, count[SIM_FOLD_ROWS + 1];
    uint32_t n = 1;
    count[0] = pushes_of(sim_fold_row(f, push->worker), base, last) + 1;
    for (uint32_t i = 0; i < f->plan.live; i++)
        if (f->plan.worker[i] != push->worker)
            count[n++] = pushes_of(sim_fold_row(f, f->plan.worker[i]), base, last);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t below = 0, same = 0;
        for (uint32_t k = 0; k < n; k++) {
            below += count[k] < count[i];
            same += count[k] == count[i];
        }
        if (below <= (n - 1) / 2 && (n - 1) / 2 < below + same)
            return count[i] > 1 ? 2 * count[i] : 2;
    }
    return 2;
}

// Counts the other workers' pushes; all those of the push's own group, which begins after `last`,
// count in full.
static uint64_t counted(const struct sim_fold *f, const struct sim_frame *push, uint64_t last)
{
    uint64_t sum = 0, most = most_counted(f, push, last);
    for (uint32_t i = 0; i < f->rows; i++) {
        const struct sim_row *row = &f->row[i];
        uint64_t n = pushes_of(row, push->base_version, last);
        if (row->worker == push->worker) continue;
        sum += (n < most ? n : most) + pushes_of(row, last, UINT64_MAX);
    }
    return sum;
}

uint64_t sim_fold_staleness(const struct sim_fold *f, const struct sim_frame *push, uint64_t *least)
{
    enum { GROUP = 64 }; // the most pushes that are decided together
    const struct sim_row *row = sim_fold_row(f, push->worker);
    uint64_t others = f->admitted - (row ? row->admitted : 0);
    uint64_t turn = f->plan.live > 1 ? f->plan.live - 1 : 0;
    uint64_t had = push->base_others < others ? push->base_others : others; // capped
    uint64_t all = others - had > turn ? others - had - turn : 0;
    *least = all;
    if (push->base_epoch != f->epoch) return all;
    for (uint64_t k = 0; k < GROUP && push->base_version + k <= f->version; k++) {
        uint64_t sum = counted(f, push, f->version - k);
        uint64_t stale = sum > turn ? sum - turn : 0;
        if (stale < *least) *least = stale;
    }
    return all;
}

static uint64_t slowest_other(const struct sim_fold *f, uint64_t worker)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < f->plan.live; i++) {
        const struct sim_row *row = sim_fold_row(f, f->plan.worker[i]);
        uint64_t round = row ? row->round : 0;
        if (f->plan.worker[i] != worker && round < least) least = round;
    }
    return least == UINT64_MAX ? 0 : least;
}

static const char *take_push(struct sim_fold *f, const struct sim_record *r)
{
    struct sim_frame p;
    if (!sim_read_frame(r->body, &p)) return "a push that can't be read";
    if (r->kind == REFUSE && p.sealed.len != TAG) return "a refusal that is not a stub";
    if (p.shard != f->shard) return "a push of another shard";
    struct sim_row *row = f->row;
    while (row < f->row + f->rows && row->worker != p.worker) row++;
    if (row == f->row + f->rows || row->incarnation != p.incarnation || row->random != p.random)
        return "a push of an incarnation that is not the row's";
    bool same = row->last_incarnation == p.incarnation && row->last_random == p.random;
    if (p.step != (same ? row->last_step : 0) + 1) return "a push whose step is not the next one";
    row->last_incarnation = p.incarnation;
    row->last_random = p.random;
    row->last_step = p.step;
    row->last_version = r->version;
    row->last_reason = r->kind == ADMIT ? 0 : r->reason;
    sim_frame_digest(r->body, &p, row->last_digest);
    uint64_t slowest = slowest_other(f, p.worker);
    row->round = row->round + 1 > slowest ? row->round + 1 : slowest;
    *(r->kind == ADMIT ? &row->admitted : &row->refused) += 1;
    *(r->kind == ADMIT ? &f->admitted : &f->refused) += 1;
    if (r->kind == REFUSE) return NULL;
    row->seen[(row->admitted - 1) % SIM_FOLD_SEEN] = r->version;
    row->tokens += p.tokens;
    f->tokens += p.tokens;
    for (uint32_t i = 0; i < p.claims; i++) {
        uint64_t unit = number(p.claim.data + CLAIM * i, 4);
        if (unit >= SIM_FOLD_UNITS) return "a claim of a unit that is none";
        f->credited[unit] |= unit % f->shards == f->shard;
    }
    return NULL;
}

static const char *take_fence(struct sim_fold *f, const struct sim_record *r)
{
    const uint8_t *b = r->body.data;
    if (r->body.len != 24) return "a fence of the wrong length";
    uint64_t worker = number(b, 8), incarnation = number(b + 8, 8);
    struct sim_row *row = f->row;
    while (row < f->row + f->rows && row->worker != worker) row++;
    if (row < f->row + f->rows && row->incarnation >= incarnation)
        return "a fence that does not raise the incarnation";
    if (row == f->row + SIM_FOLD_ROWS) return "more workers than there are";
    if (row == f->row + f->rows) f->rows++;
    row->worker = worker;
    row->incarnation = incarnation;
    row->random = number(b + 16, 8);
    return NULL;
}

// ---------------------------------------------------------------- parameters

static void move_by(float *theta, float by, uint64_t i)
{
    theta[i] = theta[i] - by;
}

static double cosine(const struct sim_fold *f)
{
    double um = 0, uu = 0, mm = 0;
    for (uint64_t i = 0; i < f->values; i++) {
        um += (double)f->u[i] * (double)f->m[i];
        uu += (double)f->u[i] * (double)f->u[i];
        mm += (double)f->m[i] * (double)f->m[i];
    }
    return uu > 0 && mm > 0 ? um / sqrt(uu) / sqrt(mm) : 0;
}

// Momentum of this outer step: lower if eta / (1 - mu * rho) would exceed the plan's bound.
static float momentum(struct sim_fold *f)
{
    double mu = (double)f->plan.momentum, eta = (double)f->plan.eta,
           bound = (double)f->plan.step_max;
    if (bound <= 0 || mu <= 0) return f->plan.momentum;
    if (f->steps > 0) {
        double c = cosine(f);
        f->rho = f->cosines > 0 ? 0.9 * f->rho + (1 - 0.9) * c : c;
        f->cosines++;
    }
    double rho = f->rho > 0 ? f->rho : 0;
    if (mu * rho <= 1 - eta / bound) return f->plan.momentum;
    double most = eta < bound ? (1 - eta / bound) / rho : 0;
    return (float)(most < mu ? most : mu);
}

static void outer_step(struct sim_fold *f)
{
    float mu = momentum(f);
    for (uint64_t i = 0; i < f->values; i++) {
        float kept = mu * f->m[i];
        f->m[i] = kept + f->u[i];
        float ahead = mu * f->m[i];
        move_by(f->theta, ahead, i);
        f->u[i] = 0;
    }
    f->pending = 0;
    f->steps++;
}

static void add_push(struct sim_fold *f, float scale, const float *q)
{
    for (uint64_t i = 0; i < f->values; i++) {
        float g = scale * q[i];
        move_by(f->theta, g, i);
        if (f->plan.optimizer != SGD) f->u[i] = f->u[i] + g;
    }
    if (f->plan.optimizer == SGD) return;
    uint32_t every = f->plan.outer_every ? f->plan.outer_every : f->plan.live;
    if (++f->pending >= (every ? every : 1)) outer_step(f);
}

// A plan that closes the run, or brings another optimizer, drops pushes not yet in an outer step.
static const char *take_plan(struct sim_fold *f, const struct sim_record *r)
{
    struct sim_plan plan;
    if (!sim_read_plan(r->body, &plan)) return "a plan that can't be read";
    if (plan.number <= f->plan.number) return "a plan older than the one in force";
    uint8_t kind = f->plan.optimizer;
    bool changes = plan.optimizer != kind;
    for (uint64_t i = 0; (changes || plan.phase >= PHASE_CLOSE) && i < f->values; i++) {
        f->u[i] = 0;
        if (changes) f->m[i] = 0;
    }
    if (changes || plan.phase >= PHASE_CLOSE) f->pending = 0;
    if (changes) {
        f->steps = f->cosines = 0;
        f->rho = 0;
    }
    f->plan = plan;
    return NULL;
}

// ---------------------------------------------------------------- the log

static const char *take_epoch(struct sim_fold *f, const struct sim_record *r)
{
    const uint8_t *b = r->body.data;
    if (r->body.len != 16 || number(b, 8) != r->epoch || number(b + 8, 8) != f->version ||
        r->epoch <= f->epoch || r->epoch < f->move_epoch)
        return "an epoch that does not follow";
    f->epoch = r->epoch;
    f->move_epoch = f->move_target = 0;
    return NULL;
}

static const char *take_move(struct sim_fold *f, const struct sim_record *r)
{
    const uint8_t *b = r->body.data;
    if (r->body.len != 16 || number(b, 8) <= f->epoch || !number(b + 8, 8))
        return "a move into an epoch that does not follow, or to nobody";
    f->move_epoch = number(b, 8);
    f->move_target = number(b + 8, 8);
    return NULL;
}

static const char *take(struct sim_fold *f, const struct sim_record *r, const float *q)
{
    if (f->move_epoch && r->kind != EPOCH) return "a record after the shard was moved";
    switch (r->kind) {
    case ADMIT: {
        const char *wrong =
            r->flags || !q ? "an admitted push without its payload" : take_push(f, r);
        if (!wrong) add_push(f, r->scale, q);
        return wrong;
    }
    case REFUSE: return take_push(f, r);
    case FENCE: return take_fence(f, r);
    case PLAN: return take_plan(f, r);
    case DIGEST: return r->body.len == LH_HASH_BYTES ? NULL : "a digest of the wrong length";
    case EPOCH: return take_epoch(f, r);
    case MOVE: return take_move(f, r);
    default: return "a record of an unknown kind";
    }
}

const char *sim_fold_next(struct sim_fold *f, const struct sim_record *r, const float *q)
{
    if (r->version != f->version + 1) return "a version is missing";
    if (r->kind != EPOCH && r->epoch != f->epoch) return "a record of another epoch";
    struct lh_hash chain = sim_chain(&f->chain, r);
    if (!lh_hash_equal(&chain, &r->chain)) return "a record of another history";
    const char *wrong = take(f, r, q);
    if (wrong) return wrong;
    f->version = r->version;
    f->chain = chain;
    return NULL;
}
