// Pace: how often each worker pushes to a shard, so that one that pushes without end keeps nobody
// out. See pace.c.
#ifndef PS_PACE_H
#define PS_PACE_H

#include "common/format/frame.h"
#include "common/format/record.h"

struct ps_shard;

enum {
    PS_PACE_INTERVALS = 8, // a worker's last intervals that are remembered
    PS_PACE_COUNTED = 32,  // the most pushes of another worker that staleness counts
    PS_PACE_BURST = 16,    // pushes that a worker may make at once
};

struct ps_pace_row { // a worker; one without pushes has none
    uint64_t worker;
    // ---- how often its pushes were decided by this process
    double pushes;   // the bucket, as of last_ns; below 0: one group had more
    int64_t last_ns; // time of the last one; 0: none was decided yet
    int64_t interval_ns[PS_PACE_INTERVALS];
    int64_t median_ns; // the median interval; 0: too few are known
    uint32_t intervals;
    // ---- versions of its newest admitted pushes, a ring
    uint64_t version[PS_PACE_COUNTED];
    uint64_t admitted;
    uint32_t clipped; // how many of its newest admitted pushes in a row the norm gate clipped
};

struct ps_pace {
    struct ps_pace_row *row;
    uint32_t rows;
    bool sees;      // every push that was admitted after `since` is noted
    uint64_t since; // a version
    int64_t now_ns; // time of the decision that is made now
};

// Notes a push that was decided anew, after its record is durable.
void ps_pace_decided(struct ps_shard *s, uint64_t worker);
// Notes an admitted push. Gives how many of the worker's in a row were clipped, this one included.
uint32_t ps_pace_clipped(struct ps_shard *s, uint64_t worker, bool clipped);
// Notes a record that was folded.
void ps_pace_folded(struct ps_shard *s, const struct lh_record *r);
// The shard's history goes on from another state.
void ps_pace_anew(struct ps_shard *s);
// True: the worker pushes far more often than the others. Its push is not final.
bool ps_pace_is_busy(const struct ps_shard *s, uint64_t worker);
// The staleness of a push (server/docs/0000-protocol.md#rule-25).
uint64_t ps_pace_staleness(const struct ps_shard *s, const struct lh_frame *f);
void ps_pace_free(struct ps_shard *s);

#endif
