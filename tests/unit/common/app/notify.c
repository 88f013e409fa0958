// The service manager receives each message once, over a real socket, by path and by abstract name.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/app/notify.h"
#include "tests/test.h"

static int listen_at(const char *name)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    size_t len = strlen(name);
    memcpy(at.sun_path, name, len);
    if (name[0] == '@') at.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, bytes), 0);
    assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
    return fd;
}

static void assert_hears(int fd, const char *want)
{
    char got[256] = "";
    assert_int_equal(recv(fd, got, sizeof got - 1, 0), (ssize_t)strlen(want));
    assert_string_equal(got, want);
}

TEST(a_message_is_one_datagram)
{
    char folder[] = "/tmp/longhaul-notify-XXXXXX", path[64], name[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/s", folder);
    snprintf(name, sizeof name, "@longhaul-notify-%d", (int)getpid());
    const char *const names[] = {path, name};
    for (int i = 0; i < 2; i++) {
        int fd = listen_at(names[i]);
        assert_true(lh_notify("READY=1"));
        assert_hears(fd, "READY=1");
        assert_true(lh_notify("STATUS=two\nMAINPID=1"));
        assert_hears(fd, "STATUS=two\nMAINPID=1");
        close(fd);
        assert_false(lh_notify("READY=1")); // nobody listens
    }
    unlink(path);
    rmdir(folder);
}

TEST(without_a_manager_nothing_is_said)
{
    char path[300];
    unsetenv("NOTIFY_SOCKET");
    assert_false(lh_notify("READY=1"));
    memset(path, 'x', sizeof path);
    path[0] = '/';
    path[sizeof path - 1] = 0;
    const char *const bad[] = {"", "/", "relative", path};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(setenv("NOTIFY_SOCKET", bad[i], 1), 0);
        assert_false(lh_notify("READY=1"));
    }
    unsetenv("NOTIFY_SOCKET");
}

TEST(the_watchdog_is_this_process_own)
{
    char pid[32];
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    assert_false(lh_notify_watchdog());
    setenv("WATCHDOG_USEC", "0", 1);
    assert_false(lh_notify_watchdog());
    setenv("WATCHDOG_USEC", "30000000", 1);
    assert_true(lh_notify_watchdog());
    setenv("WATCHDOG_PID", "1", 1); // meant for another process
    assert_false(lh_notify_watchdog());
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("WATCHDOG_PID", pid, 1);
    assert_true(lh_notify_watchdog());
}
