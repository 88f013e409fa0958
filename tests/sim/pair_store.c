// The store of two coordinators: an etcd in memory, behind its own network, which delays, loses and
// repeats messages, and from which each coordinator may be cut.
//
// Requests arrive one by one, however long ago they were sent, even if the sender has died: the
// commit of a replaced leader may come late. While the store is down no lease ends; afterwards each
// has its whole time again, as after an election among real members. Invariant: a process that does
// not hold the leader's key changes nothing else.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/pair.h"

// An undelayed request takes up to 60 ms; a late one arrives after its sender gave up.
enum { DELAY_MS = 30, SLOW_MS = 2000, LATE_MS = 12000 };

struct request {
    struct sim_side *side;
    struct sim_fiber *by; // waits for the answer; NULL: nobody does any more
    uint64_t life;
    char path[64];
    uint8_t *bytes;
    size_t len;
    int64_t back_ns;
    bool lose_answer, over;
    lh_err err;
    char text[256];
    struct lh_buf answer;
    unsigned references; // the caller and the events
};

static int64_t now_of(const struct sim_pair *p)
{
    return lh_fake_now(p->sim->world);
}

static int64_t some_ms(struct sim_pair *p, uint64_t most)
{
    return (int64_t)(1 + sim_draw(p->sim, SIM_FAULT_pair, most)) * LH_MS;
}

static bool is_down(const struct sim_pair *p)
{
    return now_of(p) < p->down_until;
}

static bool is_cut(const struct sim_side *side)
{
    return now_of(side->pair) < side->cut_until || side->node->cut_off;
}

static bool is_lossy(const struct sim_side *side)
{
    return now_of(side->pair) < side->lossy_until;
}

bool sim_store_is_well(const struct sim_side *side)
{
    const struct sim_pair *p = side->pair;
    return !is_down(p) && now_of(p) >= p->slow_until && !is_cut(side) && !is_lossy(side);
}

static void drop(void *arg)
{
    struct request *rq = arg;
    if (--rq->references) return;
    lh_buf_free(&rq->answer);
    free(rq->bytes);
    free(rq);
}

// ---------------------------------------------------------------- at the store

static void come_up(void *arg)
{
    struct sim_pair *p = arg;
    if (is_down(p) || !p->down_since) return;
    for (int64_t i = 0; i < p->etcd.leases; i++)
        if (p->etcd.lease_end_ns[i] >= p->down_since)
            p->etcd.lease_end_ns[i] = now_of(p) + p->etcd.lease_ttl_s[i] * LH_SECOND;
    p->down_since = 0;
}

struct lh_span sim_store_leader(const struct sim_pair *p)
{
    static const char KEY[] = SIM_STORE_BASE "/leader";
    const struct fake_etcd *e = &p->etcd;
    size_t i = fake_find(e, KEY, sizeof KEY - 1);
    if (i == e->count || strcmp(e->at[i].key, KEY) != 0) return lh_span(NULL, 0);
    int64_t lease = e->at[i].lease, end = lease ? e->lease_end_ns[lease - 1] : INT64_MAX;
    bool over = p->down_since ? end < p->down_since : end <= now_of(p);
    return over ? lh_span(NULL, 0) : lh_span(e->at[i].value, e->at[i].bytes);
}

static bool is_maker(const struct request *rq)
{
    const struct sim_pair *p = rq->side->pair;
    return p->maker == rq->side && p->maker_life == rq->life;
}

// Judges a change: a process's first one creates the leader's key, and all later ones require it.
static void judge_change(const struct request *rq, bool had_leader, bool has_leader)
{
    struct sim_pair *p = rq->side->pair;
    if (!had_leader && has_leader) {
        p->maker = rq->side;
        p->maker_life = rq->life;
    } else if (!had_leader || !is_maker(rq)) {
        sim_fail(p->sim, "the store was changed by %s, which does not lead", rq->side->node->name);
    }
}

static void carry_out(struct request *rq)
{
    struct sim_pair *p = rq->side->pair;
    struct lh_buf answer = lh_buf(64 << 20);
    bool had_leader = sim_store_leader(p).len > 0;
    int64_t revision = p->etcd.revision;
    lh_err err = fake_carry_out(&p->etcd, rq->path, "", lh_span(rq->bytes, rq->len), &answer);
    bool txn = strstr(rq->path, "Txn") != NULL;
    if (p->etcd.revision != revision) judge_change(rq, had_leader, sim_store_leader(p).len > 0);
    if (txn && !err && p->etcd.revision == revision) p->sim->met.refused_changes++;
    if (rq->over || rq->answer.len) {
        lh_buf_free(&answer);
        return;
    }
    rq->err = err;
    if (err) snprintf(rq->text, sizeof rq->text, "%s", lh_err_text(err));
    lh_buf_free(&rq->answer);
    rq->answer = answer;
}

// ---------------------------------------------------------------- events

static void let_go(struct request *rq)
{
    if (rq->over || !rq->by) return;
    rq->over = true;
    sim_side_go(rq->side, rq->by);
}

static void answered(void *arg)
{
    struct request *rq = arg;
    if (!is_cut(rq->side)) let_go(rq);
    drop(rq);
}

static void timed_out(void *arg)
{
    struct request *rq = arg;
    if (!rq->over) {
        rq->err = LH_ERR_DEADLINE;
        snprintf(rq->text, sizeof rq->text, "the store does not answer");
    }
    let_go(rq);
    drop(rq);
}

static void answer_later(struct request *rq)
{
    rq->references++;
    lh_fake_deliver(rq->side->node->env, rq->back_ns, answered, drop, rq);
}

static void arrive(void *arg)
{
    struct request *rq = arg;
    struct sim_pair *p = rq->side->pair;
    bool down = is_down(p), lives = rq->life == rq->side->life && !rq->over;
    if (down && p->refuses && lives) {
        rq->err = LH_ERR_UNAVAILABLE;
        snprintf(rq->text, sizeof rq->text, "the store is down");
        answer_later(rq);
    } else if (!down && !is_cut(rq->side)) {
        carry_out(rq);
        if (lives && !rq->lose_answer) answer_later(rq);
    }
    drop(rq);
}

static void arrive_again(void *arg)
{
    struct request *rq = arg;
    if (!is_down(rq->side->pair)) carry_out(rq);
    drop(rq);
}

// ---------------------------------------------------------------- the coordinator's side

static void send(struct request *rq)
{
    struct sim_pair *p = rq->side->pair;
    uint64_t fate = is_lossy(rq->side) ? sim_draw(p->sim, SIM_FAULT_pair, 8) : 7;
    bool slow = now_of(p) < p->slow_until, change = strstr(rq->path, "Txn") != NULL;
    int64_t there = some_ms(p, slow ? SLOW_MS : DELAY_MS);
    bool again = change && sim_draw(p->sim, SIM_FAULT_pair, 30) == 0;
    rq->back_ns = some_ms(p, slow ? SLOW_MS : DELAY_MS);
    rq->lose_answer = fate == 0;
    if (fate == 1 && change) there += some_ms(p, LATE_MS);
    if (again) {
        rq->references++;
        lh_fake_deliver(p->host, there + some_ms(p, LATE_MS), arrive_again, drop, rq);
    }
    if (fate == 2 || is_cut(rq->side)) return;
    rq->references++;
    lh_fake_deliver(p->host, there, arrive, drop, rq);
}

static lh_err call(void *self, uint32_t member, const char *path, const char *token,
                   struct lh_span request, int64_t timeout_ns, struct lh_buf *answer)
{
    struct sim_side *side = self;
    struct request *rq = side->gone ? NULL : calloc(1, sizeof *rq);
    (void)member, (void)token;
    if (!rq) return lh_fail(LH_ERR_CANCELLED, "the process is killed");
    *rq = (struct request){.side = side, .by = side->pair->running, .life = side->life};
    LH_ASSERT(rq->by);
    rq->references = 2;
    rq->bytes = malloc(request.len + 1);
    LH_ASSERT(rq->bytes && strlen(path) < sizeof rq->path);
    snprintf(rq->path, sizeof rq->path, "%s", path);
    memcpy(rq->bytes, request.data, request.len);
    rq->len = request.len;
    send(rq);
    lh_fake_deliver(side->node->env, timeout_ns, timed_out, drop, rq);
    sim_fiber_wait(rq->by);
    rq->by = NULL;
    lh_err err = rq->over ? rq->err : LH_ERR_CANCELLED;
    if (err) (void)lh_fail(err, "%s", rq->over ? rq->text : "the process is killed");
    if (!err) lh_put(answer, rq->answer.data, rq->answer.len);
    if (!err) err = lh_buf_err(answer);
    rq->over = true;
    drop(rq);
    return err;
}

struct nap {
    struct sim_side *side;
    struct sim_fiber *by;
};

static void wake(void *arg)
{
    struct nap nap = *(struct nap *)arg;
    free(arg);
    sim_side_go(nap.side, nap.by);
}

static void wait_there(void *self, int64_t ns)
{
    struct sim_side *side = self;
    if (side->gone) return;
    struct nap *nap = malloc(sizeof *nap);
    LH_ASSERT(nap);
    *nap = (struct nap){side, side->pair->running};
    lh_fake_deliver(side->node->env, ns, wake, free, nap);
    sim_fiber_wait(side->pair->running);
}

static void close_wire(void *self)
{
    (void)self; // owned by the pair
}

lh_err sim_store_dial(void *side, struct ps_etcd_wire *out)
{
    *out = (struct ps_etcd_wire){side, 3, call, wait_there, close_wire};
    return LH_OK;
}

// ---------------------------------------------------------------- faults

static void go_down(struct sim_pair *p)
{
    int64_t ns = some_ms(p, 20000);
    p->refuses = sim_draw(p->sim, SIM_FAULT_pair, 2);
    if (!p->down_since) p->down_since = now_of(p);
    p->down_until = now_of(p) + ns;
    lh_after(p->host, ns, come_up, p);
    sim_trace(p->sim, "the store is down for %.3f s", (double)ns / LH_SECOND);
}

static void cut(struct sim_side *side)
{
    side->cut_until = now_of(side->pair) + some_ms(side->pair, 15000);
    sim_trace(side->pair->sim, "the store does not hear %s", side->node->name);
}

static void lose(struct sim_side *side)
{
    side->lossy_until = now_of(side->pair) + some_ms(side->pair, 8000);
    sim_trace(side->pair->sim, "the store's network loses and delays what %s says",
              side->node->name);
}

static void stall(struct sim_side *side)
{
    int64_t ns = some_ms(side->pair, 15000);
    if (!lh_fake_alive(side->node->env)) return;
    lh_fake_stall_at(side->node->env, -1, ns);
    sim_trace(side->pair->sim, "%s stands still for %.3f s", side->node->name, (double)ns / 1e9);
}

// Strikes the store or a coordinator: in two of three cases the leading one.
void sim_strike_pair(struct sim *s)
{
    struct sim_pair *p = s->pair;
    if (!p) return;
    struct sim_side *side = &p->side[sim_draw(s, SIM_FAULT_pair, SIM_COORDINATORS)];
    if (sim_draw(s, SIM_FAULT_pair, 3)) side = sim_side_of(sim_centre(s));
    sim_happened(s, pair);
    switch (sim_draw(s, SIM_FAULT_pair, 7)) {
    case 0: go_down(p); break;
    case 1:
    case 2: cut(side); break;
    case 3: lose(side); break;
    case 4: stall(side); break;
    case 5: p->slow_until = now_of(p) + some_ms(p, 8000); break;
    default: sim_node_die(side->node, sim_draw(s, SIM_FAULT_pair, 2)); break;
    }
}

void sim_pair_heal(struct sim *s)
{
    struct sim_pair *p = s->pair;
    if (!p) return;
    p->down_until = p->slow_until = 0;
    come_up(p);
    for (int i = 0; i < SIM_COORDINATORS; i++) p->side[i].cut_until = p->side[i].lossy_until = 0;
}
