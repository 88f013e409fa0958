// Answers of every role: health, and its state as JSON.
#ifndef PS_ANSWER_H
#define PS_ANSWER_H

#include "common/net/rpc.h"

// grpc.health.v1: SERVING or NOT_SERVING.
void ps_answer_health(struct lh_request *rq, bool serving);
// Sends a StatusReply with this JSON text, or the error from making it. Frees `json`.
void ps_answer_json(struct lh_request *rq, lh_err err, struct lh_buf *json);

#endif
