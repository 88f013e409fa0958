// A run's moves between the file store of a directory and etcd.
#ifndef PS_STORE_MOVE_H
#define PS_STORE_MOVE_H

#include "server/coordinator/store.h"
#include "server/coordinator/store/etcd_log.h"

// If `to` has no row and DIR/store is there: copies its rows in one commit, then renames it to
// DIR/store.moved, so that no coordinator starts on it by mistake. *moved: it did. Blocks.
// LH_ERR_BUSY: a coordinator runs on the file.
LH_MUST lh_err ps_store_move(struct lh_env *env, const char *dir, struct ps_store *to, bool *moved);

// Moves the state under `base` from etcd into a new DIR/store. Then etcd says that it was moved,
// and no coordinator leads there any more. *before: an earlier call did it. Takes `log`, a second
// client of the same etcd. LH_ERR_BUSY: a coordinator leads; LH_ERR_EXISTS: DIR/store is there;
// LH_ERR_NOT_FOUND: etcd has no state of the run.
LH_MUST lh_err ps_store_move_back(struct lh_env *env, struct ps_etcd *etcd, struct ps_etcd *log,
                                  const char *base, const char *dir, bool *before);

#endif
