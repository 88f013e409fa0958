// Session: hello, the push stream, the decision. See session.c.
#ifndef WK_SESSION_H
#define WK_SESSION_H

#include "worker/worker.h"

// Greets the shard's server, unless a session is open or a greeting under way.
void wk_session_start(struct wk_shard *s);
// The session is over; the server is greeted again after a while.
void wk_session_lost(struct wk_shard *s);
// Something changed: greetings that waited for the end of a cut are sent.
void wk_session_changed(struct wk_worker *w);
// Sends what is undecided, where there is a session and nothing is being sent.
void wk_push_soon(struct wk_shard *s);

#endif
