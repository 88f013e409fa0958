// Commands of the user's beside the workers of a run: `command:` of a topology's region.
//
// Each is a node of its own, asia-0.trainer: `longhaul run --tend` with the worker's settings, in
// the worker's region. It starts as soon as its worker has spoken, starts again when it dies, and
// is ended before its worker when the run is stopped. When the run has ended it gets END_S to leave
// (a loop may have a large model to save); after that it is asked to, and killed.
//
// Where the commands have data of their own (`coordinator.data`) no unit says when the run is over:
// `up` ends it, as `longhaul drain run --end` does, when the workers have trained the budget. It
// does so too when the loop of every command is over by itself.
#ifndef DP_UP_TRAINERS_H
#define DP_UP_TRAINERS_H

#include "deploy/up/up.h"

// Nodes for the commands, after all others are listed.
LH_MUST lh_err dp_trainers_list(struct dp_up *up);
// Starts what is to be started, says what ended, ends the run when it is time. Call at every tick.
LH_MUST lh_err dp_trainers_tick(struct dp_up *up, struct dp_view *v);
// The run has ended: none is started again. True: all have ended, or their time is over.
bool dp_trainers_leave(struct dp_up *up, struct dp_view *v);
void dp_trainers_stop(struct dp_up *up); // asks all to end
bool dp_trainers_ended(const struct dp_up *up);
void dp_trainers_free(struct dp_up *up);

// The command beside a worker; NULL: there is none.
struct dp_node *dp_trainer_of(struct dp_up *up, const struct dp_node *worker);
// Kills the command itself with -9, not what tends it.
void dp_trainer_kill(const struct dp_node *trainer);
// "exit 0", "signal 9 (Killed)", "not started", "running", "too late: ...".
void dp_trainer_ending(const struct dp_node *trainer, char *out, size_t size);
// Whether every command's last end was one without an error; one that came too late is let off.
bool dp_trainers_good(const struct dp_up *up);

#endif
