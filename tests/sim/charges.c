// Charges: the last worker's private region, and the loop beside the worker where the loop reports
// that it is private (server/docs/0000-protocol.md#rule-34).
//
// The loop is tests/cores/trainer.c, with the real client library. It dies with its worker or apart
// from it, and is started again. Whenever a server has one of the region's pushes on its disk, the
// budget's file, as a power cut would leave it, covers the push and is within the plan.
#include <inttypes.h>
#include <string.h>

#include "tests/cores/trainer.h"
#include "tests/sim/judge.h"

static const int64_t LOOK = 200 * LH_MS;
static const char BUDGET[] = "records.budget";
enum { STEP_MS = 160, DIES_ONE_IN = 25, SIGMA = 10 };

static struct sim_node *worker_of(struct sim *s)
{
    return &s->node[1 + SIM_SERVERS + SIM_WORKERS - 1];
}

// In a third of the seeds the region is private at record level, in a third of the others by its
// loop's report. The other workers must be able to train all units, including this region's.
void sim_choose_charges(struct sim *s)
{
    const struct sim_faults *f = &s->conf.faults;
    bool stays = f->travel || f->links || f->balance || f->budget;
    if (stays || s->conf.mode == LH_MODE_BSP) return;
    s->records = f->records && sim_draw(s, SIM_FAULT_records, 3) == 0;
    s->reported = !s->records && f->reported && sim_draw(s, SIM_FAULT_reported, 3) == 0;
    if (s->records) sim_happened(s, records);
    if (s->reported) sim_happened(s, reported);
}

bool sim_is_private(const struct sim *s, uint32_t worker)
{
    return (s->records || s->reported) && worker == SIM_WORKERS - 1;
}

// ---------------------------------------------------------------- settings

static bool region_data(void *arg, const char *region, enum lh_data *out)
{
    (void)arg;
    *out = LH_DATA_PRIVATE;
    return strcmp(region, setup_region[SIM_WORKERS - 1]) == 0;
}

// Sets so few steps that in most seeds the region leaves before the run ends.
void sim_charges_coordinator(const struct sim *s, struct ps_co_conf *conf)
{
    if (!s->records && !s->reported) return;
    conf->region_data = region_data;
    conf->step_tokens = SIM_STEP_TOKENS;
    conf->plan.privacy =
        (struct lh_privacy){.level = s->records ? LH_PRIVACY_RECORD : LH_PRIVACY_REPORTED,
                            .sigma = SIGMA,
                            .rate = 0.1,
                            .clip = 1,
                            .epsilon = 8,
                            .delta = 1e-6,
                            .steps = SIM_PRIVATE_STEPS,
                            .ahead = 24,
                            .local_steps = 4,
                            .record_tokens = 64};
}

void sim_charges_worker(const struct sim_node *n, struct wk_conf *conf)
{
    const struct sim *s = n->sim;
    if (!sim_is_private(s, n->index)) return;
    conf->privacy = (struct wk_private_conf){BUDGET, 8, 1e-5, true, s->reported};
    if (s->loop) conf->beside = &s->loop->conf;
}

// ---------------------------------------------------------------- the loop

static void look(void *arg)
{
    struct sim *s = arg;
    const struct sim_node *n = worker_of(s);
    struct beside *b = s->loop;
    if (!beside_runs(b) && !b->over) {
        beside_start(b);
    } else if (beside_runs(b) && s->faulty && sim_draw(s, SIM_FAULT_reported, DIES_ONE_IN) == 0) {
        beside_kill(b);
        sim_trace(s, "%s: its loop is killed", n->name);
    }
    lh_fake_at(s->world, LOOK, look, s);
}

void sim_loop_start(struct sim *s)
{
    if (!s->reported) return;
    struct beside *b = s->loop =
        beside_new(s->world, worker_of(s)->env, &s->manifest, &s->units, STEP_MS);
    b->own_data = true;
    b->noise = (struct longhaul_noise){sizeof b->noise, 0, SIGMA, 0.1, 1};
    beside_start(b);
    lh_fake_at(s->world, LOOK, look, s);
}

// Handles a worker's death. Worker and loop share a host and its power. A loop that ended had heard
// of the end from the dead process, so the next loop has to hear of it too.
void sim_loop_death(struct sim_node *n, bool power)
{
    struct sim *s = n->sim;
    if (!s->loop || n != worker_of(s) || s->ending) return;
    if (power || sim_draw(s, SIM_FAULT_reported, 2)) beside_kill(s->loop);
    s->loop->over = false;
}

void sim_loop_end(struct sim *s)
{
    beside_free(s->loop);
    s->loop = NULL;
}

// ---------------------------------------------------------------- the judge

static uint64_t number(const uint8_t *at, size_t bytes)
{
    uint64_t n = 0;
    for (size_t i = bytes; i--;) n = n << 8 | at[i];
    return n;
}

static void note_file(void *there, const char *path, uint64_t bytes)
{
    (void)bytes;
    if (!strcmp(path, BUDGET)) *(bool *)there = true;
}

// Reads the total in the budget's file as a power cut would leave it: all shards share the first
// count of its only run. A death during a charge leaves the old file or the new one.
static uint64_t durable_total(struct sim *s)
{
    struct lh_span file;
    bool there = false;
    lh_fake_disk_each(worker_of(s)->env, note_file, &there);
    if (!lh_fake_durable(worker_of(s)->env, BUDGET, &file)) return there ? SIM_PRIVATE_STEPS : 0;
    size_t head = 12 + 16, counts = 8 * (size_t)s->shards;
    bool fits = file.len > head + 4 + counts + 4 && !memcmp(file.data, "LHPB", 4) &&
                number(file.data + 8, 4) == 1 && number(file.data + head, 4) == s->shards;
    if (!fits) sim_fail(s, "the budget's file is none: %zu bytes", file.len);
    return fits ? number(file.data + file.len - 4 - counts, 8) : 0;
}

// Checks a durable push. A worker that lost its directory lost the budget's file too; when it
// charges again it continues above the log's total, which is judged at the end.
void sim_charges_see(struct sim *s, uint32_t shard, const struct sim_record *r)
{
    struct sim_frame f;
    bool push = r->kind == LH_ADMIT || r->kind == LH_REFUSE;
    if (!sim_is_private(s, SIM_WORKERS - 1) || !push || !sim_read_frame(r->body, &f)) return;
    if (f.worker != s->judging->id[SIM_WORKERS - 1] || worker_of(s)->wiped) return;
    uint64_t total = durable_total(s);
    bool within = total <= SIM_PRIVATE_STEPS && f.charged <= total;
    if (within && (f.charged || !f.steps)) return;
    sim_fail(s,
             "shard %u version %" PRIu64 ": a push of %u steps has the total %" PRIu64
             ", and the budget's file %" PRIu64,
             shard, r->version, f.steps, f.charged, total);
}
