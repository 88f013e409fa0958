// The messages of a unit that travels, as plain structs (proto/longhaul/v1/data.proto; conventions:
// wire.h).
#ifndef LH_COMMON_WIRE_DATA_H
#define LH_COMMON_WIRE_DATA_H

#include "common/net/wire.h"

extern const struct lh_wire_type lh_wire_unit_request, lh_wire_unit_head;

struct lh_unit_request {
    struct lh_span job;   // LH_JOB_BYTES
    struct lh_span units; // hash of the data's manifest
    uint64_t unit;        // a number of the data, not of the run
    bool lz4;             // the answer may be one lz4 frame
};

struct lh_unit_head {    // heads after the first message are empty
    uint64_t bytes;      // the size of the tokens
    uint64_t sent_bytes; // the size of all bulks
    bool lz4;            // the bulks are an lz4 frame
};

#endif
