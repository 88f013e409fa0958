// Owner stream: follows one shard of another server. See owner_stream.c.
#ifndef PS_OWNER_STREAM_H
#define PS_OWNER_STREAM_H

#include <jansson.h>

#include "common/base/err.h"

struct ps_owner_stream;
struct ps_server;
struct ps_shard;

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
