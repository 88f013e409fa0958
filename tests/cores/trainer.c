// A trainer beside a worker, on the fake env: its process and its loop. See trainer.h.
#include "tests/cores/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "tests/cores/trainer_link.h"
#include "worker/client/handle.h"

// ---------------------------------------------------------------- the loop

static void tick(void *arg);

// Notes what a cut of each part would hold now.
static void record(struct beside *b)
{
    struct longhaul *c = b->client;
    for (uint32_t p = 0; p < c->channel.shape.parts; p++) {
        uint64_t next = wk_channel_done(&c->channel, p, 0)->cut + 1;
        struct beside_made *to = &b->made[next % BESIDE_CUTS];
        uint64_t first = c->channel.first[p], n = c->channel.first[p + 1] - first;
        memcpy(to->lowered + first, b->now.lowered + first, n * sizeof *to->lowered);
        memcpy(to->upto + p * b->units->count, b->now.upto, b->units->count * sizeof *to->upto);
    }
}

static bool lease(struct beside *b, struct longhaul_unit_held *out)
{
    struct longhaul_unit u;
    if (longhaul_lease(b->client, &u)) return false;
    *out = (struct longhaul_unit_held){u.unit, u.from, u.tokens};
    return true;
}

static uint64_t use_unit(struct beside *b)
{
    if (b->idle) return 0;
    if (b->own_data) return BESIDE_STEP_TOKENS;
    if (b->held.from >= b->held.tokens) {
        b->held = b->next;
        b->next = (struct longhaul_unit_held){0};
        if (b->held.from >= b->held.tokens && !lease(b, &b->held)) return 0;
    }
    if (b->damages && !longhaul_damaged(b->client, b->held.unit)) {
        b->damages = false;
        b->damaged = b->held.unit;
        b->held = (struct longhaul_unit_held){0};
        return 0;
    }
    if (b->reads_ahead && !b->next.tokens) (void)lease(b, &b->next);
    uint64_t upto = b->held.from + BESIDE_STEP_TOKENS;
    if (upto > b->held.tokens) upto = b->held.tokens;
    if (longhaul_trained(b->client, b->held.unit, upto)) return 0;
    uint64_t n = upto - b->held.from;
    b->now.upto[b->held.unit] = b->held.from = upto;
    return n;
}

static void train(struct beside *b, uint64_t tokens)
{
    for (uint64_t i = 0; i < b->manifest->values && tokens; i++) {
        b->random = b->random * 6364136223846793005u + 1442695040888963407u;
        float by = 0.25f * (float)(1 + (b->random >> 33) % 8);
        b->value[i] -= by;
        b->now.lowered[i] += (double)by;
    }
    if (b->spoils) b->value[0] = NAN;
    b->spoils = false;
}

static void again(struct beside *b, int64_t ns)
{
    lh_after(b->env, ns, tick, b);
}

static void begin_life(struct beside *b)
{
    LH_ASSERT(longhaul_start(b->client) == LONGHAUL_OK);
    b->connected = true;
    b->finishing = false;
    b->step = 0;
    b->lives++;
    b->held.from = b->held.tokens = 0;
    b->next = b->held;
    memcpy(b->life, b->client->life, sizeof b->life);
    memset(b->now.lowered, 0, b->manifest->values * sizeof *b->now.lowered);
    memset(b->now.upto, 0, b->units->count * sizeof *b->now.upto);
    for (int i = 0; i < BESIDE_CUTS; i++) {
        memset(b->made[i].lowered, 0, b->manifest->values * sizeof *b->now.lowered);
        memset(b->made[i].upto, 0, b->manifest->shards * b->units->count * sizeof *b->now.upto);
    }
}

// Passes a boundary; returns false if the life is over.
static bool pass(struct beside *b, uint64_t tokens)
{
    unsigned due = 0;
    if (b->noise.size && (!b->step || b->noise.steps))
        LH_ASSERT(longhaul_noise(b->client, &b->noise) == LONGHAUL_OK);
    int err = longhaul_boundary(b->client, ++b->step, b->counts_nothing ? 0 : tokens, &due);
    if (!err && due & LONGHAUL_RENEW) err = longhaul_renew(b->client);
    if (!err && due & LONGHAUL_CUT) err = longhaul_cut(b->client);
    LH_ASSERT(!err || err == LONGHAUL_E_RESTART);
    bool stops = b->stops_at && b->step >= b->stops_at;
    b->finishing = due & LONGHAUL_DRAIN || stops;
    return !err;
}

static void restart(struct beside *b)
{
    b->restarts++;
    b->connected = false;
}

static void finish(struct beside *b)
{
    record(b);
    int err = longhaul_finish(b->client, 0);
    if (err == LONGHAUL_E_RESTART) {
        restart(b);
    } else if (!err) {
        b->over = true;
        longhaul_close(b->client);
        b->client = NULL;
    } else {
        LH_ASSERT(err == LONGHAUL_E_TIMEOUT);
    }
}

static void tick(void *arg)
{
    struct beside *b = arg;
    int64_t ns = (int64_t)b->step_ms * LH_MS;
    if (!b->client) return;
    if (!b->connected) {
        if (longhaul_connect(b->client, 0) == LONGHAUL_OK) begin_life(b);
        again(b, 5 * LH_MS);
        return;
    }
    if (b->finishing) {
        finish(b);
    } else {
        uint64_t tokens = use_unit(b);
        train(b, tokens);
        b->tokens += tokens;
        b->trained += tokens > 0;
        record(b);
        if (!pass(b, tokens)) restart(b);
    }
    if (b->client) again(b, ns);
}

// ---------------------------------------------------------------- a process

static void describe(struct beside *b)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < b->manifest->tensors; i++) {
        const struct lh_tensor *t = &b->manifest->tensor[i];
        const struct longhaul_tensor d = {.size = sizeof d,
                                          .dtype = LONGHAUL_FP32,
                                          .ndim = t->dims,
                                          .shape = t->shape,
                                          .name = t->name,
                                          .data = b->value + at};
        LH_ASSERT(longhaul_parameter(b->client, &d) == LONGHAUL_OK);
        at += t->len;
    }
}

void beside_start(struct beside *b)
{
    LH_ASSERT(!b->client);
    if (lh_fake_alive(b->env)) lh_fake_kill(b->env, false); // the last one ended by itself
    lh_fake_boot(b->env);
    LH_ASSERT(longhaul_open(&b->client) == LONGHAUL_OK);
    LH_ASSERT(longhaul_ranks(b->client, 0, 1) == LONGHAUL_OK);
    b->over = b->connected = b->finishing = false;
    describe(b);
    again(b, LH_MS);
}

// Sends no message: the worker notices by the pidfd.
void beside_kill(struct beside *b)
{
    struct longhaul *c = b->client;
    if (!c) return;
    lh_fake_kill(b->env, false);
    wk_link_close(c, false);
    free(c->extent);
    free(c);
    b->client = NULL;
}

bool beside_runs(const struct beside *b)
{
    return b->client != NULL;
}

static void make_room(const struct beside *b, struct beside_made *m, uint32_t parts)
{
    m->lowered = calloc(b->manifest->values, sizeof *m->lowered);
    m->upto = calloc((size_t)parts * b->units->count, sizeof *m->upto);
    LH_ASSERT(m->lowered && m->upto);
}

struct beside *beside_new(struct lh_fake_world *world, struct lh_env *worker,
                          const struct lh_manifest *manifest, const struct lh_units *units,
                          uint64_t step_ms)
{
    struct beside *b = calloc(1, sizeof *b);
    LH_ASSERT(b);
    *b = (struct beside){.world = world,
                         .worker = worker,
                         .env = lh_fake_node(world, NULL, NULL),
                         .manifest = manifest,
                         .units = units,
                         .step_ms = step_ms,
                         .random = lh_fake_random(world)};
    b->conf = (struct wk_beside_conf){.ranks = 1, .ahead = 2, .run_on = 1000};
    b->value = calloc(manifest->values, sizeof *b->value);
    LH_ASSERT(b->value);
    make_room(b, &b->now, 1);
    for (int i = 0; i < BESIDE_CUTS; i++) make_room(b, &b->made[i], manifest->shards);
    beside_link_open(b);
    return b;
}

void beside_free(struct beside *b)
{
    if (!b) return;
    beside_kill(b);
    beside_link_close(b);
    for (int i = 0; i < BESIDE_CUTS; i++) {
        free(b->made[i].lowered);
        free(b->made[i].upto);
    }
    free(b->now.lowered);
    free(b->now.upto);
    free(b->value);
    free(b);
}
