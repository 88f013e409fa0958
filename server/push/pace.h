// Pace: limits how often each worker pushes to a shard, so that one worker cannot crowd out the
// others. See pace.c.
#ifndef PS_PACE_H
#define PS_PACE_H

#include "common/format/frame.h"
#include "common/format/record.h"

struct ps_shard;

enum {
    PS_PACE_INTERVALS = 8, // number of a worker's last intervals remembered
    PS_PACE_COUNTED = 32,  // most pushes per other worker that staleness counts
    PS_PACE_BURST = 16,    // pushes that a worker may make at once
};

struct ps_pace_row { // a worker that has pushed
    uint64_t worker;
    // ---- how often its pushes were decided by this process
    double pushes;   // the bucket, as of last_ns; below 0: one group took more than it held
    int64_t last_ns; // time of its last decided push; 0: none yet
    int64_t interval_ns[PS_PACE_INTERVALS];
    int64_t median_ns; // the median interval; 0: too few known
    uint32_t intervals;
    // ---- versions of its newest admitted pushes, a ring
    uint64_t version[PS_PACE_COUNTED];
    uint64_t admitted;
    uint32_t clipped; // newest admitted pushes in a row that the norm gate clipped
};

struct ps_pace {
    struct ps_pace_row *row;
    uint32_t rows;
    bool sees;      // every push admitted after `since` is noted
    uint64_t since; // a version
    int64_t now_ns; // time of the current decision
};

// Notes a newly decided push, after its record is durable.
void ps_pace_decided(struct ps_shard *s, uint64_t worker);
// Notes an admitted push. Gives the worker's clipped pushes in a row, this one included.
uint32_t ps_pace_clipped(struct ps_shard *s, uint64_t worker, bool clipped);
// Notes a folded record.
void ps_pace_folded(struct ps_shard *s, const struct lh_record *r);
// The shard's history continues from another state: forgets the noted versions.
void ps_pace_anew(struct ps_shard *s);
// True: the worker pushes far more often than the others. Its push is not final.
bool ps_pace_is_busy(const struct ps_shard *s, uint64_t worker);
// The staleness of a push (server/docs/0000-protocol.md#rule-25).
uint64_t ps_pace_staleness(const struct ps_shard *s, const struct lh_frame *f);
void ps_pace_free(struct ps_shard *s);

#endif
