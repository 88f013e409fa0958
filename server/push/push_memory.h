// Push memory: limits the memory of the pushes under way and decides which large one comes next.
#ifndef PS_PUSH_MEMORY_H
#define PS_PUSH_MEMORY_H

#include "common/base/pool.h"

struct ps_push;
struct ps_server;

struct ps_push_memory { // memory of the pushes under way
    struct lh_pool *pool;
    uint64_t bytes_max, frames, payloads, largest; // bytes; `largest`: since `frames` was 0
    struct ps_push *first, **last;                 // pushes that wait for frame memory
    const struct ps_push *arriving; // the large push that is arriving; the next large one waits
    int64_t let_in_at, begun_at;    // when it was let in; when its first bytes came, or -1
    uint64_t begun_with;            // bytes present when its first bytes came
    int64_t passed_ns; // since when small pushes pass a large one that lacks memory; 0: none does
    uint64_t turn_timer, slow_timer;
};

LH_MUST lh_err ps_push_memory_open(struct ps_server *s);
// May a frame of this size start now, or must it wait for the large one that is arriving?
bool ps_push_memory_turn(const struct ps_server *s, uint64_t bytes);
// May a new frame start before those that wait, of which the first one has so many bytes?
bool ps_push_memory_passes(struct ps_server *s, uint64_t bytes, uint64_t first);
// A push waits for memory: looks for slow ones while it does.
void ps_push_memory_waited(struct ps_server *s);
// Starts the turn of `p`, if its frame is large.
void ps_push_memory_arrives(struct ps_server *s, const struct ps_push *p, uint64_t bytes);
// Reports progress: bytes received and bytes left.
void ps_push_memory_arriving(struct ps_server *s, const struct ps_push *p, uint64_t have,
                             uint64_t left);
// Ends the turn of `p`: no more bytes will come, or the next large frame may start.
void ps_push_memory_arrived(struct ps_server *s, const struct ps_push *p);
// False: no memory for a frame of this size now. Else gives a blob; NULL: the process is out of
// memory.
bool ps_push_memory_frame(struct ps_server *s, uint64_t bytes, struct lh_blob **out);
void ps_push_memory_give_frame(struct ps_server *s, struct lh_blob *frame); // NULL is allowed
// Reserves memory for a payload; false: none left now.
bool ps_push_memory_payload(struct ps_server *s, uint64_t bytes);
void ps_push_memory_give_payload(struct ps_server *s, uint64_t bytes);

#endif
