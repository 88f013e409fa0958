// Checks bit for bit that no mass of the workers is missing. `crash_mass SERVER.yaml SHARD LOG
// ID=DIRECTORY [BEFORE AFTER]...` reads a shard's log (every segment of it) and the workers'
// directories after the run; ID is a worker's id, 16 hex digits. BEFORE and AFTER: copies of its
// directory around each power cut of its disk, as the killed process left it and as the disk came
// back.
//
// For each worker and parameter: the sum of its admitted pushes plus its residual is the mass of
// the tokens that it was credited for, plus those of refused pushes that its next push would claim
// again, minus the mass that power cuts took. Each cut may take exactly the part of BEFORE that
// server/docs/0000-protocol.md#rule-11 gives up (held.h), nothing if the slot outlived the cut, and
// never a negative amount. exact_worker.c says why all of these are exact. If the sums hold, the
// check must also detect a residual that is off by one grain, and one push more. Prints one JSON
// object; `rebuilt` has two digits per cut, in the arguments' order: whether the slot was lost
// before it, and after it; `density` is the lowest and the highest of an admitted push. Exit status
// 0: nothing is missing, 1: mass differs, 2: files could not be read.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "deploy/stored/job.h"
#include "deploy/tool/files.h"
#include "kernels/state/replica.h"
#include "server/wal/wal.h"
#include "tests/crash/exact.h"
#include "tests/crash/held.h"
#include "worker/push/slot.h"

enum { WORKERS_MAX = 8, CUTS_MAX = 1024 };

struct worker {
    uint64_t id, tokens, pushes, back;
    const char *dir;
    double *applied, *lost; // lost: to power cuts
    float *residual;
    char **cut; // copies of its directory, two per cut
    uint32_t cuts;
    // An admitted push of this worker.
    struct push {
        uint64_t incarnation, step;
    } * push;
};

struct mass {
    struct dp_job job;
    struct lk_replica replica;
    uint32_t shard;
    struct worker worker[WORKERS_MAX];
    uint32_t workers;
    float *q;     // values of the last admitted push
    float *again; // values of the last push that has any; its worker is `last`
    uint32_t last;
    uint64_t missing;               // parameters of a cut that lost something
    char rebuilt[2 * CUTS_MAX + 1]; // "0" or "1": the slot was lost
    float density[2];               // lowest and highest of admitted pushes
};

static lh_err admit(struct mass *m, struct worker *w, const struct lh_record *r,
                    const struct lh_frame *f)
{
    struct lk_payload_info info;
    struct lh_span plain;
    bool opened, any = false;
    uint64_t values = m->replica.layout->values;
    struct lk_codec codec = {f->index_code, f->value_code, f->density};
    LH_TRY(lk_replica_unseal(&m->replica, r->body, &plain, &opened, &info));
    memset(m->q, 0, values * sizeof *m->q);
    LH_TRY(lk_payload_add(&codec, m->replica.layout, plain, m->q));
    for (uint64_t i = 0; i < values; i++) {
        w->applied[i] += (double)m->q[i];
        any |= m->q[i] != 0;
    }
    w->tokens += f->tokens;
    if (w->pushes % 256 == 0) {
        struct push *more = realloc(w->push, (w->pushes + 256) * sizeof *more);
        if (!more) return LH_ERR_NO_MEMORY;
        w->push = more;
    }
    w->push[w->pushes++] = (struct push){f->incarnation.number, f->step};
    if (any) {
        m->last = (uint32_t)(w - m->worker);
        memcpy(m->again, m->q, values * sizeof *m->q);
    }
    if (m->density[0] <= 0 || f->density < m->density[0]) m->density[0] = f->density;
    if (f->density > m->density[1]) m->density[1] = f->density;
    return LH_OK;
}

static lh_err take_entry(void *arg, const struct ps_wal_entry *e)
{
    struct mass *m = arg;
    struct lh_frame f;
    struct lh_frame_parts parts;
    if (!e->record || e->shard != m->shard || e->record->kind != LH_ADMIT) return LH_OK;
    LH_TRY(lh_frame_parse(e->record->body, &f, &parts));
    for (uint32_t i = 0; i < m->workers; i++)
        if (m->worker[i].id == f.worker) return admit(m, &m->worker[i], e->record, &f);
    return lh_fail(LH_ERR_INVALID, "a push of worker %016" PRIx64 ", who was not named", f.worker);
}

static lh_err load_residual(struct mass *m, struct worker *w)
{
    struct wk_slot slot = {0};
    enum wk_slot_state state;
    struct wk_slots slots = {
        .env = m->job.env, .dir = w->dir, .shard = m->shard, .values = m->replica.layout->values};
    lh_err err = held_boot(m->job.env, w->dir, slots.boot);
    if (err == LH_ERR_NOT_FOUND) m->job.env->ops->boot_id(m->job.env, slots.boot); // this host's
    if (err && err != LH_ERR_NOT_FOUND) return err;
    LH_TRY(wk_slot_load(&slots, &slot, w->residual, &state));
    w->back = slot.tokens;
    wk_slot_free(&slot);
    return state == WK_SLOT_INTACT ? LH_OK : lh_fail(LH_ERR_NOT_FOUND, "%s: no whole slot", w->dir);
}

// ---------------------------------------------------------------- power cuts

static bool admitted(void *arg, const struct lh_frame *f)
{
    const struct worker *w = arg;
    for (uint64_t i = 0; i < w->pushes; i++)
        if (w->push[i].incarnation == f->incarnation.number && w->push[i].step == f->step)
            return true;
    return false;
}

// The tokens of refused pushes may be lost with the slot; then the snapshot holds more mass than
// the tokens account for.
static lh_err judge_loss(struct mass *m, struct worker *w, const struct held_found *before,
                         const struct held_found *after)
{
    for (uint64_t i = 0; i < m->replica.layout->values; i++) {
        double lost = before->mass[i] - after->mass[i];
        double named = (double)before->back * exact_mass(m->replica.layout->first + i);
        bool twice = lost < (after->rebuilt ? -named : 0);
        if (twice || (lost > 0 && !after->rebuilt))
            return lh_fail(LH_ERR_CONFLICT, "a cut of %s: shard %u parameter %" PRIu64 ": %.17g %s",
                           w->dir, m->shard, i, twice ? -lost : lost,
                           twice ? "is there twice" : "is lost though the slot is whole");
        w->lost[i] += lost;
        m->missing += lost > 0;
    }
    return LH_OK;
}

// Reads the mass that one cut took.
static lh_err read_cut(struct mass *m, struct worker *w, char *const dir[2])
{
    uint64_t values = m->replica.layout->values;
    struct held_found found[2] = {{0}};
    lh_err err = LH_OK;
    for (int i = 0; i < 2 && !err; i++) {
        struct held_conf conf = {.env = m->job.env,
                                 .replica = &m->replica,
                                 .dir = dir[i],
                                 .shard = m->shard,
                                 .admitted = admitted,
                                 .arg = w};
        found[i].mass = calloc(values, sizeof(double));
        err = found[i].mass ? held_read(&conf, &found[i]) : LH_ERR_NO_MEMORY;
        m->rebuilt[strlen(m->rebuilt)] = found[i].rebuilt ? '1' : '0';
    }
    if (!err) err = judge_loss(m, w, &found[0], &found[1]);
    free(found[0].mass);
    free(found[1].mass);
    return err;
}

// ---------------------------------------------------------------- the judgement

static bool in_fixed_point(double x)
{
    double grains = x * 0x1p7;
    return grains == (double)(int64_t)grains;
}

// The number of parameters that do not add up, or are not in fixed point. `says`: print the first.
static uint64_t judge(const struct mass *m, const struct worker *w, bool says)
{
    uint64_t wrong = 0, first = m->replica.layout->first;
    for (uint64_t i = 0; i < m->replica.layout->values; i++) {
        double in = (double)(w->tokens + w->back) * exact_mass(first + i);
        double out = w->applied[i] + (double)w->residual[i] + w->lost[i];
        if (in == out && in_fixed_point(w->applied[i])) continue;
        if (!wrong++ && says)
            fprintf(stderr, "%s: shard %u parameter %" PRIu64 ": %.17g went in, %.17g came out\n",
                    w->dir, m->shard, i, in, out);
    }
    return wrong;
}

// Whether the check detects a residual that is off by one grain, and one push counted twice: the
// last push with a value, because a push may carry only claims.
static bool sees(struct mass *m)
{
    struct worker *w = &m->worker[0];
    float before = w->residual[0];
    w->residual[0] += 0x1p-7f;
    bool grain = judge(m, w, false) > 0;
    w->residual[0] = before;
    w = &m->worker[m->last];
    for (uint64_t i = 0; i < m->replica.layout->values; i++) w->applied[i] += (double)m->again[i];
    bool twice = judge(m, w, false) > 0;
    for (uint64_t i = 0; i < m->replica.layout->values; i++) w->applied[i] -= (double)m->again[i];
    return grain && twice;
}

static lh_err read_all(struct mass *m, const char *log)
{
    struct ps_wal_found found;
    uint64_t values = m->job.manifest.shard[m->shard].values;
    LH_TRY(lk_replica_create(&m->replica, m->job.id, &m->job.manifest, m->shard, m->job.keys));
    m->q = calloc(values, sizeof *m->q);
    m->again = calloc(values, sizeof *m->again);
    bool room = m->q && m->again;
    for (uint32_t i = 0; i < m->workers; i++) {
        m->worker[i].applied = calloc(values, sizeof(double));
        m->worker[i].lost = calloc(values, sizeof(double));
        m->worker[i].residual = calloc(values, sizeof(float));
        room &= m->worker[i].applied && m->worker[i].lost && m->worker[i].residual;
    }
    if (!room) return LH_ERR_NO_MEMORY;
    LH_TRY(ps_wal_look(m->job.env, log, m->job.id, take_entry, m, &found));
    for (uint32_t i = 0; i < m->workers; i++) {
        struct worker *w = &m->worker[i];
        for (uint32_t k = 0; k < w->cuts; k++) LH_TRY(read_cut(m, w, w->cut + 2 * k));
        LH_TRY(load_residual(m, w));
    }
    return LH_OK;
}

static void release(struct mass *m)
{
    for (uint32_t i = 0; i < m->workers; i++) {
        free(m->worker[i].applied);
        free(m->worker[i].lost);
        free(m->worker[i].push);
        free(m->worker[i].residual);
    }
    free(m->q);
    free(m->again);
    lk_replica_free(&m->replica);
    dp_job_close(&m->job);
}

// Parses ID=DIRECTORY [BEFORE AFTER]...; false if malformed.
static bool take_line(struct mass *m, int count, char **word)
{
    uint64_t cuts = 0;
    for (int i = 0; i < count;) {
        if (m->workers == WORKERS_MAX) return false;
        struct worker *w = &m->worker[m->workers++];
        char *end;
        w->id = strtoull(word[i], &end, 16);
        if (end == word[i] || *end != '=') return false;
        w->dir = end + 1;
        w->cut = word + ++i;
        while (i + 1 < count && !strchr(word[i], '=')) i += 2;
        w->cuts = (uint32_t)(word + i - w->cut) / 2;
        cuts += w->cuts;
    }
    return m->workers && cuts <= CUTS_MAX;
}

int main(int argc, char **argv)
{
    static struct mass m;
    uint64_t wrong = 0, pushes = 0, tokens = 0, back = 0, held = 0;
    if (argc < 5 || !take_line(&m, argc - 4, argv + 4)) {
        fprintf(stderr, "usage: crash_mass SERVER.yaml SHARD LOG ID=DIRECTORY [BEFORE AFTER]...\n");
        return 2;
    }
    m.job.config = argv[1];
    m.shard = (uint32_t)strtoul(argv[2], NULL, 10);
    lh_err err = dp_job_open(&m.job, true);
    if (!err && m.shard >= m.job.manifest.shards) err = lh_fail(LH_ERR_INVALID, "no such shard");
    if (!err) err = read_all(&m, argv[3]);
    if (err) fprintf(stderr, "crash_mass: %s\n", lh_err_text(err));
    for (uint32_t i = 0; i < m.workers && !err; i++) {
        const struct worker *w = &m.worker[i];
        wrong += judge(&m, w, true);
        pushes += w->pushes;
        tokens += w->tokens;
        back += w->back;
        for (uint64_t k = 0; k < m.replica.layout->values; k++) held += w->residual[k] != 0;
    }
    if (!err && !wrong && !sees(&m)) {
        fprintf(stderr, "crash_mass: mass that was tampered with is not seen\n");
        wrong = 1;
    }
    if (!err)
        printf("{\"parameters\": %" PRIu64 ", \"wrong\": %" PRIu64 ", \"pushes\": %" PRIu64
               ", \"tokens\": %" PRIu64 ", \"back\": %" PRIu64 ", \"held\": %" PRIu64
               ", \"missing\": %" PRIu64 ", \"rebuilt\": \"%s\", \"density\": [%g, %g]}\n",
               m.workers * m.replica.layout->values, wrong, pushes, tokens, back, held, m.missing,
               m.rebuilt, (double)m.density[0], (double)m.density[1]);
    release(&m);
    return err == LH_ERR_CONFLICT ? 1 : err ? 2 : wrong > 0;
}
