// The first bytes on the connections between a region's ranks. See greeting.h. Little endian:
//
//   channel    0 u32 magic "WPER"   4 u8 version 1   5 u8 rank   6 u16 zeros
//              with hosts: 8 the region's name, 64, zeros behind it
//   ring    0 u32 magic "WTCP"   4 u8 kind (1 goes to rank 0, 2 is from the previous rank in the
//           ring)
//           5 u8 rank   6 u16 its port   8 secret, 32
//           with hosts: 40 its address, 16
#include "worker/ranks/greeting.h"

#include <string.h>

enum { VERSION = 1 };
static const uint32_t channel_magic = 0x52455057, ring_magic = 0x50435457;

void wk_channel_greeting_put(struct lh_buf *out, const struct wk_channel_greeting *g)
{
    lh_put_u32(out, channel_magic);
    lh_put_u8(out, VERSION);
    lh_put_u8(out, g->rank);
    lh_put_u16(out, 0);
    if (g->hosts) lh_put(out, g->name, sizeof g->name);
}

static bool is_text(const char *name, size_t bytes)
{
    size_t n = strnlen(name, bytes);
    for (size_t i = n; i < bytes; i++)
        if (name[i]) return false;
    return n > 0 && n < bytes;
}

lh_err wk_channel_greeting_get(struct lh_span bytes, bool hosts, struct wk_channel_greeting *out)
{
    struct lh_cursor c = lh_cursor(bytes);
    *out = (struct wk_channel_greeting){.hosts = hosts};
    uint32_t is = lh_get_u32(&c);
    uint8_t version = lh_get_u8(&c);
    out->rank = lh_get_u8(&c);
    uint16_t zeros = lh_get_u16(&c);
    if (hosts) lh_get_into(&c, out->name, sizeof out->name);
    bool whole = !c.failed && !lh_left(&c) && is == channel_magic && version == VERSION && !zeros;
    if (whole && (!hosts || is_text(out->name, sizeof out->name))) return LH_OK;
    return lh_fail(LH_ERR_MALFORMED, "no greeting of a rank");
}

void wk_ring_greeting_put(struct lh_buf *out, const struct wk_ring_greeting *g)
{
    lh_put_u32(out, ring_magic);
    lh_put_u8(out, (uint8_t)g->kind);
    lh_put_u8(out, g->rank);
    lh_put_u16(out, g->address.port);
    lh_put(out, g->secret.b, sizeof g->secret.b);
    if (g->hosts) lh_put(out, g->address.host, sizeof g->address.host);
}

lh_err wk_ring_greeting_get(struct lh_span bytes, bool hosts, struct wk_ring_greeting *out)
{
    struct lh_cursor c = lh_cursor(bytes);
    *out = (struct wk_ring_greeting){.hosts = hosts, .address = wk_address_loopback(0)};
    uint32_t is = lh_get_u32(&c);
    uint8_t kind = lh_get_u8(&c);
    out->rank = lh_get_u8(&c);
    out->address.port = lh_get_u16(&c);
    lh_get_into(&c, out->secret.b, sizeof out->secret.b);
    if (hosts) lh_get_into(&c, out->address.host, sizeof out->address.host);
    bool known = kind == WK_RING_COMES || kind == WK_RING_BEFORE;
    out->kind = (enum wk_ring_greeting_kind)kind;
    if (!c.failed && !lh_left(&c) && is == ring_magic && known) return LH_OK;
    return lh_fail(LH_ERR_MALFORMED, "no greeting of a rank");
}
