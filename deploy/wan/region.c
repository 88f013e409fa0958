// Network namespaces and their devices. See region.h.
//
// A region has loopback, the device wan0 with its hosts' addresses as /32, a route into the device
// for every other region's /24, and an error route for the rest of its own. It has no other way out
// and no IPv6.
#include "deploy/wan/region.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <net/route.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "deploy/wan/state.h"
#include "deploy/wan/topology.h"

enum { DEVICE_QUEUE = 10000 }; // packets a region's kernel holds for the daemon

// Buffers several times 1 Gbit/s over 300 ms; a connection learns nothing from earlier ones.
static const char *const SYSCTLS[] = {
    "net.ipv4.tcp_rmem=4096 131072 268435456",
    "net.ipv4.tcp_wmem=4096 16384 268435456",
    "net.ipv4.tcp_no_metrics_save=1",
};

static LH_MUST lh_err interface_ioctl(int socket, unsigned long request, struct ifreq *ifr,
                                      const char *device)
{
    snprintf(ifr->ifr_name, sizeof ifr->ifr_name, "%.15s", device);
    if (ioctl(socket, request, ifr) < 0)
        return lh_fail_errno(errno, "%s: interface request %#lx", device, request);
    return LH_OK;
}

static LH_MUST lh_err bring_up(int socket, const char *device)
{
    struct ifreq ifr = {0};
    LH_TRY(interface_ioctl(socket, SIOCGIFFLAGS, &ifr, device));
    ifr.ifr_flags |= IFF_UP;
    return interface_ioctl(socket, SIOCSIFFLAGS, &ifr, device);
}

static struct sockaddr address_of(int region, int host)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    struct sockaddr result;
    uint32_t number = 10u << 24 | 77u << 16 | (uint32_t)(region + 1) << 8 | (uint32_t)host;
    in.sin_addr.s_addr = htonl(number);
    memcpy(&result, &in, sizeof result);
    return result;
}

// Routes a region's 10.77.R.0/24 into the device, or to an error if `device` is NULL.
static LH_MUST lh_err add_route(int socket, const struct dp_world *world, int region, char *device)
{
    struct sockaddr_in mask = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xffffff00)};
    struct rtentry route = {.rt_dst = address_of(region, 0), .rt_dev = device};
    memcpy(&route.rt_genmask, &mask, sizeof mask);
    route.rt_flags = (unsigned short)(RTF_UP | (device ? 0 : RTF_REJECT));
    if (ioctl(socket, SIOCADDRT, &route) < 0)
        return lh_fail_errno(errno, "route to region %s", world->region[region].name);
    return LH_OK;
}

// Applies KEY=VALUE in this process's network namespace.
static LH_MUST lh_err set_sysctl(const char *assignment)
{
    char path[DP_LINE_BYTES + 16];
    const char *value = strchr(assignment, '=') + 1;
    snprintf(path, sizeof path, "/proc/sys/%.*s", (int)(value - 1 - assignment), assignment);
    for (char *at = path; *at; at++)
        if (*at == '.') *at = '/';
    int file = open(path, O_WRONLY | O_CLOEXEC);
    bool failed = file < 0 || write(file, value, strlen(value)) < 0;
    int reason = errno;
    if (file >= 0) close(file);
    return failed ? lh_fail_errno(reason, "sysctl %s", assignment) : LH_OK;
}

static LH_MUST lh_err open_tun(int *tun)
{
    struct ifreq ifr = {.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};
    *tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (*tun < 0) return lh_fail_errno(errno, "/dev/net/tun");
    LH_TRY(interface_ioctl(*tun, TUNSETIFF, &ifr, DP_DEVICE));
    if (ioctl(*tun, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO_ECN) < 0)
        return lh_fail_errno(errno, "%s: no offloads", DP_DEVICE);
    return LH_OK;
}

static LH_MUST lh_err set_addresses(const struct dp_world *world, int index, int control)
{
    for (int host = 1; host <= world->region[index].hosts; host++) {
        struct ifreq ifr = {.ifr_addr = address_of(index, host)};
        char alias[IFNAMSIZ] = DP_DEVICE;
        if (host > 1) snprintf(alias, sizeof alias, DP_DEVICE ":%d", host);
        LH_TRY(interface_ioctl(control, SIOCSIFADDR, &ifr, alias));
    }
    return LH_OK;
}

static LH_MUST lh_err set_up_devices(struct dp_world *world, int index, int control)
{
    struct ifreq ifr = {.ifr_mtu = world->mtu};
    char device[] = DP_DEVICE; // struct rtentry wants it writable
    LH_TRY(open_tun(&world->region[index].tun));
    LH_TRY(interface_ioctl(control, SIOCSIFMTU, &ifr, DP_DEVICE));
    ifr.ifr_qlen = DEVICE_QUEUE;
    LH_TRY(interface_ioctl(control, SIOCSIFTXQLEN, &ifr, DP_DEVICE));
    if (access("/proc/sys/net/ipv6", F_OK) == 0)
        LH_TRY(set_sysctl("net.ipv6.conf." DP_DEVICE ".disable_ipv6=1"));
    LH_TRY(bring_up(control, "lo"));
    LH_TRY(bring_up(control, DP_DEVICE));
    LH_TRY(set_addresses(world, index, control));
    for (int other = 0; other < world->regions; other++)
        LH_TRY(add_route(control, world, other, other == index ? NULL : device));
    return LH_OK;
}

// Sets up a region's devices, addresses, routes and sysctls, from within its namespace.
static LH_MUST lh_err furnish(struct dp_world *world, int index)
{
    int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (control < 0) return lh_fail_errno(errno, "socket");
    lh_err err = set_up_devices(world, index, control);
    close(control);
    for (size_t i = 0; !err && i < sizeof SYSCTLS / sizeof *SYSCTLS; i++)
        err = set_sysctl(SYSCTLS[i]);
    for (int i = 0; !err && i < world->sysctls; i++) err = set_sysctl(world->sysctl[i]);
    return err;
}

// ---------------------------------------------------------------- namespaces

// Makes the namespace directory as ip-netns(8) does, under the same lock, so the two agree.
static LH_MUST lh_err prepare_netns_dir(void)
{
    if (mkdir(DP_NETNS_DIR, 0755) < 0 && errno != EEXIST)
        return lh_fail_errno(errno, "%s", DP_NETNS_DIR);
    int directory = open(DP_NETNS_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0 || flock(directory, LOCK_EX) < 0)
        return lh_fail_errno(errno, "%s", DP_NETNS_DIR);
    bool shared = mount("", DP_NETNS_DIR, "none", MS_SHARED | MS_REC, NULL) == 0;
    if (!shared && errno == EINVAL) // no mount point yet
        shared = mount(DP_NETNS_DIR, DP_NETNS_DIR, "none", MS_BIND | MS_REC, NULL) == 0 &&
                 mount("", DP_NETNS_DIR, "none", MS_SHARED | MS_REC, NULL) == 0;
    int reason = errno;
    close(directory);
    return shared ? LH_OK : lh_fail_errno(reason, "%s", DP_NETNS_DIR);
}

// Moves this process into a new namespace bound to a name.
static LH_MUST lh_err enter_new_netns(const char *path)
{
    int file = open(path, O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0);
    if (file < 0) return lh_fail_errno(errno, "%s", path);
    close(file);
    if (unshare(CLONE_NEWNET) < 0) return lh_fail_errno(errno, "new network namespace");
    if (mount("/proc/self/ns/net", path, "none", MS_BIND, NULL) < 0)
        return lh_fail_errno(errno, "%s", path);
    return LH_OK;
}

static LH_MUST lh_err create_region(struct dp_world *world, int index, FILE *list)
{
    const char *name = world->region[index].name;
    struct dp_state_path path = dp_state_netns_path(world->instance, name);
    if (access(path.text, F_OK) == 0) return lh_fail_errno(EEXIST, "%s", path.text);
    fprintf(list, "%s\n", name); // ours to remove from now on, even if killed
    if (fflush(list)) return lh_fail_errno(errno, "list of regions");
    LH_TRY(enter_new_netns(path.text));
    return furnish(world, index);
}

static LH_MUST lh_err create_listed_regions(struct dp_world *world)
{
    FILE *list;
    lh_err err = LH_OK;
    LH_TRY(prepare_netns_dir());
    LH_TRY(dp_state_create_file(world->instance, "regions", &list));
    for (int i = 0; !err && i < world->regions; i++) err = create_region(world, i, list);
    fclose(list);
    return err;
}

lh_err dp_regions_create(struct dp_world *world)
{
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (home < 0) return lh_fail_errno(errno, "/proc/self/ns/net");
    lh_err err = create_listed_regions(world);
    if (setns(home, CLONE_NEWNET) < 0 && !err) err = lh_fail_errno(errno, "setns");
    close(home);
    return err;
}

lh_err dp_regions_write_hosts(const struct dp_world *world)
{
    FILE *hosts, *common = fopen("/etc/hosts", "re");
    lh_err err = dp_state_create_file(world->instance, "hosts", &hosts);
    for (int byte; !err && common && (byte = fgetc(common)) != EOF;) fputc(byte, hosts);
    if (common) fclose(common);
    if (err) return err;
    for (int i = 0; i < world->regions; i++)
        for (int host = 1; host <= world->region[i].hosts; host++)
            fprintf(hosts, "\n10.77.%d.%d %s h%d.%s", i + 1, host,
                    host == 1 ? world->region[i].name : "", host, world->region[i].name);
    fputc('\n', hosts);
    return fclose(hosts) ? lh_fail_errno(errno, "the regions' hosts file") : LH_OK;
}

int dp_region_exec(const char *instance, const char *region, char **command)
{
    struct dp_state_path hosts = dp_state_path(instance, "hosts");
    int netns = -1;
    if (dp_name_valid(region))
        netns = open(dp_state_netns_path(instance, region).text, O_RDONLY | O_CLOEXEC);
    if (netns < 0 || setns(netns, CLONE_NEWNET) < 0) {
        fprintf(stderr, "wanem: no region '%s' in %s\n", region, instance);
        return 125;
    }
    if (unshare(CLONE_NEWNS) < 0 || mount("", "/", "none", MS_SLAVE | MS_REC, NULL) < 0 ||
        (mount(hosts.text, "/etc/hosts", "none", MS_BIND, NULL) < 0 && errno != ENOENT)) {
        fprintf(stderr, "wanem: /etc/hosts: %s\n", strerror(errno));
        return 125;
    }
    execvp(command[0], command);
    int reason = errno;
    fprintf(stderr, "wanem: %s: %s\n", command[0], strerror(reason));
    return reason == ENOENT ? 127 : 126;
}
