// A region's ranks under a virtual clock. See world.h.
//
// The parameters are one number. A step computes the next one from it, the step's number and the
// sum of all sequences' gradients. A step that misses a sequence, counts one twice, is applied
// twice, or is based on another rank's parameters gives a number that no right history has;
// truth[s] is the right one after s steps. Processes run in ticks of 10 ms.
//
// The judge checks that 1. the leader counts every step once and in order, and then holds truth[s];
// 2. a process that ends says why; 3. only the rank with another NCCL, ranks.wire, bucket size or
// trainer.backend is refused, with both values in its text; 4. CALM after the last fault all ranks
// are members of one epoch, and steps are counted; 5. when no more steps are wanted, all ranks hold
// truth[s] of the same s.
#include "tests/region/inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "worker/ranks/region_core.h"

static const int64_t TICK = 10 * LH_MS, STORM = 15 * LH_SECOND, CALM = 45 * LH_SECOND;
enum { BUCKET = 8 }; // bytes

// ---------------------------------------------------------------- mail

static void post(struct world *w, uint32_t from, uint32_t to, struct lh_span bytes, bool lost)
{
    uint32_t rank = from ? from : to;
    int64_t *last = &w->last_mail[rank][from != 0];
    int64_t at = w->now + (int64_t)(1 + world_below(w, 30)) * LH_MS;
    if (w->mails == MAIL_MAX) {
        world_wrong(w, "more messages on their way than a region has");
        return;
    }
    if (at < *last) at = *last;
    *last = at;
    struct mail *m = &w->mail[w->mails++];
    *m = (struct mail){at,   w->order++, from,     to, {w->life[from], w->life[to]},
                       lost, NULL,       bytes.len};
    if (!bytes.len) return;
    m->bytes = malloc(bytes.len);
    LH_ASSERT(m->bytes);
    memcpy(m->bytes, bytes.data, bytes.len);
}

static void send(void *arg, uint32_t to, struct lh_span bytes)
{
    struct process *p = arg;
    uint32_t rank = p->rank ? p->rank : to;
    if (p->world->up[rank]) post(p->world, p->rank, to, bytes, false);
}

static void deliver(struct world *w, const struct mail *m)
{
    struct process *p = &w->process[m->to];
    if (!p->region || m->life[1] != w->life[m->to] || m->life[0] != w->life[m->from]) return;
    if (m->lost)
        wk_region_lost(p->region, m->from, w->now);
    else if (wk_region_receive(p->region, m->from, lh_span(m->bytes, m->n), w->now))
        world_wrong(w, "a message is refused: %s", lh_err_text(LH_ERR_PROTOCOL));
}

static void deliver_due(struct world *w)
{
    for (;;) {
        unsigned first = w->mails;
        for (unsigned i = 0; i < w->mails; i++) {
            const struct mail *m = &w->mail[i];
            if (m->at > w->now || w->process[m->to].paused_ns > w->now) continue;
            if (first == w->mails || m->at < w->mail[first].at ||
                (m->at == w->mail[first].at && m->order < w->mail[first].order))
                first = i;
        }
        if (first == w->mails) return;
        struct mail m = w->mail[first];
        w->mail[first] = w->mail[--w->mails];
        deliver(w, &m);
        free(m.bytes);
    }
}

// Ends the connection. If `told`, both ends are notified, after everything that was sent before.
static void hang_up(struct world *w, uint32_t rank, bool told)
{
    if (!w->up[rank]) return;
    w->up[rank] = false;
    w->up_ns[rank] = w->now + (int64_t)(100 + world_below(w, 1500)) * LH_MS;
    if (!told) return;
    post(w, rank, 0, lh_span(NULL, 0), true);
    post(w, 0, rank, lh_span(NULL, 0), true);
}

static void connect_due(struct world *w)
{
    for (uint32_t rank = 1; rank < w->ranks; rank++) {
        bool both = w->process[rank].region && w->process[0].region;
        if (!w->up[rank] && both && w->now >= w->up_ns[rank]) w->up[rank] = true;
    }
}

// ---------------------------------------------------------------- processes

static void stepped(void *arg)
{
    struct process *p = arg;
    struct world *w = p->world;
    uint64_t step = p->step;
    if (step != w->counted + 1)
        world_wrong(w, "step %" PRIu64 " is counted after step %" PRIu64, step, w->counted);
    else if (step >= STEPS_MAX || p->param != w->truth[step])
        world_wrong(w, "the leader's parameters after step %" PRIu64 " are no right ones", step);
    w->counted = step;
    w->out.steps++;
    if (step % CUT_EVERY == 0) w->cut = step;
}

static void ended(void *arg, lh_err err, const char *text)
{
    struct process *p = arg;
    struct world *w = p->world;
    world_say(w, "rank %u ends: %s: %s", p->rank, lh_err_name(err), text);
    w->out.ends++;
    p->ended = true;
    if (!err || !text || !*text) world_wrong(w, "rank %u ends and says nothing", p->rank);
    w->given_up |=
        !p->rank && err == LH_ERR_UNAVAILABLE && strstr(text, "8 communicators in a row");
    bool other = p->rank && p->rank == w->other;
    bool named = p->sum    ? strstr(text, "ranks.wire bf16, the leader fp32") != NULL
                 : p->cuda ? strstr(text, "trainer.backend cuda, the leader cpu") != NULL
                 : p->bucket_bytes != BUCKET ? strstr(text, "bucket_bytes 7, the leader 8") != NULL
                                             : strstr(text, "2.27.5") && strstr(text, "2.28.9");
    p->refused = err == LH_ERR_CONFIG;
    if (p->refused && !(other && named)) world_wrong(w, "rank %u is refused: %s", p->rank, text);
}

static void changed(void *arg, uint64_t members)
{
    struct process *p = arg;
    world_say(p->world, "rank %u: members %" PRIx64 ", step %" PRIu64, p->rank, members, p->step);
}

static void failed(void *arg, const char *cause)
{
    struct process *p = arg;
    world_say(p->world, "rank %u: an epoch failed: %s", p->rank, cause);
}

// ---------------------------------------------------------------- processes live and die

static void start(struct process *p)
{
    struct world *w = p->world;
    w->life[p->rank] = world_mix(++w->lives, 99) >> 16 | 1;
    p->step = p->rank ? world_below(w, 4) : w->cut; // a member's state is arbitrary
    p->param = p->rank ? world_below(w, 1000) : w->truth[w->cut];
    if (!p->rank) w->counted = w->cut;
    p->computing = p->ended = false;
    p->end = (struct endpoint){.live = false};
    p->paused_ns = 0;
    p->wished = 0;
    p->ops = world_work;
    p->ops.send = send;
    p->ops.stepped = stepped;
    p->ops.changed = changed;
    p->ops.failed = failed;
    p->ops.ended = ended;
    p->point = world_strikes(w, WORLD_POINT, 8) ? 1 + (int)world_below(w, 3000) : 0;
    const struct wk_region_conf conf = {.rank = p->rank,
                                        .ranks = w->ranks,
                                        .life = w->life[p->rank],
                                        .share_bytes = 12 << 20,
                                        .reduce_bytes = 4 << 20,
                                        .sum = p->sum,
                                        .bucket_bytes = p->bucket_bytes,
                                        .cuda = p->cuda,
                                        .gather_ns = LH_SECOND,
                                        .hello_ns = 200 * LH_MS,
                                        .beat_ns = 300 * LH_MS,
                                        .silence_ns = 1500 * LH_MS,
                                        .init_ns = 4 * LH_SECOND,
                                        .compute_ns = 2 * LH_SECOND,
                                        .op_ns = LH_SECOND,
                                        .op_factor = 20,
                                        .bytes_per_s = 1e9,
                                        .abort_ns = 2 * LH_SECOND,
                                        .comm = &world_comm,
                                        .comm_arg = p,
                                        .ops = &p->ops,
                                        .arg = p};
    world_say(w, "rank %u starts", p->rank);
    lh_err err = wk_region_create(&conf, w->now, &p->region);
    LH_ASSERT(err == LH_OK);
}

static void die(struct process *p, bool told)
{
    struct world *w = p->world;
    if (!p->region) return;
    world_say(w, "rank %u dies", p->rank);
    world_break_group(p);
    p->end.live = false;
    wk_region_destroy(p->region);
    p->region = NULL;
    p->starts_ns = w->now + (int64_t)(200 + world_below(w, 3000)) * LH_MS;
    for (uint32_t rank = 1; rank < w->ranks; rank++)
        if (!p->rank || p->rank == rank) hang_up(w, rank, told);
}

static void live(struct process *p)
{
    struct world *w = p->world;
    if (!p->region && !p->refused && w->now >= p->starts_ns) start(p);
    if (!p->region || p->paused_ns > w->now) return;
    if (!p->rank && w->wanting && p->wished != w->counted + 1) { // once for each step and process
        uint64_t payload = world_payload(w->counted);
        uint64_t corrected = world_corrected(p->param, w->counted);
        bool changed = corrected != p->param;
        p->param = corrected;
        p->wished = w->counted + 1;
        if (wk_region_want(p->region, lh_span(&payload, sizeof payload), changed)) abort();
    }
    wk_region_tick(p->region, w->now);
    if (p->point && !--p->point) die(p, !world_one_in(w, 3));
    if (p->ended) die(p, true);
}

// ---------------------------------------------------------------- the storm

static void strike(struct world *w)
{
    struct process *p = &w->process[world_below(w, w->ranks)];
    if (world_one_in(w, 3)) p = &w->process[1 + world_below(w, w->ranks - 1)];
    if (!p->region) return;
    if (world_strikes(w, WORLD_KILL, 500)) die(p, true);
    if (world_strikes(w, WORLD_POWER, 900)) die(p, false);
    if (p->region && world_strikes(w, WORLD_PAUSE, 900)) {
        p->paused_ns = w->now + (int64_t)world_below(w, 5000) * LH_MS;
        world_say(w, "rank %u stands still until %.2f", p->rank, (double)p->paused_ns / 1e9);
    }
    bool rests = p->region && p->region->phase == WK_REGION_STANDS;
    if (p->rank && rests && world_strikes(w, WORLD_FLIP, 300)) p->param ^= 2;
    if (p->rank && world_strikes(w, WORLD_CUT, 500)) hang_up(w, p->rank, !world_one_in(w, 4));
}

static uint64_t members_of(const struct wk_region *r)
{
    return r->phase >= WK_REGION_STANDS && r->phase <= WK_REGION_REDUCE ? r->members : 0;
}

static bool settled(const struct world *w)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < w->ranks; i++) {
        if (w->process[i].refused) continue;
        if (!w->process[i].region) return false;
        all |= UINT64_C(1) << i;
    }
    for (uint32_t i = 0; i < w->ranks; i++)
        if (w->process[i].region && members_of(w->process[i].region) != all) return false;
    return true;
}

static void tick(struct world *w)
{
    w->now += TICK;
    if (w->storm) strike(w);
    connect_due(w);
    deliver_due(w);
    for (uint32_t i = 0; i < w->ranks; i++) live(&w->process[i]);
}

// Whether nothing is in progress: the leader waits for a request, the members for the leader.
static bool quiet(const struct world *w)
{
    if (w->process[0].wished == w->counted + 1) return false; // a step is still requested
    for (uint32_t i = 0; i < w->ranks; i++)
        if (w->process[i].region && w->process[i].region->phase != WK_REGION_STANDS) return false;
    return settled(w);
}

static void check_equal(struct world *w)
{
    for (uint32_t i = 0; i < w->ranks; i++) {
        const struct process *p = &w->process[i];
        if (!p->region) continue;
        if (p->step != w->counted || p->param != w->truth[w->counted])
            world_wrong(w,
                        "in the end rank %u holds step %" PRIu64
                        " with %s parameters, not step %" PRIu64,
                        i, p->step, p->param == w->truth[p->step] ? "right" : "wrong", w->counted);
    }
    if (w->other && !w->process[w->other].refused)
        world_wrong(w, "rank %u is unlike the others and was not refused", w->other);
}

static void until(struct world *w, bool (*holds)(struct world *w), const char *what)
{
    int64_t end = w->now + CALM;
    while (w->out.ok && !holds(w) && w->now < end) tick(w);
    if (w->out.ok && !holds(w))
        world_wrong(w, "%.0f s later it is not so that %s", (double)CALM / 1e9, what);
}

static bool gave_up(struct world *w)
{
    return w->given_up;
}

// Whether all ranks are at rest. While ranks come back, for example from an operation that has hung
// since the storm, steps are requested, because a leader begins no epoch without a request.
static bool rests(struct world *w)
{
    w->wanting = !settled(w);
    return quiet(w);
}

static bool goes_on(struct world *w)
{
    return settled(w) && w->out.steps >= 5;
}

static void judge_calm(struct world *w)
{
    if (w->hopeless) {
        w->given_up = false;
        until(w, gave_up, "the leader says that no communicator can be made");
        return;
    }
    until(w, goes_on, "all ranks train on");
    until(w, rests, "all rest");
    if (w->out.ok) check_equal(w);
}

static void set_up(struct world *w, uint64_t seed)
{
    w->seed = world_mix(seed, 20);
    w->ranks = 2 + (uint32_t)world_below(w, WORLD_RANKS - 1);
    w->storm = w->wanting = true;
    w->other = world_one_in(w, 10) ? 1 + (uint32_t)world_below(w, w->ranks - 1) : 0;
    uint64_t how = world_below(w, 4);
    bool sum = w->other && how == 0, bucket = w->other && how == 1, cuda = w->other && how == 2;
    w->hopeless = !w->other && world_one_in(w, 20) ? 1 + (uint32_t)world_below(w, w->ranks - 1) : 0;
    w->truth[0] = world_mix(seed, 1);
    for (uint64_t s = 0; s < STEPS_MAX; s++) w->truth[s + 1] = world_step(w->truth[s], s);
    for (uint32_t i = 0; i < w->ranks; i++)
        w->process[i] =
            (struct process){.world = w,
                             .rank = i,
                             .nccl = i && i == w->other && how == 3 ? 22705 : 22809,
                             .cuda = i && i == w->other && cuda,
                             .sum = i && i == w->other && sum ? WK_SUM_BF16 : WK_SUM_FP32,
                             .bucket_bytes = i && i == w->other && bucket ? BUCKET - 1 : BUCKET,
                             .starts_ns = (int64_t)world_below(w, 500) * LH_MS};
}

static void tear_down(struct world *w)
{
    for (uint32_t i = 0; i < w->ranks; i++) wk_region_destroy(w->process[i].region);
    for (unsigned i = 0; i < w->mails; i++) free(w->mail[i].bytes);
    free(w);
}

struct world_outcome world_play(uint64_t seed, bool loud)
{
    struct world *w = calloc(1, sizeof *w);
    LH_ASSERT(w);
    w->loud = loud;
    w->out.ok = true;
    set_up(w, seed);
    while (w->out.ok && w->now < STORM) tick(w);
    world_say(w, "calm");
    w->storm = false;
    // Faults drawn in the storm must not happen later.
    for (uint32_t i = 0; i < w->ranks; i++) w->process[i].point = 0;
    uint64_t before = w->out.steps;
    w->out.steps = 0;
    judge_calm(w);
    w->out.steps += before;
    for (uint32_t i = 0; i < w->ranks; i++)
        world_say(w, "rank %u: %s, phase %d, step %" PRIu64, i,
                  w->process[i].region ? "lives" : "is dead",
                  w->process[i].region ? (int)w->process[i].region->phase : -1, w->process[i].step);
    struct world_outcome out = w->out;
    tear_down(w);
    return out;
}
