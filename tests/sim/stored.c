// Implements stored.h: checks the coordinator's answers against its disk.
//
// Invariant: an answer is durable at that moment, or was until the commit for which it waited. This
// covers leases, incarnations, stable points, the plan, epochs, in-sync rows and moves. A row never
// goes back.
#include "tests/sim/stored.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "longhaul/v1/member.pb-c.h"

enum { HEADER = 8, COMMIT_HEAD = 28, KEY_SIZE = 128 };
static const uint32_t COMMIT_MAGIC = 0x4353484c;
enum { RUN = 1, DRAIN = 2 }; // phases

struct row { // one entry of a commit
    char key[KEY_SIZE];
    struct lh_span value;
    bool removed;
};

// ---------------------------------------------------------------- rows

static uint64_t tail_number(const char *key, int base)
{
    return strtoull(strchr(key, '/') + 1, NULL, base);
}

static struct sim_point get_point(struct lh_cursor *c)
{
    struct sim_point p = {.epoch = lh_get_u64(c)};
    p.version = lh_get_u64(c);
    lh_get_into(c, p.chain.b, LH_HASH_BYTES);
    return p;
}

static void take_worker(struct sim_stored *s, struct lh_cursor *c)
{
    uint64_t id = lh_get_u64(c);
    uint32_t granted = lh_get_u32(c), i = 0;
    while (i < s->workers && s->worker[i].id != id) i++;
    LH_ASSERT(i < SIM_STORED_WORKERS);
    if (i == s->workers) s->workers++;
    s->unreadable |= granted < s->worker[i].answered;
    s->worker[i].id = id;
    s->worker[i].granted = granted;
}

static void take_in_sync(struct sim_stored *s, struct sim_stored_shard *shard, struct lh_cursor *c)
{
    shard->owner = lh_get_u64(c);
    shard->standby = lh_get_u64(c);
    uint64_t changes = lh_get_u64(c);
    s->unreadable |= changes < shard->changes;
    shard->changes = changes;
    shard->least = lh_get_u64(c);
}

static void take_epochs(struct sim_stored_shard *shard, struct lh_cursor *c)
{
    shard->token = lh_get_u64(c);
    shard->epochs = 0;
    size_t most = lh_left(c) / (16 + LH_HASH_BYTES);
    struct sim_point *grown = realloc(shard->begun, (most + 1) * sizeof *grown);
    LH_ASSERT(grown);
    shard->begun = grown;
    while (shard->epochs < most) shard->begun[shard->epochs++] = get_point(c);
}

static void take_shard_row(struct sim_stored *s, const struct row *r, struct lh_cursor *c)
{
    uint64_t id = tail_number(r->key, 16);
    if (id >= SIM_STORED_SHARDS) return;
    struct sim_stored_shard *shard = &s->shard[id];
    if (!strncmp(r->key, "insync/", 7)) take_in_sync(s, shard, c);
    if (!strncmp(r->key, "stable/", 7)) shard->stable = get_point(c);
    if (!strncmp(r->key, "epoch/", 6)) take_epochs(shard, c);
    if (strncmp(r->key, "move/", 5) != 0) return;
    shard->move_epoch = lh_get_u64(c);
    shard->move_target = lh_get_u64(c);
}

// crossed/<worker, 16 hex>/<home>
static void take_crossed(struct sim_stored *s, const struct row *r, struct lh_cursor *c)
{
    uint64_t worker = tail_number(r->key, 16), home = tail_number(strchr(r->key, '/') + 1, 10);
    uint64_t bytes = lh_get_u64(c);
    uint32_t i = 0;
    while (i < s->crossings && (s->crossed[i].worker != worker || s->crossed[i].home != home)) i++;
    LH_ASSERT(i < SIM_STORED_CROSSED);
    if (i == s->crossings) s->crossings++;
    s->unreadable |= bytes < s->crossed[i].bytes;
    s->crossed[i].worker = worker;
    s->crossed[i].home = home;
    s->crossed[i].bytes = bytes;
}

// Reads the leases of 64 units, stored as runs.
static void take_leases(struct sim_stored *s, uint64_t first, struct lh_cursor *c)
{
    for (uint64_t u = first; u < first + 64 && u < SIM_STORED_UNITS; u++) s->lease[u] = 0;
    while (!c->failed && lh_left(c)) {
        uint64_t u = first + lh_get_u8(c), end = u + lh_get_u8(c), worker = lh_get_u64(c);
        (void)lh_get_u64(c); // time and number of the grant
        for (; !c->failed && u < end && u < SIM_STORED_UNITS; u++) s->lease[u] = worker;
    }
}

static void take_row(struct sim_stored *s, const struct row *r)
{
    struct lh_cursor c = lh_cursor(r->value);
    if (!strncmp(r->key, "lease/", 6)) {
        take_leases(s, tail_number(r->key, 10), &c);
    } else if (!strncmp(r->key, "second/", 7)) {
        uint64_t unit = tail_number(r->key, 10);
        if (unit < SIM_STORED_UNITS) s->second[unit] = r->removed ? 0 : lh_get_u64(&c);
    } else if (!strcmp(r->key, "plan") && r->value.len <= sizeof s->plan) {
        s->plan_bytes = r->value.len;
        memcpy(s->plan, r->value.data, r->value.len);
    } else if (!strcmp(r->key, "pause")) {
        s->paused = !r->removed;
    } else if (!strncmp(r->key, "worker/", 7)) {
        take_worker(s, &c);
    } else if (!strncmp(r->key, "crossed/", 8)) {
        take_crossed(s, r, &c);
    } else if (strchr(r->key, '/')) {
        take_shard_row(s, r, &c);
    }
    s->unreadable |= c.failed;
}

// ---------------------------------------------------------------- the file

static bool get_row(struct lh_cursor *c, struct row *r)
{
    uint32_t bytes = lh_get_u32(c), crc = lh_get_u32(c);
    struct lh_span body = lh_get(c, bytes);
    if (c->failed || crc != lh_crc32c(0, body.data, body.len)) return false;
    struct lh_cursor b = lh_cursor(body);
    (void)lh_get_u32(&b); // how many follow: known from the head
    lh_get_str(&b, r->key, sizeof r->key);
    uint32_t len = lh_get_u32(&b);
    r->removed = len == UINT32_MAX;
    r->value = lh_get(&b, r->removed ? 0 : len);
    return !b.failed && r->key[0];
}

static bool get_head(struct lh_cursor *c, uint32_t *rows)
{
    uint32_t magic = lh_get_u32(c), crc = lh_get_u32(c);
    struct lh_span rest = lh_get(c, COMMIT_HEAD - 8);
    if (c->failed || magic != COMMIT_MAGIC || crc != lh_crc32c(0, rest.data, rest.len))
        return false;
    struct lh_cursor h = lh_cursor(rest);
    (void)lh_get_u64(&h);
    *rows = lh_get_u32(&h);
    return true;
}

// Takes a commit's rows if all of them are there. Returns where it ends; 0: incomplete. *rows:
// their number; a mark has none.
static size_t take_commit(struct sim_stored *s, struct lh_span file, size_t from, uint32_t *rows)
{
    struct lh_span rest = lh_span(file.data + from, file.len - from);
    struct lh_cursor c = lh_cursor(rest);
    struct row r;
    if (!get_head(&c, rows)) return 0;
    for (uint32_t i = 0; i < *rows; i++)
        if (!get_row(&c, &r)) return 0;
    size_t end = from + (size_t)(c.at - rest.data);
    c = lh_cursor(lh_span(rest.data + COMMIT_HEAD, rest.len - COMMIT_HEAD));
    for (uint32_t i = 0; i < *rows && get_row(&c, &r); i++) take_row(s, &r);
    return end;
}

// In etcd a commit that rewrites the log is first in the former log, where a reader may see it. The
// new log ends with the same rows and a mark. In a file both appear at once.
static bool ends_with_last(const struct sim_stored *s, struct lh_span file)
{
    size_t from = s->last + COMMIT_HEAD;
    size_t bytes = s->seen.len > from ? s->seen.len - from : 0; // the last commit's rows
    if (!bytes || file.len < bytes + COMMIT_HEAD) return false;
    return !memcmp(file.data + file.len - COMMIT_HEAD - bytes, s->seen.data + from, bytes);
}

// The file was rewritten: rows that it lacks were removed. Values that may never go back are kept
// for comparison.
static void begin_again(struct sim_stored *s, struct lh_span file)
{
    struct lh_buf empty = s->was;
    s->replaced = ends_with_last(s, file) ? s->last : s->seen.len;
    s->was = s->seen;
    s->seen = empty;
    lh_buf_clear(&s->seen);
    memset(s->lease, 0, sizeof s->lease);
    memset(s->second, 0, sizeof s->second);
    s->paused = false;
}

void sim_stored_read(struct sim_stored *s, struct lh_span file)
{
    size_t had = s->seen.len;
    if (!s->seen.max) s->seen = s->was = lh_buf(1 << 24);
    bool more = file.len >= had && (!had || !memcmp(file.data, s->seen.data, had));
    if (more && file.len == had) return;
    if (!more) begin_again(s, file);
    if (!s->seen.len && file.len < HEADER) return;
    size_t at = s->seen.len ? s->seen.len : HEADER;
    bool anew = !more; // a whole new file counts as one commit
    uint32_t rows = 0;
    if (anew) s->last = HEADER;
    for (size_t end; (end = take_commit(s, file, at, &rows)); at = end) {
        if (anew || !rows) continue;
        lh_buf_clear(&s->was);
        s->last = at;
    }
    lh_put(&s->seen, file.data + s->seen.len, at - s->seen.len);
    LH_ASSERT(!s->seen.err);
}

void sim_stored_free(struct sim_stored *s)
{
    lh_buf_free(&s->seen);
    lh_buf_free(&s->was);
    for (uint32_t k = 0; k < SIM_STORED_SHARDS; k++) free(s->shard[k].begun);
    memset(s, 0, sizeof *s);
}

uint32_t sim_stored_granted(const struct sim_stored *s, uint64_t worker)
{
    for (uint32_t i = 0; i < s->workers; i++)
        if (s->worker[i].id == worker) return s->worker[i].granted;
    return 0;
}

uint64_t sim_stored_crossed(const struct sim_stored *s, uint64_t worker, uint64_t home)
{
    for (uint32_t i = 0; i < s->crossings; i++)
        if (s->crossed[i].worker == worker && s->crossed[i].home == home)
            return s->crossed[i].bytes;
    return 0;
}

uint64_t sim_stored_epoch(const struct sim_stored *s, uint32_t shard)
{
    const struct sim_stored_shard *at = &s->shard[shard];
    return at->epochs ? at->begun[at->epochs - 1].epoch : 0;
}

// ---------------------------------------------------------------- states of an answer

// Reads the state that the newest commit replaced.
static void read_before(const struct sim_stored *s, struct sim_stored *out)
{
    struct lh_span whole = lh_buf_span(&s->seen);
    if (s->last > HEADER)
        sim_stored_read(out, lh_span(whole.data, s->last));
    else if (s->was.len)
        sim_stored_read(out, lh_span(s->was.data, s->replaced));
}

// A rewritten file has its rows in no order. So an answer's leases may come after a stable point
// that was raised later, and a lease that came and went within the commit is not in the file.
static bool held_anew(const struct sim_stored *s, sim_stored_check *check, void *arg)
{
    if (s->last > HEADER || !s->was.len) return false;
    struct sim_stored before = {0}, either = *s;
    read_before(s, &before);
    for (uint32_t k = 0; k < SIM_STORED_SHARDS; k++)
        either.shard[k].replaced = before.shard[k].stable;
    either.between = true;
    sim_stored_free(&before);
    return !check(&either, arg);
}

const char *sim_stored_held(const struct sim_stored *s, sim_stored_check *check, void *arg)
{
    const char *missing = check(s, arg);
    if (!missing || s->seen.len <= s->last) return missing;
    struct sim_stored before = {0};
    struct lh_cursor c = lh_cursor(lh_span(s->seen.data + s->last, s->seen.len - s->last));
    struct row r;
    uint32_t rows;
    read_before(s, &before);
    bool held = !check(&before, arg);
    while (!held && get_head(&c, &rows))
        for (; !held && rows && get_row(&c, &r); rows--) {
            take_row(&before, &r);
            held = !check(&before, arg);
        }
    sim_stored_free(&before);
    return held || held_anew(s, check, arg) ? NULL : missing;
}

// ---------------------------------------------------------------- answers

static bool same_point(const struct sim_point *p, const Longhaul__V1__Point *m)
{
    return p->epoch == m->epoch && p->version == m->version && m->chain.len == LH_HASH_BYTES &&
           !memcmp(p->chain.b, m->chain.data, LH_HASH_BYTES);
}

static bool is_stable(const struct sim_stored_shard *s, const Longhaul__V1__Point *m)
{
    return same_point(&s->stable, m) || (s->replaced.epoch && same_point(&s->replaced, m));
}

const char *sim_stored_join(const struct sim_stored *s, const Longhaul__V1__JoinReply *m)
{
    return sim_stored_granted(s, m->worker) == m->granted ? NULL : "an incarnation";
}

void sim_stored_answered(struct sim_stored *s, const Longhaul__V1__JoinReply *m)
{
    for (uint32_t i = 0; i < s->workers; i++)
        if (s->worker[i].id == m->worker && m->granted > s->worker[i].answered)
            s->worker[i].answered = m->granted;
}

// A draining worker is told so in any phase of the plan.
static bool phase_is(const struct sim_stored *s, uint32_t phase)
{
    uint32_t is = s->plan_bytes > 10 ? s->plan[10] : 0;
    return phase == is || (phase == DRAIN && is == RUN);
}

const char *sim_stored_lease(const struct sim_stored *s, uint64_t worker,
                             const Longhaul__V1__LeaseReply *m)
{
    if (m->unknown) return NULL;
    for (size_t i = 0; i < m->n_units; i++) {
        uint64_t u = m->units[i];
        if (u >= SIM_STORED_UNITS) return "a lease";
        bool gone = s->between && !s->lease[u] && !s->second[u];
        if (!gone && s->lease[u] != worker && s->second[u] != worker) return "a lease";
    }
    for (size_t i = 0; i < m->n_stable; i++) {
        const Longhaul__V1__Point *p = m->stable[i];
        if (p->shard >= SIM_STORED_SHARDS || !is_stable(&s->shard[p->shard], p))
            return "a stable point";
    }
    if (m->paused != s->paused) return "a pause";
    return phase_is(s, m->phase) ? NULL : "a phase of the run";
}

// A shard that a standby is told to serve is the standby's on disk, in that epoch or a later one.
static bool turn_is(const struct sim_stored *s, const Longhaul__V1__ShardTurn *t)
{
    if (t->shard >= SIM_STORED_SHARDS) return false;
    const struct sim_stored_shard *shard = &s->shard[t->shard];
    uint64_t last = sim_stored_epoch(s, t->shard);
    return shard->owner && t->epoch == (shard->least > last ? shard->least : last);
}

const char *sim_stored_report(const struct sim_stored *s, const Longhaul__V1__ReportReply *m)
{
    if (m->plan.len &&
        (m->plan.len != s->plan_bytes || memcmp(m->plan.data, s->plan, m->plan.len) != 0))
        return "a plan";
    for (size_t i = 0; i < m->n_turns; i++)
        if (!turn_is(s, m->turns[i])) return "a take-over";
    for (size_t i = 0; i < m->n_moves; i++) {
        const Longhaul__V1__ShardMove *move = m->moves[i];
        if (move->shard >= SIM_STORED_SHARDS) return "a move";
        const struct sim_stored_shard *shard = &s->shard[move->shard];
        if (move->target &&
            (shard->move_epoch != move->epoch || shard->move_target != move->target))
            return "a move";
    }
    return NULL;
}

const char *sim_stored_epochs(const struct sim_stored *s, uint32_t shard,
                              const Longhaul__V1__EpochReply *m)
{
    const struct sim_stored_shard *at = &s->shard[shard];
    if (m->n_begun != at->epochs || (at->epochs && m->token != at->token)) return "an epoch";
    for (size_t i = 0; i < at->epochs; i++)
        if (!same_point(&at->begun[i], m->begun[i])) return "an epoch";
    return !m->stable || is_stable(at, m->stable) ? NULL : "a stable point";
}

const char *sim_stored_in_sync(const struct sim_stored *s, uint32_t shard,
                               const Longhaul__V1__InSyncReply *m)
{
    const struct sim_stored_shard *at = &s->shard[shard];
    return m->standby == at->standby && m->changes == at->changes ? NULL : "an in-sync row";
}
