// The private regions of a run: their records, and what privacy costs.
#ifndef DP_UP_PRIVATE_H
#define DP_UP_PRIVATE_H

#include "deploy/up/up.h"

// Counts the records of regions that are private at record level (up->records), and refuses folders
// that no worker would take. `absent_ok`: a folder that is not there yet has an unknown count.
LH_MUST lh_err dp_private_data(struct dp_up *up, bool absent_ok);
// Prints epsilon, what is added to delta, passes and the noise's size, for each private region.
LH_MUST lh_err dp_private_print(const struct dp_up *up, FILE *out);

#endif
