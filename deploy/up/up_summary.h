// summary.json, and the figures it shares with the table.
#ifndef DP_UP_SUMMARY_H
#define DP_UP_SUMMARY_H

#include "deploy/up/up.h"
#include "deploy/up/up_report.h"

struct dp_learning {
    double rounds;            // mean per worker
    double density_rounds;    // p * N
    const struct dp_gap *gap; // expected against dense fp32; NULL: no comparable measurement
    double frame_bits;        // bits of whole frames, per parameter and round of a worker
    double payload_bits; // bits of their payloads alone; below 0: not counted for the whole run
};
struct dp_learning dp_learning_of(const struct dp_up *up);

// `checkpoint`: path of the final parameters; "": none.
LH_MUST lh_err dp_summary_write(const struct dp_up *up, const struct dp_verdict *v,
                                const char *checkpoint, const char *path);

#endif
