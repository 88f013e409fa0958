// Audit: who did what to a run, in the file DIR/audit.jsonl of the coordinator and of each server.
//
// Joins and greetings, each call that was refused (the transport tells of them), an operator's
// reading of the model, and every operator's word. `longhaul events --audit` shows it. What a peer
// can cause is limited to LH_LOG_PEER_RATE lines a second and event; the rest is counted. The lines
// are written beside the loop (lh_log_apart), so a disk that hangs stops nothing.
#ifndef PS_AUDIT_H
#define PS_AUDIT_H

#include "common/env/log.h"
#include "common/security/identity.h"

// Notes an act of a peer, or a refusal. With `audit` NULL nothing is kept.
void ps_audit(struct lh_log *audit, const char *event, const struct lh_peer *peer,
              const char *format, ...) __attribute__((format(printf, 4, 5)));
// Notes a refused call. `log` is a struct lh_log, or NULL (lh_grpc_refused_fn).
void ps_audit_refused(void *log, const struct lh_peer *peer, const char *rpc, const char *text);
// An operator's word, without that limit: lh_log_sync() makes it durable (coordinator/commit.h).
void ps_audit_admin(struct lh_log *audit, const char *event, const struct lh_peer *peer,
                    const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
