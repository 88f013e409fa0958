// The write-ahead log: reading, at start and for tools. Layout and invariants: wal.h.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "server/wal/wal_format.h"

struct scan {
    struct ps_wal *w;
    lh_err (*each)(void *arg, const struct ps_wal_entry *e);
    void *arg;
    bool look;          // change nothing
    const uint8_t *job; // NULL: any run; then the first segment's
    struct ps_wal_found found;
    uint64_t *number; // segments, ascending
    size_t segments;
    uint64_t durable; // highest durable position in any entry
    uint64_t generation;
    lh_err err;
    struct lh_buf bytes, ahead; // the current segment and the next
};

void ps_wal_segment_path(const struct ps_wal *w, uint64_t number, char out[LH_PATH_BYTES])
{
    lh_err err =
        lh_path(out, LH_PATH_BYTES, w->conf.dir, "%016llx.seg", (unsigned long long)number);
    LH_ASSERT(err == LH_OK); // scan() checked that paths fit
}

static void note_name(void *arg, const char *name)
{
    struct scan *s = arg;
    unsigned long long number;
    char tail[8];
    if (sscanf(name, "%16llx.%7s", &number, tail) != 2 || strcmp(tail, "seg") != 0) return;
    uint64_t *grown = realloc(s->number, (s->segments + 1) * sizeof *grown);
    if (!grown) {
        s->err = LH_ERR_NO_MEMORY;
        return;
    }
    s->number = grown;
    s->number[s->segments++] = number;
}

struct entry {
    uint32_t total, shard, following;
    uint64_t generation, sequence, durable;
    struct lh_record record;
};

// The generation of a segment with a whole header.
static uint64_t generation_of(struct lh_span segment)
{
    struct lh_cursor c = lh_cursor(lh_span(segment.data + 16, 8));
    return lh_get_u64(&c);
}

static bool summed(struct lh_span bytes, size_t at, size_t total)
{
    struct lh_cursor end = lh_cursor(lh_span(bytes.data + at + total - PS_ENTRY_TRAILER, 4));
    return lh_get_u32(&end) == lh_crc32c(0, bytes.data + at, total - PS_ENTRY_TRAILER);
}

// Parses the entry at `at` of a segment; false: no valid entry. `checked`: its checksum is known to
// be right.
static bool parse_entry(struct lh_span bytes, size_t at, bool checked, struct entry *e)
{
    memset(e, 0, sizeof *e);
    if (at > bytes.len || bytes.len - at < PS_ENTRY_HEADER_BYTES + PS_ENTRY_TRAILER) return false;
    struct lh_cursor c = lh_cursor(lh_span(bytes.data + at, bytes.len - at));
    uint32_t magic = lh_get_u32(&c);
    e->total = lh_get_u32(&c);
    e->generation = lh_get_u64(&c);
    e->sequence = lh_get_u64(&c);
    e->durable = lh_get_u64(&c);
    e->shard = lh_get_u32(&c);
    e->following = lh_get_u32(&c);
    if (e->generation != generation_of(bytes)) return false;
    if (magic != PS_ENTRY_MAGIC || e->total % 8 || e->total > bytes.len - at ||
        e->total < PS_ENTRY_HEADER_BYTES + PS_ENTRY_TRAILER)
        return false;
    if (!checked && !summed(bytes, at, e->total)) return false;
    if (e->shard == PS_MARK) return true;
    uint32_t body;
    struct lh_span inside = lh_get(&c, e->total - PS_ENTRY_HEADER_BYTES - PS_ENTRY_TRAILER);
    c = lh_cursor(inside); // only the bytes that the checksum covers
    if (lh_record_parse_header(lh_get(&c, LH_RECORD_HEADER_BYTES), &e->record, &body)) return false;
    e->record.body = lh_get(&c, body);
    return !c.failed;
}

static bool read_entry(struct lh_span bytes, size_t at, struct entry *e)
{
    return parse_entry(bytes, at, false, e);
}

// Is the whole group that begins at `at` with entry `sequence` present, and does it end before
// entry `stop` (0: no limit)? Then it ends at *end.
static bool read_group(struct lh_span bytes, size_t at, uint64_t sequence, uint64_t stop,
                       size_t *end)
{
    struct entry e;
    if (!read_entry(bytes, at, &e) || e.sequence != sequence) return false;
    if (stop && e.following >= stop - sequence) return false;
    for (uint32_t left = e.following; left; left--) {
        at += e.total;
        if (!read_entry(bytes, at, &e) || e.sequence != ++sequence || e.following != left - 1)
            return false;
    }
    *end = at + e.total;
    return true;
}

// Acknowledged records would be lost: a durable position covers the entry, or the next segment,
// which was opened when this one was whole, continues behind it.
static lh_err damaged(const struct scan *s, size_t i, size_t at, uint64_t sequence)
{
    char why[64];
    if (sequence <= s->durable)
        snprintf(why, sizeof why, "below the durable position %llu",
                 (unsigned long long)s->durable);
    else
        snprintf(why, sizeof why, "before the next segment's entries");
    return lh_fail(LH_ERR_CORRUPT,
                   "%s/%016llx.seg: damaged at byte %zu (entry %llu), %s: acknowledged records "
                   "would be lost. Restore this file from a copy, or rebuild the server from its "
                   "followers (rebuild.damaged: followers)",
                   s->w->conf.dir, (unsigned long long)s->number[i], at,
                   (unsigned long long)sequence, why);
}

// This segment ends cleanly, but the next one begins above its end.
static lh_err missing(const struct scan *s, size_t i, uint64_t following)
{
    return lh_fail(LH_ERR_CORRUPT,
                   "%s: segment %016llx ends before entry %llu and %016llx begins at %llu: a "
                   "segment is missing. Restore it from a copy, or rebuild the server from its "
                   "followers",
                   s->w->conf.dir, (unsigned long long)s->number[i], (unsigned long long)s->w->next,
                   (unsigned long long)s->number[i + 1], (unsigned long long)following);
}

static bool any_byte(struct lh_span bytes, size_t at)
{
    for (; at < bytes.len; at++)
        if (bytes.data[at]) return true;
    return false;
}

// After an invalid entry: does a later valid entry of this segment prove that it had been synced?
static void look_ahead(struct scan *s, struct lh_span bytes, size_t at, uint64_t sequence)
{
    struct entry e;
    for (at += 8; at + PS_ENTRY_HEADER_BYTES <= bytes.len; at += 8) {
        if (memcmp(bytes.data + at, &PS_ENTRY_MAGIC, 4) != 0 || !read_entry(bytes, at, &e))
            continue;
        if (e.sequence > sequence && e.durable > s->durable) s->durable = e.durable;
    }
}

// Takes one entry of a whole group.
static lh_err take_entry(struct scan *s, size_t i, size_t at, const struct entry *e)
{
    struct ps_wal *w = s->w;
    if (e->durable > s->durable) s->durable = e->durable;
    w->last_is_mark = e->shard == PS_MARK;
    s->found.entries++;
    s->found.records += e->shard != PS_MARK;
    LH_TRY(s->each(s->arg, &(struct ps_wal_entry){
                               .segment = s->number[i],
                               .at = at,
                               .bytes = e->total,
                               .generation = e->generation,
                               .sequence = e->sequence,
                               .durable = e->durable,
                               .shard = e->shard,
                               .record = e->shard == PS_MARK ? NULL : &e->record,
                           }));
    w->next++;
    return LH_OK;
}

static lh_err scan_entries(struct scan *s, size_t i, uint64_t stop)
{
    struct ps_wal *w = s->w;
    struct lh_span bytes = lh_buf_span(&s->bytes);
    size_t at = PS_SEGMENT_HEADER_BYTES, end;
    struct entry e;
    while (w->next != stop && read_group(bytes, at, w->next, stop, &end)) {
        for (; at < end; at += e.total) {
            bool there = parse_entry(bytes, at, true, &e);
            LH_ASSERT(there); // read_group() has checked it
            LH_TRY(take_entry(s, i, at, &e));
        }
    }
    if (w->next == stop) return LH_OK;
    look_ahead(s, bytes, at, w->next);
    bool more = any_byte(bytes, at);
    if (stop && !more) return missing(s, i, stop); // the entries before are whole
    if (stop || w->next <= s->durable) return damaged(s, i, at, w->next);
    if (more) {
        s->found.torn = true;
        s->found.torn_segment = s->number[i];
        s->found.torn_at = at;
    }
    return LH_OK;
}

// Reads one segment's bytes; `first`: sequence of its first entry, 0 for an unfinished file.
static lh_err load_segment(struct scan *s, size_t i, struct lh_buf *bytes, uint64_t *first)
{
    struct lh_env *env = s->w->conf.env;
    char path[LH_PATH_BYTES];
    ps_wal_segment_path(s->w, s->number[i], path);
    lh_buf_clear(bytes);
    LH_TRY(lh_file_load(env, path, bytes));
    *first = 0;
    struct lh_cursor c = lh_cursor(lh_buf_span(bytes));
    uint32_t magic = lh_get_u32(&c);
    uint16_t version = lh_get_u16(&c);
    (void)lh_get_u16(&c);
    uint64_t number = lh_get_u64(&c), generation = lh_get_u64(&c), sequence = lh_get_u64(&c);
    uint8_t job[LH_JOB_BYTES];
    lh_get_into(&c, job, LH_JOB_BYTES);
    (void)lh_get_u64(&c);
    uint32_t crc = lh_get_u32(&c);
    bool whole = !c.failed && magic == PS_SEGMENT_MAGIC &&
                 crc == lh_crc32c(0, bytes->data, PS_SEGMENT_HEADER_BYTES - 8) &&
                 number == s->number[i];
    whole &= sequence && sequence <= PS_COUNT_MAX && generation <= PS_COUNT_MAX;
    if (!whole) { // a segment counts once its header is synced
        bool newest = i + 1 == s->segments;
        if (newest && !any_byte(lh_buf_span(bytes), PS_SEGMENT_HEADER_BYTES)) return LH_OK;
        return lh_fail(LH_ERR_CORRUPT,
                       "%s: its header is damaged; restore this file from a copy, "
                       "or rebuild the server from its followers (rebuild.damaged: followers)",
                       path);
    }
    if (version != 1)
        return lh_fail(LH_ERR_VERSION, "%s: log of version %u, this build reads 1", path, version);
    if (!s->job) memcpy(s->found.job, job, LH_JOB_BYTES);
    s->job = s->job ? s->job : s->found.job;
    if (memcmp(job, s->job, LH_JOB_BYTES) != 0)
        return lh_fail(LH_ERR_CONFIG,
                       "%s: log of another run (name and domain): a server needs a directory of "
                       "its own (setting dir), a tool the run of the log",
                       path);
    *first = sequence;
    s->generation = generation;
    return LH_OK;
}

// Rewrites the entries above the durable position: after a failed sync the page cache may hold them
// as clean, and another sync would do nothing. The bytes are the same, so a torn write changes
// nothing. Gives back trailing zeros.
static lh_err write_again(struct scan *s, size_t i, struct lh_file *file)
{
    const struct lh_files_ops *files = s->w->conf.env->ops->files;
    uint64_t first;
    struct entry e;
    size_t from = PS_SEGMENT_HEADER_BYTES, behind;
    LH_TRY(load_segment(s, i, &s->ahead, &first));
    struct lh_span bytes = lh_buf_span(&s->ahead);
    while (read_entry(bytes, from, &e) && e.sequence <= s->durable) from += e.total;
    size_t end = from;
    while (read_entry(bytes, end, &e) && e.sequence < s->w->next &&
           read_group(bytes, end, e.sequence, s->w->next, &behind))
        end = behind;
    LH_TRY(files->write(file, 0, lh_span(bytes.data, PS_SEGMENT_HEADER_BYTES)));
    if (end > from) LH_TRY(files->write(file, from, lh_span(bytes.data + from, end - from)));
    // repeated failed starts would otherwise fill the disk with preallocated segments
    return end < bytes.len && !any_byte(bytes, end) ? files->resize(file, end) : LH_OK;
}

// Makes the survivors durable before they are acknowledged (server/docs/0000-protocol.md#rule-5).
static lh_err sync_survivors(struct scan *s)
{
    const struct lh_files_ops *files = s->w->conf.env->ops->files;
    if (LH_BUG("no_resync")) return LH_OK;
    for (size_t i = s->segments > 2 ? s->segments - 2 : 0; i < s->segments; i++) {
        char path[LH_PATH_BYTES];
        struct lh_file *file;
        ps_wal_segment_path(s->w, s->number[i], path);
        LH_TRY(files->open(s->w->conf.env, path, LH_OPEN_WRITE, &file));
        lh_err err = LH_BUG("no_rewrite") ? LH_OK : write_again(s, i, file);
        if (!err) err = files->sync(file);
        files->close(file);
        if (err) return err;
    }
    return files->sync_dir(s->w->conf.env, s->w->conf.dir);
}

// Loads segment i into `bytes`; removes an unfinished last segment and forgets it.
static lh_err load_or_remove(struct scan *s, size_t i, struct lh_buf *bytes, uint64_t *first)
{
    *first = 0;
    if (i >= s->segments) return LH_OK;
    LH_TRY(load_segment(s, i, bytes, first));
    if (*first) return LH_OK;
    char path[LH_PATH_BYTES];
    ps_wal_segment_path(s->w, s->number[i], path);
    s->segments = i;
    return s->look ? LH_OK : s->w->conf.env->ops->files->remove(s->w->conf.env, path);
}

static lh_err scan_all(struct scan *s)
{
    uint64_t first, following;
    LH_TRY(load_or_remove(s, 0, &s->bytes, &first));
    s->w->next = first ? first : s->w->next;
    for (size_t i = 0; i < s->segments; i++) {
        LH_ASSERT(first == s->w->next); // the segment before was read to its end
        // The next segment's first sequence ends this one, whatever bytes follow.
        LH_TRY(load_or_remove(s, i + 1, &s->ahead, &following));
        LH_TRY(scan_entries(s, i, following));
        struct lh_buf done = s->bytes;
        s->bytes = s->ahead;
        s->ahead = done;
        first = following;
    }
    return LH_OK;
}

static lh_err scan(struct scan *s)
{
    struct lh_env *env = s->w->conf.env;
    s->bytes = lh_buf((size_t)1 << 40);
    s->ahead = lh_buf((size_t)1 << 40);
    char path[LH_PATH_BYTES];
    lh_err err;
    LH_TRY_TO(out, err, lh_path(path, sizeof path, s->w->conf.dir, "%016llx.seg", 0ULL));
    LH_TRY_TO(out, err, env->ops->files->list(env, s->w->conf.dir, note_name, s));
    LH_TRY_TO(out, err, s->err);
    LH_TRY_TO(out, err, scan_all(s));
    if (!s->look) LH_TRY_TO(out, err, sync_survivors(s));
    s->w->segment = s->segments ? s->number[s->segments - 1] : 0;
    s->w->oldest = s->segments ? s->number[0] : 1;
    s->w->generation = s->generation;
out:
    free(s->number);
    lh_buf_free(&s->bytes);
    lh_buf_free(&s->ahead);
    return err;
}

struct replaying {
    ps_wal_replay_fn replay;
    void *arg;
};

static lh_err replay_entry(void *arg, const struct ps_wal_entry *e)
{
    const struct replaying *r = arg;
    if (!e->record) return LH_OK;
    struct ps_place place = {e->segment, e->at + PS_ENTRY_HEADER_BYTES,
                             (uint32_t)(LH_RECORD_HEADER_BYTES + e->record->body.len)};
    return r->replay(r->arg, e->shard, e->record, place);
}

lh_err ps_wal_scan(struct ps_wal *w, ps_wal_replay_fn replay, void *arg, bool *torn)
{
    struct replaying r = {replay, arg};
    struct scan s = {.w = w, .each = replay_entry, .arg = &r, .job = w->conf.job};
    LH_TRY(scan(&s));
    *torn = s.found.torn;
    return LH_OK;
}

lh_err ps_wal_look(struct lh_env *env, const char *dir, const uint8_t *job,
                   lh_err (*each)(void *arg, const struct ps_wal_entry *e), void *arg,
                   struct ps_wal_found *found)
{
    struct ps_wal w = {.conf = {.env = env, .dir = dir}, .next = 1};
    struct scan s = {.w = &w, .each = each, .arg = arg, .look = true, .job = job};
    lh_err err = scan(&s);
    *found = s.found;
    found->segments = s.segments;
    found->durable = s.durable;
    found->generation = s.generation;
    if (s.job) memcpy(found->job, s.job, LH_JOB_BYTES);
    return err;
}
