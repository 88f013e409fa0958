// The trace of a push: W3C Trace Context, https://www.w3.org/TR/trace-context/. A call of
// LH_RPC_PUSH carries it in its metadata, and log lines about the push name its id.
//
// The id follows from the push's name alone, so all attempts to send it share one trace, and it
// says nothing of a region that the frame's header does not.
#ifndef LH_COMMON_TRACE_H
#define LH_COMMON_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/buf.h"

enum { LH_TRACE_TEXT_BYTES = 55 + 1 }; // 00-<32 digits>-<16 digits>-01 and a 0

struct lh_trace {
    char id[32 + 1], span[16 + 1]; // hexadecimal digits; "": none
};

struct lh_trace lh_trace_of_push(struct lh_span job, uint64_t worker, uint64_t incarnation,
                                 uint64_t step, uint32_t shard);
void lh_trace_text(const struct lh_trace *t, char out[LH_TRACE_TEXT_BYTES]);
// Takes version 00 and nothing beside it. False: the text is malformed; *out is then empty.
bool lh_trace_parse(struct lh_span text, struct lh_trace *out);

#endif
