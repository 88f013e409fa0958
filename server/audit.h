// Audit: records actions on a run, in DIR/audit.jsonl of the coordinator and of each server.
//
// It holds joins and hellos, refused calls (reported by the transport), operators' reads of the
// model, and all operators' commands. `longhaul events --audit` shows it. Lines that a peer can
// cause are limited to LH_LOG_PEER_RATE a minute and event after a burst; the rest is counted. The
// lines are written beside the loop (lh_log_apart), so a hanging disk blocks nothing.
#ifndef PS_AUDIT_H
#define PS_AUDIT_H

#include "common/env/log.h"
#include "common/security/identity.h"

// Notes an action of a peer, or a refusal. `audit` NULL: does nothing.
void ps_audit(struct lh_log *audit, const char *event, const struct lh_peer *peer,
              const char *format, ...) __attribute__((format(printf, 4, 5)));
// Notes a refused call. `log` is a struct lh_log, or NULL (lh_grpc_refused_fn).
void ps_audit_refused(void *log, const struct lh_peer *peer, const char *rpc, const char *text);
// Notes an operator's command, without that limit: lh_log_sync() makes it durable
// (coordinator/commit.h).
void ps_audit_admin(struct lh_log *audit, const char *event, const struct lh_peer *peer,
                    const char *text);

#endif
