// A copy of a node's directory, as from an operator or a snapshot of its disk.
#ifndef TESTS_CORES_IMAGE_H
#define TESTS_CORES_IMAGE_H

#include "tests/cores/rig.h"

struct image_file {
    char path[160];
    struct lh_buf bytes;
};

struct image {
    struct image_file file[200];
    size_t count;
};

// The node must be down before and after. image_put() replaces all that the directory holds.
void image_take(struct rig_node *n, struct image *m);
void image_put(struct rig_node *n, const struct image *m);
void image_free(struct image *m);
// Damages the last entry of a node's log; the node is down.
void image_damage_tail(const struct rig_node *n);

#endif
