// Commit: the coordinator sends nothing before the state behind it is durable
// (server/docs/0000-protocol.md#rule-26).
//
// Handlers change memory and put rows, in any order, and never wait. Their answers and log lines go
// through this file, which holds them until every earlier change is durable. One commit at a time
// is under way, on the disk lane; changes made meanwhile form the next one.
//
// 1. A commit holds the changes of whole handlers: it begins between two of them.
// 2. A commit that meets a full disk takes back everything since the last durable one: the store
//    restores its pairs, memory is read from them again (ps_co_load), and all waiting peers get
//    "busy". The next one is tried after a pause; until then answers to changes wait.
// 3. After any other failure nothing more is sent: the coordinator stops.
// 4. status.json shows only the last durable state, which no commit can take back.
// 5. A peer that waits for its answer is not silent: its silence counts from the answer on.
// 6. An operator's answer also waits for its audit line, which a commit makes durable first.
//
// No other file of the coordinator answers a request or changes the store (tests/tidy).
#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env/slow.h"
#include "server/audit.h"
#include "server/coordinator/commit.h"

enum {
    HELD_MAX = 8192,           // waiting answers; more than members and their calls
    HELD_BYTES_MAX = 64 << 20, // bytes of those answers
};
static const int64_t FULL_PAUSE = LH_SECOND;
// Pause before a mark, if no commit follows; nothing waits for a mark.
static const int64_t MARK_PAUSE = LH_SECOND / 2;

// An answer, an error or a log line that waits for a commit.
struct said {
    struct said *next;
    uint64_t change; // sent when this change is durable
    uint64_t audit;  // sent when this audit line is durable, too; 0: none
    int64_t since_ns;
    struct lh_request *rq; // NULL: a log line
    uint64_t peer;         // the waiting member or owner; 0: none whose silence counts
    lh_err err;            // LH_OK: `bytes` is the answer
    struct lh_buf bytes;
    enum lh_level level;
    bool limited; // its line is one that a peer can cause
    const char *event;
    char text[];
};

struct ps_co_commit {
    struct said *first, **end;
    size_t count, bytes;
    bool posted, under_way, full;
    struct {
        uint64_t noted, durable, written; // audit lines; written: by this job
        uint64_t owed;                    // audit line of the current request; 0: none
    } audit;
    bool stores;         // the current job writes the store
    struct lh_slow slow; // the commit under way
    uint64_t timer;      // pause after a full disk; 0: none
    uint64_t mark_timer;
    bool mark_due;
    lh_err result;
    char text[256];             // the result's text, from the lane's thread
    ps_co_load_fn *const *load; // functions that read memory again after a failed commit
};

lh_err ps_co_commit_open(struct ps_coordinator *c, ps_co_load_fn *const *load)
{
    c->commit = calloc(1, sizeof *c->commit);
    if (!c->commit) return LH_ERR_NO_MEMORY;
    c->commit->end = &c->commit->first;
    c->commit->load = load;
    return LH_OK;
}

// ---------------------------------------------------------------- what is held

static struct said *take_first(struct ps_co_commit *m)
{
    struct said *w = m->first;
    m->first = w->next;
    if (!m->first) m->end = &m->first;
    m->count--;
    m->bytes -= w->bytes.len;
    return w;
}

static void free_said(struct said *w)
{
    lh_buf_free(&w->bytes);
    free(w);
}

static void write_line(struct ps_coordinator *c, enum lh_level level, const char *event,
                       bool limited, const char *text)
{
    if (limited)
        lh_log_peer(c->conf.log, level, event, "%s", text);
    else
        lh_logf(c->conf.log, level, event, "%s", text);
}

// May this process answer? Another coordinator may lead by now and answer differently. False: the
// request was refused.
static bool speaks(const struct ps_coordinator *c, struct lh_request *rq)
{
    if (!c->stopped && (!c->conf.leads || c->conf.leads(c->conf.leads_arg))) return true;
    lh_reply_error(rq, LH_ERR_UNAVAILABLE,
                   c->stopped ? "the coordinator is stopping" : "this coordinator no longer leads");
    return false;
}

static void let_out(struct ps_coordinator *c, struct said *w)
{
    if (w->peer && w->since_ns != lh_now(c->conf.env)) ps_co_kept_waiting(c, w->peer);
    if (w->rq && !speaks(c, w->rq)) {
        free_said(w);
        return;
    }
    if (!w->rq)
        write_line(c, w->level, w->event, w->limited, w->text);
    else if (w->err)
        lh_reply_error(w->rq, w->err, w->text[0] ? w->text : NULL);
    else
        lh_reply_packed(w->rq, lh_buf_span(&w->bytes));
    free_said(w);
}

static void release(struct ps_coordinator *c)
{
    struct ps_co_commit *m = c->commit;
    while (m->first && m->first->change <= ps_store_durable(c->store) &&
           m->first->audit <= m->audit.durable)
        let_out(c, take_first(m));
}

// Answers all waiting requests with this error. Drops held log lines: their changes did not happen.
static void turn_away(struct ps_coordinator *c, lh_err err, const char *text)
{
    while (c->commit->first) {
        struct said *w = take_first(c->commit);
        if (w->peer) ps_co_kept_waiting(c, w->peer);
        if (w->rq) lh_reply_error(w->rq, err, text);
        free_said(w);
    }
}

void ps_co_commit_close(struct ps_coordinator *c)
{
    lh_cancel(c->conf.env, &c->commit->timer);
    lh_cancel(c->conf.env, &c->commit->mark_timer);
}

void ps_co_commit_free(struct ps_coordinator *c)
{
    if (!c->commit) return;
    turn_away(c, LH_ERR_UNAVAILABLE, "the coordinator is stopping");
    free(c->commit);
    c->commit = NULL;
}

bool ps_co_owes(const struct ps_coordinator *c, uint64_t peer)
{
    for (const struct said *w = c->commit->first; w; w = w->next)
        if (peer && w->peer == peer) return true;
    return false;
}

void ps_co_commit_look(struct ps_coordinator *c)
{
    lh_slow_look(&c->commit->slow, lh_now(c->conf.env), c->conf.log, "a commit of the store",
                 c->conf.leads ? "etcd" : "the disk",
                 "joins, leases and operators are not answered");
}

double ps_co_commit_age_s(const struct ps_coordinator *c)
{
    return lh_slow_age_s(&c->commit->slow, lh_now(c->conf.env));
}

bool ps_co_full(const struct ps_coordinator *c)
{
    return c->commit->timer != 0;
}

// ---------------------------------------------------------------- the commit

static void run(struct ps_coordinator *c);

static void on_timer(void *arg)
{
    struct ps_coordinator *c = arg;
    c->commit->timer = 0;
    run(c);
}

static void on_mark(void *arg)
{
    struct ps_coordinator *c = arg;
    c->commit->mark_timer = 0;
    c->commit->mark_due = true;
    run(c);
    c->commit->mark_due = false;
}

static int64_t job(void *arg)
{
    struct ps_coordinator *c = arg;
    struct ps_co_commit *m = c->commit;
    if (m->audit.written != m->audit.durable) lh_log_sync(c->conf.audit);
    m->result = m->stores ? ps_store_write(c->store) : LH_OK;
    snprintf(m->text, sizeof m->text, "%s", lh_err_text(m->result));
    return 0;
}

lh_err ps_co_load(struct ps_coordinator *c)
{
    for (ps_co_load_fn *const *load = c->commit->load; *load; load++) LH_TRY((*load)(c));
    return LH_OK;
}

static void met_full_disk(struct ps_coordinator *c)
{
    struct ps_co_commit *m = c->commit;
    lh_err err = ps_co_load(c);
    if (err) {
        ps_co_fatal(c, err);
        return;
    }
    if (!m->full)
        lh_logf(c->conf.log, LH_ERROR, "store.disk_full",
                "%s; joins, leases and owners wait until there is space: free some in %s", m->text,
                c->conf.dir);
    m->full = true;
    m->timer = lh_after(c->conf.env, FULL_PAUSE, on_timer, c);
    turn_away(c, LH_ERR_BUSY, "the coordinator's disk is full");
}

static void done(void *arg)
{
    struct ps_coordinator *c = arg;
    struct ps_co_commit *m = c->commit;
    m->under_way = false;
    if (c->stopped) return;
    lh_slow_end(&m->slow, lh_now(c->conf.env), c->conf.log, "a commit of the store");
    m->audit.durable = m->audit.written;
    if (m->stores) ps_store_end(c->store, m->result);
    if (m->result == LH_ERR_DISK_FULL) {
        met_full_disk(c);
        return;
    }
    if (m->result) { // a failed sync is never retried
        ps_co_fatal(c, lh_fail(m->result, "%s", m->text));
        return;
    }
    if (m->full && m->stores)
        lh_logf(c->conf.log, LH_INFO, "store.room", "the disk has space again");
    m->full &= !m->stores;
    release(c);
    run(c);
    if (!c->stopped && !m->under_way && !m->mark_timer)
        m->mark_timer = lh_after(c->conf.env, MARK_PAUSE, on_mark, c);
}

static void run(struct ps_coordinator *c)
{
    struct ps_co_commit *m = c->commit;
    if (c->stopped || m->under_way || m->timer) return;
    m->stores = false;
    if (!ps_co_settled(c) || m->mark_due) {
        lh_err err = ps_store_begin(c->store, &m->stores);
        if (err) {
            ps_co_fatal(c, err);
            return;
        }
    }
    m->audit.written = m->audit.noted;
    if (!m->stores && m->audit.written == m->audit.durable) return;
    m->under_way = true;
    lh_slow_begin(&m->slow, lh_now(c->conf.env));
    c->conf.env->ops->work(c->conf.env, LH_LANE_DISK, job, done, c);
}

static void on_post(void *arg)
{
    struct ps_coordinator *c = arg;
    c->commit->posted = false;
    run(c);
}

static void changed(struct ps_coordinator *c)
{
    if (c->commit->posted || c->stopped) return;
    c->commit->posted = true;
    lh_post(c->conf.env, on_post, c); // runs after the current handler
}

lh_err ps_co_put(struct ps_coordinator *c, const char *key, struct lh_span value)
{
    changed(c);
    return ps_store_put(c->store, key, value);
}

lh_err ps_co_put_buf(struct ps_coordinator *c, const char *key, struct lh_buf *row)
{
    lh_err err = lh_buf_err(row);
    if (!err) err = ps_co_put(c, key, lh_buf_span(row));
    lh_buf_free(row);
    return err;
}

lh_err ps_co_remove(struct ps_coordinator *c, const char *key)
{
    struct lh_span old;
    if (!ps_store_get(c->store, key, &old)) return LH_OK;
    changed(c);
    return ps_store_remove(c->store, key);
}

// ---------------------------------------------------------------- rows that can't be read

static const char TOO_SHORT[] = "is too short";

// The file's checksums are right, so the disk is not the cause. A peer may know this row's content:
// without it, the coordinator could grant a number twice or forget an operator's command.
lh_err ps_co_bad_row(const struct ps_coordinator *c, const char *key, const char *why)
{
    return lh_fail(
        LH_ERR_CORRUPT,
        "%s/store: row %s %s. The file is intact: use the version and the settings that wrote it, "
        "or restore the file from a copy of any age (an old copy may wrongly name a standby as in "
        "sync: let the servers that own the shards report before you start one that stands by)",
        c->conf.dir, key, why);
}

// ---------------------------------------------------------------- rows of which each shard has one

lh_err ps_co_put_row(struct ps_coordinator *c, const char *kind, uint32_t shard, struct lh_buf *row)
{
    char key[32];
    snprintf(key, sizeof key, "%s%04" PRIx32, kind, shard);
    return ps_co_put_buf(c, key, row);
}

lh_err ps_co_load_rows(struct ps_coordinator *c, const char *kind, ps_co_read_row *read)
{
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++) {
        char key[32];
        struct lh_span row = {0};
        snprintf(key, sizeof key, "%s%04" PRIx32, kind, i);
        bool there = ps_store_get(c->store, key, &row);
        struct lh_cursor at = lh_cursor(row);
        LH_TRY(read(&c->shard[i], there ? &at : NULL));
        if (at.failed) return ps_co_bad_row(c, key, TOO_SHORT);
    }
    return LH_OK;
}

// ---------------------------------------------------------------- rows of members

struct ps_co_key ps_co_key(const char *kind, uint64_t id)
{
    struct ps_co_key key;
    snprintf(key.text, sizeof key.text, "%s%016" PRIx64, kind, id);
    return key;
}

lh_err ps_co_put_of(struct ps_coordinator *c, const char *kind, uint64_t id, struct lh_buf *row)
{
    return ps_co_put_buf(c, ps_co_key(kind, id).text, row);
}

lh_err ps_co_remove_of(struct ps_coordinator *c, const char *kind, uint64_t id)
{
    return ps_co_remove(c, ps_co_key(kind, id).text);
}

const char *ps_co_row_worker(const struct ps_coordinator *c, const char *name, uint32_t *index)
{
    uint64_t id;
    *index = ps_co_row_number(name, 16, &id) ? ps_co_worker_index(c, id) : c->workers;
    return *index < c->workers ? NULL : "is of a worker that never joined";
}

// ---------------------------------------------------------------- rows that have names

struct walk {
    struct ps_coordinator *c;
    size_t prefix_bytes;
    ps_co_read_named *read;
    lh_err err; // error of the first unreadable row
};

static void read_next(void *arg, const char *key, struct lh_span value)
{
    struct walk *w = arg;
    if (w->err) return;
    struct lh_cursor at = lh_cursor(value);
    const char *why = w->read(w->c, key + w->prefix_bytes, &at);
    if (at.failed) why = TOO_SHORT;
    if (why) w->err = ps_co_bad_row(w->c, key, why);
}

lh_err ps_co_load_named(struct ps_coordinator *c, const char *prefix, ps_co_read_named *read)
{
    struct walk w = {c, strlen(prefix), read, LH_OK};
    LH_TRY(ps_store_each(c->store, prefix, read_next, &w));
    return w.err;
}

bool ps_co_row_number(const char *name, int base, uint64_t *out)
{
    char *end;
    if (!isxdigit((unsigned char)name[0])) return false; // strtoull() accepts blanks and signs
    *out = strtoull(name, &end, base);
    return !*end;
}

const char *ps_co_no_unit(void)
{
    return "is of a unit that the run does not have: run.epochs and data.units can't "
           "become smaller";
}

const char *ps_co_row_unit(const struct ps_coordinator *c, const char *name, uint64_t *unit)
{
    return ps_co_row_number(name, 10, unit) && *unit < c->units ? NULL : ps_co_no_unit();
}

// ---------------------------------------------------------------- what is said

bool ps_co_settled(const struct ps_coordinator *c)
{
    return ps_store_changed(c->store) == ps_store_durable(c->store);
}

// Takes ownership of `w`.
static void hold(struct ps_coordinator *c, struct said *w)
{
    struct ps_co_commit *m = c->commit;
    w->change = ps_store_changed(c->store);
    w->since_ns = lh_now(c->conf.env);
    *m->end = w;
    m->end = &w->next;
    m->count++;
    m->bytes += w->bytes.len;
}

static uint64_t take_owed(struct ps_coordinator *c)
{
    uint64_t line = c->commit->audit.owed;
    c->commit->audit.owed = 0;
    return line;
}

static bool too_many(const struct ps_coordinator *c)
{
    return c->commit->count >= HELD_MAX || c->commit->bytes >= HELD_BYTES_MAX;
}

void ps_co_answer(struct ps_coordinator *c, struct lh_request *rq, const struct lh_wire_type *type,
                  const void *answer)
{
    uint64_t heard = c->speaker, audit = take_owed(c);
    c->speaker = 0;
    if (!speaks(c, rq)) return;
    if (ps_co_settled(c) && !audit) {
        lh_answer(rq, type, answer);
        return;
    }
    struct said *w = too_many(c) ? NULL : calloc(1, sizeof *w + 1);
    if (!w) {
        lh_reply_error(rq, LH_ERR_BUSY, "too many calls wait for the coordinator's disk");
        return;
    }
    w->rq = rq;
    w->audit = audit;
    w->peer = heard;
    w->bytes = lh_buf(LH_SMALL_BYTES);
    w->err = lh_wire_put(type, answer, &w->bytes);
    hold(c, w);
}

void ps_co_refuse(struct ps_coordinator *c, struct lh_request *rq, lh_err err)
{
    const char *text = lh_err_text(err);
    uint64_t audit = take_owed(c);
    c->speaker = 0;
    if (!c->stopped && lh_err_class(err) == LH_CLASS_STOP) ps_co_fatal(c, err);
    if (!speaks(c, rq)) return;
    size_t n = strlen(text) + 1;
    bool busy = !ps_co_settled(c) || audit;
    struct said *w = !busy || too_many(c) ? NULL : calloc(1, sizeof *w + n);
    if (!w) {
        lh_reply_error(rq, busy ? LH_ERR_BUSY : err, busy ? "busy with the disk" : text);
        return;
    }
    w->rq = rq;
    w->audit = audit;
    w->err = err;
    memcpy(w->text, text, n);
    hold(c, w);
}

void ps_co_audit(struct ps_coordinator *c, const char *event, const struct lh_peer *peer,
                 const char *format, ...)
{
    enum { TEXT_BYTES = 512 };
    char text[TEXT_BYTES];
    va_list list;
    if (!c->conf.audit) return;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    ps_audit_admin(c->conf.audit, event, peer, text);
    c->commit->audit.owed = ++c->commit->audit.noted;
    changed(c);
}

enum { SAID_BYTES = 1024 };

static void say(struct ps_coordinator *c, enum lh_level level, const char *event, bool limited,
                const char *text)
{
    struct said *w = ps_co_settled(c) || too_many(c) ? NULL : calloc(1, sizeof *w + SAID_BYTES);
    if (!w) {
        write_line(c, level, event, limited, text);
        return;
    }
    w->level = level;
    w->event = event;
    w->limited = limited;
    snprintf(w->text, SAID_BYTES, "%s", text);
    hold(c, w);
}

void ps_co_say(struct ps_coordinator *c, enum lh_level level, const char *event, const char *format,
               ...)
{
    char text[SAID_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    say(c, level, event, false, text);
}

void ps_co_say_peer(struct ps_coordinator *c, enum lh_level level, const char *event,
                    const char *format, ...)
{
    char text[SAID_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    say(c, level, event, true, text);
}
