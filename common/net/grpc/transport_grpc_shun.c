// Shun: addresses to which the listeners do not answer for a moment. See transport_grpc_core.h.
//
// An address that has no attempt left is turned away at accept(). By then the kernel has made a
// connection, and whoever dials again at once has it make thousands a second. A classic BPF filter
// on the listening socket drops the first packet (SYN) of such an address instead: no connection is
// made, and the dialler's kernel waits a second before it asks again. It needs no privilege.
//
// The filter looks at first packets alone. Accepted sockets inherit it, and never get one.
//
// Invariant: a descriptor gets or loses a filter only while its socket's cookie is the one of the
// listener: gRPC may have closed it, and its number may belong to another file.
#include <linux/filter.h>
#include <linux/ipv6.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/net/grpc/transport_grpc_core.h"

enum {
    ADDRESSES = 32, // further ones are turned away at accept() alone
    LISTENERS = 16,
    STEPS_PER_ADDRESS = 5,
    STEPS_MAX = ADDRESSES * STEPS_PER_ADDRESS + 16,
    FLAGS_AT = 13, // a listener's filter sees the packet from the TCP header on
};
static const uint32_t IP = (uint32_t)SKF_NET_OFF, PASS = UINT32_MAX, DROP = 0;

static struct {
    struct lh_grpc_address address[ADDRESSES];
    size_t addresses;
    struct listener {
        int fd;
        uint64_t cookie;
    } listener[LISTENERS];
    size_t listeners;
} shunned; // under the lock of transport_grpc_waiting.c

struct program {
    struct sock_filter step[STEPS_MAX];
    unsigned short steps;
};

// If `code` holds for k, `yes` steps are skipped, else `no` steps.
static void put(struct program *p, unsigned code, uint32_t k, uint8_t yes, uint8_t no)
{
    p->step[p->steps++] = (struct sock_filter){(uint16_t)code, yes, no, k};
}

static void put_load(struct program *p, unsigned size, uint32_t at)
{
    put(p, BPF_LD | BPF_ABS | size, at, 0, 0);
}

static void put_return(struct program *p, uint32_t verdict)
{
    put(p, BPF_RET | BPF_K, verdict, 0, 0);
}

static uint32_t word(const struct lh_grpc_address *a, size_t i)
{
    const uint8_t *b = a->bytes + 1 + 4 * i;
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static void drop_v4(struct program *p)
{
    put_load(p, BPF_W, IP + offsetof(struct iphdr, saddr));
    for (size_t i = 0; i < shunned.addresses; i++) {
        if (shunned.address[i].bytes[0] != 4) continue;
        put(p, BPF_JMP | BPF_JEQ | BPF_K, word(&shunned.address[i], 0), 0, 1);
        put_return(p, DROP);
    }
    put_return(p, PASS);
}

static void drop_v6(struct program *p)
{
    for (size_t i = 0; i < shunned.addresses; i++) {
        const struct lh_grpc_address *a = &shunned.address[i];
        if (a->bytes[0] != 8) continue;
        put_load(p, BPF_W, IP + offsetof(struct ipv6hdr, saddr));
        put(p, BPF_JMP | BPF_JEQ | BPF_K, word(a, 0), 0, 3);
        put_load(p, BPF_W, IP + offsetof(struct ipv6hdr, saddr) + 4);
        put(p, BPF_JMP | BPF_JEQ | BPF_K, word(a, 1), 0, 1);
        put_return(p, DROP);
    }
    put_return(p, PASS);
}

static void write_program(struct program *p)
{
    const unsigned is = BPF_JMP | BPF_K;
    p->steps = 0;
    put_load(p, BPF_B, FLAGS_AT);
    put(p, BPF_ALU | BPF_AND | BPF_K, TH_SYN | TH_ACK, 0, 0);
    put(p, is | BPF_JEQ, TH_SYN, 1, 0);
    put_return(p, PASS);
    put_load(p, BPF_B, IP);
    put(p, BPF_ALU | BPF_RSH | BPF_K, 4, 0, 0); // the version
    put(p, is | BPF_JEQ, 4, 1, 0);
    unsigned short far = p->steps;
    put(p, is | BPF_JA, 0, 0, 0);
    drop_v4(p);
    p->step[far].k = (uint32_t)(p->steps - far - 1);
    drop_v6(p);
}

static bool cookie_of(int fd, uint64_t *out)
{
    socklen_t n = sizeof *out;
    return getsockopt(fd, SOL_SOCKET, SO_COOKIE, out, &n) == 0;
}

// Gives each listener the filter; NULL: takes it away. A kernel that has none leaves what was.
static void filter_all(struct program *p)
{
    for (size_t i = 0; i < shunned.listeners; i++) {
        int none = 0, fd = lh_grpc_copy_if(shunned.listener[i].fd, shunned.listener[i].cookie);
        if (fd < 0) continue;
        if (p) {
            const struct sock_fprog all = {p->steps, p->step};
            (void)setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &all, sizeof all);
        } else {
            (void)setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof none);
        }
        close(fd);
    }
}

static bool add_address(const struct lh_grpc_address *a)
{
    for (size_t i = 0; i < shunned.addresses; i++)
        if (memcmp(&shunned.address[i], a, sizeof *a) == 0) return false;
    if (shunned.addresses == ADDRESSES) return false;
    shunned.address[shunned.addresses++] = *a;
    return true;
}

static bool add_listener(int fd)
{
    uint64_t cookie;
    if (!cookie_of(fd, &cookie)) return false;
    for (size_t i = 0; i < shunned.listeners; i++)
        if (shunned.listener[i].cookie == cookie) return false;
    if (shunned.listeners == LISTENERS) return false;
    shunned.listener[shunned.listeners++] = (struct listener){fd, cookie};
    return true;
}

void lh_grpc_shun(int listener, const struct lh_grpc_address *a)
{
    struct program p;
    bool address = add_address(a), door = add_listener(listener);
    if (!address && !door) return;
    write_program(&p);
    LH_ASSERT(p.steps <= STEPS_MAX);
    filter_all(&p);
}

void lh_grpc_shun_end(void)
{
    if (!shunned.listeners) return;
    filter_all(NULL);
    shunned.addresses = shunned.listeners = 0;
}
