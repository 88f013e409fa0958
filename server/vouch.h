// Vouch: the coordinator asks which of workers' copies are in a shard's log; the next report
// answers, with the proof that a holder can make.
#ifndef PS_VOUCH_H
#define PS_VOUCH_H

#include <stddef.h>

#include "common/base/buf.h"

struct lh_point;
struct lh_report_reply;
struct lh_shard_point;
struct lh_shard_report;
struct lh_vouched;
struct ps_mark;
struct ps_server;
struct ps_shard;

struct ps_asked { // points that the coordinator asks about
    struct lh_point *point;
    size_t count, cap;
    // Memory of the answer.
    struct lh_vouched *held;
    struct lh_shard_point *foreign;
    // Challenges and responses of the last versions; NULL: none yet.
    struct ps_mark *marks;
    struct lh_hash secret; // source of the challenges; zeros: not drawn
};

// The replica has a new version: notes its challenge and response.
void ps_vouch_folded(struct ps_shard *s);
void ps_vouch_told(struct ps_server *s, const struct lh_report_reply *m);
// `out` borrows from the shard until ps_vouch_forget().
void ps_vouch_answer(struct ps_shard *s, struct lh_shard_report *out);
void ps_vouch_forget(struct ps_shard *s); // drops the questions; the marks stay
void ps_vouch_free(struct ps_shard *s);

#endif
