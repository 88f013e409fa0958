// Message: a packet on the Unix socket between a worker and the trainer beside it, with a file
// descriptor or without one. See message.c.
#ifndef WK_MESSAGE_H
#define WK_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// Sends n bytes, and a copy of `file`; -1: none. It doesn't wait where `waits` is false. False:
// errno says why nothing was sent.
bool wk_message_send(int sock, const void *bytes, size_t n, int file, bool waits);
// Receives one packet of at most n bytes; it doesn't wait. The caller owns *file; -1: none came.
// Of several descriptors the first is given, and the others are closed.
// Returns what recvmsg() does.
ssize_t wk_message_receive(int sock, void *bytes, size_t n, int *file);

#endif
