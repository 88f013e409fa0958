// Evaluators: workers that evaluate the model on held-out texts during the run. See evaluators.c.
#ifndef PS_CO_EVALUATORS_H
#define PS_CO_EVALUATORS_H

#include "server/coordinator/core.h"

// Says when the last worker that evaluates stops while the run goes on, and when one does again.
// Call after each look at the workers' states.
void ps_co_evaluators_look(struct ps_coordinator *c);

#endif
