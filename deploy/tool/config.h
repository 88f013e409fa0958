// Settings of the programs, as the tool reads them.
#ifndef DP_CONFIG_H
#define DP_CONFIG_H

#include "common/app/config.h"
#include "deploy/tool/cli.h"

// Applies the file's settings (NULL: none), those of `set` (KEY=VALUE) and the environment's to a
// fresh config, in the programs' own order. Does not finish it.
LH_MUST lh_err dp_config_apply(struct lh_config *c, const char *file, const struct dp_texts *set);

#endif
