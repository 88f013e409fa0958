// Shared by external.c and life.c: a life of the trainer, and the ranks that take part in it.
#ifndef WK_LIFE_H
#define WK_LIFE_H

#include "worker/external/correction.h"

enum { WK_PEERS_MAX = 2 * WK_CHANNEL_RANKS_MAX };

#define WK_LOAD(word) atomic_load_explicit(&(word), memory_order_acquire)
#define WK_STORE(word, v) atomic_store_explicit(&(word), (v), memory_order_release)

enum wk_peer_state {
    WK_PEER_NONE,
    WK_PEER_OPEN,
    WK_PEER_DESCRIBES,
    WK_PEER_READY,
    WK_PEER_IN,
    WK_PEER_LEFT
};
struct wk_peer {
    enum wk_peer_state state;
    uint64_t connection;
    struct wk_channel_hello hello;
    struct wk_channel_tensor *tensor;
    uint32_t tensors;
};

struct wk_life_part {                             // private copies of the memory's numbers
    uint64_t wanted, base, published, retired;    // base: the committed cut
    uint64_t given;                               // the newest cut given to the core
    uint64_t included;                            // corrections in that cut
    uint64_t tokens, noted[WK_CHANNEL_RANKS_MAX]; // tokens and notes in that cut
    uint64_t step, steps;                         // step of that cut, and trained steps by then
    struct wk_external_cut at;                    // the base cut
};

enum wk_life { WK_LIFE_NONE, WK_LIFE_RUNS, WK_LIFE_SETTLES };
struct wk_external {
    struct wk_external_conf conf;
    uint64_t *first;
    const struct wk_external_ops *ops;
    void *arg;
    struct wk_external_io *io;
    struct wk_peer peer[WK_PEERS_MAX];
    enum wk_life life;
    uint32_t held; // wk_external_hold()
    uint8_t name[WK_CHANNEL_LIFE];
    struct wk_channel channel;
    struct wk_life_part *part;
    struct wk_correction_work work;      // sized for the largest part
    uint64_t read[WK_CHANNEL_RANKS_MAX]; // journal entries reported to the core
    uint64_t credited;
    uint64_t budget[3];                // channel.h
    bool draining, ending_told, ended; // ended: wk_external_end() was called in this life
    uint64_t paused;                   // random number of the pause; 0: none
    uint32_t *spoiled;          // [parts] lives in a row whose cut of the part was not finite
    char why[WK_CHANNEL_TEXT];  // the last of their reasons
    char said[WK_CHANNEL_TEXT]; // why the last cut was dropped; empty: one was committed since
    void (*vacant)(struct wk_external *x); // no life runs: another may begin
};

void wk_life_ring(struct wk_external *x); // wakes the trainers after a change
struct wk_peer *wk_life_peer(struct wk_external *x, uint64_t connection);
struct wk_peer *wk_life_rank(struct wk_external *x, uint32_t rank, enum wk_peer_state state);
void wk_life_clear(struct wk_peer *p);
void wk_life_send(struct wk_external *x, const struct wk_peer *p, struct wk_channel_message *m,
                  bool memory);
void wk_life_refuse(struct wk_external *x, struct wk_peer *p, uint32_t why, const char *text);
void wk_life_look(struct wk_external *x); // finds whole cuts and finished loops
void wk_life_end(struct wk_external *x, bool orderly, uint32_t refusal, const char *why);

#endif
