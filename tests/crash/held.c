// See held.h. Written independently of worker/start.c, which it checks; only file formats are
// shared.
#include "tests/crash/held.h"

#include <stdlib.h>
#include <string.h>

#include "tests/crash/exact.h"
#include "worker/push/slot.h"

struct held {
    const struct held_conf *conf;
    struct wk_slots slots;
    struct wk_slot slot; // the slot, or the snapshot if the slot is lost
    enum wk_slot_state state;
    bool snapshot;
    struct wk_outbox outbox;
    float *residual, *q;
    uint64_t values, tokens; // tokens: trained, but in no push of the log
};

lh_err held_boot(struct lh_env *env, const char *dir, uint8_t boot[16])
{
    char path[LH_PATH_BYTES], digits[33] = "", byte[3] = "";
    struct lh_buf file = lh_buf(64);
    size_t n = 0;
    LH_TRY(lh_path(path, sizeof path, dir, "boot"));
    lh_err err = lh_file_load(env, path, &file);
    for (size_t i = 0; !err && i < file.len && n < 32; i++)
        if (file.data[i] != '-') digits[n++] = (char)file.data[i];
    lh_buf_free(&file);
    for (size_t i = 0; i < n / 2; i++) {
        memcpy(byte, digits + 2 * i, 2);
        boot[i] = (uint8_t)strtoul(byte, NULL, 16);
    }
    return err || n == 32 ? err : lh_fail(LH_ERR_INVALID, "%s: not a boot id", path);
}

static lh_err open_entry(struct held *h, struct wk_entry *e, struct lk_codec *codec,
                         struct lh_span *plain)
{
    struct lk_payload_info info;
    struct lh_blob *frame;
    bool opened;
    LH_TRY(lk_frame_codec(&e->head, codec));
    LH_TRY(wk_outbox_frame(&h->outbox, e, &frame));
    lh_err err = lk_replica_unseal(h->conf->replica, lh_blob_span(frame), plain, &opened, &info);
    lh_blob_release(frame);
    return err;
}

// The residual that server/docs/0000-protocol.md#rule-11 keeps: the snapshot's, or nothing, minus
// the contents of later pushes.
static lh_err rebuild(struct held *h)
{
    const struct lh_shard_layout *layout = h->conf->replica->layout;
    memset(h->residual, 0, h->values * sizeof *h->residual);
    wk_slot_free(&h->slot);
    lh_err err = wk_snapshot_load(&h->slots, &h->slot, h->residual);
    h->snapshot = !err;
    if (err) return err == LH_ERR_NOT_FOUND ? LH_OK : err;
    for (struct wk_entry *e = h->outbox.first; e; e = e->next) {
        struct lk_codec codec;
        struct lh_span plain;
        if (wk_entry_compare(e, h->slot.incarnation.number, h->slot.next) < 0) continue;
        LH_TRY(open_entry(h, e, &codec, &plain));
        LH_TRY(lk_payload_clear(&codec, layout, plain, h->residual));
    }
    return LH_OK;
}

// Whether the push is in the log, its mass is in the residual, or it was never committed.
static bool settled(const struct held *h, const struct wk_entry *e)
{
    const struct wk_slot *s = &h->slot;
    bool intact = h->state == WK_SLOT_INTACT;
    bool own = e->head.incarnation.number == s->incarnation.number;
    bool gone = s->gone_incarnation && wk_entry_compare(e, s->gone_incarnation, s->gone_step) == 0;
    if (h->conf->admitted(h->conf->arg, &e->head)) return true;
    if (!intact) return h->snapshot && gone;
    return gone || (own && e->head.step >= s->next);
}

static lh_err add_up(struct held *h, double *mass)
{
    const struct lh_shard_layout *layout = h->conf->replica->layout;
    bool intact = h->state == WK_SLOT_INTACT;
    h->tokens = intact ? h->slot.tokens : 0;
    for (uint64_t i = 0; i < h->values; i++) mass[i] = (double)h->residual[i];
    for (struct wk_entry *e = h->outbox.first; e; e = e->next) {
        struct lk_codec codec;
        struct lh_span plain;
        if (settled(h, e)) continue;
        memset(h->q, 0, h->values * sizeof *h->q);
        LH_TRY(open_entry(h, e, &codec, &plain));
        LH_TRY(lk_payload_add(&codec, layout, plain, h->q));
        for (uint64_t i = 0; i < h->values; i++) mass[i] += (double)h->q[i];
        h->tokens += e->head.tokens;
    }
    for (uint64_t i = 0; i < h->values; i++)
        mass[i] -= (double)h->tokens * exact_mass(layout->first + i);
    return LH_OK;
}

static lh_err look(struct held *h, double *mass)
{
    LH_TRY(held_boot(h->conf->env, h->conf->dir, h->slots.boot));
    LH_TRY(wk_outbox_load(&h->outbox, NULL, NULL)); // a torn entry was never committed
    LH_TRY(wk_slot_load(&h->slots, &h->slot, h->residual, &h->state));
    if (h->state == WK_SLOT_ABSENT && h->outbox.first) h->state = WK_SLOT_LOST;
    if (h->state == WK_SLOT_LOST) LH_TRY(rebuild(h));
    return add_up(h, mass);
}

lh_err held_read(const struct held_conf *conf, struct held_found *out)
{
    uint64_t values = conf->replica->layout->values;
    char outbox[LH_PATH_BYTES];
    LH_TRY(lh_path(outbox, sizeof outbox, conf->dir, "outbox"));
    struct held h = {
        .conf = conf,
        .slots = {.env = conf->env, .dir = conf->dir, .shard = conf->shard, .values = values},
        .outbox = {.env = conf->env, .dir = outbox, .shard = conf->shard},
        .residual = calloc(values, sizeof *h.residual),
        .q = calloc(values, sizeof *h.q),
        .values = values};
    lh_err err = h.residual && h.q ? look(&h, out->mass) : LH_ERR_NO_MEMORY;
    out->rebuilt = h.state == WK_SLOT_LOST;
    out->back = out->rebuilt ? 0 : h.slot.tokens;
    wk_outbox_free(&h.outbox);
    wk_slot_free(&h.slot);
    free(h.residual);
    free(h.q);
    return err;
}
