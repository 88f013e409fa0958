// longhaul: the operator's tool. Everything is in cli.c and the commands.
#include "common/base/exit.h"
#include "deploy/tool/cli.h"
#include "kernels/blas.h"

int main(int argc, char **argv)
{
    lh_open_streams();
    lk_blas_choose(argv);
    lh_leave(dp_main(argc, argv));
}
