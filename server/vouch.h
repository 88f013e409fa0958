// Vouch: the coordinator asks which of workers' copies are of a shard's log; the next report says
// so.
#ifndef PS_VOUCH_H
#define PS_VOUCH_H

#include <stddef.h>

struct Longhaul__V1__Point;
struct Longhaul__V1__ReportReply;
struct Longhaul__V1__ShardReport;
struct lh_point;
struct ps_server;
struct ps_shard;

struct ps_asked { // points that the coordinator asks for: does the log have them?
    struct lh_point *point;
    size_t count, cap;
    struct Longhaul__V1__Point *item, **list; // made for the answer
};

void ps_vouch_told(struct ps_server *s, const struct Longhaul__V1__ReportReply *m);
// `out` borrows from the shard until ps_vouch_free().
void ps_vouch_answer(struct ps_shard *s, struct Longhaul__V1__ShardReport *out);
void ps_vouch_free(struct ps_shard *s);

#endif
