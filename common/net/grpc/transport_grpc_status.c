// Statuses: our codes and gRPC's, one table.
//
// A status is sent as gRPC's code, which every client and proxy understands, and as our code's name
// in the trailing metadata `lh-err`, which keeps the exact code. A status without it comes from
// gRPC itself or from a proxy, and the second table maps it. There INTERNAL, UNKNOWN and DATA_LOSS
// mean a broken connection, never a fault of our own machine.
#include "common/net/grpc/transport_grpc_core.h"

#include <string.h>

#include "common/base/check.h"
#include "common/base/text.h"

const char lh_grpc_err_key[] = "lh-err";

static const struct {
    lh_err err;
    grpc_status_code code;
} table[] = {
    {LH_OK, GRPC_STATUS_OK},
    {LH_ERR_INVALID, GRPC_STATUS_INVALID_ARGUMENT},
    {LH_ERR_CONFIG, GRPC_STATUS_FAILED_PRECONDITION},
    {LH_ERR_MALFORMED, GRPC_STATUS_INVALID_ARGUMENT},
    {LH_ERR_TOO_LARGE, GRPC_STATUS_OUT_OF_RANGE},
    {LH_ERR_VERSION, GRPC_STATUS_FAILED_PRECONDITION},
    {LH_ERR_DENIED, GRPC_STATUS_PERMISSION_DENIED},
    {LH_ERR_UNAUTHENTICATED, GRPC_STATUS_UNAUTHENTICATED},
    {LH_ERR_UNSEAL, GRPC_STATUS_INVALID_ARGUMENT},
    {LH_ERR_KEY_MISSING, GRPC_STATUS_FAILED_PRECONDITION},
    {LH_ERR_MANIFEST, GRPC_STATUS_FAILED_PRECONDITION},
    {LH_ERR_NON_FINITE, GRPC_STATUS_INVALID_ARGUMENT},
    {LH_ERR_STALE, GRPC_STATUS_ABORTED},
    {LH_ERR_FENCED, GRPC_STATUS_ABORTED},
    {LH_ERR_BEHIND, GRPC_STATUS_ABORTED},
    {LH_ERR_NEED_HELLO, GRPC_STATUS_FAILED_PRECONDITION},
    {LH_ERR_PROTOCOL, GRPC_STATUS_FAILED_PRECONDITION},
    {LH_ERR_NOT_OWNER, GRPC_STATUS_UNAVAILABLE},
    {LH_ERR_BUSY, GRPC_STATUS_RESOURCE_EXHAUSTED},
    {LH_ERR_UNAVAILABLE, GRPC_STATUS_UNAVAILABLE},
    {LH_ERR_REBUILDING, GRPC_STATUS_UNAVAILABLE},
    {LH_ERR_DEADLINE, GRPC_STATUS_DEADLINE_EXCEEDED},
    {LH_ERR_CANCELLED, GRPC_STATUS_CANCELLED},
    {LH_ERR_NOT_FOUND, GRPC_STATUS_NOT_FOUND},
    {LH_ERR_EXISTS, GRPC_STATUS_ALREADY_EXISTS},
    {LH_ERR_CONFLICT, GRPC_STATUS_ABORTED},
    {LH_ERR_NO_MEMORY, GRPC_STATUS_RESOURCE_EXHAUSTED},
    {LH_ERR_DISK_FULL, GRPC_STATUS_RESOURCE_EXHAUSTED},
    {LH_ERR_IO, GRPC_STATUS_INTERNAL},
    {LH_ERR_CORRUPT, GRPC_STATUS_DATA_LOSS},
    {LH_ERR_KILLED, GRPC_STATUS_UNAVAILABLE},
    {LH_ERR_UNSUPPORTED, GRPC_STATUS_UNIMPLEMENTED},
    {LH_ERR_INTERNAL, GRPC_STATUS_INTERNAL},
    {LH_ERR_SET_ASIDE, GRPC_STATUS_PERMISSION_DENIED},
    {LH_ERR_EXPELLED, GRPC_STATUS_PERMISSION_DENIED},
    {LH_ERR_GRANT, GRPC_STATUS_PERMISSION_DENIED},
    {LH_ERR_BOUND, GRPC_STATUS_INVALID_ARGUMENT},
    {LH_ERR_BUDGET, GRPC_STATUS_FAILED_PRECONDITION},
};
LH_STATIC_ASSERT(LH_COUNT(table) == LH_ERR_COUNT, "a row for every error");

// Maps a status without our metadata.
static const struct {
    grpc_status_code code;
    lh_err err;
} foreign[] = {
    {GRPC_STATUS_OK, LH_OK},
    {GRPC_STATUS_CANCELLED, LH_ERR_CANCELLED},
    {GRPC_STATUS_INVALID_ARGUMENT, LH_ERR_INVALID},
    {GRPC_STATUS_DEADLINE_EXCEEDED, LH_ERR_DEADLINE},
    {GRPC_STATUS_NOT_FOUND, LH_ERR_NOT_FOUND},
    {GRPC_STATUS_ALREADY_EXISTS, LH_ERR_EXISTS},
    {GRPC_STATUS_PERMISSION_DENIED, LH_ERR_DENIED},
    {GRPC_STATUS_UNAUTHENTICATED, LH_ERR_UNAUTHENTICATED},
    {GRPC_STATUS_RESOURCE_EXHAUSTED, LH_ERR_BUSY},
    {GRPC_STATUS_FAILED_PRECONDITION, LH_ERR_PROTOCOL},
    {GRPC_STATUS_ABORTED, LH_ERR_CONFLICT},
    {GRPC_STATUS_OUT_OF_RANGE, LH_ERR_TOO_LARGE},
    {GRPC_STATUS_UNIMPLEMENTED, LH_ERR_UNSUPPORTED},
};

grpc_status_code lh_grpc_code(lh_err err)
{
    for (size_t i = 0; i < LH_COUNT(table); i++)
        if (table[i].err == err) return table[i].code;
    return GRPC_STATUS_INTERNAL;
}

static lh_err err_of_name(grpc_slice name)
{
    for (size_t i = 0; i < LH_COUNT(table); i++)
        if (grpc_slice_str_cmp(name, lh_err_name(table[i].err)) == 0) return table[i].err;
    return LH_OK;
}

lh_err lh_grpc_err(grpc_status_code code, const grpc_metadata_array *trailing, const char *details)
{
    if (code == GRPC_STATUS_OK) return LH_OK;
    for (size_t i = 0; i < trailing->count; i++) {
        if (grpc_slice_str_cmp(trailing->metadata[i].key, lh_grpc_err_key) != 0) continue;
        lh_err err = err_of_name(trailing->metadata[i].value);
        if (err != LH_OK) return err; // an unknown code of a newer peer: falls back to gRPC's
    }
    if (code == GRPC_STATUS_RESOURCE_EXHAUSTED && strstr(details, "larger than max"))
        return LH_ERR_TOO_LARGE;
    for (size_t i = 0; i < LH_COUNT(foreign); i++)
        if (foreign[i].code == code) return foreign[i].err;
    return LH_ERR_UNAVAILABLE;
}

void lh_grpc_text(grpc_slice from, char *out, size_t size)
{
    size_t n = GRPC_SLICE_LENGTH(from);
    if (n >= size) n = size - 1;
    if (n) memcpy(out, GRPC_SLICE_START_PTR(from), n);
    out[n] = 0;
    lh_text_tame(out, n);
}
