// Messages of every RPC, as a peer's bytes arrive: in slices, with and without bulk.
//
// Byte 0 chooses the message's type, byte 1 the length of the slices (0: one slice).
#include <stdlib.h>

#include "common/base/check.h"
#include "common/net/rpc.h"
#include "longhaul/v1/data.pb-c.h"
#include "longhaul/v1/health.pb-c.h"
#include "longhaul/v1/member.pb-c.h"
#include "longhaul/v1/shard.pb-c.h"
#include "tests/fuzz/fuzz.h"

static const ProtobufCMessageDescriptor *const types[] = {
    &grpc__health__v1__health_check_request__descriptor,
    &longhaul__v1__join_request__descriptor,
    &longhaul__v1__join_reply__descriptor,
    &longhaul__v1__lease_request__descriptor,
    &longhaul__v1__lease_reply__descriptor,
    &longhaul__v1__report_request__descriptor,
    &longhaul__v1__report_reply__descriptor,
    &longhaul__v1__status_reply__descriptor,
    &longhaul__v1__hello_request__descriptor,
    &longhaul__v1__hello_reply__descriptor,
    &longhaul__v1__push_head__descriptor,
    &longhaul__v1__push_resume__descriptor,
    &longhaul__v1__push_reply__descriptor,
    &longhaul__v1__follow_request__descriptor,
    &longhaul__v1__snapshot_request__descriptor,
    &longhaul__v1__part_head__descriptor,
    &longhaul__v1__epoch_request__descriptor,
    &longhaul__v1__epoch_reply__descriptor,
    &longhaul__v1__in_sync_request__descriptor,
    &longhaul__v1__in_sync_reply__descriptor,
    &longhaul__v1__confirm_request__descriptor,
    &longhaul__v1__confirm_reply__descriptor,
    &longhaul__v1__offer_request__descriptor,
    &longhaul__v1__offer_reply__descriptor,
    &longhaul__v1__restore_head__descriptor,
    &longhaul__v1__status_request__descriptor,
    &longhaul__v1__drain_request__descriptor,
    &longhaul__v1__drain_reply__descriptor,
    &longhaul__v1__move_request__descriptor,
    &longhaul__v1__move_reply__descriptor,
    &longhaul__v1__restore_reply__descriptor,
    &longhaul__v1__shard_status_request__descriptor,
    &grpc__health__v1__health_check_response__descriptor,
    &longhaul__v1__unit_request__descriptor,
    &longhaul__v1__unit_head__descriptor,
};

static void parse(const struct lh_msg *msg, const ProtobufCMessageDescriptor *type)
{
    ProtobufCMessage *m = NULL;
    size_t at = 0;
    lh_err err = lh_rpc_parse(msg, type, &m);
    LH_ASSERT(err == LH_OK || err == LH_ERR_MALFORMED || err == LH_ERR_TOO_LARGE);
    LH_ASSERT((m != NULL) == (err == LH_OK));
    if (m) protobuf_c_message_free_unpacked(m, NULL);

    m = NULL;
    err = lh_rpc_parse_bulk(msg, type, &m, &at);
    LH_ASSERT(err == LH_OK || err == LH_ERR_MALFORMED || err == LH_ERR_TOO_LARGE);
    LH_ASSERT((m != NULL) == (err == LH_OK));
    if (m) {
        LH_ASSERT(at <= msg->len);
        protobuf_c_message_free_unpacked(m, NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3) return 0;
    const ProtobufCMessageDescriptor *type = types[data[0] % LH_COUNT(types)];
    size_t len = size - 2, slice = data[1] ? data[1] : len;
    size_t parts = (len + slice - 1) / slice;
    struct lh_span *part = malloc(parts * sizeof *part);
    LH_ASSERT(part);
    for (size_t i = 0; i < parts; i++) {
        size_t at = i * slice;
        part[i] = lh_span(data + 2 + at, len - at < slice ? len - at : slice);
    }
    struct lh_msg msg = {.part = part, .parts = parts, .len = len};
    parse(&msg, type);
    free(part);
    return 0;
}
