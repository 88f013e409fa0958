// A fake worker behind the real boundary: it takes cuts, sends a third of each residual, makes up
// records of other regions, and keeps all of it in one file, which it replaces by rename. Killed at
// any instant, it comes back with the state in that file.
//
//     external_worker DIR SOCKET PARTS RANKS [BROKEN | VALUES [twins]]
//
// With VALUES it takes any model of so many parameters, which begin at 0, makes up no records, and
// sends all of each residual; with `twins` it sends a third, the same one of both halves of the
// values. BROKEN plants a mistake that the judge must find: `twice` forgets which cut the file
// holds, `skip` takes the next one for committed.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/check.h"
#include "tests/external/world.h"
#include "worker/external/external.h"
#include "worker/external/socket.h"

static const float KAPPA = 0.25f;

struct note {
    uint64_t unit, upto, step;
};

struct fake {
    struct lh_env *env;
    struct wk_external *x;
    const char *dir, *broken;
    uint64_t first[EX_PARTS_MAX + 1], values; // values: size of a model other than world.h's; or 0
    uint64_t twin;                            // half of the values, if the halves are twins; or 0
    uint32_t parts, ranks;
    struct ex_state *state, *written; // written: the copy that the lane writes
    struct ex_life *life;             // the current trainer's life, in state
    bool pending[EX_PARTS_MAX], last[EX_PARTS_MAX], writing, ending, ended;
    struct wk_external_cut cut[EX_PARTS_MAX]; // pending cuts, in `queue`'s order
    uint32_t queue[EX_PARTS_MAX], queued;
    struct note *note;
    size_t notes;
    uint8_t leased[EX_UNITS];
    uint64_t records;
};

static bool broken(const struct fake *f, const char *how)
{
    return f->broken && !strcmp(f->broken, how);
}

// ---------------------------------------------------------------- the file

static void path_of(const struct fake *f, const char *name, char out[300])
{
    snprintf(out, 300, "%s/%s", f->dir, name);
}

static void load(struct fake *f)
{
    char path[300];
    path_of(f, "state", path);
    FILE *file = fopen(path, "rb");
    if (file) {
        LH_ASSERT(fread(f->state, sizeof *f->state, 1, file) == 1);
        fclose(file);
        return;
    }
    f->state->parts = f->parts;
    f->state->ranks = f->ranks;
    for (uint64_t i = 0; i < EX_VALUES && !f->values; i++) f->state->theta[i] = (float)(i % 100);
}

static void replace(const struct fake *f)
{
    char path[300], passing[300];
    path_of(f, "state", path);
    path_of(f, "state.tmp", passing);
    FILE *file = fopen(passing, "wb");
    LH_ASSERT(file && fwrite(f->written, sizeof *f->written, 1, file) == 1 && !fclose(file));
    LH_ASSERT(rename(passing, path) == 0);
}

// ---------------------------------------------------------------- views

static void view_of(const struct fake *f, uint32_t part, float kappa, float *out)
{
    const struct ex_state *s = f->state;
    for (uint64_t i = f->first[part]; i < f->first[part + 1]; i++)
        *out++ = s->theta[i] - kappa * s->residual[i];
}

static void view(void *arg, uint32_t part, bool final, float *out)
{
    view_of(arg, part, final ? 0 : KAPPA, out);
}

static void renew(struct fake *f, uint32_t part)
{
    static float buffer[EX_VALUES];
    if (f->pending[part]) return; // a cut that is being committed is not in the view yet
    view_of(f, part, KAPPA, buffer);
    lh_err err = wk_external_renew(f->x, part, &(struct wk_external_view){.theta = buffer});
    LH_ASSERT(!err || err == LH_ERR_BUSY);
}

// ---------------------------------------------------------------- commits

static void write_next(struct fake *f);

static void next_cut(struct fake *f, uint32_t part)
{
    uint64_t step = wk_external_step(f->x);
    wk_external_want(f->x, part, f->ending ? 0 : step + EX_EVERY);
}

static void maybe_end(struct fake *f)
{
    if (!f->ending || f->ended || f->writing || f->queued || !wk_external_there(f->x)) return;
    for (uint32_t i = 0; i < f->parts; i++)
        if (f->pending[i] || !f->last[i]) return;
    f->ended = true;
    wk_external_end(f->x);
}

static int64_t write_job(void *arg)
{
    replace(arg);
    return 0;
}

static void write_done(void *arg)
{
    struct fake *f = arg;
    f->writing = false;
    uint32_t part = f->queue[0];
    memmove(f->queue, f->queue + 1, --f->queued * sizeof f->queue[0]);
    f->pending[part] = false;
    f->state->cuts++;
    wk_external_committed(f->x, part, f->cut[part].number);
    renew(f, part);
    f->last[part] = f->cut[part].last;
    if (!f->last[part]) next_cut(f, part);
    write_next(f);
    maybe_end(f);
}

static void take(struct fake *f, const struct wk_external_cut *cut)
{
    struct ex_state *s = f->state;
    uint32_t part = cut->part;
    uint64_t first = f->first[part], n = f->first[part + 1] - first;
    float *delta = malloc(n * sizeof *delta);
    LH_ASSERT(delta && wk_external_delta(f->x, part, 0, n, delta) == LH_OK);
    for (uint64_t i = 0; i < n; i++) {
        s->residual[first + i] += delta[i];
        uint64_t like = f->twin ? i % f->twin : i;
        if ((!f->values || f->twin) && (like + cut->number) % 3) continue; // the rest stays
        s->theta[first + i] -= s->residual[first + i];
        s->residual[first + i] = 0;
    }
    free(delta);
    f->life->number[part] = cut->number - broken(f, "twice");
    f->life->step[part] = cut->step;
    f->life->tokens[part] = cut->tokens;
    for (size_t i = 0; i < f->notes; i++)
        if (f->note[i].step <= cut->step && f->note[i].upto > s->place[part][f->note[i].unit])
            s->place[part][f->note[i].unit] = f->note[i].upto;
}

static void write_next(struct fake *f)
{
    if (f->writing || !f->queued) return;
    uint32_t part = f->queue[0];
    f->writing = true;
    take(f, &f->cut[part]);
    memcpy(f->written, f->state, sizeof *f->state);
    f->env->ops->work(f->env, LH_LANE_DISK, write_job, write_done, f);
}

// ---------------------------------------------------------------- hooks

static lh_err described(void *arg, const struct wk_channel_tensor *tensor, uint32_t tensors)
{
    const struct fake *f = arg;
    for (uint32_t i = 0; i < tensors && !f->values; i++)
        if (i >= EX_TENSORS || strcmp(tensor[i].name, ex_name[i]) != 0)
            return lh_fail(LH_ERR_MANIFEST, "no tensor %s", tensor[i].name);
    return LH_OK;
}

static struct ex_life *find_life(struct fake *f, const uint8_t name[16])
{
    for (uint64_t i = 0; i < f->state->lives; i++)
        if (!memcmp(f->state->life[i].name, name, 16)) return &f->state->life[i];
    return NULL;
}

static uint64_t committed(void *arg, const uint8_t name[16], uint32_t part)
{
    const struct ex_life *l = find_life(arg, name);
    return (l ? l->number[part] : 0) + broken(arg, "skip");
}

static void lease_more(struct fake *f)
{
    for (uint32_t rank = 0; rank < f->ranks; rank++)
        for (uint32_t u = rank; u < EX_UNITS && wk_external_waiting(f->x, rank) < 2;
             u += f->ranks) {
            uint64_t from = EX_UNIT_TOKENS;
            for (uint32_t i = 0; i < f->parts; i++)
                if (f->state->place[i][u] < from) from = f->state->place[i][u];
            if (f->leased[u] || from >= EX_UNIT_TOKENS) continue;
            f->leased[u] = 1;
            LH_ASSERT(wk_external_lease(f->x, rank, u, from, EX_UNIT_TOKENS) == LH_OK);
        }
}

static void came(void *arg, const uint8_t name[16], bool resumed)
{
    struct fake *f = arg;
    f->life = find_life(f, name);
    f->state->resumed += resumed;
    f->ended = f->ending = false;
    memset(f->last, 0, sizeof f->last);
    if (!f->life) {
        LH_ASSERT(f->state->lives < EX_LIVES_MAX);
        f->life = &f->state->life[f->state->lives++];
        memcpy(f->life->name, name, 16);
    }
    memset(f->leased, resumed ? 1 : 0, sizeof f->leased); // a dead worker's leases are still out
    for (uint32_t i = 0; i < f->parts; i++) {
        renew(f, i);
        next_cut(f, i);
    }
    lease_more(f);
}

static void trained(void *arg, uint32_t rank, uint64_t unit, uint64_t upto, uint64_t step)
{
    struct fake *f = arg;
    (void)rank;
    if (!f->note) f->note = calloc(1 << 20, sizeof *f->note);
    LH_ASSERT(f->note && unit < EX_UNITS && upto <= EX_UNIT_TOKENS && f->notes < 1 << 20);
    f->note[f->notes++] = (struct note){unit, upto, step};
}

static void reported(void *arg, const char *name, double value)
{
    (void)arg, (void)name, (void)value;
}

static void cut(void *arg, const struct wk_external_cut *c)
{
    struct fake *f = arg;
    f->pending[c->part] = true;
    f->cut[c->part] = *c;
    f->queue[f->queued++] = c->part;
    write_next(f);
    lease_more(f);
}

static void ending(void *arg)
{
    struct fake *f = arg;
    f->ending = true;
    for (uint32_t i = 0; i < f->parts; i++) wk_external_want(f->x, i, 0);
}

static void over(void *arg, uint64_t lost, bool orderly)
{
    struct fake *f = arg;
    (void)lost;
    f->notes = 0;
    if (orderly && f->ended) lh_env_real_stop(f->env);
}

static void settled(void *arg)
{
    (void)arg;
}

static void damaged(void *arg, uint64_t unit)
{
    (void)arg, (void)unit;
}

// ---------------------------------------------------------------- time

static void tick(void *arg)
{
    struct fake *f = arg;
    char path[300];
    path_of(f, "finish", path);
    if (wk_external_there(f->x) && !f->ended) {
        uint64_t k = ++f->records;
        uint32_t part = (uint32_t)(k % f->parts);
        uint64_t own = f->values ? 0 : ++f->state->records[part];
        for (uint64_t i = f->first[part]; own && i < f->first[part + 1]; i++)
            f->state->theta[i] += ex_record(i - f->first[part], own);
        if (!f->ended) renew(f, part);
        wk_external_credited(f->x, f->state->cuts);
        lease_more(f);
        if (!f->ending && access(path, F_OK) == 0) wk_external_drain(f->x);
    }
    if (!f->ended) lh_after(f->env, LH_MS, tick, f);
}

int main(int argc, char **argv)
{
    static const struct wk_external_ops ops = {
        described, view, committed, came, trained, reported, cut, ending, over, settled, damaged};
    static struct fake f;
    LH_ASSERT(argc >= 5);
    f.dir = argv[1];
    f.parts = (uint32_t)strtoul(argv[3], NULL, 10);
    f.ranks = (uint32_t)strtoul(argv[4], NULL, 10);
    f.values = argc > 5 ? strtoul(argv[5], NULL, 10) : 0; // 0: BROKEN was given
    f.broken = argc > 5 && !f.values ? argv[5] : NULL;
    f.twin = argc > 6 ? f.values / 2 : 0;
    uint64_t values = f.values ? f.values : EX_VALUES;
    f.state = calloc(1, sizeof *f.state);
    f.written = calloc(1, sizeof *f.written);
    LH_ASSERT(f.state && f.written && f.parts && f.parts <= EX_PARTS_MAX && values <= EX_VALUES);
    for (uint32_t i = 0; i <= f.parts; i++) f.first[i] = values * i / f.parts;
    load(&f);
    LH_ASSERT(lh_env_real_create(&f.env) == LH_OK);
    struct wk_external_conf conf = {.env = f.env,
                                    .values = values,
                                    .parts = f.parts,
                                    .first = f.first,
                                    .ranks = f.ranks,
                                    .leases = 64,
                                    .run_on = 200};
    lh_err err = wk_external_listen(&conf, &ops, &f, argv[2], &f.x);
    if (err) {
        fprintf(stderr, "external_worker: %s\n", lh_err_text(err));
        return 1;
    }
    lh_after(f.env, LH_MS, tick, &f);
    lh_env_real_run(f.env);
    memcpy(f.written, f.state, sizeof *f.state);
    replace(&f);
    wk_external_stop(f.x);
    lh_env_real_destroy(f.env);
    return 0;
}
