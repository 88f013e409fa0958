// Message: a packet on the Unix socket between a worker and its external trainer, with or without a
// file descriptor. See message.c.
#ifndef WK_MESSAGE_H
#define WK_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/un.h>

// Sends n bytes, and a copy of `file` unless it is -1. Blocks only if `waits`. False: nothing was
// sent; errno says why.
bool wk_message_send(int sock, const void *bytes, size_t n, int file, bool waits);
// Receives one packet of at most n bytes without blocking. The caller owns *file; -1: none came. Of
// several descriptors it gives the first and closes the others. Returns the result of recvmsg().
ssize_t wk_message_receive(int sock, void *bytes, size_t n, int *file);

// The address of the socket at `path`. A path too long for an address (108 bytes and more) is
// reached through its folder: *folder keeps that open, and the caller closes it once the socket is
// bound or connected; -1: not needed. False: errno says why; ENAMETOOLONG: even the last part is.
bool wk_message_address(const char *path, struct sockaddr_un *out, int *folder);

#endif
