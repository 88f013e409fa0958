// Addresses of the processes of a region. See address.h.
#include "worker/ranks/stream/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

static bool is_v4(const struct wk_address *p)
{
    return !memcmp(p->host, mapped, sizeof mapped);
}

static struct wk_address v4(const struct in_addr *a, uint16_t port)
{
    struct wk_address p = {.port = port};
    memcpy(p.host, mapped, sizeof mapped);
    memcpy(p.host + sizeof mapped, a, sizeof *a);
    return p;
}

struct wk_address wk_address_loopback(uint16_t port)
{
    struct in_addr a = {htonl(INADDR_LOOPBACK)};
    return v4(&a, port);
}

static struct wk_address address_of(const struct sockaddr *a)
{
    struct wk_address p = {0};
    if (a->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)a;
        return v4(&in->sin_addr, ntohs(in->sin_port));
    }
    const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)(const void *)a;
    memcpy(p.host, &in->sin6_addr, sizeof p.host);
    p.port = ntohs(in->sin6_port);
    return p;
}

static LH_MUST lh_err look_up(const char *host, const char *port, int flags, struct wk_address *out)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    struct addrinfo *list = NULL, *a;
    int failed = getaddrinfo(host, port, &hints, &list);
    if (failed) {
        bool numeric = flags & AI_NUMERICHOST;
        return lh_fail(numeric ? LH_ERR_CONFIG : LH_ERR_UNAVAILABLE, "\"%.100s\": %s", host,
                       numeric ? "no address in numbers, as 10.0.0.7" : gai_strerror(failed));
    }
    for (a = list; a && a->ai_family != AF_INET && a->ai_family != AF_INET6;) a = a->ai_next;
    if (a) *out = address_of(a->ai_addr);
    freeaddrinfo(list);
    return a ? LH_OK : lh_fail(LH_ERR_UNAVAILABLE, "\"%.100s\" has no IP address", host);
}

lh_err wk_address_find(const char *address, struct wk_address *out)
{
    char host[256];
    const char *colon = strrchr(address, ':');
    size_t n = colon ? (size_t)(colon - address) : 0;
    bool bracket = n >= 2 && address[0] == '[' && address[n - 1] == ']';
    if (bracket) n -= 2;
    if (!n || n >= sizeof host || !colon[1])
        return lh_fail(LH_ERR_CONFIG, "\"%.100s\" is not an address of the form host:port",
                       address);
    snprintf(host, sizeof host, "%.*s", (int)n, address + bracket);
    return look_up(host, colon + 1, 0, out);
}

lh_err wk_address_numeric(const char *host, struct wk_address *out)
{
    return look_up(host, "0", AI_NUMERICHOST, out);
}

void wk_address_put(struct lh_buf *out, const struct wk_address *p)
{
    lh_put(out, p->host, sizeof p->host);
    lh_put_u16(out, p->port);
}

struct wk_address wk_address_get(struct lh_cursor *c)
{
    struct wk_address p = {0};
    lh_get_into(c, p.host, sizeof p.host);
    p.port = lh_get_u16(c);
    return p;
}

void wk_address_text(const struct wk_address *p, char out[WK_ADDRESS_BYTES])
{
    char host[INET6_ADDRSTRLEN] = "?";
    bool four = is_v4(p);
    inet_ntop(four ? AF_INET : AF_INET6, p->host + (four ? sizeof mapped : 0), host, sizeof host);
    snprintf(out, WK_ADDRESS_BYTES, four ? "%s:%u" : "[%s]:%u", host, p->port);
}

socklen_t wk_address_sockaddr(const struct wk_address *p, struct sockaddr_storage *out)
{
    memset(out, 0, sizeof *out);
    if (is_v4(p)) {
        struct sockaddr_in *in = (struct sockaddr_in *)(void *)out;
        in->sin_family = AF_INET;
        in->sin_port = htons(p->port);
        memcpy(&in->sin_addr, p->host + sizeof mapped, sizeof in->sin_addr);
        return sizeof *in;
    }
    struct sockaddr_in6 *in = (struct sockaddr_in6 *)(void *)out;
    in->sin6_family = AF_INET6;
    in->sin6_port = htons(p->port);
    memcpy(&in->sin6_addr, p->host, sizeof in->sin6_addr);
    return sizeof *in;
}

lh_err wk_address_listen(struct wk_address *p, int backlog, int *out)
{
    struct sockaddr_storage a;
    char text[WK_ADDRESS_BYTES];
    socklen_t size = wk_address_sockaddr(p, &a);
    int one = 1;
    int fd = socket(a.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    *out = -1;
    wk_address_text(p, text);
    if (fd < 0) return lh_fail_errno(errno, "a socket");
    if (p->port) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    bool fine = !bind(fd, (struct sockaddr *)&a, size) && !listen(fd, backlog);
    int failed = errno;
    size = sizeof a;
    if (fine && !getsockname(fd, (struct sockaddr *)&a, &size)) {
        p->port = address_of((struct sockaddr *)&a).port;
        *out = fd;
        return LH_OK;
    }
    close(fd);
    if (failed == EADDRINUSE)
        return lh_fail(LH_ERR_BUSY, "another process listens at %s (`ss -ltnp` names it)", text);
    return lh_fail_errno(failed, "cannot listen at %s; is this an address of this machine?", text);
}
