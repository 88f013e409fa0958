// Transport: the table of RPCs with the roles that may call them, and copying from a message;
// shared by both transports.
#include "common/net/transport.h"

#include <string.h>

#include "common/base/check.h"

static const struct {
    const char *path;
    unsigned roles;
} rpcs[LH_RPC_COUNT] = {
#define LH_RPC_ROW(id, path_, roles_, ...) [id] = {path_, roles_},
    LH_RPCS(LH_RPC_ROW)
#undef LH_RPC_ROW
};

const char *lh_rpc_path(enum lh_rpc rpc)
{
    LH_ASSERT((unsigned)rpc < LH_RPC_COUNT);
    return rpcs[rpc].path;
}

bool lh_rpc_allowed(enum lh_rpc rpc, enum lh_role role)
{
    bool one = role == LH_W || role == LH_S || role == LH_C || role == LH_A;
    return one && (unsigned)rpc < LH_RPC_COUNT && (rpcs[rpc].roles & (unsigned)role) != 0;
}

bool lh_msg_copy(const struct lh_msg *m, size_t at, void *out, size_t n)
{
    if (at > m->len || n > m->len - at) return false;
    uint8_t *to = out;
    for (size_t i = 0; i < m->parts && n; i++) {
        struct lh_span part = m->part[i];
        if (at >= part.len) {
            at -= part.len;
            continue;
        }
        size_t k = part.len - at < n ? part.len - at : n;
        memcpy(to, part.data + at, k);
        to += k;
        n -= k;
        at = 0;
    }
    LH_ASSERT(n == 0); // `len` is the sum of the parts
    return true;
}
