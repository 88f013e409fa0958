// A message on the boundary's socket, with at most one file descriptor: the memory of a life.
//
// Both ends send and receive here. libc alone, because liblonghaul.so is made of it too.
#include "worker/external/message.h"

#include <string.h>
#include <sys/socket.h>

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
    // CMSG_SPACE would leave room for a second descriptor, which nobody would close.
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
