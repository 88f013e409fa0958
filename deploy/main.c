// longhaul: the operator's tool. Everything is in cli.c and the commands.
#include "deploy/cli.h"

int main(int argc, char **argv)
{
    return dp_main(argc, argv);
}
