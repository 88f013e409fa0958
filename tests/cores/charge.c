// Watches the frames of a private region. See charge.h.
#include "tests/cores/charge.h"

#include <math.h>
#include <string.h>

struct charge play;

struct lh_privacy charge_terms(uint8_t level, uint64_t steps, uint64_t ahead, uint32_t local_steps)
{
    return (struct lh_privacy){.level = level,
                               .sigma = sqrt((double)steps),
                               .rate = 0.125,
                               .clip = 0.5,
                               .epsilon = 8,
                               .delta = 1e-6,
                               .steps = steps,
                               .ahead = ahead,
                               .local_steps = local_steps,
                               .record_tokens = 64};
}

static bool is_private(void *arg, const char *region, enum lh_data *out)
{
    *out = LH_DATA_PRIVATE;
    return !strcmp(region, arg);
}

void charge_begin(uint64_t seed, uint32_t shards, const struct lh_privacy *terms,
                  uint64_t step_tokens, charge_fn *folded)
{
    memset(&play, 0, sizeof play);
    struct life *l = play.l = life_open(seed, shards);
    struct ps_coordinator *c = l->rig->coordinator;
    play.terms = *terms;
    c->conf.region_data = is_private;
    c->conf.region_data_arg = l->rig->w[1].self.region;
    c->conf.step_tokens = step_tokens;
    c->conf.budget_tokens = 10000000;
    c->conf.plan.privacy = c->plan.privacy = *terms;
    // The server is already running, so its own hook is set as well.
    l->rig->folded = folded;
    l->rig->server->conf.folded = folded;
    l->rig->server->conf.folded_arg = l->rig;
}

struct seen *charge_see(uint32_t shard, const struct lh_record *record, struct lh_frame *f)
{
    if (record->version <= play.version[shard]) return NULL;
    play.version[shard] = record->version;
    if (record->kind != LH_ADMIT && record->kind != LH_REFUSE) return NULL;
    assert_int_equal(lh_frame_parse_head(record->body, f), LH_OK);
    assert_true(play.count < CHARGE_SEEN_MAX);
    struct seen *s = &play.seen[play.count++];
    *s = (struct seen){.shard = shard,
                       .admitted = record->kind == LH_ADMIT,
                       .charged = f->charged,
                       .steps = f->steps,
                       .base = f->base_version};
    return s;
}

uint64_t charge_file(uint32_t shard)
{
    struct wk_budget *b;
    struct lh_env *env = play.l->rig->w[1].env;
    const uint8_t *job = play.l->rig->coordinator->conf.job;
    lh_fake_boot(env);
    assert_int_equal(
        wk_budget_open(env, CHARGE_FILE, job, &play.terms, play.l->rig->manifest.shards, &b),
        LH_OK);
    uint64_t charged = wk_budget_charged(b, shard);
    wk_budget_close(b);
    lh_fake_kill(env, false);
    return charged;
}

void charge_lose_file(void)
{
    struct lh_env *env = play.l->rig->w[1].env;
    lh_fake_boot(env);
    assert_int_equal(env->ops->files->remove(env, CHARGE_FILE), LH_OK);
    lh_fake_kill(env, false);
}

void charge_covers(uint64_t total)
{
    const struct wk_shard *s = play.l->worker->shard;
    for (int i = 0; i < 20000 && s->charge.charged < total; i++) life_run(play.l, LH_MS);
    life_kill(play.l);
    assert_true(charge_file(0) >= total);
}

void charge_judge(void)
{
    uint64_t charged = charge_file(0);
    assert_true(charged <= play.terms.steps);
    for (uint32_t k = 0; k < play.l->rig->manifest.shards; k++) {
        uint64_t last = 0, steps = 0;
        for (uint32_t i = 0; i < play.count; i++) {
            const struct seen *s = &play.seen[i];
            if (s->shard != k) continue;
            assert_true(charged >= s->charged);
            if (!s->admitted) continue;
            assert_true(s->charged >= last + s->steps);
            last = s->charged;
            steps += s->steps;
        }
        assert_true(last >= steps);
    }
}

void charge_stop(void)
{
    life_kill(play.l);
    charge_judge();
}

uint32_t admitted(void)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < play.count; i++) n += play.seen[i].admitted;
    return n;
}

void until_admitted(uint32_t n)
{
    for (int i = 0; i < 120000 && admitted() < n; i++) life_run(play.l, LH_MS);
    assert_true(admitted() >= n);
}
