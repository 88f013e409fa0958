// Head: the parts that requests and answers share. See head.h.
#include "common/net/head.h"

#include <string.h>

#include "common/base/limits.h"

static ProtobufCBinaryData borrow(const uint8_t *bytes, size_t n)
{
    return (ProtobufCBinaryData){n, (uint8_t *)(uintptr_t)bytes}; // protobuf-c only reads the bytes
}

static bool is(const ProtobufCBinaryData *field, const uint8_t *bytes, size_t n)
{
    return lh_span_equal(lh_span(field->data, field->len), lh_span(bytes, n));
}

Longhaul__V1__Wire lh_head_wire(void)
{
    Longhaul__V1__Wire wire = LONGHAUL__V1__WIRE__INIT;
    wire.min = LH_WIRE_VERSION_MIN;
    wire.max = LH_WIRE_VERSION_MAX;
    return wire;
}

void lh_head_run(const uint8_t *job, const struct lh_hash *model, ProtobufCBinaryData *out_job,
                 ProtobufCBinaryData *out_manifest)
{
    *out_job = borrow(job, LH_JOB_BYTES);
    *out_manifest = borrow(model->b, LH_HASH_BYTES);
}

lh_err lh_head_check_run(const uint8_t *job, const struct lh_hash *model,
                         const ProtobufCBinaryData *its_job,
                         const ProtobufCBinaryData *its_manifest, const char *who)
{
    if (!is(its_job, job, LH_JOB_BYTES))
        return lh_fail(LH_ERR_DENIED,
                       "a %s of another run; check the certificates (tls.cert) of both sides", who);
    if (!is(its_manifest, model->b, LH_HASH_BYTES))
        return lh_fail(LH_ERR_MANIFEST,
                       "a %s with another model's manifest; give servers and workers the same "
                       "model.manifest",
                       who);
    return LH_OK;
}

Longhaul__V1__Point lh_head_point(uint32_t shard, uint64_t epoch, uint64_t version,
                                  const struct lh_hash *chain)
{
    Longhaul__V1__Point point = LONGHAUL__V1__POINT__INIT;
    point.shard = shard;
    point.epoch = epoch;
    point.version = version;
    point.chain = borrow(chain->b, LH_HASH_BYTES);
    return point;
}

struct lh_point lh_point_of(const Longhaul__V1__Point *m)
{
    struct lh_point p = {0};
    if (!m) return p;
    p.epoch = m->epoch;
    p.version = m->version;
    if (m->chain.len == LH_HASH_BYTES) memcpy(p.chain.b, m->chain.data, LH_HASH_BYTES);
    return p;
}

Longhaul__V1__Trip lh_head_trip(struct lh_trip trip)
{
    Longhaul__V1__Trip m = LONGHAUL__V1__TRIP__INIT;
    m.mean_us = lh_trip_us(trip.mean_ns);
    m.spread_us = lh_trip_us(trip.spread_ns);
    return m;
}
