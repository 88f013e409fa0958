// Event files of TensorBoard: a process' metrics as scalars, one file a life, in a folder of its
// own.
//
// The format is TensorFlow's: records of a length, a payload and a masked CRC-32C of each
// (tensorflow/core/lib/io/record_writer.h), whose payloads are Event messages of event.proto. A tag
// is the metric's name, a slash, and its labels without quotes. The step is the tokens that the run
// credits (a coordinator), that this worker trained, or the version of the first shard.
//
// What is written stays small: after LH_TENSORBOARD_POINTS times the distance between two doubles,
// and so on.
#ifndef LH_COMMON_TENSORBOARD_H
#define LH_COMMON_TENSORBOARD_H

#include <jansson.h>

#include "common/env/env.h"

enum { LH_TENSORBOARD_POINTS = 1000, LH_TENSORBOARD_EVERY_S = 10 };

struct lh_tensorboard;

// Makes `folder` and its parents and, in it, the file of this life, named by the time and
// `process`.
LH_MUST lh_err lh_tensorboard_open(struct lh_env *env, const char *folder, const char *process,
                                   struct lh_tensorboard **out);
// Whether the last time is as far away as two times are; time_s: seconds since 1970.
bool lh_tensorboard_due(const struct lh_tensorboard *t, double time_s);
// Appends the gauges and counters of a status. One thread at a time. After an error the same place
// is written again.
LH_MUST lh_err lh_tensorboard_add(struct lh_tensorboard *t, double time_s, const json_t *status);
void lh_tensorboard_close(struct lh_tensorboard *t); // NULL is allowed

#endif
