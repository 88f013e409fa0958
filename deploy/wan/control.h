// The daemon's control socket: one request and one answer per connection.
//
// SOCK_SEQPACKET. A request is words, each followed by a line break. An answer is '+' and what the
// command prints, or '-' and what was wrong, in messages of at most DP_REPLY_CHUNK bytes.
#ifndef LH_DEPLOY_WAN_CONTROL_H
#define LH_DEPLOY_WAN_CONTROL_H

#include "common/base/err.h"
#include "deploy/wan/world.h"

enum { DP_REPLY_CHUNK = 32768 };

// ---- daemon
LH_MUST lh_err dp_control_listen(const char *instance, int *listener);
// Accepts a client; -1: none. The daemon never waits for it.
int dp_control_accept(int listener);
// Carries out a client's request, answers it, and closes the connection.
void dp_control_serve(struct dp_world *world, int client);

// ---- client
// Sends the daemon a command and prints its answer. Returns the exit status.
int dp_control_request(const char *instance, char *const *words, int count);

#endif
