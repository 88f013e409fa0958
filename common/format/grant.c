// Grants: keys and tags. See grant.h.
#include "common/format/grant.h"

#include <string.h>

#include "common/security/identity.h"

enum { JOB_BYTES = 16, TEXT_BYTES = 64 };

static struct lh_hash keyed(const struct lh_grant_key *key, const char *label,
                            const uint8_t job[JOB_BYTES], struct lh_span rest)
{
    struct lh_span parts[3] = {lh_span_str(label), lh_span(job, JOB_BYTES), rest};
    return lh_hash_of(lh_span(key->b, sizeof key->b), parts, 3);
}

struct lh_grant_key lh_grant_shard_key(const struct lh_grant_key *run, const uint8_t job[JOB_BYTES],
                                       uint32_t shard)
{
    uint8_t bytes[TEXT_BYTES];
    struct lh_buf b = lh_buf_over(bytes, sizeof bytes);
    struct lh_grant_key out;
    lh_put_u32(&b, shard);
    struct lh_hash h = keyed(run, "longhaul grant key 1", job, lh_buf_span(&b));
    memcpy(out.b, h.b, sizeof out.b);
    return out;
}

struct lh_grant lh_grant_make(const struct lh_grant_key *shard, const uint8_t job[JOB_BYTES],
                              uint64_t unit, uint64_t worker, uint32_t number)
{
    uint8_t bytes[TEXT_BYTES];
    struct lh_buf b = lh_buf_over(bytes, sizeof bytes);
    struct lh_grant out = {.number = number};
    lh_put_u64(&b, unit);
    lh_put_u64(&b, worker);
    lh_put_u32(&b, number);
    struct lh_hash h = keyed(shard, "longhaul grant 1", job, lh_buf_span(&b));
    memcpy(out.tag, h.b, sizeof out.tag);
    return out;
}

// Compares in constant time.
static bool equal(const uint8_t *a, const uint8_t *b, size_t n)
{
    uint8_t differ = 0;
    for (size_t i = 0; i < n; i++) differ |= (uint8_t)(a[i] ^ b[i]);
    return !differ;
}

bool lh_grant_valid(const struct lh_grant_key *shard, const uint8_t job[JOB_BYTES], uint64_t unit,
                    uint64_t worker, const struct lh_grant *grant)
{
    struct lh_grant want = lh_grant_make(shard, job, unit, worker, grant->number);
    return equal(want.tag, grant->tag, sizeof want.tag);
}

uint64_t lh_allowance_tag(const struct lh_grant_key *shard, const uint8_t job[JOB_BYTES],
                          uint64_t worker, float allowance)
{
    uint8_t bytes[TEXT_BYTES];
    struct lh_buf b = lh_buf_over(bytes, sizeof bytes);
    lh_put_u64(&b, worker);
    lh_put_f32(&b, allowance);
    struct lh_hash h = keyed(shard, "longhaul allowance 1", job, lh_buf_span(&b));
    struct lh_cursor c = lh_cursor(lh_span(h.b, 8));
    return lh_get_u64(&c);
}

void lh_claim_write(uint64_t unit, const struct lh_grant *grant, struct lh_buf *out)
{
    lh_put_u32(out, (uint32_t)unit);
    lh_put_u32(out, grant->number);
    lh_put(out, grant->tag, LH_GRANT_TAG_BYTES);
}

uint64_t lh_claim_read(struct lh_cursor *c, struct lh_grant *grant)
{
    uint64_t unit = lh_get_u32(c);
    grant->number = lh_get_u32(c);
    lh_get_into(c, grant->tag, LH_GRANT_TAG_BYTES);
    return unit;
}
