// Standby: follows another server's shards record by record and takes them over (standby.c,
// owner_stream.c).
#ifndef PS_STANDBY_H
#define PS_STANDBY_H

#include <jansson.h>

#include "common/base/err.h"

struct lh_report_reply;
struct ps_owner_stream;
struct ps_server;
struct ps_shard;

struct ps_standby {
    uint64_t identity; // this directory's number if it may stand by; else 0
    bool lost;         // the directory may lack records that it confirmed
    bool unwritten;    // a snapshot is in memory only: disk full
    bool taking;       // takes the shards over once no work is under way
    uint32_t rests;    // streams that go on once no work is under way
};

// ---- standby.c
LH_MUST lh_err ps_standby_begin(struct ps_server *s);
// Handles the coordinator's answer: the shards' owners, and whether to take over.
void ps_standby_told(struct ps_server *s, const struct lh_report_reply *m);
void ps_standby_durable(struct ps_server *s); // handles PS_DURABLE

// ---- owner_stream.c
LH_MUST lh_err ps_owner_stream_begin(struct ps_shard *shard);
// Follows the server at `address` from now on.
void ps_owner_stream_owner(struct ps_owner_stream *c, const char *address);
void ps_owner_stream_durable(struct ps_owner_stream *c); // confirms the new version
// Makes a snapshot that is in memory only durable. LH_ERR_DISK_FULL: try again.
LH_MUST lh_err ps_owner_stream_write(struct ps_server *s);
void ps_owner_stream_hang_up(struct ps_owner_stream *c);  // stops receiving
void ps_owner_stream_close(struct ps_owner_stream *c);    // NULL is allowed
void ps_owner_stream_free(struct ps_owner_stream *c);     // NULL is allowed
json_t *ps_owner_stream_status(const struct ps_shard *s); // gives the object

#endif
