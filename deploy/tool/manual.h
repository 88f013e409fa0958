// Manual pages and shell completion, all generated from the tables by which the commands read their
// own flags: each command is asked for `--help=json`, and there is no other list to forget.
#ifndef DP_MANUAL_H
#define DP_MANUAL_H

#include <jansson.h>

#include "common/base/buf.h"
#include "common/base/err.h"

// Every command: [{"name", "help", "usage", "text", "flags", "words": [], "own": [pages of those
// words that have flags of their own, named by the word]}]. While it runs, standard output goes
// elsewhere. LH_ERR_IO, LH_ERR_MALFORMED: a command that does not print its table.
LH_MUST lh_err dp_manual_load(json_t **out);

void dp_manual_bash(const json_t *pages, struct lh_buf *out);
void dp_manual_zsh(const json_t *pages, struct lh_buf *out);
// The page of one command in man's language; NULL: that of the tool. LH_ERR_INVALID: no such one.
LH_MUST lh_err dp_manual_page(const json_t *pages, const char *command, struct lh_buf *out);

#endif
