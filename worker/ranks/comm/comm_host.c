// A device's arrays copied through the host. See comm_host.h.
//
// The copies have their own stream, which follows the event of `ready` that covers a bucket: during
// the copy, the backward pass continues behind that event.
#include "worker/ranks/comm/comm_host.h"

#include <stdlib.h>

#include "common/base/check.h"

struct wk_comm_host {
    lk_gpu_stream stream;
    float *pinned;
    size_t bytes;
};

static LH_MUST lh_err device_err(const struct wk_comm_device *d, int err, const char *what)
{
    if (!err) return LH_OK;
    return lh_fail(LH_ERR_IO, "GPU %d: %s: %s", d->index, what, d->gpu->error_text(err));
}

static size_t room_of(const struct wk_comm_arrays *a)
{
    size_t bytes = a->sums * sizeof *a->sum;
    for (uint32_t i = 0; i < a->parts; i++)
        if ((a->there >> i & 1) && a->part[i].bytes > bytes) bytes = a->part[i].bytes;
    return bytes;
}

static LH_MUST lh_err take_room(const struct wk_comm_device *d, struct wk_comm_host *h)
{
    void *pinned = NULL;
    LH_TRY(device_err(d, d->gpu->use(d->index), "it can't be used"));
    LH_TRY(device_err(d, d->gpu->streams->create(&h->stream), "a stream"));
    LH_TRY(device_err(d, d->gpu->memory->pinned_alloc(&pinned, h->bytes),
                      "pinned memory for a gradient"));
    h->pinned = pinned;
    return LH_OK;
}

// After an error nothing is open, and the next call tries again.
static LH_MUST lh_err open_host(struct wk_comm *c)
{
    if (c->host) return LH_OK;
    c->host = calloc(1, sizeof *c->host);
    if (!c->host) return lh_fail(LH_ERR_NO_MEMORY, "what crosses from a device");
    c->host->bytes = room_of(&c->arrays);
    lh_err err = take_room(c->arrays.device, c->host);
    if (err) wk_comm_host_free(c);
    return err;
}

void wk_comm_host_free(struct wk_comm *c)
{
    const struct wk_comm_device *d = c->arrays.device;
    if (!c->host) return;
    (void)d->gpu->use(d->index); // an unusable device has nothing to free
    if (c->host->stream) d->gpu->streams->destroy(c->host->stream);
    if (c->host->pinned) d->gpu->memory->pinned_release(c->host->pinned);
    free(c->host);
    c->host = NULL;
}

// Copies behind the event that covers `needed` values of the sum.
static LH_MUST lh_err copy_out(struct wk_comm *c, float *to, const void *from, size_t bytes,
                               uint64_t needed)
{
    const struct wk_comm_device *d = c->arrays.device;
    const struct wk_comm_host *h = c->host;
    LH_TRY(device_err(d, wk_ready_follow(d->ready, h->stream, needed), "an event"));
    LH_TRY(device_err(d, d->gpu->memory->copy_out(to, from, bytes, h->stream), "a copy from it"));
    return device_err(d, d->gpu->streams->wait(h->stream), "a copy from it");
}

static LH_MUST lh_err copy_in(struct wk_comm *c, void *to, const void *from, size_t bytes)
{
    const struct wk_comm_device *d = c->arrays.device;
    const struct wk_comm_host *h = c->host;
    LH_TRY(device_err(d, d->gpu->memory->copy_in(to, from, bytes, h->stream), "a copy to it"));
    return device_err(d, d->gpu->streams->wait(h->stream), "a copy to it");
}

lh_err wk_comm_host_fetch(struct wk_comm *c, uint64_t from, uint64_t values, float **out)
{
    LH_TRY(open_host(c));
    LH_ASSERT((from + values) * sizeof **out <= c->host->bytes);
    *out = c->host->pinned + from;
    uint64_t needed = wk_comm_needed(&c->arrays, from);
    return values ? copy_out(c, *out, c->arrays.sum + from, values * sizeof **out, needed) : LH_OK;
}

lh_err wk_comm_host_return(struct wk_comm *c, uint64_t from, uint64_t values)
{
    float *to = c->arrays.sum + from;
    return values ? copy_in(c, to, c->host->pinned + from, values * sizeof *to) : LH_OK;
}

lh_err wk_comm_host_share(struct wk_comm *c, const struct wk_comm_part *part)
{
    LH_TRY(open_host(c));
    const struct wk_comm_part here = {c->host->pinned, part->bytes};
    if (c->rank == 0) LH_TRY(copy_out(c, here.data, part->data, part->bytes, WK_READY_ALL));
    LH_TRY(c->ops->share(c, &here, 1));
    return c->rank ? copy_in(c, part->data, here.data, part->bytes) : LH_OK;
}
