// A run's move from the file store of a directory into another store.
#ifndef PS_STORE_MOVE_H
#define PS_STORE_MOVE_H

#include "server/coordinator/store.h"

// If `to` has no row and DIR/store is there: copies its rows in one commit, then renames it to
// DIR/store.moved, so that no coordinator starts on it by mistake. *moved: it did. Blocks.
// LH_ERR_BUSY: a coordinator runs on the file.
LH_MUST lh_err ps_store_move(struct lh_env *env, const char *dir, struct ps_store *to, bool *moved);

#endif
