// Standby: another server's shards, followed record by record and taken over (standby.c,
// owner_stream.c).
#ifndef PS_STANDBY_H
#define PS_STANDBY_H

#include <jansson.h>

#include "common/base/err.h"

struct Longhaul__V1__ReportReply;
struct ps_owner_stream;
struct ps_server;
struct ps_shard;

struct ps_standby {
    uint64_t identity; // the number of this directory, where it may stand by; else 0
    bool lost;         // the directory may lack what it confirmed
    bool unwritten;    // a snapshot was taken that is in memory only: the disk was full
    bool taking;       // it takes the shards over as soon as nothing is under way
};

// ---- standby.c
LH_MUST lh_err ps_standby_begin(struct ps_server *s);
// The coordinator's answer: who owns the shards, and whether they are to be taken over.
void ps_standby_told(struct ps_server *s, const struct Longhaul__V1__ReportReply *m);
void ps_standby_durable(struct ps_server *s); // hears PS_DURABLE

// ---- owner_stream.c
LH_MUST lh_err ps_owner_stream_begin(struct ps_shard *shard);
// Follows the server at `address` from here on.
void ps_owner_stream_owner(struct ps_owner_stream *c, const char *address);
void ps_owner_stream_durable(struct ps_owner_stream *c); // more is durable here: the owner hears
// A snapshot that was taken and is in memory only becomes durable. LH_ERR_DISK_FULL: to be tried
// again.
LH_MUST lh_err ps_owner_stream_write(struct ps_server *s);
void ps_owner_stream_hang_up(struct ps_owner_stream *c);  // takes nothing any more
void ps_owner_stream_close(struct ps_owner_stream *c);    // NULL is allowed
void ps_owner_stream_free(struct ps_owner_stream *c);     // NULL is allowed
json_t *ps_owner_stream_status(const struct ps_shard *s); // gives it

#endif
