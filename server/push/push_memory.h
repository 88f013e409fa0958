// Push memory: how much memory the pushes under way may take, and whose turn it is to come in.
#ifndef PS_PUSH_MEMORY_H
#define PS_PUSH_MEMORY_H

#include "common/base/pool.h"

struct ps_push;
struct ps_server;

struct ps_push_memory { // memory of the pushes under way
    struct lh_pool *pool;
    uint64_t bytes_max, frames, payloads, largest; // bytes; the largest frame since there was none
    struct ps_push *first, **last;                 // pushes that wait for memory for their frame
    const struct ps_push *arriving; // the large one whose turn it is; the next large one waits
    int64_t let_in_at, begun_at;    // when it was let in; when its first bytes came, or -1
    uint64_t begun_with;            // bytes that came first
    uint64_t turn_timer;
};

LH_MUST lh_err ps_push_memory_open(struct ps_server *s);
// May a frame of so many bytes come in now, as far as the one that arrives is concerned?
bool ps_push_memory_turn(const struct ps_server *s, uint64_t bytes);
// The turn of `p` begins, if it is a large one.
void ps_push_memory_arrives(struct ps_server *s, const struct ps_push *p, uint64_t bytes);
// So many bytes of it are here, and so many are left.
void ps_push_memory_arriving(struct ps_server *s, const struct ps_push *p, uint64_t have,
                             uint64_t left);
// Its turn is over: it gets no more, or the next one may as well come.
void ps_push_memory_arrived(struct ps_server *s, const struct ps_push *p);
// False: there is no memory for a frame of so many bytes now. Else gives a blob; NULL: the process
// is out of memory.
bool ps_push_memory_frame(struct ps_server *s, uint64_t bytes, struct lh_blob **out);
void ps_push_memory_give_frame(struct ps_server *s, struct lh_blob *frame); // NULL is allowed
// Reserves memory for a payload; false: there is none now.
bool ps_push_memory_payload(struct ps_server *s, uint64_t bytes);
void ps_push_memory_give_payload(struct ps_server *s, uint64_t bytes);

#endif
