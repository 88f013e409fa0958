// A history's files on the real disk, where the tools look for them. The history itself is made on
// a fake disk, which is faster because its syncs take no time.
#ifndef TESTS_HISTORY_FILES_H
#define TESTS_HISTORY_FILES_H

#include "tests/history/history.h"

// Copies all files as they are now into DIR/log and DIR/checkpoints.
void history_copy_out(const struct history *h, const char *dir);
// Copies one file; `sub` is "log" or "checkpoints".
void history_copy_one(const struct history *h, const char *sub, const char *name, const char *dir);
// Writes DIR/expect.txt: "shard version chain digest" of every version.
void history_write_expect(const struct history *h, const char *dir);
// Writes ROOT/job.keys, model.json and weights.bin (the initial parameters).
void history_write_job(const struct history *h, const char *root);

#endif
