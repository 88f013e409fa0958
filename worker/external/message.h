// Message: a packet on the Unix socket between a worker and the trainer beside it, with a file
// descriptor or without one. See message.c.
#ifndef WK_MESSAGE_H
#define WK_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/un.h>

// Sends n bytes, and a copy of `file`; -1: none. It doesn't wait where `waits` is false. False:
// errno says why nothing was sent.
bool wk_message_send(int sock, const void *bytes, size_t n, int file, bool waits);
// Receives one packet of at most n bytes; it doesn't wait. The caller owns *file; -1: none came.
// Of several descriptors the first is given, and the others are closed.
// Returns what recvmsg() does.
ssize_t wk_message_receive(int sock, void *bytes, size_t n, int *file);

// The address of the socket at `path`. A path that no address holds (108 bytes and more) is reached
// through its folder: *folder keeps that open, and the caller closes it once the socket is bound or
// connected; -1: it is not needed. False: errno says why; ENAMETOOLONG: even its last part is.
bool wk_message_address(const char *path, struct sockaddr_un *out, int *folder);

#endif
