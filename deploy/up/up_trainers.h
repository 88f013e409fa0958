// The user's commands beside the workers of a run: `command:` of a topology's region.
//
// Each is a separate node, asia-0.trainer: `longhaul run --tend` with the worker's settings, in the
// worker's region. It starts once its worker reports, restarts when it dies, and is ended before
// its worker when the run is stopped. After the run's end it has DP_END_S to finish (a loop may
// have a large model to save); then it gets a signal, and is killed at last.
//
// If the commands have their own data (`coordinator.data`), no unit marks the run's end: `up` ends
// the run, like `longhaul drain run --end`, when the workers have trained the budget, or when every
// command's loop has ended by itself.
#ifndef DP_UP_TRAINERS_H
#define DP_UP_TRAINERS_H

#include "deploy/up/up.h"
#include "deploy/up/up_view.h"

// Lists nodes for the commands, after all others.
LH_MUST lh_err dp_trainers_list(struct dp_up *up);
// Starts commands, reports ended ones, and ends the run in time. Call at every tick.
LH_MUST lh_err dp_trainers_tick(struct dp_up *up, struct dp_view *v);
// The run has ended: no restart. True: all have ended, or their time is over.
bool dp_trainers_leave(struct dp_up *up, struct dp_view *v);
void dp_trainers_stop(struct dp_up *up); // asks all to end
bool dp_trainers_ended(const struct dp_up *up);
void dp_trainers_free(struct dp_up *up);

// The command beside a worker; NULL: none.
struct dp_node *dp_trainer_of(struct dp_up *up, const struct dp_node *worker);
// Kills the command itself with -9, not the process that tends it.
void dp_trainer_kill(const struct dp_node *trainer);
// "exit 0", "signal 9 (Killed)", "not started", "running", "too late: ...".
void dp_trainer_ending(const struct dp_node *trainer, char *out, size_t size);
// Did every command's last process end without an error? A late one is excused, unless it had
// only failed before.
bool dp_trainers_good(const struct dp_up *up);

#endif
