// longhaul-worker: trains, pushes, follows.
#include <stdio.h>

#include "common/base/exit.h"
#include "kernels/blas.h"
#include "worker/node.h"

int main(int argc, char **argv)
{
    lh_open_streams();
    lk_blas_choose(argv);
    struct wk_node *node;
    if (wk_node_create(&node)) {
        fprintf(stderr, "longhaul-worker: no memory\n");
        return LH_EXIT_FAILED;
    }
    int status = lh_program_main(&wk_node_app, node, argc, argv);
    wk_node_destroy(node);
    lh_leave(status);
}
