// Addresses of the processes of a region.
#ifndef WK_ADDRESS_H
#define WK_ADDRESS_H

#include <sys/socket.h>

#include "common/base/buf.h"
#include "common/base/err.h"

enum { WK_HOST_BYTES = 16, WK_ADDRESS_BYTES = 64 };

struct wk_address {
    uint8_t host[WK_HOST_BYTES]; // IPv6, or IPv4 as ::ffff:a.b.c.d
    uint16_t port;
};

struct wk_address wk_address_loopback(uint16_t port); // 127.0.0.1
// Parses "host:port" or "[v6]:port"; looks up a name, which may block. LH_ERR_CONFIG,
// LH_ERR_UNAVAILABLE.
LH_MUST lh_err wk_address_find(const char *address, struct wk_address *out);
// Parses a numeric address without a port: "10.0.0.7", "fd00::7". LH_ERR_CONFIG.
LH_MUST lh_err wk_address_numeric(const char *host, struct wk_address *out);
// As bytes: the host's 16, then u16 port, little endian.
void wk_address_put(struct lh_buf *out, const struct wk_address *p);
struct wk_address wk_address_get(struct lh_cursor *c);
void wk_address_text(const struct wk_address *p, char out[WK_ADDRESS_BYTES]);

socklen_t wk_address_sockaddr(const struct wk_address *p, struct sockaddr_storage *out);
// Opens a listening socket; port 0 becomes the assigned port. LH_ERR_BUSY: the port is in use.
LH_MUST lh_err wk_address_listen(struct wk_address *p, int backlog, int *fd);

#endif
