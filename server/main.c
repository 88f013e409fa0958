// longhaul-server: owner of shards, coordinator, or both.
#include <stdio.h>

#include "common/base/exit.h"
#include "server/node.h"

int main(int argc, char **argv)
{
    struct ps_node *node;
    if (ps_node_create(&node)) {
        fprintf(stderr, "longhaul-server: no memory\n");
        return LH_EXIT_FAILED;
    }
    int status = lh_program_main(&ps_node_app, node, argc, argv);
    ps_node_destroy(node);
    lh_leave(status);
}
