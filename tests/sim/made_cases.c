// Implements made_cases.h.
#include "tests/sim/made_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- a cluster that does not run

static void add_node(struct sim *s, uint32_t at, enum sim_kind kind, enum lh_role role,
                     uint32_t number)
{
    struct sim_node *n = &s->node[at];
    struct lh_peer self = setup_peer(role, number, "sim");
    *n = (struct sim_node){.sim = s, .kind = kind, .index = number, .self = self};
    snprintf(n->name, sizeof n->name, "%s", self.name);
    snprintf(n->dir, sizeof n->dir, "%.31s", self.name);
    n->env = lh_fake_node(s->world, NULL, NULL);
    lh_fake_boot(n->env);
}

static struct sim *sim_new(void)
{
    static const uint64_t shapes[3][5] = {{4, 2}, {3}, {2, 2}};
    static const char *const names[3] = {"a.weight", "b.weight", "c.weight"};
    struct sim *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->conf.exact = true;
    s->codec = (struct lk_codec){LK_INDEX_RICE, LK_VALUE_FP32, 1};
    s->world = lh_fake_world_create(1);
    s->shards = 1;
    assert_int_equal(lh_manifest_build(&s->manifest, 3, names, shapes, 1, NULL), LH_OK);
    s->keys = setup_keys();
    add_node(s, 0, SIM_COORDINATOR, LH_C, 0);
    for (uint32_t i = 0; i < SIM_SERVERS; i++) add_node(s, SERVER + i, SIM_SERVER, LH_S, i);
    for (uint32_t i = 0; i < SIM_WORKERS; i++) add_node(s, WORKER + i, SIM_WORKER, LH_W, i);
    add_node(s, STANDBY, SIM_STANDBY, LH_S, SIM_SERVERS);
    s->nodes = STANDBY + 1;
    s->node[SERVER].shards = s->node[STANDBY].shards = 1;
    for (uint32_t w = 0; w < SIM_WORKERS; w++) {
        struct sim_history *h = &s->history[w][0];
        h->raw = calloc(s->manifest.values, sizeof *h->raw);
        h->gone = calloc(s->manifest.values, sizeof *h->gone);
        h->last = calloc(s->manifest.values, sizeof *h->last);
        h->undone = calloc(s->manifest.values, sizeof *h->undone);
        assert_true(h->raw && h->gone && h->last && h->undone);
    }
    sim_judging_begin(s);
    return s;
}

static void sim_free(struct sim *s)
{
    sim_judging_end(s);
    for (uint32_t w = 0; w < SIM_WORKERS; w++) {
        free(s->history[w][0].raw);
        free(s->history[w][0].gone);
        free(s->history[w][0].last);
        free(s->history[w][0].undone);
    }
    for (uint32_t v = 0; v < SIM_VERSIONS_MAX; v++) lh_blob_release(s->kept[0][v]);
    lh_fake_world_destroy(s->world);
    lh_manifest_free(&s->manifest);
    lh_keyring_destroy(s->keys);
    free(s);
}

int made_set_up(void **state)
{
    struct made *m = calloc(1, sizeof *m);
    struct sim_fold fold;
    assert_non_null(m);
    m->sim = sim_new();
    sim_fold_begin(&fold, lh_span(SIM_JOB, LH_JOB_BYTES), &m->sim->manifest.hash, 0, 1, NULL, 0);
    m->chain = fold.chain;
    sim_fold_end(&fold);
    m->epoch = 1;
    *state = m;
    return 0;
}

int made_tear_down(void **state)
{
    struct made *m = *state;
    sim_free(m->sim);
    free(m);
    return 0;
}

void made_found(const struct sim *s, const char *words)
{
    if (!strstr(s->bad, words)) fail_msg("\"%s\" is not in \"%s\"", words, s->bad);
}

void made_clean(const struct sim *s)
{
    assert_string_equal(s->bad, "");
}

// ---------------------------------------------------------------- a hand-made log

void made_record(struct made *m, struct sim_node *server, struct lh_record r)
{
    struct sim_record own = {.version = m->version + 1,
                             .epoch = m->epoch,
                             .kind = r.kind,
                             .reason = r.reason,
                             .scale = r.scale,
                             .body = r.body};
    r.version = ++m->version;
    r.epoch = m->epoch;
    r.chain = m->chain = sim_chain(&m->chain, &own);
    sim_saw_folded(server, 0, &r);
}

void made_fence(struct made *m)
{
    struct lh_buf body = lh_buf(64);
    struct lh_incarnation i = {INCARNATION, RANDOM};
    lh_fence_write(m->sim->judging->id[0], i, &body);
    made_record(m, &m->sim->node[SERVER],
                (struct lh_record){.kind = LH_FENCE, .body = lh_buf_span(&body)});
    lh_buf_free(&body);
}

void made_epoch(struct made *m, struct sim_node *server, uint64_t base)
{
    struct sim_record last;
    struct lh_buf body = lh_buf(64);
    m->version = base;
    m->epoch++;
    assert_true(sim_read_record(lh_blob_span(m->sim->kept[0][base]), &last));
    m->chain = last.chain;
    lh_put_u64(&body, m->epoch);
    lh_put_u64(&body, base);
    made_record(m, server, (struct lh_record){.kind = LH_EPOCH, .body = lh_buf_span(&body)});
    lh_buf_free(&body);
}

// Returns the sealed frame of worker 0's next push, which moves each value by `by`.
static struct lh_buf make_frame(struct made *m, float by)
{
    struct sim *s = m->sim;
    const struct lh_shard_layout *layout = &s->manifest.shard[0];
    struct lh_buf plain = lh_buf(1 << 16), frame = lh_buf(1 << 16);
    struct lk_payload_info info;
    float *delta = calloc(layout->values, sizeof *delta);
    assert_non_null(delta);
    for (uint64_t i = 0; i < layout->values; i++) delta[i] = by;
    assert_int_equal(lk_encode(&s->codec, layout, delta, &plain, &info), LH_OK);
    free(delta);
    struct lh_frame f = {.index_code = s->codec.index,
                         .value_code = s->codec.value,
                         .cipher = LH_CIPHER_XCHACHA20,
                         .density = 1,
                         .key_id = 1,
                         .worker = s->judging->id[0],
                         .incarnation = {INCARNATION, RANDOM},
                         .step = ++m->step,
                         .tokens = 1,
                         .steps = 1,
                         .values = info.values,
                         .plain_bytes = (uint32_t)plain.len,
                         .manifest = s->manifest.hash};
    const struct lh_seal_context context = {f.worker, INCARNATION, RANDOM, 0, LH_SEAL_FRAME};
    memcpy(f.job, SIM_JOB, LH_JOB_BYTES);
    lh_frame_write_head(&f, &frame);
    struct lh_span head = lh_span(frame.data, frame.len);
    uint8_t *sealed = malloc(plain.len + LH_SEAL_TAG_BYTES);
    assert_non_null(sealed);
    assert_int_equal(
        lh_seal(s->keys, f.cipher, 1, &context, head, f.nonce, lh_buf_span(&plain), sealed), LH_OK);
    lh_put(&frame, sealed, plain.len + LH_SEAL_TAG_BYTES);
    free(sealed);
    lh_buf_free(&plain);
    struct sim_frame read;
    assert_true(sim_read_frame(lh_buf_span(&frame), &read));
    sim_frame_digest(lh_buf_span(&frame), &read, m->digest);
    return frame;
}

void made_push(struct made *m, struct sim_node *server, float by)
{
    struct sim_history *h = &m->sim->history[0][0];
    struct lh_buf frame = make_frame(m, by);
    h->cut[h->cuts++] = (struct sim_cut){
        .incarnation = {INCARNATION, RANDOM}, .step = m->step, .committed = true, .copy = true};
    for (uint64_t i = 0; i < m->sim->manifest.shard[0].values; i++) h->raw[i] += (double)by;
    if (server)
        made_record(m, server,
                    (struct lh_record){.kind = LH_ADMIT, .scale = 1, .body = lh_buf_span(&frame)});
    lh_buf_free(&frame);
}

void made_acknowledged(struct made *m)
{
    made_fence(m);
    made_push(m, &m->sim->node[SERVER], 1);
    sim_saw_answer(&m->sim->node[SERVER], m->digest, true);
}
