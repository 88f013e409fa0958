// Head: what requests and answers share. Which run they are of, which wire versions are understood
// here, points of a shard's history.
#ifndef LH_COMMON_HEAD_H
#define LH_COMMON_HEAD_H

#include "common/base/buf.h"
#include "common/format/frame.h"
#include "common/format/point.h"
#include "common/net/trip.h"
#include "longhaul/v1/member.pb-c.h"

Longhaul__V1__Wire lh_head_wire(void); // from the oldest to the newest that we understand

// The run's fields of a request. They borrow job[LH_JOB_BYTES] and `model`, the hash of the
// manifest.
void lh_head_run(const uint8_t *job, const struct lh_hash *model, ProtobufCBinaryData *out_job,
                 ProtobufCBinaryData *out_manifest);
// Whether a request is of our run. LH_ERR_DENIED, LH_ERR_MANIFEST, whose texts call the peer `who`.
LH_MUST lh_err lh_head_check_run(const uint8_t *job, const struct lh_hash *model,
                                 const ProtobufCBinaryData *its_job,
                                 const ProtobufCBinaryData *its_manifest, const char *who);

Longhaul__V1__Point lh_head_point(uint32_t shard, uint64_t epoch, uint64_t version,
                                  const struct lh_hash *chain); // borrows the chain
// Version and epoch 0: `m` is NULL. A chain of another length than a hash's counts as not named.
struct lh_point lh_point_of(const Longhaul__V1__Point *m);

Longhaul__V1__Trip lh_head_trip(struct lh_trip trip); // a mean of 0 where it is not known

#endif
