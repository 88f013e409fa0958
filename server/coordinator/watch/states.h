// States: the state of each worker, and its changes for the hook.
#ifndef PS_CO_STATES_H
#define PS_CO_STATES_H

#include "server/coordinator/core.h"

enum { PS_CO_CHANGES_MAX = 256 }; // changes waiting for the hook; one more drops the oldest

enum { PS_CO_ALARM_BYTES = 200 };

struct ps_co_change { // a worker's, or an alarm's
    uint64_t number;  // counts all changes since the coordinator started, from 1 on
    uint64_t after;   // the hook hears of it when this change of the store is durable
    char name[LH_NAME_BYTES], region[LH_NAME_BYTES]; // the worker's
    enum ps_co_state from, to;
    int64_t at_s; // wall time
    int64_t silent_ns, bound_ns;
    bool is_alarm, on; // `name` is the rule's, and `text` says what its conditions met
    char text[PS_CO_ALARM_BYTES];
};

LH_MUST lh_err ps_co_states_make(struct ps_coordinator *c);
// Call after loading the members and the data that judges them: known workers start in their state.
LH_MUST lh_err ps_co_load_states(struct ps_coordinator *c);

const char *ps_co_state_name(enum ps_co_state state);
enum ps_co_state ps_co_worker_state(const struct ps_coordinator *c, const struct ps_co_worker *w);
// Notes each changed state: a log event, and a change for the hook, if any.
void ps_co_states_look(struct ps_coordinator *c);

// An alarm of a rule began or ended: a change for the hook, if any.
void ps_co_change_alarm(struct ps_coordinator *c, const char *rule, const char *region, bool on,
                        const char *text);

// ---- the queue for the hook
// Takes the oldest change. False: none waits, or its rows are not durable yet.
bool ps_co_change_take(struct ps_coordinator *c, struct ps_co_change *out);
// A full disk took rows back: removes the alarms that stood in them.
void ps_co_changes_take_back(struct ps_coordinator *c);
uint32_t ps_co_changes_waiting(const struct ps_coordinator *c);
uint64_t ps_co_changes_dropped(const struct ps_coordinator *c); // since the coordinator started

#endif
