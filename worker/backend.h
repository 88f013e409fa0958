// Backend: makes a push's payload, on the CPU or by the CUDA plugin. The bytes are the same.
//
// Without a plugin, driver, device or device memory the CPU is used, and one line says why. A
// device is used once it has encoded made-up values to the CPU's bytes. If it fails later, the CPU
// replaces it for the rest of this process's life, without loss.
#ifndef WK_BACKEND_H
#define WK_BACKEND_H

#include <jansson.h>

#include "common/env/log.h"
#include "kernels/codec.h"

enum wk_backend_kind { WK_BACKEND_AUTO, WK_BACKEND_CPU, WK_BACKEND_CUDA };

struct wk_backend_conf {
    enum wk_backend_kind kind;
    const char *plugin; // the plugin's file; "": lk_gpu_find() searches
    const struct lh_manifest *manifest;
    struct lk_codec codec;
    uint32_t threads; // threads of an encoding on the CPU (lk_encode_on()); 0: one
    struct lh_log *log;
};

struct wk_backend;
// On the loop, at the start. Borrows the manifest. The only failure is LH_ERR_NO_MEMORY.
LH_MUST lh_err wk_backend_open(const struct wk_backend_conf *conf, struct wk_backend **out);
void wk_backend_close(struct wk_backend *b); // the encode lane must be idle; NULL is allowed

// lk_encode(codec, layout, e, out, info) of this backend's codec; NULL: on the CPU. On the
// encode lane.
LH_MUST lh_err wk_backend_encode(struct wk_backend *b, const struct lk_codec *codec,
                                 const struct lh_shard_layout *layout, float *e, struct lh_buf *out,
                                 struct lk_payload_info *info);

// True: pushes with this codec are encoded on the CPU now, and may be fed (kernels/codec.h).
bool wk_backend_feeds(const struct wk_backend *b, const struct lk_codec *codec);
// lk_encode_fed() of these pushes, on the encode lane.
LH_MUST lh_err wk_backend_encode_fed(const struct wk_backend *b, const struct lk_codec *codec,
                                     const struct lh_shard_layout *layout,
                                     const struct lk_feed *feed, float *e, struct lh_buf *out,
                                     struct lk_payload_info *info);

// On the loop, about once a second: logs a failure of the device.
void wk_backend_watch(struct wk_backend *b);
// {"name": "cpu" or "cuda", "why": why not the other, "" if it is the one asked for,
//  "device": its name, "" on the CPU, "encoded": pushes encoded on the device,
//  "threads": threads that encode on the CPU}
json_t *wk_backend_status(const struct wk_backend *b);

#endif
