// A message on the boundary's socket, with at most one file descriptor: the memory of a life.
//
// Both ends use this file. Only libc, because liblonghaul.so includes it.
#include "worker/external/message.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union control { // aligned as a header
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
};

bool wk_message_send(int sock, const void *bytes, size_t n, int file, bool waits)
{
    struct iovec io = {(void *)(uintptr_t)bytes, n};
    union control control = {.bytes = {0}};
    struct msghdr h = {.msg_iov = &io, .msg_iovlen = 1};
    if (file >= 0) {
        h.msg_control = control.bytes;
        h.msg_controllen = sizeof control.bytes;
        struct cmsghdr *head = CMSG_FIRSTHDR(&h);
        *head = (struct cmsghdr){CMSG_LEN(sizeof file), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(head), &file, sizeof file);
    }
    return sendmsg(sock, &h, MSG_NOSIGNAL | (waits ? 0 : MSG_DONTWAIT)) >= 0;
}

ssize_t wk_message_receive(int sock, void *bytes, size_t n, int *file)
{
    struct iovec io = {bytes, n};
    union control control;
    // CMSG_SPACE would allow a second descriptor, which would leak.
    struct msghdr h = {.msg_iov = &io,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = CMSG_LEN(sizeof *file)};
    *file = -1;
    ssize_t got = recvmsg(sock, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0) return got;
    struct cmsghdr *head = CMSG_FIRSTHDR(&h);
    if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
        head->cmsg_len == CMSG_LEN(sizeof *file))
        memcpy(file, CMSG_DATA(head), sizeof *file);
    return got;
}

bool wk_message_address(const char *path, struct sockaddr_un *out, int *folder)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    *folder = -1;
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) < sizeof out->sun_path) {
        memcpy(out->sun_path, path, strlen(path) + 1);
        return true;
    }
    char *dir = strndup(path, slash ? (size_t)(slash - path) + 1 : 0);
    *folder = dir ? open(slash ? dir : ".", O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    free(dir);
    if (*folder < 0) return false;
    int n = snprintf(out->sun_path, sizeof out->sun_path, "/proc/self/fd/%d/%s", *folder, name);
    if (n > 0 && (size_t)n < sizeof out->sun_path) return true;
    close(*folder);
    *folder = -1;
    errno = ENAMETOOLONG;
    return false;
}
