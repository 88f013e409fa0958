// Notifies the service manager. See notify.h.
#include "common/app/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

// Fills in the socket's address and returns its length; 0: none. A leading @ is an abstract name.
static socklen_t address_of(const char *path, struct sockaddr_un *out)
{
    size_t len = path ? strlen(path) : 0;
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (len < 2 || len >= sizeof out->sun_path || (path[0] != '/' && path[0] != '@')) return 0;
    memcpy(out->sun_path, path, len);
    if (path[0] == '@') out->sun_path[0] = 0;
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
}

bool lh_notify(const char *state)
{
    struct sockaddr_un to;
    socklen_t len = address_of(getenv("NOTIFY_SOCKET"), &to);
    if (!len) return false;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return false;
    size_t bytes = strlen(state);
    ssize_t sent = sendto(fd, state, bytes, MSG_NOSIGNAL, (const struct sockaddr *)&to, len);
    close(fd);
    return sent == (ssize_t)bytes;
}

bool lh_notify_watchdog(void)
{
    const char *every = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    if (!every || strtoll(every, NULL, 10) <= 0) return false;
    return !pid || strtoll(pid, NULL, 10) == (long long)getpid();
}
