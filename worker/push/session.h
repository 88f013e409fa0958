// Session: hello, the push stream, the decision. See session.c.
#ifndef WK_SESSION_H
#define WK_SESSION_H

#include "worker/worker.h"

// Greets the shard's server, unless a session is open or a greeting is in flight.
void wk_session_start(struct wk_shard *s);
// Ends the session; greets the server again after a pause.
void wk_session_lost(struct wk_shard *s);
// Something changed: sends the greetings that waited for the end of a cut.
void wk_session_changed(struct wk_worker *w);
// Sends the undecided push, if a session is open and no push is in flight.
void wk_push_soon(struct wk_shard *s);

#endif
