// Wire: messages as plain structs.
//
// Policy and cores see structs such as struct lh_push_head (wire_shard.h, wire_member.h,
// wire_admin.h, wire_data.h). A table per message (struct lh_wire_type) says which protobuf field
// each member is, and the member's bounds. Only the files with these tables see generated code.
//
// Conventions of all plain structs:
//
//   - Zero, "" and an empty span or array are protobuf's defaults: absent.
//   - `has_x` says whether the sub-message `x` is there; a sub-message without it reads as zeros.
//   - Texts are never NULL after reading. NULL is written as "".
//   - A hash or digest that is absent reads as zeros.
//   - A number that is not finite reads as 0. A measurement (struct lh_estimate, struct lh_trip)
//     with mean 0 is unknown, and is not written.
//   - Spans, texts and arrays borrow: from the caller when written, from struct lh_got when read.
#ifndef LH_COMMON_WIRE_H
#define LH_COMMON_WIRE_H

#include "common/base/buf.h"
#include "common/base/estimate.h"
#include "common/format/point.h"
#include "common/net/trip.h"

struct lh_wire_type;

// A message's type and its plain struct, as two arguments; the compiler checks that they match.
#define LH_MESSAGE(name, message)                                                                  \
    &lh_wire_##name, (const struct lh_##name *)                                                    \
    {                                                                                              \
        message                                                                                    \
    }

struct lh_got {          // a message that was read
    const void *message; // the plain struct of its type
    void *unpacked;      // protobuf-c's struct, from which `message` borrows
    void *blocks;        // memory of `message`
};

// Reads a field's tag, and its value, or the length of its bytes: these come next. Bytes of a field
// of fixed length are skipped. False: it can't be read.
bool lh_wire_tag(struct lh_cursor *c, uint64_t *tag, uint64_t *n);

// Reads a message and checks its bounds, first of all the number of its fields. LH_ERR_MALFORMED,
// LH_ERR_TOO_LARGE, LH_ERR_NO_MEMORY: `out` is empty. Free with lh_got_free().
LH_MUST lh_err lh_wire_get(const struct lh_wire_type *type, struct lh_span bytes,
                           struct lh_got *out);
void lh_got_free(struct lh_got *got); // an empty one is allowed
// Appends a message. LH_ERR_NO_MEMORY, LH_ERR_TOO_LARGE: it does not fit into `out`.
LH_MUST lh_err lh_wire_put(const struct lh_wire_type *type, const void *message,
                           struct lh_buf *out);
const char *lh_wire_name(const struct lh_wire_type *type); // its name in errors

// ---------------------------------------------------------------- parts of many messages

struct lh_versions { // wire versions that a side speaks; max 0: not named
    uint32_t min, max;
};
struct lh_versions lh_versions_ours(void);

struct lh_run {              // the run that a request belongs to
    struct lh_span job;      // LH_JOB_BYTES
    struct lh_span manifest; // hash of the model's manifest
};
// Borrows job[LH_JOB_BYTES] and the hash of the model's manifest.
struct lh_run lh_run_of(const uint8_t *job, const struct lh_hash *model);
// LH_ERR_DENIED, LH_ERR_MANIFEST: `run` is not ours. The texts call the peer `who`.
LH_MUST lh_err lh_run_check(const struct lh_run *run, const uint8_t *job,
                            const struct lh_hash *model, const char *who);

struct lh_shard_point { // a point of a shard's history
    uint32_t shard;
    bool chained; // the message names a chain
    struct lh_point at;
};
struct lh_shard_point lh_shard_point(uint32_t shard, uint64_t epoch, uint64_t version,
                                     const struct lh_hash *chain);

#endif
