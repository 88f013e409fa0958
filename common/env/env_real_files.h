// The files of the real env (env_real.c gives them to its table). See env.h.
#ifndef LH_COMMON_ENV_REAL_FILES_H
#define LH_COMMON_ENV_REAL_FILES_H

#include "common/env/env.h"

extern const struct lh_files_ops lh_env_real_files;

// Bytes of a file's direct writes that were copied first (for tests).
uint64_t lh_env_real_copied(const struct lh_file *file);

#endif
