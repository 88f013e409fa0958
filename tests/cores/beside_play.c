// Runs a worker and a trainer, and judges their cuts. See beside_play.h.
#include "tests/cores/beside_play.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct beside_play *play;

// ---------------------------------------------------------------- the judge

static bool same_life(const struct wk_whole *w, const uint8_t *life)
{
    return memcmp(w->life, life, WK_SLOT_LIFE_BYTES) == 0;
}

// The delta of a cut equals the progress since the cut before, bit for bit.
static void on_kept(struct life *l, uint32_t shard, const struct wk_whole *w, const float *delta,
                    uint64_t values)
{
    struct beside_play *p = play;
    uint64_t first = l->worker->shard[shard].layout->first;
    if (w->number) assert_memory_equal(p->b->life, w->life, sizeof w->life);
    for (uint64_t i = first; i < first + values; i++) {
        double want = 0;
        if (w->number)
            want = p->b->made[w->number % BESIDE_CUTS].lowered[i] -
                   p->b->made[(w->number - 1) % BESIDE_CUTS].lowered[i];
        if (p->spoilt && i == 0 && isnan(delta[0])) continue; // may be taken, but not committed
        if ((double)delta[i - first] != want)
            fail_msg("shard %u, value %u: the delta of cut %u is %g, training did %g", shard,
                     (unsigned)i, (unsigned)w->number, (double)delta[i - first], want);
    }
}

static void on_cut(struct life *l, uint32_t shard, const struct wk_whole *w)
{
    struct beside_play *p = play;
    uint64_t before = same_life(w, p->life[shard]) ? p->cut[shard] : 0;
    (void)l;
    if (!w->number) return;                  // a push of the residual alone
    assert_int_equal(w->number, before + 1); // each once, and in order
    memcpy(p->life[shard], w->life, sizeof w->life);
    p->cut[shard] = w->number;
    p->cuts++;
    const uint64_t *upto = p->b->made[w->number % BESIDE_CUTS].upto + shard * p->b->units->count;
    for (uint64_t u = 0; u < p->b->units->count; u++)
        if (upto[u] > p->held[shard][u]) p->held[shard][u] = upto[u];
}

void play_credit(void)
{
    const struct beside_play *p = play;
    uint32_t shards = p->l->worker->shards;
    for (uint64_t u = 0; u < p->b->units->count; u++) {
        const struct lh_ledger *ledger = &p->l->worker->shard[u % shards].replica.ledger;
        if (!lh_ledger_credited(ledger, u) || p->held[0][u] == UINT64_MAX) continue;
        for (uint32_t k = 0; k < shards; k++) assert_int_equal(p->held[k][u], 64);
    }
}

// ---------------------------------------------------------------- a play

void play_start_worker(void)
{
    play->l->beside = &play->b->conf;
    life_start(play->l);
}

void play_begin(uint64_t seed, uint32_t shards)
{
    play = calloc(1, sizeof *play);
    assert_non_null(play);
    struct life *l = play->l = life_begin(seed, shards);
    life_rest(l);
    life_kill(l); // the built-in trainer's life; the residual stays
    rig_boot_worker(l->rig, 1);
    play->b =
        beside_new(l->rig->world, l->rig->w[1].env, &l->rig->manifest, &l->rig->units, STEP_MS);
    for (uint32_t k = 0; k < shards; k++)
        play->held[k] = calloc(l->rig->units.count, sizeof *play->held[k]);
    l->on_kept = on_kept;
    l->on_cut = on_cut;
    play_start_worker();
    life_rest(l);
    for (uint32_t k = 0; k < shards; k++) { // units of the built-in trainer
        const struct wk_slot *slot = l->worker->shard[k].slot.committed;
        for (uint32_t i = 0; i < slot->position_count; i++)
            play->held[k][slot->position[i].unit] = slot->position[i].tokens;
    }
    for (uint64_t u = 0; u < l->rig->units.count; u++)
        if (lh_ledger_credited(&l->worker->shard[u % shards].replica.ledger, u))
            play->held[0][u] = UINT64_MAX;
    beside_start(play->b);
}

void play_end(void)
{
    beside_kill(play->b);
    life_end(play->l); // frees the world, and the trainer's node with it
    beside_free(play->b);
    for (int k = 0; k < RIG_SHARDS; k++) free(play->held[k]);
    free(play);
    play = NULL;
}

void play_cuts(uint64_t more)
{
    uint64_t until = play->cuts + more;
    for (int i = 0; i < 60000 && play->cuts < until; i++) life_run(play->l, LH_MS);
    assert_true(play->cuts >= until);
}

void play_check(void)
{
    life_rest(play->l);
    life_mass(play->l);
    play_credit();
}

enum wk_beside_state play_state(void)
{
    return play->l->worker->beside.state;
}

void play_until(enum wk_beside_state wanted)
{
    for (int i = 0; i < 60000 && play_state() != wanted; i++) life_run(play->l, LH_MS);
    assert_int_equal(play_state(), wanted);
}
