// Manual pages and shell completion, generated from the commands' own flag tables: each command is
// run with `--help=json`, so no second list exists.
#ifndef DP_MANUAL_H
#define DP_MANUAL_H

#include <jansson.h>

#include "common/base/buf.h"
#include "common/base/err.h"

// Loads every command: [{"name", "help", "usage", "text", "flags", "words": [], "own": [pages of
// words with their own flags, named by the word]}]. Standard output is redirected meanwhile.
// LH_ERR_IO, LH_ERR_MALFORMED: a command does not print its table.
LH_MUST lh_err dp_manual_load(json_t **out);

void dp_manual_bash(const json_t *pages, struct lh_buf *out);
void dp_manual_zsh(const json_t *pages, struct lh_buf *out);
// The man page of one command; NULL: of the tool. LH_ERR_INVALID: no such command.
LH_MUST lh_err dp_manual_page(const json_t *pages, const char *command, struct lh_buf *out);

#endif
