// Checks of the settings that every node has. See node.h.
#include "common/app/node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

lh_err lh_setting_needed(const char *key, const char *value, const char *who)
{
    if (value[0]) return LH_OK;
    return lh_fail(LH_ERR_CONFIG, "%s is missing: %s needs it", key, who);
}

lh_err lh_address_check(const char *key, const char *value, bool any_port)
{
    const char *colon = strrchr(value, ':');
    char *end = NULL;
    long port = colon ? strtol(colon + 1, &end, 10) : -1;
    bool digits = colon && colon[1] >= '0' && colon[1] <= '9' && !*end;
    bool host = colon && colon > value &&
                (!memchr(value, ':', (size_t)(colon - value)) || // a name or an IPv4 address
                 (value[0] == '[' && colon[-1] == ']'));         // IPv6
    if (host && digits && port <= 65535 && port >= (any_port ? 0 : 1)) return LH_OK;
    return lh_fail(LH_ERR_CONFIG, "%s: \"%.100s\" is not valid, expected host:port%s", key, value,
                   any_port ? " (port 0: any free one)" : "");
}

void lh_job_id(const char *domain, const char *run, uint8_t out[LH_JOB_BYTES])
{
    const struct lh_span parts[] = {lh_span_str("longhaul job 1"), lh_span_str(domain),
                                    lh_span_str("/"), lh_span_str(run)};
    struct lh_hash hash = lh_hash_of(lh_span(NULL, 0), parts, sizeof parts / sizeof parts[0]);
    memcpy(out, hash.b, LH_JOB_BYTES);
}

lh_err lh_addresses_check(const char *key, const char *value)
{
    char one[LH_ADDRESS_BYTES];
    for (const char *at = value;; at++) {
        size_t n = strcspn(at, ",");
        if (n >= sizeof one) return lh_fail(LH_ERR_CONFIG, "%s: an address of %zu bytes", key, n);
        snprintf(one, sizeof one, "%.*s", (int)n, at);
        LH_TRY(lh_address_check(key, one, false));
        at += n;
        if (!*at) return LH_OK;
    }
}

lh_err lh_node_check(const struct lh_node *node)
{
    if (node->coordinator[0]) LH_TRY(lh_addresses_check("coordinator", node->coordinator));
    return lh_setting_needed("tls.key", node->tls.key, "every node");
}

lh_err lh_node_identity(const struct lh_node *node, struct lh_certs_info *out)
{
    lh_err err = lh_certs_inspect(node->tls.cert, out);
    if (err) return lh_fail(err, "tls.cert: %s", lh_err_text(err));
    if (out->ca) return lh_fail(LH_ERR_CONFIG, "tls.cert: %s is a CA's", node->tls.cert);
    return LH_OK;
}
