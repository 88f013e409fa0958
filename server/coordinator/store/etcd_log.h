// The store's log of commits in etcd.
//
//   BASE/leader             the leader's key; each change of the others has it as its fence
//   BASE/log                "1 LOG": the version of this layout, and the log in force; or
//                           PS_ETCD_LOG_MOVED: the state is in a file now (move.h)
//   BASE/log/LOG/N/PIECE    commit N of a log (../store.h), in pieces of PS_ETCD_VALUE_BYTES; LOG
//                           and N are 16, PIECE 8 hexadecimal digits
//
// BASE is /PREFIX/RUN. Commits are numbered from 1 on, without gaps. The piece with the head, 0, is
// written last: a commit without it was never acknowledged, and the next one of its number writes
// over it. The next log is written beside the present one; one transaction names it, where the
// present one is in force still, and removes all logs with lower numbers. A log's number is above
// those of all before it, and none is used twice: a request that arrives late, after a later copy
// of it was answered, concerns no log in force. A log is replaced when a file would be, so that
// etcd holds at most four times the rows.
#ifndef PS_STORE_ETCD_LOG_H
#define PS_STORE_ETCD_LOG_H

#include "server/coordinator/store/etcd.h"
#include "server/coordinator/store/medium.h"

#define PS_ETCD_LOG_MOVED "moved to a file"

struct ps_etcd_log_conf {
    struct ps_etcd *etcd; // taken, on failure too
    const char *base;     // copied
    int64_t created;      // create_revision of BASE/leader
    // Called now and then while the log is read, which may take long; an error ends it. May be
    // NULL.
    lh_err (*beat)(void *arg);
    void *beat_arg;
};

// Reads the log in force into a store; there is a new one where there is none. Blocks.
// LH_ERR_CONFLICT: somebody else leads; LH_ERR_UNAVAILABLE; LH_ERR_CORRUPT; LH_ERR_CONFIG: it was
// moved to a file.
LH_MUST lh_err ps_store_open_etcd(const struct ps_etcd_log_conf *conf, struct ps_store **out);

#endif
