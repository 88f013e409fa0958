// The boundary to an external trainer on a Unix socket. See socket.c.
#ifndef WK_SOCKET_H
#define WK_SOCKET_H

#include "worker/external/external.h"

// As wk_external_create(), on a Unix socket at `path`, which it creates and removes. The
// directory's modes control who may connect; other users are refused.
LH_MUST lh_err wk_external_listen(const struct wk_external_conf *conf,
                                  const struct wk_external_ops *ops, void *arg, const char *path,
                                  struct wk_external **out);
// Stops all events except those already posted; the memory stays. Call stop() when nothing reads it
// any more.
void wk_external_hush(struct wk_external *x);
void wk_external_stop(struct wk_external *x); // ends listen()

#endif
