// The judge's mass balance against workers that hold too little or too much: at a start, after a
// declared loss, at the end.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/made_cases.h"

struct hands { // a worker's shard
    struct wk_worker worker;
    struct wk_shard shard;
    float residual[64];
};

static void hold(struct made *m, struct hands *h, float each)
{
    memset(h, 0, sizeof *h);
    h->worker.shard = &h->shard;
    h->shard.layout = &m->sim->manifest.shard[0];
    h->shard.slot.residual = h->residual;
    for (uint64_t i = 0; i < h->shard.layout->values; i++) h->residual[i] = each;
    for (uint32_t w = 0; w < SIM_WORKERS; w++) m->sim->node[WORKER + w].worker = &h->worker;
}

static void put_in(struct made *m, double each)
{
    for (uint64_t i = 0; i < m->sim->manifest.shard[0].values; i++)
        m->sim->history[0][0].raw[i] += each;
}

static void start(struct made *m, struct hands *h, float each)
{
    hold(m, h, each);
    sim_mass_start(&m->sim->node[WORKER]);
    for (uint32_t w = 0; w < SIM_WORKERS; w++) m->sim->node[WORKER + w].worker = NULL;
}

MADE_TEST(a_start_that_holds_less_and_says_nothing_is_found, struct made *m)
{
    struct hands h;
    put_in(m, 3);
    start(m, &h, 3);
    made_clean(m->sim);
    start(m, &h, 2);
    made_found(m->sim, "declares no loss");
}

MADE_TEST(mass_in_the_log_is_not_held_as_well, struct made *m)
{
    struct hands h;
    made_fence(m);
    made_push(m, &m->sim->node[SERVER], 1);
    put_in(m, 3);
    start(m, &h, 3);
    made_clean(m->sim);
    start(m, &h, 4);
    made_found(m->sim, "declares no loss");
}

MADE_TEST(the_newest_cut_may_have_been_committed_or_not, struct made *m)
{
    struct hands h;
    struct sim_history *history = &m->sim->history[0][0];
    put_in(m, 3);
    history->cuts = 1;
    history->pending = true;
    for (uint64_t i = 0; i < m->sim->manifest.shard[0].values; i++) history->last[i] = 2;
    start(m, &h, 5);
    made_clean(m->sim);
    assert_true(history->raw[0] == 5);
}

MADE_TEST(a_declared_loss_is_measured_and_excuses_no_more, struct made *m)
{
    struct hands h;
    put_in(m, 3);
    m->sim->history[0][0].lost = m->sim->history[0][0].losing = true;
    start(m, &h, 1);
    made_clean(m->sim);
    assert_true(m->sim->history[0][0].gone[0] == 2);
    start(m, &h, 0);
    made_found(m->sim, "declares no loss");
}

MADE_TEST(a_declared_loss_makes_nothing_larger, struct made *m)
{
    struct hands h;
    put_in(m, 3);
    m->sim->history[0][0].lost = m->sim->history[0][0].losing = true;
    start(m, &h, 4);
    made_found(m->sim, "after it declared a loss");
}

// The entry of an uncommitted cut comes back with the power cut that takes the slot. After the next
// commit it can't.
MADE_TEST(an_undone_cut_may_come_back_until_the_next_commit, struct made *m)
{
    struct hands h;
    struct sim_history *history = &m->sim->history[0][0];
    const uint64_t values = m->sim->manifest.shard[0].values;
    put_in(m, 3);
    for (int commit = 0; commit <= 1; commit++) {
        history->cuts = 1;
        history->pending = true;
        for (uint64_t i = 0; i < values; i++) history->last[i] = 2;
        start(m, &h, 3); // the cut was not committed
        made_clean(m->sim);
        history->pending = commit;
        for (uint64_t i = 0; i < values; i++) history->last[i] = 1;
        if (commit) start(m, &h, 4);
        made_clean(m->sim);
        history->lost = history->losing = true;
        start(m, &h, commit ? 6.0f : 5.0f);
        if (!commit) made_clean(m->sim);
        for (uint64_t i = 0; i < values; i++) history->raw[i] = 3, history->gone[i] = 0;
    }
    made_found(m->sim, "after it declared a loss");
}

MADE_TEST(a_lost_slot_starts_from_its_snapshot, struct made *m)
{
    struct hands h;
    put_in(m, 3);
    m->sim->history[0][0].lost = m->sim->history[0][0].losing = true;
    m->sim->history[0][0].slot_lost = true; // there is no snapshot, so it should have zeros
    start(m, &h, 1);
    made_found(m->sim, "server/docs/0000-protocol.md#rule-11");
}

static void write_entry(const struct sim_node *n, struct lh_span frame, uint64_t step)
{
    char path[160];
    struct lh_buf file = lh_buf(1 << 16);
    snprintf(path, sizeof path, "%s/outbox", n->dir);
    assert_int_equal(n->env->ops->files->make_dir(n->env, path), LH_OK);
    snprintf(path, sizeof path, "%s/outbox/0000-%016x-%016x", n->dir, INCARNATION, (unsigned)step);
    lh_put(&file, frame.data, frame.len);
    lh_put_u32(&file, lh_crc32c(0, frame.data, frame.len));
    assert_int_equal(lh_file_replace(n->env, path, lh_buf_span(&file)), LH_OK);
    lh_buf_free(&file);
}

// A push of 1 that the log once had is in the outbox, below a snapshot of 2; the slot is lost.
// Returns how much of these 3 the loss took, which depends on the push that the snapshot names as
// taken back. The worker's own flag of the entry says the opposite, and must not matter.
static double taken_with_slot(struct made *m, bool back)
{
    const struct sim_node *n = &m->sim->node[WORKER];
    struct sim_history *history = &m->sim->history[0][0];
    struct wk_slot slot = {.incarnation = {INCARNATION, RANDOM}, .next = 9, .decided = 8};
    struct wk_slots slots = {.env = n->env, .dir = n->dir};
    struct wk_entry e = {.head = {.incarnation = {INCARNATION, RANDOM}, .step = 1}};
    struct sim_record r;
    struct hands h;
    made_acknowledged(m);
    assert_true(sim_read_record(lh_blob_span(m->sim->kept[0][2]), &r));
    write_entry(n, r.body, 1);
    sim_saw_loss(&m->sim->node[SERVER], SIM_LOSS_DISK, NULL);
    made_epoch(m, &m->sim->node[SERVER], 1);
    put_in(m, 2);
    hold(m, &h, 2);
    slots.values = h.shard.layout->values;
    slot.gone_incarnation = back ? INCARNATION : 0;
    slot.gone_step = back;
    assert_int_equal(wk_snapshot_write(&slots, &slot, h.residual), LH_OK);
    e.accounted_refused = !back;
    h.shard.outbox.first = &e;
    history->lost = history->losing = history->slot_lost = true;
    sim_mass_start(&m->sim->node[WORKER]);
    for (uint32_t w = 0; w < SIM_WORKERS; w++) m->sim->node[WORKER + w].worker = NULL;
    made_clean(m->sim);
    return history->gone[0];
}

MADE_TEST(a_push_below_the_snapshot_is_held, struct made *m)
{
    assert_true(taken_with_slot(m, false) == 0);
}

MADE_TEST(a_push_that_the_snapshot_took_back_is_not_held, struct made *m)
{
    assert_true(taken_with_slot(m, true) == 1);
}

static void judge_mass_of(struct made *m, float each)
{
    struct hands *h = calloc(SIM_WORKERS, sizeof *h);
    assert_non_null(h);
    for (uint32_t w = SIM_WORKERS; w--;) hold(m, &h[w], w ? 0 : each);
    for (uint32_t w = 0; w < SIM_WORKERS; w++) m->sim->node[WORKER + w].worker = &h[w].worker;
    sim_judge_mass(m->sim, 0);
    for (uint32_t w = 0; w < SIM_WORKERS; w++) m->sim->node[WORKER + w].worker = NULL;
    free(h);
}

MADE_TEST(in_the_end_all_of_it_is_there, struct made *m)
{
    put_in(m, 3);
    judge_mass_of(m, 3);
    made_clean(m->sim);
    judge_mass_of(m, 2);
    made_found(m->sim, "2 is left");
}

MADE_TEST(in_the_end_nothing_is_there_twice, struct made *m)
{
    put_in(m, 3);
    judge_mass_of(m, 4);
    made_found(m->sim, "4 came out");
}

MADE_TEST(the_rest_of_a_declared_loss_must_be_there_in_the_end, struct made *m)
{
    struct hands h;
    put_in(m, 3);
    m->sim->history[0][0].lost = m->sim->history[0][0].losing = true;
    start(m, &h, 2);
    judge_mass_of(m, 1);
    made_found(m->sim, "1 is left");
}

MADE_TEST(a_cut_off_record_is_in_its_authors_outbox, struct made *m)
{
    made_acknowledged(m);
    m->sim->history[0][0].cut[0].copy = false;
    sim_saw_loss(&m->sim->node[SERVER], SIM_LOSS_DISK, NULL);
    made_epoch(m, &m->sim->node[SERVER], 1);
    made_found(m->sim, "lost it without a word");
}

MADE_TEST(a_payload_that_does_not_open_is_found, struct made *m)
{
    struct sim_record r;
    made_acknowledged(m);
    struct lh_blob *copy = lh_blob_copy(lh_blob_span(m->sim->kept[0][2]));
    assert_non_null(copy);
    copy->data[copy->len - LH_SEAL_TAG_BYTES - 1] ^= 1;
    assert_true(sim_read_record(lh_blob_span(copy), &r));
    sim_mass_logged(m->sim, 0, r.body, 1);
    lh_blob_release(copy);
    made_found(m->sim, "a payload that can't be read");
}
