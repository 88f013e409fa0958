// The fake world's disks. See env_fake.h for what a power cut does.
//
// A file has the bytes that programs see, the bytes that are durable, and the writes in between.
// Names are journalled in order: a power cut keeps a random prefix of the changes since the last
// sync of any directory; after lh_fake_folders_apart(), of each folder's changes since its own
// sync. A file's writes since its last sync are each kept, torn at a 512-byte boundary, or lost.
// struct lh_fake_harm has further faults.
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "tests/world/env_fake.h"
#include "tests/world/env_fake_files.h"

enum { SECTOR = 512, PAST_MAX = 16, CHANGES_MAX = 256 };

struct change { // one write, or (bytes NULL) one resize to `at`
    uint64_t at;
    size_t n;
    uint8_t *bytes;
};

struct image {
    uint8_t *data;
    size_t len, cap;
};

struct lh_fake_inode {
    unsigned links; // names (now and past) and open files
    bool locked;
    bool unreadable;
    struct image now, durable;
    struct change *change;
    size_t changes;
};

struct lh_file {
    struct lh_fake_env *e;
    struct lh_fake_inode *inode;
    uint64_t life;
    bool holds_lock;
};

// ---------------------------------------------------------------- images and inodes

static void image_resize(struct image *m, size_t len)
{
    size_t zeroed = m->len;
    if (len > m->cap) { // doubles: files are mostly appended to
        m->cap = len > 2 * m->cap ? len : 2 * m->cap;
        if (!m->len) free(m->data);
        m->data = m->len ? realloc(m->data, m->cap) : calloc(m->cap, 1);
        if (!m->len) zeroed = len; // most of a log's segment is never written, and takes no page
        LH_ASSERT(m->data);
    }
    if (len > zeroed) memset(m->data + zeroed, 0, len - zeroed);
    m->len = len;
}

static void image_write(struct image *m, uint64_t at, const uint8_t *bytes, size_t n)
{
    if (at + n > m->len) image_resize(m, (size_t)at + n);
    if (n) memcpy(m->data + at, bytes, n);
}

static void forget_changes(struct lh_fake_inode *i)
{
    for (size_t k = 0; k < i->changes; k++) free(i->change[k].bytes);
    free(i->change);
    i->change = NULL;
    i->changes = 0;
}

static void image_apply(struct image *m, const struct change *c, size_t n)
{
    if (c->bytes)
        image_write(m, c->at, c->bytes, n);
    else
        image_resize(m, (size_t)c->at);
}

static void add_change(struct lh_fake_inode *i, uint64_t at, const uint8_t *bytes, size_t n)
{
    if ((i->changes & (i->changes - 1)) == 0) { // a power of two, or 0: the array is full
        i->change = realloc(i->change, (i->changes ? 2 * i->changes : 1) * sizeof *i->change);
        LH_ASSERT(i->change);
    }
    struct change *c = &i->change[i->changes++];
    *c = (struct change){at, n, NULL};
    if (bytes) {
        c->bytes = malloc(n + 1);
        LH_ASSERT(c->bytes);
        if (n) memcpy(c->bytes, bytes, n);
    }
    image_apply(&i->now, c, n);
}

static void unlink_inode(struct lh_fake_inode *i)
{
    if (--i->links) return;
    forget_changes(i);
    free(i->now.data);
    free(i->durable.data);
    free(i);
}

// ---------------------------------------------------------------- names

static size_t place(const struct lh_fake_names *n, const char *path)
{
    size_t low = 0, high = n->count;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (strcmp(n->name[mid].path, path) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static struct lh_fake_inode *find(const struct lh_fake_names *n, const char *path)
{
    size_t at = place(n, path);
    return at < n->count && strcmp(n->name[at].path, path) == 0 ? n->name[at].inode : NULL;
}

static void free_names(struct lh_fake_names *n)
{
    for (size_t i = 0; i < n->count; i++) unlink_inode(n->name[i].inode);
    free(n->name);
    *n = (struct lh_fake_names){0};
}

static struct lh_fake_names copy_names(const struct lh_fake_names *n)
{
    struct lh_fake_names c = {malloc((n->count + 1) * sizeof *c.name), n->count};
    LH_ASSERT(c.name);
    if (n->count) memcpy(c.name, n->name, n->count * sizeof *c.name);
    for (size_t i = 0; i < c.count; i++) c.name[i].inode->links++;
    return c;
}

// Saves the names before a change, so that a power cut may undo it.
static void journal(struct lh_fake_env *e)
{
    if (e->apart) return;
    if (e->past_count == PAST_MAX) { // the journal commits by itself after a while
        free_names(&e->past[0]);
        memmove(e->past, e->past + 1, (PAST_MAX - 1) * sizeof *e->past);
        e->past_count--;
    }
    if (!e->past) e->past = calloc(PAST_MAX, sizeof *e->past);
    LH_ASSERT(e->past);
    e->past[e->past_count++] = copy_names(&e->now);
}

static void forget_past(struct lh_fake_env *e)
{
    for (size_t i = 0; i < e->past_count; i++) free_names(&e->past[i]);
    free(e->past);
    e->past = NULL;
    e->past_count = 0;
}

static void set_name(struct lh_fake_names *n, const char *path, struct lh_fake_inode *inode)
{
    size_t at = place(n, path);
    if (at < n->count && strcmp(n->name[at].path, path) == 0) {
        unlink_inode(n->name[at].inode);
    } else {
        n->name = realloc(n->name, (n->count + 1) * sizeof *n->name);
        LH_ASSERT(n->name && strlen(path) < sizeof n->name->path);
        memmove(n->name + at + 1, n->name + at, (n->count - at) * sizeof *n->name);
        n->count++;
        memcpy(n->name[at].path, path, strlen(path) + 1);
    }
    n->name[at].inode = inode;
    inode->links++;
}

static void drop_name(struct lh_fake_names *n, const char *path)
{
    size_t at = place(n, path);
    unlink_inode(n->name[at].inode);
    memmove(n->name + at, n->name + at + 1, (n->count - at - 1) * sizeof *n->name);
    n->count--;
}

// ---------------------------------------------------------------- folders apart

void lh_fake_folders_apart(struct lh_env *env)
{
    ((struct lh_fake_env *)env)->apart = true;
}

static void folder_of(const char *path, char out[160])
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    if (slash) memcpy(out, path, n);
    if (!slash) out[n++] = '.';
    out[n] = 0;
}

static void forget_change(struct lh_fake_env *e, size_t at)
{
    if (e->change[at].was) unlink_inode(e->change[at].was);
    memmove(e->change + at, e->change + at + 1, (e->changes - at - 1) * sizeof *e->change);
    e->changes--;
}

static void forget_changes_of(struct lh_fake_env *e, const char *folder) // NULL: of all folders
{
    for (size_t i = 0; i < e->changes;) {
        const struct lh_fake_change *c = &e->change[i];
        if (!folder || !strcmp(c->folder[0], folder) || !strcmp(c->folder[1], folder))
            forget_change(e, i);
        else
            i++;
    }
}

// Notes that `path` is about to change. `also`: the rename's other name, whose change comes next.
static void note_change(struct lh_fake_env *e, const char *path, const char *also, bool with_next)
{
    if (!e->apart) return;
    while (e->changes >= CHANGES_MAX) { // the journal commits by itself after a while
        while (e->change[0].with_next) forget_change(e, 0);
        forget_change(e, 0);
    }
    if (!e->change) e->change = calloc(CHANGES_MAX + 1, sizeof *e->change);
    LH_ASSERT(e->change && strlen(path) < sizeof e->change->path);
    struct lh_fake_change *c = &e->change[e->changes++];
    *c = (struct lh_fake_change){.was = find(&e->now, path), .with_next = with_next};
    memcpy(c->path, path, strlen(path) + 1);
    folder_of(path, c->folder[0]);
    if (also) folder_of(also, c->folder[1]);
    if (c->was) c->was->links++;
}

static void undo(struct lh_fake_env *e, size_t at)
{
    const struct lh_fake_change *c = &e->change[at];
    if (c->was)
        set_name(&e->now, c->path, c->was);
    else if (find(&e->now, c->path))
        drop_name(&e->now, c->path);
    forget_change(e, at);
}

// In the newest change's folder, undoes some of the newest changes and makes the others durable. A
// rename belongs to the folder of its new name.
static void settle_folder(struct lh_fake_env *e)
{
    char folder[160];
    uint64_t count = 0;
    size_t newest = e->changes - 1;
    if (newest && e->change[newest - 1].with_next) newest--;
    memcpy(folder, e->change[newest].folder[0], sizeof folder);
    for (size_t i = 0; i < e->changes; i += 1 + e->change[i].with_next)
        count += !strcmp(e->change[i].folder[0], folder);
    uint64_t lost = lh_fake_env_random(e) % (count + 1);
    for (size_t i = e->changes; i-- > 0;) {
        bool renamed = i && e->change[i - 1].with_next;
        i -= renamed;
        if (strcmp(e->change[i].folder[0], folder) != 0) continue;
        for (size_t k = renamed + 1u; k-- > 0;) {
            if (lost)
                undo(e, i + k);
            else
                forget_change(e, i + k);
        }
        lost -= lost > 0;
    }
}

// Keeps or loses each sector on its own.
static void keep_pieces(struct lh_fake_env *e, struct lh_fake_inode *f, const struct change *c)
{
    for (size_t at = 0, n; at < c->n; at += n) {
        n = SECTOR - (size_t)((c->at + at) % SECTOR);
        if (n > c->n - at) n = c->n - at;
        if (lh_fake_harm_random(e) % 2) image_write(&f->durable, c->at + at, c->bytes + at, n);
    }
}

void lh_fake_files_power_cut(struct lh_fake_env *e)
{
    size_t back = e->past_count ? (size_t)(lh_fake_env_random(e) % (e->past_count + 1)) : 0;
    if (back) { // undo the last `back` changes of names
        struct lh_fake_names kept = copy_names(&e->past[e->past_count - back]);
        free_names(&e->now);
        e->now = kept;
    }
    forget_past(e);
    while (e->changes) settle_folder(e);
    for (size_t i = 0; i < e->now.count; i++) {
        struct lh_fake_inode *f = e->now.name[i].inode;
        for (size_t k = 0; k < f->changes; k++) {
            size_t n = f->change[k].n;
            uint64_t fate = lh_fake_env_random(e) % 3; // kept, torn, lost
            if (fate == 1) n -= n % SECTOR ? n % SECTOR : n < SECTOR ? n : SECTOR;
            if (e->harm.torn && fate == 1 && f->change[k].bytes)
                keep_pieces(e, f, &f->change[k]);
            else if (fate < 2)
                image_apply(&f->durable, &f->change[k], n);
        }
        forget_changes(f);
        image_resize(&f->now, f->durable.len);
        if (f->durable.len) memcpy(f->now.data, f->durable.data, f->durable.len);
    }
    for (size_t i = 0; i < e->now.count; i++) e->now.name[i].inode->locked = false;
}

void lh_fake_disk_wipe(struct lh_env *env)
{
    struct lh_fake_env *e = (struct lh_fake_env *)env;
    free_names(&e->now);
    forget_past(e);
    forget_changes_of(e, NULL);
    free(e->change);
    e->change = NULL;
    e->used = 0;
}

void lh_fake_disk_limit(struct lh_env *env, uint64_t bytes)
{
    ((struct lh_fake_env *)env)->limit = bytes;
}

static uint64_t used(const struct lh_fake_env *e)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < e->now.count; i++) sum += e->now.name[i].inode->now.len;
    return sum;
}

uint64_t lh_fake_disk_used(const struct lh_env *env)
{
    return used((const struct lh_fake_env *)env);
}

void lh_fake_disk_each(const struct lh_env *env,
                       void (*each)(void *arg, const char *path, uint64_t bytes), void *arg)
{
    const struct lh_fake_names *names = &((const struct lh_fake_env *)env)->now;
    for (size_t i = 0; i < names->count; i++)
        each(arg, names->name[i].path, names->name[i].inode->now.len);
}

// A name is certain if every state that a power cut may fall back to has it for the same file.
bool lh_fake_durable(const struct lh_env *env, const char *path, struct lh_span *out)
{
    const struct lh_fake_env *e = (const struct lh_fake_env *)env;
    const struct lh_fake_inode *i = find(&e->now, path);
    for (size_t k = 0; i && k < e->past_count; k++)
        if (find(&e->past[k], path) != i) i = NULL;
    for (size_t k = 0; i && k < e->changes; k++)
        if (!strcmp(e->change[k].path, path)) i = NULL;
    if (i) *out = lh_span(i->durable.data, i->durable.len);
    return i != NULL;
}

lh_err lh_fake_flip(struct lh_env *env, const char *path, uint64_t at, uint8_t mask)
{
    struct lh_fake_inode *i = find(&((struct lh_fake_env *)env)->now, path);
    if (!i || at >= i->now.len)
        return lh_fail(LH_ERR_NOT_FOUND, "no byte %s:%llu", path, (unsigned long long)at);
    i->now.data[at] ^= mask;
    if (at < i->durable.len) i->durable.data[at] ^= mask;
    return LH_OK;
}

lh_err lh_fake_unreadable(struct lh_env *env, const char *path)
{
    struct lh_fake_inode *i = find(&((struct lh_fake_env *)env)->now, path);
    if (!i) return lh_fail(LH_ERR_NOT_FOUND, "no file %s", path);
    i->unreadable = true;
    return LH_OK;
}

// ---------------------------------------------------------------- the table

static lh_err dead(void)
{
    return lh_fail(LH_ERR_KILLED, "this process was killed");
}

// Begins an operation: the node may be dead or die now, or the disk may fail this once.
static lh_err step(struct lh_fake_env *e)
{
    if (e->looking) return e->alive ? LH_OK : dead();
    if (!lh_fake_step(e)) return dead();
    if (e->fail_in < 0 || e->fail_in-- > 0) return LH_OK;
    e->failed = true;
    return lh_fail(e->fail, "the disk failed");
}

static bool full(const struct lh_fake_env *e, uint64_t more)
{
    return e->limit && used(e) + more > e->limit;
}

static lh_err fake_open(struct lh_env *env, const char *path, unsigned flags, struct lh_file **out)
{
    struct lh_fake_env *e = (struct lh_fake_env *)env;
    LH_TRY(step(e));
    struct lh_fake_inode *i = find(&e->now, path);
    if (i && flags & LH_OPEN_EXCLUSIVE) return lh_fail(LH_ERR_EXISTS, "%s exists", path);
    if (!i && !(flags & LH_OPEN_CREATE)) return lh_fail(LH_ERR_NOT_FOUND, "%s: no such file", path);
    if (!i) {
        if (full(e, 1)) return lh_fail(LH_ERR_DISK_FULL, "%s: no space left on the disk", path);
        journal(e);
        note_change(e, path, NULL, false);
        i = calloc(1, sizeof *i);
        LH_ASSERT(i);
        set_name(&e->now, path, i);
    }
    if (flags & LH_OPEN_LOCK && i->locked) return lh_fail(LH_ERR_BUSY, "%s is in use", path);
    struct lh_file *f = calloc(1, sizeof *f);
    if (!f) return LH_ERR_NO_MEMORY;
    *f = (struct lh_file){e, i, e->life, (flags & LH_OPEN_LOCK) != 0};
    if (f->holds_lock) i->locked = true;
    if (flags & LH_OPEN_TRUNCATE && i->now.len) add_change(i, 0, NULL, 0);
    i->links++;
    *out = f;
    return LH_OK;
}

static void fake_close(struct lh_file *f)
{
    if (f->holds_lock) f->inode->locked = false;
    unlink_inode(f->inode);
    free(f);
}

static lh_err fake_read(struct lh_file *f, uint64_t at, void *out, size_t n, size_t *got)
{
    if (!f->e->alive || f->life != f->e->life) return dead();
    if (f->inode->unreadable) return lh_fail(LH_ERR_IO, "cannot read this file: bad sector");
    const struct image *m = &f->inode->now;
    *got = at >= m->len ? 0 : n < m->len - at ? n : (size_t)(m->len - at);
    if (*got) memcpy(out, m->data + at, *got);
    return LH_OK;
}

// Whether this write finds the disk full regardless of its free bytes.
static bool runs_short(struct lh_fake_env *e)
{
    return !e->looking && e->short_in >= 0 && e->short_in-- == 0;
}

// Bytes of n that a nearly full disk takes.
static size_t part(const struct lh_file *f, uint64_t at, size_t n)
{
    uint64_t end = f->inode->now.len, taken = used(f->e);
    uint64_t room = f->e->limit > taken ? f->e->limit - taken : 0;
    if (!f->e->harm.short_writes || end + room <= at) return 0;
    return end + room - at < n ? (size_t)(end + room - at) : n;
}

static lh_err fake_write(struct lh_file *f, uint64_t at, struct lh_span bytes)
{
    lh_err err = step(f->e);
    if (f->life != f->e->life) return dead();
    size_t n = bytes.len;
    if (err) { // a crash, a failing disk or a full disk tears the write
        if (err == LH_ERR_KILLED && (!f->e->struck || f->e->crash_power)) return err;
        if (n) add_change(f->inode, at, bytes.data, (size_t)(lh_fake_env_random(f->e) % n));
        return err;
    }
    bool fits = at + n <= f->inode->now.len || !full(f->e, at + n - f->inode->now.len);
    if (fits && !runs_short(f->e)) {
        add_change(f->inode, at, bytes.data, n);
        return LH_OK;
    }
    f->e->no_room_in_place |= fits && at + n <= f->inode->now.len;
    n = fits ? (size_t)(lh_fake_harm_random(f->e) % (n + 1)) : part(f, at, n);
    if (n) add_change(f->inode, at, bytes.data, n);
    return lh_fail(LH_ERR_DISK_FULL, "no space left on the disk");
}

static lh_err fake_size(struct lh_file *f, uint64_t *out)
{
    if (!f->e->alive) return dead();
    *out = f->inode->now.len;
    return LH_OK;
}

static lh_err fake_resize(struct lh_file *f, uint64_t size)
{
    LH_TRY(step(f->e));
    if (f->life != f->e->life) return dead();
    if (size > f->inode->now.len && full(f->e, size - f->inode->now.len))
        return lh_fail(LH_ERR_DISK_FULL, "no space left on the disk");
    add_change(f->inode, size, NULL, 0);
    return LH_OK;
}

static lh_err fake_sync(struct lh_file *f)
{
    lh_err err = step(f->e);
    if (!err && !f->e->looking && f->e->sync_in >= 0 && f->e->sync_in-- == 0) {
        f->e->failed = true;
        err = lh_fail(LH_ERR_IO, "the disk failed to sync");
    }
    if (f->life != f->e->life) return dead();
    struct lh_fake_inode *i = f->inode;
    if (err && err != LH_ERR_KILLED) forget_changes(i); // the pages are clean but lost
    if (err) return err;
    for (size_t k = 0; k < i->changes; k++) image_apply(&i->durable, &i->change[k], i->change[k].n);
    forget_changes(i);
    return LH_OK;
}

static lh_err fake_rename(struct lh_env *env, const char *from, const char *to)
{
    struct lh_fake_env *e = (struct lh_fake_env *)env;
    LH_TRY(step(e));
    struct lh_fake_inode *i = find(&e->now, from);
    if (!i) return lh_fail(LH_ERR_NOT_FOUND, "%s: no such file", from);
    journal(e);
    note_change(e, to, from, true);
    note_change(e, from, to, false);
    set_name(&e->now, to, i);
    drop_name(&e->now, from);
    return LH_OK;
}

static lh_err fake_remove(struct lh_env *env, const char *path)
{
    struct lh_fake_env *e = (struct lh_fake_env *)env;
    LH_TRY(step(e));
    if (!find(&e->now, path)) return lh_fail(LH_ERR_NOT_FOUND, "%s: no such file", path);
    journal(e);
    note_change(e, path, NULL, false);
    drop_name(&e->now, path);
    return LH_OK;
}

static lh_err fake_make_dir(struct lh_env *env, const char *path)
{
    (void)path;
    return step((struct lh_fake_env *)env);
}

static lh_err fake_sync_dir(struct lh_env *env, const char *path)
{
    struct lh_fake_env *e = (struct lh_fake_env *)env;
    LH_TRY(step(e));
    forget_past(e); // one journal: a commit makes all names durable
    forget_changes_of(e, path);
    return LH_OK;
}

static lh_err fake_list(struct lh_env *env, const char *path,
                        void (*each)(void *arg, const char *name), void *arg)
{
    struct lh_fake_env *e = (struct lh_fake_env *)env;
    if (!e->alive) return dead();
    size_t n = strlen(path);
    struct lh_fake_names names = copy_names(&e->now); // a copy: each() may change them
    for (size_t i = 0; i < names.count; i++) {
        const char *p = names.name[i].path;
        if (strncmp(p, path, n) == 0 && p[n] == '/' && !strchr(p + n + 1, '/'))
            each(arg, p + n + 1);
    }
    free_names(&names);
    return LH_OK;
}

static lh_err fake_room(struct lh_env *env, const char *path, uint64_t *bytes)
{
    const struct lh_fake_env *e = (struct lh_fake_env *)env;
    (void)path;
    if (!e->alive) return dead();
    uint64_t taken = used(e);
    *bytes = !e->limit ? UINT64_MAX : e->limit > taken ? e->limit - taken : 0;
    return LH_OK;
}

const struct lh_files_ops lh_fake_files_ops = {
    .open = fake_open,
    .close = fake_close,
    .read = fake_read,
    .write = fake_write,
    .size = fake_size,
    .resize = fake_resize,
    .sync = fake_sync,
    .rename = fake_rename,
    .remove = fake_remove,
    .make_dir = fake_make_dir,
    .sync_dir = fake_sync_dir,
    .list = fake_list,
    .room = fake_room,
};
