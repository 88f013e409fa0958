// Identities of peers in certificates. See identity.h.
//
// The text comes from a certificate that our CA signed, but is parsed as hostile: one form, one
// alphabet, no escapes, no empty part, nothing before or after. Two different texts never name the
// same peer, so comparing names compares peers.
#include "common/security/identity.h"

#include <stdio.h>
#include <string.h>

#include "common/base/check.h"

static const struct {
    enum lh_role role;
    const char *name;
} roles[] = {{LH_W, "worker"}, {LH_S, "server"}, {LH_C, "coordinator"}, {LH_A, "admin"}};

const char *lh_role_name(enum lh_role role)
{
    for (size_t i = 0; i < LH_COUNT(roles); i++)
        if (roles[i].role == role) return roles[i].name;
    return "unknown";
}

lh_err lh_role_parse(const char *text, enum lh_role *out)
{
    for (size_t i = 0; i < LH_COUNT(roles); i++) {
        if (strcmp(roles[i].name, text) != 0) continue;
        *out = roles[i].role;
        return LH_OK;
    }
    return lh_fail(LH_ERR_INVALID, "\"%s\" is not a role; use worker, server, coordinator or admin",
                   text);
}

static bool is_name(struct lh_span part)
{
    if (part.len == 0 || part.len >= LH_NAME_BYTES) return false;
    for (size_t i = 0; i < part.len; i++) {
        uint8_t c = part.data[i];
        bool ok =
            (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
        if (!ok) return false;
    }
    // "." and ".." mean folders, and SPIFFE forbids them; names become parts of paths.
    return !lh_span_equal(part, lh_span_str(".")) && !lh_span_equal(part, lh_span_str(".."));
}

// Takes the part before the next '/' off `rest`; all of `rest` if it has none.
static struct lh_span next_part(struct lh_span *rest)
{
    const uint8_t *slash = rest->len ? memchr(rest->data, '/', rest->len) : NULL;
    size_t n = slash ? (size_t)(slash - rest->data) : rest->len;
    struct lh_span part = lh_span(rest->data, n);
    size_t taken = slash ? n + 1 : n;
    *rest = lh_span(rest->data + taken, rest->len - taken);
    return part;
}

static bool take_name(struct lh_span *rest, char out[LH_NAME_BYTES])
{
    struct lh_span part = next_part(rest);
    if (!is_name(part)) return false;
    memcpy(out, part.data, part.len);
    out[part.len] = 0;
    return true;
}

static bool ends_with_slash(struct lh_span s)
{
    return s.len && s.data[s.len - 1] == '/';
}

lh_err lh_peer_parse(struct lh_span uri, struct lh_peer *out)
{
    static const char scheme[] = "spiffe://";
    const size_t skip = sizeof scheme - 1;
    struct lh_peer peer = {0};
    char fixed[LH_NAME_BYTES], role[LH_NAME_BYTES];
    bool ok = uri.len > skip && uri.len < LH_URI_BYTES && !memcmp(uri.data, scheme, skip) &&
              !ends_with_slash(uri);
    struct lh_span rest = ok ? lh_span(uri.data + skip, uri.len - skip) : (struct lh_span){0};
    ok = ok && take_name(&rest, peer.domain) && take_name(&rest, fixed) &&
         !strcmp(fixed, "longhaul") && take_name(&rest, peer.run) && take_name(&rest, role) &&
         !lh_role_parse(role, &peer.role) && take_name(&rest, peer.region) &&
         take_name(&rest, peer.name) && rest.len == 0;
    if (!ok)
        return lh_fail(LH_ERR_UNAUTHENTICATED,
                       "\"%.*s\" is no identity of the form "
                       "spiffe://<domain>/longhaul/<run>/<role>/<region>/<name>; issue the "
                       "certificate with `longhaul certs`",
                       (int)(uri.len < LH_URI_BYTES ? uri.len : LH_URI_BYTES),
                       uri.len ? (const char *)uri.data : "");
    *out = peer;
    return LH_OK;
}

void lh_peer_uri(const struct lh_peer *peer, char out[LH_URI_BYTES])
{
    LH_STATIC_ASSERT(sizeof "spiffe:///longhaul///coordinator//" + 4 * (LH_NAME_BYTES - 1) <=
                         LH_URI_BYTES,
                     "the longest identity fits");
    snprintf(out, LH_URI_BYTES, "spiffe://%s/longhaul/%s/%s/%s/%s", peer->domain, peer->run,
             lh_role_name(peer->role), peer->region, peer->name);
}

bool lh_peer_same(const struct lh_peer *a, const struct lh_peer *b)
{
    return a->role == b->role && !strcmp(a->region, b->region) && !strcmp(a->name, b->name);
}
