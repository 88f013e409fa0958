// Head: the parts that requests and answers share: their run, the wire versions of this build,
// points of a shard's history.
#ifndef LH_COMMON_HEAD_H
#define LH_COMMON_HEAD_H

#include "common/base/buf.h"
#include "common/format/frame.h"
#include "common/format/point.h"
#include "common/net/trip.h"
#include "longhaul/v1/member.pb-c.h"

Longhaul__V1__Wire lh_head_wire(void); // this build's range of wire versions

// The run's fields of a request. They borrow job[LH_JOB_BYTES] and `model`, the manifest's hash.
void lh_head_run(const uint8_t *job, const struct lh_hash *model, ProtobufCBinaryData *out_job,
                 ProtobufCBinaryData *out_manifest);
// Checks that a request is of our run. The texts of LH_ERR_DENIED and LH_ERR_MANIFEST call the peer
// `who`.
LH_MUST lh_err lh_head_check_run(const uint8_t *job, const struct lh_hash *model,
                                 const ProtobufCBinaryData *its_job,
                                 const ProtobufCBinaryData *its_manifest, const char *who);

Longhaul__V1__Point lh_head_point(uint32_t shard, uint64_t epoch, uint64_t version,
                                  const struct lh_hash *chain); // borrows the chain
// `m` NULL: version and epoch 0. A chain whose length is not a hash's counts as unknown.
struct lh_point lh_point_of(const Longhaul__V1__Point *m);

Longhaul__V1__Trip lh_head_trip(struct lh_trip trip); // mean 0: unknown

#endif
