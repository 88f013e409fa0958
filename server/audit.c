// Audit. See audit.h.
#include "server/audit.h"

#include <stdarg.h>
#include <stdio.h>

enum { TEXT_BYTES = 512 };

void ps_audit(struct lh_log *audit, const char *event, const struct lh_peer *peer,
              const char *format, ...)
{
    char uri[LH_URI_BYTES], text[TEXT_BYTES];
    va_list args;
    if (!audit) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    lh_peer_uri(peer, uri);
    lh_log_peer(audit, LH_INFO, event, "%s: %s", uri, text);
}

void ps_audit_admin(struct lh_log *audit, const char *event, const struct lh_peer *peer,
                    const char *text)
{
    char uri[LH_URI_BYTES];
    if (!audit) return;
    lh_peer_uri(peer, uri);
    lh_logf(audit, LH_INFO, event, "%s: %s", uri, text);
}

void ps_audit_refused(void *log, const struct lh_peer *peer, const char *rpc, const char *text)
{
    ps_audit(log, "audit.refused", peer, "%s: %s", rpc, text);
}
