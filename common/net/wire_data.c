// Tables of the messages of a unit that travels. See wire_data.h.
#include "common/net/wire_data.h"

#include "common/net/wire_table.h"
#include "longhaul/v1/data.pb-c.h"

enum { ID_BYTES = 64 }; // a job or a hash, with room: its length is compared later

#define T struct lh_unit_request
static const struct lh_wire_row unit_request_rows[] = {
    BYTES(1, job, ID_BYTES),
    BYTES(2, units, ID_BYTES),
    U64(3, unit),
    BOOL(4, lz4),
};
LH_WIRE_TYPE(unit_request, longhaul__v1);
#undef T

#define T struct lh_unit_head
static const struct lh_wire_row unit_head_rows[] = {
    U64(1, bytes),
    U64(2, sent_bytes),
    BOOL(3, lz4),
};
LH_WIRE_TYPE(unit_head, longhaul__v1);
#undef T
