// A history's files on the real disk, as the tools find them: made on a fake one, which has no
// syncs to wait for.
#ifndef TESTS_HISTORY_FILES_H
#define TESTS_HISTORY_FILES_H

#include "tests/history/history.h"

// The files as they are now, into DIR/log and DIR/checkpoints.
void history_copy_out(const struct history *h, const char *dir);
// One of "log" or "checkpoints".
void history_copy_one(const struct history *h, const char *sub, const char *name, const char *dir);
// DIR/expect.txt: "shard version chain digest" of every version.
void history_write_expect(const struct history *h, const char *dir);
// ROOT/job.keys, model.json, weights.bin (the initial parameters).
void history_write_job(const struct history *h, const char *root);

#endif
