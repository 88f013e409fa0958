// Vouch: the coordinator asks which of workers' copies are of a shard's log; the next report says
// so, and how a worker proves that it has one.
#ifndef PS_VOUCH_H
#define PS_VOUCH_H

#include <stddef.h>

#include "common/base/buf.h"

struct Longhaul__V1__Point;
struct Longhaul__V1__ReportReply;
struct Longhaul__V1__ShardReport;
struct Longhaul__V1__Vouched;
struct lh_point;
struct ps_mark;
struct ps_server;
struct ps_shard;

struct ps_asked { // points that the coordinator asks for: does the log have them?
    struct lh_point *point;
    size_t count, cap;
    // Made for the answer.
    struct Longhaul__V1__Point *item, **list;
    struct Longhaul__V1__Vouched *vouched, **vouched_list;
    struct ps_mark *mark;
    // The answers of holders of the last versions; NULL: there is none yet.
    struct ps_mark *marks;
    struct lh_hash secret; // challenges follow from it; zeros: not drawn
};

// The replica holds another version: notes what its holders answer to a challenge.
void ps_vouch_folded(struct ps_shard *s);
void ps_vouch_told(struct ps_server *s, const struct Longhaul__V1__ReportReply *m);
// `out` borrows from the shard until ps_vouch_forget().
void ps_vouch_answer(struct ps_shard *s, struct Longhaul__V1__ShardReport *out);
void ps_vouch_forget(struct ps_shard *s); // what was asked; the marks stay
void ps_vouch_free(struct ps_shard *s);

#endif
