// Joins the ranks of a region by the settings `ranks.*`: the worker's leading side, and the process
// of any other rank.
#ifndef WK_JOIN_H
#define WK_JOIN_H

#include <jansson.h>

#include "common/env/env.h"
#include "common/env/log.h"
#include "worker/ranks/reduce.h"
#include "worker/settings.h"

struct wk_join_conf {
    struct lh_env *env;
    struct lh_log *log;
    const struct wk_settings *settings; // borrows
    const struct lh_manifest *manifest; // borrows
    const struct lh_peer *self;         // identity in the certificate; borrows
    struct wk_shape shape;
    struct wk_device *device; // a rank other than the worker; borrows; NULL: the CPU trains
    // Tells a rank that is not the worker: the run is over (LH_OK), or it can't take part. On the
    // loop.
    void (*ended)(void *arg, lh_err err, const char *text);
    void *arg;
};

// The worker's side. close() of the result frees it; NULL: the worker is the only rank.
LH_MUST lh_err wk_join_lead(const struct wk_join_conf *conf, struct wk_reduce **out);
// Bytes of the worker's GPU that its ranks' gradients take in transit, besides those of the library
// that sums them; 0: none.
uint64_t wk_join_device_bytes(const struct wk_settings *settings);
// For status.json; NULL if the worker is alone or its ranks share memory.
json_t *wk_join_status(const struct wk_settings *settings, struct wk_reduce *reduce);

struct wk_joined; // another rank's side
LH_MUST lh_err wk_join(const struct wk_join_conf *conf, struct wk_joined **out);
LH_MUST lh_err wk_joined_status(const struct wk_joined *j, struct lh_buf *out); // JSON
void wk_joined_close(struct wk_joined *j); // lets the compute lane finish
// Frees it once the lane is idle; NULL is allowed. False: the device is still in use (peer.h).
bool wk_joined_stop(struct wk_joined *j);

#endif
