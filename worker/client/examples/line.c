// Fits y = W x + b in a run of Longhaul: everything that a training loop of your own needs.
//
//     cc line.c -llonghaul -lm -o line && LONGHAUL_SOCKET=.../trainer.sock ./line [STEPS [MS]]
//
// MS: milliseconds that a step takes, as if the model were larger.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "worker/client/longhaul.h"

enum { IN = 8, OUT = 4, BATCH = 16, TIMEOUT_MS = 60000 };

static float weight[OUT][IN], bias[OUT]; // the parameters

static float uniform(uint64_t *seed) // -1 to 1
{
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (float)(*seed >> 40) / (float)(1 << 23) - 1;
}

static float train(uint64_t *seed, float rate) // one step of SGD; returns the mean squared error
{
    float loss = 0;
    for (int n = 0; n < BATCH; n++) {
        float x[IN];
        for (int i = 0; i < IN; i++) x[i] = uniform(seed);
        for (int o = 0; o < OUT; o++) {
            float error = bias[o] - (float)o; // what is to be found: W[o][i] = i - o, b[o] = o
            for (int i = 0; i < IN; i++) error += (weight[o][i] - (float)(i - o)) * x[i];
            for (int i = 0; i < IN; i++) weight[o][i] -= rate * error * x[i];
            bias[o] -= rate * error;
            loss += error * error / (BATCH * OUT);
        }
    }
    return loss;
}

static void must(const struct longhaul *c, int error)
{
    if (!error) return;
    fprintf(stderr, "%s: %s\n", longhaul_error_name(error), longhaul_text(c));
    exit(1);
}

int main(int argc, char **argv)
{
    uint64_t steps = argc > 1 ? strtoull(argv[1], NULL, 10) : 400;
    int pause = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 0;
    struct longhaul *c = NULL;
    const uint64_t shape[2] = {OUT, IN};
    struct longhaul_tensor t = {
        sizeof t, LONGHAUL_FP32, LONGHAUL_HOST, 2, shape, "weight", weight, 0, 0, NULL};
    must(c, longhaul_open(&c));
    must(c, longhaul_parameter(c, &t));
    t.ndim = 1, t.name = "bias", t.data = bias; // shape[0] alone
    must(c, longhaul_parameter(c, &t));
    must(c, longhaul_connect(c, TIMEOUT_MS));
    must(c, longhaul_start(c));
    uint64_t seed = 1;
    float first = 0, loss = 0;
    unsigned due = 0;
    for (uint64_t step = 1; step <= steps && !(due & LONGHAUL_DRAIN); step++) {
        loss = train(&seed, 0.01f);
        if (step == 1) first = loss;
        must(c, longhaul_boundary(c, step, BATCH, &due));
        if (due & LONGHAUL_RENEW) must(c, longhaul_renew(c));
        if (due & LONGHAUL_CUT) must(c, longhaul_cut(c));
        if (due & LONGHAUL_WAIT) longhaul_wait(c, 1000);
        if (pause) longhaul_wait(c, pause);
    }
    must(c, longhaul_finish(c, TIMEOUT_MS));
    printf("loss %.4f -> %.4f, after the run %.4f\n", first, loss, train(&seed, 0));
    longhaul_close(c);
    return 0;
}
