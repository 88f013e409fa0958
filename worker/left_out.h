// Left out: the run closed without this worker (server/docs/0000-protocol.md#rule-30).
#ifndef WK_LEFT_OUT_H
#define WK_LEFT_OUT_H

#include <stdbool.h>
#include <stdint.h>

struct wk_worker;

struct wk_left_out {
    bool is;                 // the coordinator says so
    uint64_t pushes, tokens; // pushes that no server decided, and tokens of theirs and of no push
    uint64_t versions;       // folded of all shards, at the last look
    int64_t since_ns;        // when that last rose after END; 0: the run has not ended
};

// Takes what an answer to a lease request says.
void wk_left_out_told(struct wk_worker *w, bool left_out);

#endif
