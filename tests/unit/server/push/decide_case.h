// A shard with a given head, for the tests of decisions.
#ifndef TESTS_UNIT_DECIDE_CASE_H
#define TESTS_UNIT_DECIDE_CASE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/push/decide.h"
#include "tests/test.h"
#include "tests/unit/common/format/frame_case.h"

enum { SHARD = 1, SHARDS = 4, ME = 101, OTHER = 102 };
static const uint8_t JOB[LH_JOB_BYTES] = {1, 2, 3};
static const struct lh_hash MANIFEST = {{9, 8, 7}};
static const struct lh_incarnation FIRST = {UINT64_C(1) << 32, 77};
static const struct lh_incarnation NEXT = {(UINT64_C(1) << 32) + 1, 78};
static const struct ps_gate OPEN_GATE = {0, 0, 100, 0};
static const struct ps_gate GATE = {10, 0, 100, 0};

static struct lh_ledger given;

static inline void apply(struct ps_shard *s, struct lh_record r)
{
    lh_ledger_next(s->head, &r);
    assert_int_equal(lh_ledger_apply(&given, &r), LH_OK);
}

static inline void fence(struct ps_shard *s, uint64_t worker, struct lh_incarnation i)
{
    struct lh_buf b = lh_buf(64);
    lh_fence_write(worker, i, &b);
    apply(s, (struct lh_record){.kind = LH_FENCE, .body = lh_buf_span(&b)});
    lh_buf_free(&b);
}

static inline struct lh_frame push_of(uint64_t worker, uint64_t step)
{
    struct lh_frame f = case_frame();
    f.shard = SHARD;
    f.worker = worker;
    f.incarnation = FIRST;
    f.step = step;
    f.base_version = f.base_others = 0;
    f.base_epoch = 1;
    f.claims = 0;
    f.steps = 1;
    f.allowance = 0;
    f.charged = 0;
    return f;
}

// ME and OTHER were fenced in, ME has a session; eta 1, two live workers, damping 0.5, bound 4 for
// each.
static inline int make_shard(void **state)
{
    struct ps_shard *s = calloc(1, sizeof *s);
    if (!s || lh_ledger_create(&given, JOB, &MANIFEST, SHARD, SHARDS)) return -1;
    s->id = SHARD;
    s->head = &given;
    given.plan = (struct lh_plan){.phase = LH_PHASE_RUN,
                                  .eta = 1,
                                  .damping = 0.5f,
                                  .staleness_per_live = 4,
                                  .live = 2,
                                  .worker = {ME, OTHER}};
    fence(s, ME, FIRST);
    fence(s, OTHER, FIRST);
    *state = s;
    return ps_shard_open_session(s, ME, FIRST) == LH_OK ? 0 : -1;
}

static inline int free_shard(void **state)
{
    struct ps_shard *s = *state;
    lh_ledger_free(&given);
    free(s);
    return 0;
}

#define ON_SHARD(name, parameter) TEST_WITH(name, parameter, make_shard, free_shard)

static inline void admit(struct ps_shard *s, uint64_t worker, uint64_t step)
{
    struct lh_frame f = push_of(worker, step);
    struct lh_buf b = case_bytes(&f);
    apply(s, (struct lh_record){.kind = LH_ADMIT,
                                .scale = 0.5f,
                                .reason = lh_record_norm_bits(&(struct lh_norm){1, false, false}),
                                .body = lh_buf_span(&b)});
    lh_buf_free(&b);
}

static inline struct lh_digest digest_of(const struct lh_frame *f)
{
    struct lh_buf b = case_bytes(f);
    struct lh_digest d = lh_frame_digest(lh_buf_span(&b), f);
    lh_buf_free(&b);
    return d;
}

static inline struct ps_decision step_of(const struct ps_shard *s, const struct lh_frame *f)
{
    struct ps_decision d;
    struct lh_digest digest = digest_of(f);
    ps_decide_step(s, f, &digest, &d);
    return d;
}

static inline void assert_not_final(const struct ps_shard *s, const struct lh_frame *f,
                                    lh_err error)
{
    struct ps_decision d = step_of(s, f);
    assert_int_equal(d.verdict, PS_NOT_FINAL);
    assert_int_equal(d.error, error);
}

static inline void assert_now(const struct ps_shard *s, const struct lh_frame *f)
{
    struct ps_decision d = step_of(s, f);
    assert_int_equal(d.verdict, PS_DECIDED_NOW);
    assert_int_equal(d.error, LH_OK);
}

static inline struct ps_decision value_of(const struct ps_shard *s, struct ps_gate gate,
                                          const struct lh_frame *f, lh_err opened, double norm)
{
    struct ps_decision d = {.verdict = PS_DECIDED_NOW};
    struct lk_payload_info info = {.sum_squares = norm * norm};
    ps_decide_value(s, &gate, f, opened, &info, &d);
    assert_int_equal(d.verdict, PS_DECIDED_NOW);
    return d;
}

static inline void assert_scale(const struct ps_decision *d, double scale)
{
    assert_int_equal(d->kind, LH_ADMIT);
    assert_int_equal(d->error, LH_OK);
    assert_true(fabs((double)d->scale - scale) <= 1e-6 * scale);
}

static inline void assert_refused(const struct ps_decision *d, lh_err reason)
{
    assert_int_equal(d->kind, LH_REFUSE);
    assert_int_equal(d->error, reason);
    assert_true(d->scale == 0);
}

#endif
