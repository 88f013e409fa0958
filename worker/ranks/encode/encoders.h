// A leader's push, encoded together with its ranks (ranks.compress): to one encoder's bytes, and
// what is left in the residual is one encoder's too, whoever encoded which portion.
//
// What crosses for a value that a rank encodes: 4 bytes to it (residual plus delta: base and
// residual stay with the leader), and its portion of the payload back. What was carried is taken
// out of the residual here, by the payload that came. So whatever a rank answers, what is sent and
// what is left make up what there was.
//
// Threads: the encode lane encodes and waits; the region's thread sends and receives. One lock.
#ifndef WK_ENCODERS_H
#define WK_ENCODERS_H

#include <jansson.h>

#include "common/env/log.h"
#include "kernels/cuda/plugin.h"
#include "worker/ranks/encode/portions.h"
#include "kernels/codec_groups.h"

enum wk_compress { WK_COMPRESS_LEADER, WK_COMPRESS_AUTO, WK_COMPRESS_MEMBERS };

struct wk_encoders_conf {
    struct lh_env *env; // clock, chance
    struct lh_log *log;
    enum wk_compress compress; // AUTO, MEMBERS
    uint32_t ranks;
    struct lk_codec codec; // Of all pushes.
    int64_t patience_ns;   // portions.h; 0: WK_ENCODERS_PATIENCE_MS
};
enum { WK_ENCODERS_PATIENCE_MS = 1000 };

// The device on which the leader encodes, with whose table, and how it encodes a whole push there.
struct wk_encoders_device {
    const struct lk_gpu_backend *gpu; // borrows
    int index;
    // lk_encode() of the conf's codec, with its errors; falls back to the CPU by itself.
    lh_err (*alone)(void *arg, const struct lh_shard_layout *layout, float *values,
                    struct lh_buf *out, struct lk_payload_info *info);
    void *arg;
};

struct wk_encoders;
// On the loop. Says in one line where ranks can have no part: threshold codecs.
LH_MUST lh_err wk_encoders_create(const struct wk_encoders_conf *conf, struct wk_encoders **out);
// The encode lane and the region's thread have ended; NULL is allowed.
void wk_encoders_destroy(struct wk_encoders *e);
// {"mode": "members" or "auto", "why": why ranks have no part, "" where they may, "pushes": that
//  they had a part in, "portions": that they encoded, "own": portions of those pushes that the
//  leader did, "own_there": those of them on its device, "late", "wrong": portions that it had to}
json_t *wk_encoders_status(struct wk_encoders *e);
// On the loop, no push being encoded: the leader's pushes and portions are encoded on that device;
// NULL: on the CPU, as at first. LH_ERR_NO_MEMORY.
LH_MUST lh_err wk_encoders_use(struct wk_encoders *e, const struct wk_encoders_device *device);

// ---- the encode lane
// lk_encode_on(threads, codec, layout, 1, NULL, values, out, info) of the conf's codec.
LH_MUST lh_err wk_encoders_encode(struct wk_encoders *e, uint32_t threads,
                                  const struct lh_shard_layout *layout, float *values,
                                  struct lh_buf *out, struct lk_payload_info *info);

// ---- the region's thread
// `ring` wakes that thread, on any thread; NULL: the region is over, and no rank is asked again.
void wk_encoders_attach(struct wk_encoders *e, void (*ring)(void *arg), void *arg);
// Sends what ranks are to be asked for; `here`: those that are there, a bit each.
void wk_encoders_turn(struct wk_encoders *e, uint64_t here,
                      void (*send)(void *arg, uint32_t rank, struct lh_span ask), void *arg);
// LH_ERR_MALFORMED: it is no answer.
LH_MUST lh_err wk_encoders_answer(struct wk_encoders *e, uint32_t rank, struct lh_span bytes);
void wk_encoders_gone(struct wk_encoders *e, uint32_t rank);

// ---- ranks.compress auto
// Shall ranks have a part in this push, the n-th from 0? `ns`: nanoseconds a value that the leader
// alone (0) and all together (1) took last. Of 64 pushes the first is the leader's and the second
// all ranks', to measure both; the others are whose took less time.
bool wk_encoders_choose(const double ns[2], uint64_t n);

#endif
