// The parts that requests share, in protobuf-c's structs: the run, this build's wire versions,
// points, trips. Tests that play a peer make their messages with these, so that the tables of
// common/net/wire.c read messages that they did not make.
#ifndef TESTS_HEAD_H
#define TESTS_HEAD_H

#include "common/base/limits.h"
#include "common/format/frame.h"
#include "common/net/trip.h"
#include "longhaul/v1/member.pb-c.h"

static inline ProtobufCBinaryData lh_head_borrow(const uint8_t *bytes, size_t n)
{
    return (ProtobufCBinaryData){n, (uint8_t *)(uintptr_t)bytes}; // protobuf-c only reads the bytes
}

static inline Longhaul__V1__Wire lh_head_wire(void)
{
    Longhaul__V1__Wire wire = LONGHAUL__V1__WIRE__INIT;
    wire.min = LH_WIRE_VERSION_MIN;
    wire.max = LH_WIRE_VERSION_MAX;
    return wire;
}

// Borrows job[LH_JOB_BYTES] and `model`, the manifest's hash.
static inline void lh_head_run(const uint8_t *job, const struct lh_hash *model,
                               ProtobufCBinaryData *out_job, ProtobufCBinaryData *out_manifest)
{
    *out_job = lh_head_borrow(job, LH_JOB_BYTES);
    *out_manifest = lh_head_borrow(model->b, LH_HASH_BYTES);
}

// Borrows the chain.
static inline Longhaul__V1__Point lh_head_point(uint32_t shard, uint64_t epoch, uint64_t version,
                                                const struct lh_hash *chain)
{
    Longhaul__V1__Point point = LONGHAUL__V1__POINT__INIT;
    point.shard = shard;
    point.epoch = epoch;
    point.version = version;
    point.chain = lh_head_borrow(chain->b, LH_HASH_BYTES);
    return point;
}

static inline Longhaul__V1__Trip lh_head_trip(struct lh_trip trip)
{
    Longhaul__V1__Trip m = LONGHAUL__V1__TRIP__INIT;
    m.mean_us = lh_trip_us(trip.mean_ns);
    m.spread_us = lh_trip_us(trip.spread_ns);
    return m;
}

#endif
