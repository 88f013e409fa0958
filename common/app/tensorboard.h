// Event files of TensorBoard: a process's metrics as scalars, one file per life, in a folder of its
// own.
//
// The format is TensorFlow's: records of a length, a payload and a masked CRC-32C of each
// (tensorflow/core/lib/io/record_writer.h). A payload is an Event message of event.proto. A tag is
// the metric's name, a slash, and its labels without quotes. The step is the run's credited tokens
// (coordinator), the tokens that this worker trained, or the first shard's version (server).
//
// Files stay small: after LH_TENSORBOARD_POINTS samples the interval between two doubles, and so
// on.
#ifndef LH_COMMON_TENSORBOARD_H
#define LH_COMMON_TENSORBOARD_H

#include <jansson.h>

#include "common/env/env.h"

enum { LH_TENSORBOARD_POINTS = 1000, LH_TENSORBOARD_EVERY_S = 10 };

struct lh_tensorboard;

// Makes `folder` with its parents and, in it, this life's file, named by the time and `process`.
LH_MUST lh_err lh_tensorboard_open(struct lh_env *env, const char *folder, const char *process,
                                   struct lh_tensorboard **out);
// Whether the last sample is one interval old; time_s: seconds since 1970.
bool lh_tensorboard_due(const struct lh_tensorboard *t, double time_s);
// Appends the gauges and counters of a status. One thread at a time. After an error the next call
// writes at the same offset again.
LH_MUST lh_err lh_tensorboard_add(struct lh_tensorboard *t, double time_s, const json_t *status);
void lh_tensorboard_close(struct lh_tensorboard *t); // NULL is allowed

#endif
