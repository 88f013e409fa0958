// Functions of this folder that the tool's commands call.
#ifndef DP_MODELS_H
#define DP_MODELS_H

#include "common/base/err.h"

LH_MUST lh_err dp_model_import(int argc, char **argv); // `longhaul model import`

#endif
