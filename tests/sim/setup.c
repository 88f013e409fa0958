// Implements setup.h: settings that test clusters share.
#include "tests/sim/setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "server/core.h"

const char *const setup_region[SETUP_REGIONS] = {"asia", "europe", "america", "africa"};

struct ps_co_conf setup_coordinator(const struct setup *s, uint32_t workers)
{
    struct ps_co_conf conf = {.env = s->env,
                              .transport = s->transport,
                              .self = *s->self,
                              .log = s->log,
                              .dir = s->dir,
                              .listen = s->listen,
                              .manifest = s->manifest,
                              .units = s->units,
                              .workers = workers,
                              .h_base = 4,
                              .plan = {.eta = 1, .damping = 0.5f},
                              .fatal = s->fatal,
                              .fatal_arg = s->arg};
    memcpy(conf.job, s->job, LH_JOB_BYTES);
    return conf;
}

static lh_err initial(void *arg, uint64_t first, uint64_t n, float *out)
{
    const float *all = arg;
    memcpy(out, all + first, n * sizeof *out);
    return LH_OK;
}

struct ps_conf setup_server(const struct setup *s, const uint32_t *shard)
{
    struct ps_conf conf = {.env = s->env,
                           .transport = s->transport,
                           .self = *s->self,
                           .log = s->log,
                           .dir = s->dir,
                           .listen = s->listen,
                           .advertise = "",
                           .coordinator = s->coordinator,
                           .manifest = s->manifest,
                           .keys = s->keys,
                           .cipher = LH_CIPHER_XCHACHA20,
                           .key_id = 1,
                           .shards = shard,
                           .shard_count = 1,
                           .initial = initial,
                           .initial_arg = (void *)(uintptr_t)s->initial, // only read
                           .digest_every = 10,
                           .checkpoint_keep = 2,
                           .fatal = s->fatal,
                           .fatal_arg = s->arg};
    memcpy(conf.job, s->job, LH_JOB_BYTES);
    return conf;
}

struct wk_conf setup_worker(const struct setup *s, struct wk_trainer *trainer)
{
    struct wk_conf conf = {.env = s->env,
                           .transport = s->transport,
                           .self = *s->self,
                           .log = s->log,
                           .dir = s->dir,
                           .coordinator = s->coordinator,
                           .manifest = s->manifest,
                           .units = s->units,
                           .keys = s->keys,
                           .cipher = LH_CIPHER_XCHACHA20,
                           .key_id = 1,
                           .trainer = trainer,
                           .codec = {LK_INDEX_RICE, LK_VALUE_SIGN, 0.1f},
                           .beta = 1,
                           .kappa = 0.5f,
                           .queue_units = 4,
                           .window_units = 2,
                           .snapshot_rounds = 3,
                           .durable_every = 12,
                           .fatal = s->fatal,
                           .fatal_arg = s->arg};
    memcpy(conf.job, s->job, LH_JOB_BYTES);
    return conf;
}

struct lh_peer setup_peer(enum lh_role role, uint32_t index, const char *domain)
{
    const char *kind = role == LH_C ? "coordinator" : role == LH_S ? "server" : "worker";
    struct lh_peer p = {.role = role, .run = "run"};
    snprintf(p.domain, sizeof p.domain, "%s", domain);
    snprintf(p.region, sizeof p.region, "%s", setup_region[index % SETUP_REGIONS]);
    snprintf(p.name, sizeof p.name, "%s%u", kind, index);
    return p;
}

void setup_units(struct lh_units *u, uint32_t count, uint64_t tokens, uint32_t regions)
{
    *u = (struct lh_units){.count = count, .vocabulary = 256, .token_bytes = 2};
    u->unit = calloc(count, sizeof *u->unit);
    LH_ASSERT(u->unit);
    for (uint32_t i = 0; i < count; i++) {
        u->unit[i] = (struct lh_unit){.id = i, .tokens = tokens, .may_leave = true};
        snprintf(u->unit[i].home, sizeof u->unit[i].home, "%s", setup_region[i % regions]);
    }
}

struct lh_keyring *setup_keys(void)
{
    const struct lh_seal_key key = {{1, 2, 3}};
    struct lh_keyring *keys;
    lh_err err = lh_keyring_create(&keys);
    if (!err) err = lh_keyring_add(keys, 1, &key);
    LH_ASSERT(!err);
    return keys;
}

void setup_stop(struct ps_coordinator **c, struct ps_server **s, struct wk_worker **w,
                struct wk_trainer **t)
{
    ps_coordinator_stop(*c);
    ps_server_stop(*s);
    wk_worker_stop(*w);
    if (*t) (*t)->ops->destroy(*t);
    *c = NULL;
    *s = NULL;
    *w = NULL;
    *t = NULL;
}
