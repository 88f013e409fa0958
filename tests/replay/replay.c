// `longhaul` with the inner loops of its codecs forced to one form: replay FORM WORD...
// Exit code 77 where this processor can't run the form.
#include <stdio.h>
#include <string.h>

#include "deploy/tool/cli.h"
#include "kernels/codec.h"
#include "kernels/cpu/codec_ops.h"

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: %s FORM WORD...\n", argv[0]);
        return 2;
    }
    if (strcmp(lk_codec_force(argv[1]), argv[1]) != 0) return 77;
    argv[1] = argv[0];
    return dp_main(argc - 1, argv + 1);
}
