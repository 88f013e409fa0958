// Group commit: from queued items to durable records.
#ifndef PS_GROUP_COMMIT_H
#define PS_GROUP_COMMIT_H

#include "server/push/item.h"

void ps_group_commit_run(struct ps_server *s); // handles PS_WISHED: makes a group, if one is due
bool ps_at_rest(const struct ps_server *s);    // no record and no checkpoint is under way

#endif
