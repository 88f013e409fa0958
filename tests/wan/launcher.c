// The launcher's side of the emulator (deploy/up/wan.h), with real namespaces: up, exec, bytes,
// cut, down, and the end of the daemon with its parent. Needs root and /dev/net/tun.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deploy/up/wan.h"
#include "tests/test.h"

enum { PORT = 7000, PATIENCE_MS = 20000 };

struct scene {
    struct dp_wan wan;
    char topology[64], instance[DP_WAN_NAME_BYTES];
};

static void write_topology(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int set_up(void **state)
{
    struct scene *s = calloc(1, sizeof *s);
    lh_err err = s ? dp_wan_find(&s->wan) : LH_ERR_NO_MEMORY;
    if (err) {
        print_error("%s\n", lh_err_text(err));
        return -1;
    }
    snprintf(s->topology, sizeof s->topology, "/tmp/launcher-%d.world", (int)getpid());
    snprintf(s->instance, sizeof s->instance, "l%d", (int)getpid());
    write_topology(s->topology, "region asia\nregion europe\nlink all all rtt=40ms rate=100mbit\n");
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *s = *state;
    lh_err err = dp_wan_down(&s->wan, true);
    unlink(s->topology);
    free(s);
    return err ? -1 : 0;
}

static bool instance_is_gone(const struct scene *s)
{
    char path[128];
    snprintf(path, sizeof path, "/run/wanem/%s", s->instance);
    bool state = access(path, F_OK) == 0;
    snprintf(path, sizeof path, "/run/netns/%s-asia", s->instance);
    return !state && access(path, F_OK) != 0;
}

// Starts `command` inside a region.
static pid_t start(const struct scene *s, const char *region, const char *const *command)
{
    enum { PREFIX = 6 };
    const char *argv[PREFIX + 8] = {s->wan.program, "-n", s->wan.instance, "exec", region, "--"};
    size_t n = PREFIX;
    do argv[n++] = *command;
    while (*command++);
    pid_t child = fork();
    if (child == 0) {
        execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    return child;
}

static int status_of(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Returns a UDP socket at a region's first host; a socket stays in the network it was created in.
static int socket_in(const struct scene *s, const char *region, unsigned number)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    assert_true(home >= 0);
    assert_int_equal(dp_wan_enter(&s->wan, region), LH_OK);
    int file = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    address.sin_addr.s_addr = htonl(10u << 24 | 77u << 16 | number << 8 | 1);
    assert_int_equal(bind(file, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(setns(home, CLONE_NEWNET), 0);
    close(home);
    return file;
}

static void send_to(int file, unsigned number, size_t bytes)
{
    static const char text[1400];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    address.sin_addr.s_addr = htonl(10u << 24 | 77u << 16 | number << 8 | 1);
    assert_int_equal(sendto(file, text, bytes, 0, (struct sockaddr *)&address, sizeof address),
                     bytes);
}

static bool arrives(int file, int patience_ms)
{
    char text[2000];
    struct pollfd wait = {.fd = file, .events = POLLIN};
    return poll(&wait, 1, patience_ms) == 1 && recv(file, text, sizeof text, 0) > 0;
}

#define IN_SCENE(name, parameter) TEST_WITH(name, parameter, set_up, tear_down)

IN_SCENE(up_carries_and_counts, struct scene *s)
{
    struct dp_wan_bytes bytes[DP_WAN_REGIONS_MAX];
    unsigned count;
    assert_int_equal(dp_wan_up(&s->wan, s->topology, s->instance), LH_OK);
    int asia = socket_in(s, "asia", 1), europe = socket_in(s, "europe", 2);
    for (int i = 0; i < 10; i++) send_to(asia, 2, 1000);
    for (int i = 0; i < 10; i++) assert_true(arrives(europe, PATIENCE_MS));
    assert_int_equal(dp_wan_stats(&s->wan, bytes, &count), LH_OK);
    assert_int_equal(count, 2);
    assert_string_equal(bytes[0].region, "asia");
    assert_string_equal(bytes[1].region, "europe");
    assert_int_equal(bytes[0].up, 10 * 1028); // includes IP and UDP headers
    assert_int_equal(bytes[0].down, 0);
    assert_int_equal(bytes[1].up, 0);
    assert_int_equal(bytes[1].down, 10 * 1028);
    assert_int_equal(bytes[0].dropped + bytes[1].dropped, 0);
    close(asia);
    close(europe);
}

IN_SCENE(a_cut_is_counted_and_heals, struct scene *s)
{
    struct dp_wan_bytes bytes[DP_WAN_REGIONS_MAX];
    unsigned count;
    assert_int_equal(dp_wan_up(&s->wan, s->topology, s->instance), LH_OK);
    int asia = socket_in(s, "asia", 1), europe = socket_in(s, "europe", 2);
    assert_int_equal(dp_wan_cut(&s->wan, "asia"), LH_OK);
    send_to(asia, 2, 100);
    do assert_int_equal(dp_wan_stats(&s->wan, bytes, &count), LH_OK);
    while (bytes[0].dropped == 0); // ctest's time limit ends an endless loop
    assert_int_equal(bytes[1].down, 0);
    assert_int_equal(dp_wan_heal(&s->wan, "asia"), LH_OK);
    send_to(asia, 2, 100);
    assert_true(arrives(europe, PATIENCE_MS));
    assert_false(arrives(europe, 0)); // the packet sent during the cut is lost
    close(asia);
    close(europe);
}

IN_SCENE(exec_runs_inside_a_region, struct scene *s)
{
    assert_int_equal(dp_wan_up(&s->wan, s->topology, s->instance), LH_OK);
    static const char *const seven[] = {"/bin/sh", "-c", "exit 7", NULL};
    static const char *const has_device[] = {"/usr/bin/test", "-e", "/proc/self/net/dev", NULL};
    static const char *const hosts[] = {"/bin/sh", "-c", "grep -q '10.77.2.1 europe' /etc/hosts",
                                        NULL};
    assert_int_equal(status_of(start(s, "asia", seven)), 7);
    assert_int_equal(status_of(start(s, "asia", has_device)), 0);
    assert_int_equal(status_of(start(s, "asia", hosts)), 0);
    assert_int_equal(status_of(start(s, "mars", seven)), 125);
}

IN_SCENE(mistakes_are_told, struct scene *s)
{
    struct dp_wan other = s->wan;
    write_topology(s->topology, "region asia\nregion asia\n");
    assert_int_equal(dp_wan_up(&s->wan, s->topology, s->instance), LH_ERR_CONFIG);
    assert_non_null(strstr(lh_err_text(LH_ERR_CONFIG), ":2: region 'asia' exists already"));
    assert_true(instance_is_gone(s));
    write_topology(s->topology, "region asia\nregion europe\n");
    assert_int_equal(dp_wan_up(&s->wan, s->topology, "Not-A-Name"), LH_ERR_CONFIG);
    assert_int_equal(dp_wan_up(&s->wan, s->topology, s->instance), LH_OK);
    assert_int_equal(dp_wan_up(&other, s->topology, s->instance), LH_ERR_EXISTS);
    assert_int_equal(dp_wan_cut(&s->wan, "mars"), LH_ERR_INVALID);
    assert_non_null(strstr(lh_err_text(LH_ERR_INVALID), "no region 'mars'"));
    assert_int_equal(dp_wan_enter(&s->wan, "mars"), LH_ERR_NOT_FOUND);
}

IN_SCENE(down_leaves_nothing, struct scene *s)
{
    assert_int_equal(dp_wan_up(&s->wan, s->topology, s->instance), LH_OK);
    assert_false(instance_is_gone(s));
    char script[64], byte;
    int said[2];
    assert_int_equal(pipe(said), 0);
    snprintf(script, sizeof script, "echo >&%d; exec sleep 1000", said[1]);
    pid_t inside = start(s, "asia", (const char *const[]){"/bin/sh", "-c", script, NULL});
    assert_int_equal(read(said[0], &byte, 1), 1);
    struct dp_wan_bytes bytes[DP_WAN_REGIONS_MAX];
    unsigned count;
    assert_int_equal(dp_wan_down(&s->wan, false), LH_OK);
    assert_true(instance_is_gone(s));
    assert_int_equal(dp_wan_down(&s->wan, false), LH_OK); // nothing to do
    assert_int_equal(dp_wan_stats(&s->wan, bytes, &count), LH_ERR_INVALID);
    assert_int_equal(kill(inside, 0), 0); // left alone
    assert_int_equal(kill(inside, SIGKILL), 0);
    assert_int_equal(status_of(inside), -1);
    close(said[0]);
    close(said[1]);
}

// Killing the launcher ends the daemon and removes the instance.
IN_SCENE(the_daemon_ends_with_its_parent, struct scene *s)
{
    int said[2];
    pid_t daemon = 0;
    assert_int_equal(pipe(said), 0);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0); // lets us wait for the orphaned daemon
    pid_t launcher = fork();
    if (launcher == 0) {
        if (dp_wan_up(&s->wan, s->topology, s->instance)) _exit(1);
        if (write(said[1], &s->wan.daemon, sizeof daemon) != sizeof daemon) _exit(1);
        for (;;) pause();
    }
    assert_int_equal(read(said[0], &daemon, sizeof daemon), sizeof daemon);
    assert_false(instance_is_gone(s));
    struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, daemon, 0), .events = POLLIN};
    assert_true(end.fd >= 0);
    assert_int_equal(kill(launcher, SIGKILL), 0);
    assert_int_equal(status_of(launcher), -1);
    assert_int_equal(poll(&end, 1, PATIENCE_MS), 1);
    assert_int_equal(status_of(daemon), 0);
    assert_true(instance_is_gone(s));
    close(end.fd);
    close(said[0]);
    close(said[1]);
}
