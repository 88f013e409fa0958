// lh_peer_parse on any URI: an accepted one prints as the same bytes.
#include <string.h>

#include "common/base/check.h"
#include "common/security/identity.h"
#include "tests/fuzz/fuzz.h"

static void check_name(const char name[LH_NAME_BYTES])
{
    size_t n = strnlen(name, LH_NAME_BYTES);
    LH_ASSERT(n >= 1 && n < LH_NAME_BYTES);
    LH_ASSERT(strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lh_peer peer = {0};
    char uri[LH_URI_BYTES];
    lh_err err = lh_peer_parse(lh_span(data, size), &peer);
    if (err) {
        LH_ASSERT(err == LH_ERR_UNAUTHENTICATED);
        return 0;
    }
    LH_ASSERT(peer.role == LH_W || peer.role == LH_S || peer.role == LH_C || peer.role == LH_A);
    check_name(peer.domain);
    check_name(peer.run);
    check_name(peer.region);
    check_name(peer.name);
    lh_peer_uri(&peer, uri);
    LH_ASSERT(strlen(uri) == size && memcmp(uri, data, size) == 0);
    return 0;
}
