// Left out: the run closed without this worker (server/docs/0000-protocol.md#rule-30).
#ifndef WK_LEFT_OUT_H
#define WK_LEFT_OUT_H

#include <stdbool.h>
#include <stdint.h>

struct wk_worker;

struct wk_left_out {
    bool is;                 // the coordinator says so
    bool said;               // run.end_awaited was logged
    uint64_t pushes, tokens; // undecided pushes; tokens of these and of no push
    uint64_t versions;       // versions folded over all shards, at the last look
    int64_t since_ns;        // last rise of `versions` after END; 0: the run has not ended
};

// Takes the coordinator's statement from a lease answer.
void wk_left_out_told(struct wk_worker *w, bool left_out);

#endif
