// Bytes between a worker and a trainer that somebody else wrote. Byte 0 of an input chooses: even
// for a message of the socket, odd for a shared memory with its corrections.
//
// An accepted message encodes to the same bytes. The size of an accepted memory follows from its
// head, and no correction in it is read beyond its end.
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "tests/fuzz/fuzz.h"
#include "worker/external/channel.h"

enum { MEMORY_MAX = 1 << 20 };

static void try_message(const uint8_t *data, size_t size)
{
    struct wk_channel_message m;
    uint8_t again[WK_CHANNEL_MESSAGE];
    if (!wk_channel_decode(data, size, &m) || m.abi != WK_CHANNEL_ABI) return;
    size_t n = wk_channel_encode(&m, again);
    LH_ASSERT(n == size && !memcmp(again, data, n));
}

static void try_correction(const struct wk_channel *c, uint32_t part, uint64_t number)
{
    struct wk_channel_correction r;
    float to[WK_CHANNEL_CHUNK] = {0};
    if (!wk_channel_correction(c, part, number, &r)) return;
    for (uint64_t k = 0; k < wk_channel_chunks(r.values); k++) {
        uint64_t from = k * WK_CHANNEL_CHUNK, n = r.values - from;
        if (n > WK_CHANNEL_CHUNK) n = WK_CHANNEL_CHUNK;
        wk_channel_foresee(&r, k, from, n, to);
        (void)wk_channel_add(&r, k, from, n, to);
        if (n > 2) (void)wk_channel_add(&r, k, from + 1, n - 2, to);
    }
}

// An input is the head, the table's first TABLE bytes, the first part's words and the ring. Each is
// copied to its place in a zeroed memory of the size that the head names.
enum { TABLE = 64, WORDS = sizeof(struct wk_channel_part) };

static void lay_out(uint8_t *base, uint64_t bytes, const uint8_t *data, size_t size)
{
    struct wk_channel c;
    memcpy(base + WK_CHANNEL_PAGE, data + sizeof(struct wk_channel_head), TABLE);
    if (wk_channel_read(&c, base, bytes)) return;
    const uint8_t *words = data + sizeof(struct wk_channel_head) + TABLE;
    size_t rest = size - (size_t)(words - data), room = c.ring_of[1] - c.ring_of[0];
    memcpy(base + c.layout.part_at, words, rest < WORDS ? rest : WORDS);
    rest = rest < WORDS ? 0 : rest - WORDS;
    memcpy(base + c.layout.ring_at, words + WORDS, rest < room ? rest : room);
    wk_channel_close(&c);
}

static void try_memory(const uint8_t *data, size_t size)
{
    struct wk_channel_head h;
    struct wk_channel c;
    if (size < sizeof h + TABLE) return;
    memcpy(&h, data, sizeof h);
    if (h.bytes > MEMORY_MAX || h.bytes < 2 * WK_CHANNEL_PAGE) return;
    uint8_t *base = calloc(1, h.bytes);
    if (!base) return;
    memcpy(base, data, sizeof h);
    lay_out(base, h.bytes, data, size);
    if (!wk_channel_read(&c, base, h.bytes)) {
        LH_ASSERT(c.layout.bytes == h.bytes && c.first[c.shape.parts] == c.shape.values);
        for (uint32_t part = 0; part < c.shape.parts && part < 8; part++)
            for (uint64_t number = 0; number < 4; number++) try_correction(&c, part, number);
        wk_channel_close(&c);
    }
    free(base);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) return 0;
    if (data[0] % 2)
        try_memory(data + 1, size - 1);
    else
        try_message(data + 1, size - 1);
    return 0;
}
