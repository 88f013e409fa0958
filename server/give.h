// Give: sends tokens of this region's units to workers that do not have their files. See give.c.
#ifndef PS_GIVE_H
#define PS_GIVE_H

#include <jansson.h>

#include "common/net/transport.h"

struct ps_giving_unit;
struct ps_server;

enum {
    PS_GIVES_MAX = 32,             // calls under way; a further one must try again
    PS_GIVES_OF_A_PEER = 16,       // calls of one worker, to leave some for others
    PS_GIVE_BYTES_MAX = 128 << 20, // memory of all calls under way, or of one unit alone
};

struct ps_give { // the server's state of it
    struct ps_giving_unit *first;
    uint32_t calls;
    uint64_t bytes; // memory of the calls under way
    struct {
        uint64_t units, bytes, sent_bytes, refused, failed;
    } count;
};

// Does this server send units? If settings name the data's manifest and folder (data.units,
// data.dir).
bool ps_gives(const struct ps_server *s);
LH_MUST lh_err ps_give_accept(struct ps_server *server, struct lh_call *call,
                              const struct lh_peer *peer, const struct lh_call_ops **ops,
                              void **self);
// Frees the calls under way; no callback follows.
void ps_give_stop(struct ps_server *s);
json_t *ps_give_status(const struct ps_server *s); // NULL: it sends none

#endif
