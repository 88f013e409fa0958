// Give: tokens of this region's units, to workers that do not have their files. See give.c.
#ifndef PS_GIVE_H
#define PS_GIVE_H

#include <jansson.h>

#include "common/net/transport.h"

struct ps_giving_unit;
struct ps_server;

enum {
    PS_GIVES_MAX = 32,             // calls under way; another one is told to try again
    PS_GIVES_OF_A_PEER = 16,       // calls of one worker, who leaves some to others
    PS_GIVE_BYTES_MAX = 128 << 20, // memory of all that are under way, or one unit alone
};

struct ps_give { // a server's part of it
    struct ps_giving_unit *first;
    uint32_t calls;
    uint64_t bytes; // memory that the calls under way take
    struct {
        uint64_t units, bytes, sent_bytes, refused, failed;
    } count;
};

// Does this server give units? Where settings name the data's manifest and its folder (data.units,
// data.dir).
bool ps_gives(const struct ps_server *s);
LH_MUST lh_err ps_give_accept(struct ps_server *server, struct lh_call *call,
                              const struct lh_peer *peer, const struct lh_call_ops **ops,
                              void **self);
// Frees what is under way; nothing comes back to it any more.
void ps_give_stop(struct ps_server *s);
json_t *ps_give_status(const struct ps_server *s); // NULL: it gives none

#endif
