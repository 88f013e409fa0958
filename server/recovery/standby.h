// Standby: follows another server's shards and takes them over. See standby.c.
#ifndef PS_STANDBY_H
#define PS_STANDBY_H

#include "common/base/err.h"

struct lh_report_reply;
struct ps_server;

struct ps_standby {
    uint64_t identity; // this directory's number if it may stand by; else 0
    bool lost;         // the directory may lack records that it confirmed
    bool unwritten;    // a snapshot is in memory only: disk full
    bool taking;       // takes the shards over once no work is under way
    uint32_t rests;    // streams that go on once no work is under way
};

LH_MUST lh_err ps_standby_begin(struct ps_server *s);
// Handles the coordinator's answer: the shards' owners, and whether to take over.
void ps_standby_told(struct ps_server *s, const struct lh_report_reply *m);
void ps_standby_durable(struct ps_server *s); // handles PS_DURABLE

#endif
