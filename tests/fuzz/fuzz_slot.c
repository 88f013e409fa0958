// A worker's slot and residual snapshot, read at start; the same bytes are also an outbox entry.
//
// Byte 0 bit 0: the checksums of a slot are repaired first; bit 1: that of an outbox entry.
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "tests/fuzz/disk.h"
#include "tests/fuzz/fuzz.h"
#include "worker/push/outbox.h"
#include "worker/push/slot.h"

enum { VALUES = 3, CLAIMS_AT = 68, FIXED = 96 }; // offsets in a slot's head: slot.h

static void repair_slot(uint8_t *bytes, size_t size)
{
    size_t rest = VALUES * sizeof(float);
    if (size < FIXED + 8 + rest) return;
    size_t head = size - rest - 8; // the two checksums begin here
    uint8_t residual[VALUES * sizeof(float) + 4];
    memcpy(residual, bytes + size - rest, rest);
    fuzz_repair_crc(residual, 0, rest);
    memcpy(bytes + head, residual + rest, 4);
    fuzz_repair_crc(bytes, 0, head + 4);
}

static void load_slot(struct fuzz_disk *disk)
{
    struct wk_slots slots = {.env = disk->env, .dir = "slots", .values = VALUES};
    struct wk_slot slot = {0};
    enum wk_slot_state state;
    float residual[VALUES] = {0};

    lh_err err = wk_slot_load(&slots, &slot, residual, &state);
    LH_ASSERT(err == LH_OK && slot.claim_count <= WK_CLAIMS_HELD_MAX &&
              slot.position_count <= WK_POSITIONS_MAX);
    LH_ASSERT(!slot.claim_count || state != WK_SLOT_ABSENT);
    if (state == WK_SLOT_INTACT && slots.generation < UINT64_MAX) { // survives a rewrite
        struct wk_slots fresh = {.env = disk->env, .dir = "slots", .values = VALUES};
        struct wk_slot again = {0};
        err = wk_slot_flip(&slots, &slot, residual, true);
        if (!err) err = wk_slot_load(&fresh, &again, residual, &state);
        LH_ASSERT(err == LH_OK && state == WK_SLOT_INTACT && again.next == slot.next);
        LH_ASSERT(again.cut == slot.cut && !memcmp(again.life, slot.life, sizeof slot.life));
        LH_ASSERT(again.position_count == slot.position_count && again.tokens == slot.tokens);
        wk_slot_free(&again);
    }
    wk_slot_free(&slot);

    slot = (struct wk_slot){0};
    err = wk_snapshot_load(&slots, &slot, residual);
    if (!err) wk_slot_free(&slot);
}

static void load_outbox(struct fuzz_disk *disk)
{
    struct wk_outbox outbox = {.env = disk->env, .dir = "outbox"};
    lh_err err = wk_outbox_load(&outbox, NULL, NULL);
    LH_ASSERT(err == LH_OK && outbox.entries <= 1);
    wk_outbox_free(&outbox);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) return 0;
    struct fuzz_disk disk = fuzz_disk_create();
    uint8_t *bytes = malloc(size);
    LH_ASSERT(bytes);
    size--;
    memcpy(bytes, data + 1, size);
    if (data[0] & 1) repair_slot(bytes, size);
    if (data[0] & 2 && size >= 4) fuzz_repair_crc(bytes, 0, size - 4);
    struct lh_span file = lh_span(bytes, size);
    fuzz_disk_put(&disk, "slots", "slot-0000-a", file);
    fuzz_disk_put(&disk, "slots", "residual-0000", file);
    fuzz_disk_put(&disk, "outbox", "0000-0000000000000001-0000000000000001", file);
    load_slot(&disk);
    load_outbox(&disk);
    free(bytes);
    fuzz_disk_destroy(&disk);
    return 0;
}
