// The addresses of a run's nodes: network namespaces joined by emulated links, or loopback.
//
// Emulated: region n (from 0) has 10.77.(n+1).1 and up, with fixed ports. Loopback: all nodes on
// 127.0.0.1, on ports that were free when the run's folder was made; they are stored there, so that
// a second `up` finds the servers at the same ports.
//
// Hosts of a worker's ranks are in their worker's region in both cases: host h (from 0) of the
// run's worker w (from 0) is 127.77.w.(h+1). Loopback serves all addresses below 127.
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/check.h"
#include "deploy/ask/links.h"
#include "deploy/up/up.h"
#include "deploy/up/up_net.h"
#include "worker/ranks/reduce.h"

enum { PAGE_BACKLOG = 32, PORT_TRIES = 100 };
enum { PORT_EMULATED = 7400, RECEIVE_BYTES_MIN = 32 << 20 };

// ---------------------------------------------------------------- loopback

// Finds a free port (or tries this one) on a loopback address; 0: none.
static unsigned free_port(const char *address, unsigned wanted)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)wanted)};
    if (inet_pton(AF_INET, address, &a.sin_addr) != 1) return 0;
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0) return 0;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bool bound =
        !bind(fd, (struct sockaddr *)&a, sizeof a) && !getsockname(fd, (struct sockaddr *)&a, &len);
    close(fd);
    return bound ? ntohs(a.sin_port) : 0;
}

// The port in the node's settings from an earlier `up`; 0: none.
static unsigned kept_port(const struct dp_node *node)
{
    struct lh_config *c;
    struct lh_buf text = lh_buf(LH_YAML_BYTES_MAX);
    unsigned port = 0;
    if (lh_config_create(&ps_settings_table, &c)) return 0;
    if (!dp_file_read(node->config, &text) &&
        !lh_config_text(c, node->config, lh_buf_span(&text))) {
        const char *listen = lh_config_value(c, "listen", NULL, 0);
        const char *colon = listen ? strrchr(listen, ':') : NULL;
        if (colon && !strncmp(listen, "127.0.0.1:", 10)) sscanf(colon + 1, "%5u", &port);
    }
    lh_buf_free(&text);
    lh_config_destroy(c);
    return port;
}

// Fails if another node of the run has this port.
static bool take_port(const struct dp_up *up, struct dp_node *node, unsigned port)
{
    char address[sizeof node->address];
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    for (unsigned i = 0; i < up->nodes; i++)
        if (!strcmp(up->node[i].address, address)) return false;
    memcpy(node->address, address, sizeof address);
    return true;
}

// A port that was found free is free for the next node as well, until a process listens on it.
static LH_MUST lh_err take_free_port(const struct dp_up *up, struct dp_node *node)
{
    for (unsigned tries = 0; tries < PORT_TRIES; tries++) {
        unsigned port = free_port("127.0.0.1", 0);
        if (port && take_port(up, node, port)) return LH_OK;
    }
    return lh_fail_errno(errno, "no free port on 127.0.0.1");
}

static LH_MUST lh_err loopback(struct dp_up *up)
{
    for (unsigned i = 0; i < up->nodes; i++)
        if (up->node[i].kind < DP_WORKER) up->node[i].address[0] = 0;
    for (unsigned i = 0; i < up->nodes; i++) {
        struct dp_node *node = &up->node[i];
        unsigned kept = node->kind < DP_WORKER ? kept_port(node) : 0;
        if (kept && free_port("127.0.0.1", kept)) take_port(up, node, kept);
    }
    for (unsigned i = 0; i < up->nodes; i++) {
        struct dp_node *node = &up->node[i];
        if (node->kind < DP_WORKER && !node->address[0]) LH_TRY(take_free_port(up, node));
    }
    return LH_OK;
}

// ---------------------------------------------------------------- emulated

// Bytes that a host's TCP may hold unread (tcp_rmem): twice the bandwidth-delay product of the
// longest link, as an operator sets it, at least the kernel's default. More does harm: gRPC sends
// at most 32 MiB ahead, and if only that limits a sender, BBR never learns the link's rate,
// overflows its queue and sends a fifth of all bytes twice. 0: the emulator's default, because a
// link without a rate has no queue.
static double receive_bytes(const struct dp_topology *t)
{
    double most = RECEIVE_BYTES_MIN;
    for (unsigned i = 0; i < t->links; i++) {
        const struct dp_link_shape *l = &t->link[i].shape;
        if (!(l->mbit > 0)) return 0;
        double bytes = 2 * l->mbit * 1e6 / 8 * l->rtt_ms / 1e3;
        if (bytes > most) most = bytes;
    }
    return most;
}

void dp_net_world(const struct dp_topology *t, struct lh_buf *out)
{
    double receive = receive_bytes(t);
    for (unsigned i = 0; i < t->regions; i++) dp_put(out, "region %s\n", t->region[i].name);
    for (unsigned i = 0; i < t->links; i++) {
        const struct dp_link *l = &t->link[i];
        dp_put(out, "link %s %s rtt=%gms", t->region[l->a].name, t->region[l->b].name,
               l->shape.rtt_ms);
        if (l->shape.mbit > 0) dp_put(out, " rate=%gmbit", l->shape.mbit);
        if (l->shape.loss_percent > 0) dp_put(out, " loss=%g%%", l->shape.loss_percent);
        dp_put(out, "\n");
    }
    if (receive > 0) dp_put(out, "sysctl net.ipv4.tcp_rmem=4096 131072 %.0f\n", receive);
}

static LH_MUST lh_err write_world(const struct dp_up *up, const char *path)
{
    struct lh_buf text = lh_buf(1 << 20);
    dp_net_world(up->t, &text);
    lh_err err = lh_buf_err(&text);
    if (!err) err = dp_file_write(path, lh_buf_span(&text), 0640);
    lh_buf_free(&text);
    return err;
}

// A name derived from this folder, so that two runs do not remove each other's links.
static void instance_of(const struct dp_up *up, char out[DP_WAN_NAME_BYTES])
{
    snprintf(out, DP_WAN_NAME_BYTES, "lh-%08x", lh_crc32c(0, up->dir, strlen(up->dir)));
}

static LH_MUST lh_err emulated(struct dp_up *up)
{
    char path[DP_PATH_BYTES], instance[DP_WAN_NAME_BYTES];
    LH_TRY(dp_wan_find(&up->wan));
    LH_TRY(dp_path(path, "%s/links.wan", up->dir));
    LH_TRY(write_world(up, path));
    instance_of(up, instance);
    LH_TRY(dp_wan_up(&up->wan, path, instance));
    up->emulated = true;
    unsigned used[DP_REGIONS_MAX] = {0};
    for (unsigned i = 0; i < up->nodes; i++) {
        struct dp_node *node = &up->node[i];
        if (node->kind >= DP_WORKER) continue;
        snprintf(node->address, sizeof node->address, "10.77.%u.1:%u", node->region + 1,
                 PORT_EMULATED + used[node->region]++);
    }
    return dp_links_keep(up->dir, instance, up->t->region[up->t->coordinator].name);
}

// The worker's number in the run, in list order.
static unsigned worker_number(const struct dp_up *up, const struct dp_node *node)
{
    unsigned before = node->index;
    for (unsigned r = 0; r < node->region; r++) before += (unsigned)up->t->region[r].workers;
    return before;
}

// The port is free on this machine; in an emulated region nothing else listens.
static LH_MUST lh_err place_hosts(struct dp_up *up)
{
    LH_STATIC_ASSERT(DP_WORKERS_MAX < 256 && WK_RANKS_MAX < 255, "parts of an address");
    for (unsigned i = 0; i < up->nodes; i++) {
        struct dp_node *node = &up->node[i];
        const struct dp_region *region = &up->t->region[node->region];
        bool rank = node->kind == DP_WORKER || node->kind == DP_RANK;
        if (!rank || region->hosts < 2) continue;
        char host[sizeof node->host];
        snprintf(host, sizeof host, "127.77.%u.%u", worker_number(up, node),
                 dp_region_host(region, node->rank) + 1);
        memcpy(node->host, host, sizeof host);
        if (node->kind == DP_RANK) continue;
        unsigned port = free_port(host, 0);
        if (!port) return lh_fail_errno(errno, "no free port on %s", host);
        snprintf(node->address, sizeof node->address, "%s:%u", host, port);
    }
    return LH_OK;
}

lh_err dp_net_up(struct dp_up *up)
{
    dp_links_forget(up->dir);
    LH_TRY(place_hosts(up));
    return up->flags.no_wan ? loopback(up) : emulated(up);
}

// A socket stays in the namespace of its creation: so a coordinator in an emulated region shows its
// page on this machine, at the same address after a restart.
static LH_MUST lh_err open_page(struct dp_node *node)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof at;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, len) || listen(fd, PAGE_BACKLOG) ||
        getsockname(fd, (struct sockaddr *)&at, &len)) {
        int saved = errno;
        if (fd >= 0) close(fd);
        return lh_fail_errno(saved, "no socket on 127.0.0.1 for the run's page");
    }
    node->page = fd;
    snprintf(node->page_at, sizeof node->page_at, "127.0.0.1:%u", ntohs(at.sin_port));
    return LH_OK;
}

lh_err dp_net_page(struct dp_up *up)
{
    for (unsigned i = 0; i < up->nodes; i++)
        if (up->node[i].kind == DP_COORDINATOR) LH_TRY(open_page(&up->node[i]));
    return LH_OK;
}

void dp_net_down(struct dp_up *up)
{
    if (!up->emulated) return;
    up->emulated = false;
    lh_err err = dp_wan_down(&up->wan, true);
    if (err) fprintf(stderr, "longhaul up: %s\n", lh_err_text(err));
}

int dp_net_enter(const void *entry)
{
    const struct dp_entry *e = entry;
    if (!e->up->emulated) return 0;
    return dp_wan_enter(&e->up->wan, e->up->t->region[e->node->region].name) ? -1 : 0;
}

lh_err dp_net_cut(struct dp_up *up, unsigned region)
{
    return dp_wan_cut(&up->wan, up->t->region[region].name);
}

lh_err dp_net_heal(struct dp_up *up, unsigned region)
{
    return dp_wan_heal(&up->wan, up->t->region[region].name);
}
