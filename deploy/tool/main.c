// longhaul: the operator's tool. Everything is in cli.c and the commands.
#include "common/base/exit.h"
#include "deploy/tool/cli.h"

int main(int argc, char **argv)
{
    lh_leave(dp_main(argc, argv));
}
