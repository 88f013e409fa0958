// --with-faults: kills, and a cut of the network. See up_faults.c.
#ifndef DP_UP_FAULTS_H
#define DP_UP_FAULTS_H

#include "deploy/up/up.h"
#include "deploy/up/up_view.h"

struct dp_faults {
    unsigned next;   // step of the script
    bool waiting;    // the last fault is not healed yet
    bool cut;        // the network is still cut
    int64_t from_ns; // start of the healing time; for a cut: its end
    uint64_t mark;   // the count must exceed this
    uint64_t lives;  // the count of lives of the target's command when it was killed
    bool seen;       // the next process was seen
    int64_t pid;     // the killed process
    struct dp_node *target;
};
void dp_faults_tick(struct dp_faults *f, struct dp_up *up, struct dp_view *v);
bool dp_faults_open(const struct dp_faults *f);     // the last fault is not healed yet
unsigned dp_faults_planned(const struct dp_up *up); // faults of a whole drill
// The run has ended: reports the number of faults for which it was too short.
void dp_faults_over(struct dp_up *up, struct dp_view *v);

#endif
