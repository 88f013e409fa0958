// Fits y = W x + b in a run of Longhaul, and so much is needed for a training loop of your own.
//     LONGHAUL_SOCKET=.../trainer.sock ./line [STEPS [MS]]    (README.md says how to build it)
// MS: milliseconds that a step takes, as if the model were larger.
#include <stdio.h>
#include <stdlib.h>

#include "worker/client/longhaul.h"

enum { IN = 8, OUT = 4, BATCH = 16, TIMEOUT_MS = 60000 };
static float weight[OUT][IN], bias[OUT]; // the parameters

static float train(uint64_t *seed, float rate) // one step of SGD; returns the mean squared error
{
    float loss = 0;
    for (int n = 0; n < BATCH * OUT; n++) {
        int o = n % OUT; // the parameters to find: W[o][i] = i - o, b[o] = o
        float x[IN], error = bias[o] - (float)o;
        for (int i = 0; i < IN; i++) {
            *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
            x[i] = (float)(*seed >> 40) / (float)(1 << 23) - 1; // -1 to 1
            error += (weight[o][i] - (float)(i - o)) * x[i];
        }
        for (int i = 0; i < IN; i++) weight[o][i] -= rate * error * x[i];
        bias[o] -= rate * error;
        loss += error * error / (BATCH * OUT);
    }
    return loss;
}

static void must(const struct longhaul *c, int error)
{
    if (error) fprintf(stderr, "%s: %s\n", longhaul_error_name(error), longhaul_text(c)), exit(1);
}

int main(int argc, char **argv)
{
    uint64_t steps = argc > 1 ? strtoull(argv[1], NULL, 10) : 400, seed = 1, shape[] = {OUT, IN};
    int pause = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 0;
    struct longhaul *c = NULL;
    struct longhaul_tensor t = {.size = sizeof t, .dtype = LONGHAUL_FP32, .shape = shape};
    must(c, longhaul_open(&c));
    t.ndim = 2, t.name = "weight", t.data = weight;
    must(c, longhaul_parameter(c, &t));
    t.ndim = 1, t.name = "bias", t.data = bias; // shape[0] alone
    must(c, longhaul_parameter(c, &t));
    must(c, longhaul_connect(c, TIMEOUT_MS));
    must(c, longhaul_start(c));
    float loss = 0, first = train(&seed, 0);
    for (unsigned step = 1, due = 0; step <= steps && !(due & LONGHAUL_DRAIN); step++) {
        loss = train(&seed, 0.01f);
        must(c, longhaul_boundary(c, step, BATCH, &due));
        if (due & LONGHAUL_RENEW) must(c, longhaul_renew(c));
        if (due & LONGHAUL_CUT) must(c, longhaul_cut(c));
        if (due & LONGHAUL_WAIT || pause) longhaul_wait(c, pause ? pause : 1000);
        while (due & LONGHAUL_PAUSE && longhaul_wait(c, 1000) == LONGHAUL_E_TIMEOUT) continue;
    }
    must(c, longhaul_finish(c, TIMEOUT_MS));
    printf("loss %.4f -> %.4f, after the run %.4f\n", first, loss, train(&seed, 0));
    longhaul_close(c);
}
