// longhaul-server: owner of shards, coordinator, or both.
#include <stdio.h>

#include "common/base/exit.h"
#include "server/node.h"

int main(int argc, char **argv)
{
    lh_open_streams();
    int status;
    bool again;
    do {
        struct ps_node *node;
        if (ps_node_create(&node)) {
            fprintf(stderr, "longhaul-server: no memory\n");
            return LH_EXIT_FAILED;
        }
        status = lh_program_main(&ps_node_app, node, argc, argv);
        again = ps_node_again(node) && status == 0;
        ps_node_destroy(node);
    } while (again);
    lh_leave(status);
}
