// Report: what the coordinator hears of the shards, and asks of them (report.c, vouch.c).
#ifndef PS_REPORT_H
#define PS_REPORT_H

#include "server/server.h"

// ---- report.c
void ps_report_start(struct ps_server *s);
void ps_report_now(struct ps_server *s);    // does not wait for its time
void ps_report_forget(struct ps_server *s); // the answers to what is under way

// ---- vouch.c: the coordinator asks which of workers' copies are of a shard's log; the next report
// says so.
void ps_vouch_told(struct ps_server *s, const struct Longhaul__V1__ReportReply *m);
// `out` borrows from the shard until ps_vouch_free().
void ps_vouch_answer(struct ps_shard *s, struct Longhaul__V1__ShardReport *out);
void ps_vouch_free(struct ps_shard *s);

#endif
