// Failures on demand. See fault.h.
#include "tests/fault/fault.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>

static struct {
    long alloc, files, more; // calls until one fails; below 0: never
    size_t least, most;      // size of the allocation that fails; most 0: any size
    lh_err err;
    bool inside, struck; // inside: a call of the inner files is running
    struct lh_env *inner;
} fault = {.alloc = -1, .files = -1};

void fault_alloc(long n)
{
    fault.alloc = n;
    fault.files = -1;
    fault.most = 0;
    fault.struck = false;
}

void fault_alloc_of(size_t least, size_t most)
{
    fault_alloc(-1);
    fault.least = least;
    fault.most = most;
}

void fault_files(long n, long more, lh_err err)
{
    fault.files = n;
    fault.more = more;
    fault.err = err;
    fault.alloc = -1;
    fault.most = 0;
    fault.struck = false;
}

bool fault_over(void)
{
    fault.alloc = fault.files = -1;
    fault.most = 0;
    return fault.struck;
}

// ---------------------------------------------------------------- memory

void *__real_malloc(size_t n);
void *__real_calloc(size_t count, size_t n);
void *__real_realloc(void *old, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t count, size_t n);
void *__wrap_realloc(void *old, size_t n);

static bool no_memory(size_t n)
{
    if (fault.inside) return false;
    bool of_size = fault.most && fault.least <= n && n <= fault.most;
    if (!of_size && (fault.alloc < 0 || fault.alloc--)) return false;
    fault.most = 0;
    fault.struck = true;
    return true;
}

void *__wrap_malloc(size_t n)
{
    return no_memory(n) ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t count, size_t n)
{
    return no_memory(count * n) ? NULL : __real_calloc(count, n);
}

void *__wrap_realloc(void *old, size_t n)
{
    return no_memory(n) ? NULL : __real_realloc(old, n);
}

// ---------------------------------------------------------------- waits

static atomic_int wait_ms = -1; // -1: no wait is to fail, or it already has

void fault_wait(int ms)
{
    atomic_store(&wait_ms, ms);
}

bool fault_waited(void)
{
    return atomic_load(&wait_ms) < 0;
}

int __real_poll(struct pollfd *p, nfds_t n, int ms);
int __wrap_poll(struct pollfd *p, nfds_t n, int ms);

int __wrap_poll(struct pollfd *p, nfds_t n, int ms)
{
    int of = ms;
    if (ms < 0 || !atomic_compare_exchange_strong(&wait_ms, &of, -1)) return __real_poll(p, n, ms);
    for (nfds_t i = 0; i < n; i++) p[i].revents = 0;
    return 0;
}

// ---------------------------------------------------------------- files

static bool fails(void)
{
    if (fault.files < 0) return false;
    if (fault.files > 0) {
        fault.files--;
        return false;
    }
    if (fault.more-- == 0) fault.files = -1;
    fault.struck = true;
    return true;
}

#define CALL(what, ...)                                                                            \
    if (fails()) return lh_fail(fault.err, "%s: the disk of this test", #what);                    \
    fault.inside = true;                                                                           \
    lh_err err = fault.inner->ops->files->what(__VA_ARGS__);                                       \
    fault.inside = false;                                                                          \
    return err

static lh_err open_file(struct lh_env *env, const char *path, unsigned flags, struct lh_file **out)
{
    (void)env;
    CALL(open, fault.inner, path, flags, out);
}

static void close_file(struct lh_file *file)
{
    fault.inner->ops->files->close(file);
}

static lh_err read_file(struct lh_file *file, uint64_t at, void *out, size_t n, size_t *got)
{
    CALL(read, file, at, out, n, got);
}

static lh_err write_file(struct lh_file *file, uint64_t at, struct lh_span bytes)
{
    CALL(write, file, at, bytes);
}

static lh_err size_of(struct lh_file *file, uint64_t *out)
{
    CALL(size, file, out);
}

static lh_err resize(struct lh_file *file, uint64_t size)
{
    CALL(resize, file, size);
}

static lh_err sync_file(struct lh_file *file)
{
    CALL(sync, file);
}

static lh_err rename_file(struct lh_env *env, const char *from, const char *to)
{
    (void)env;
    CALL(rename, fault.inner, from, to);
}

static lh_err remove_file(struct lh_env *env, const char *path)
{
    (void)env;
    CALL(remove, fault.inner, path);
}

static lh_err make_dir(struct lh_env *env, const char *path)
{
    (void)env;
    CALL(make_dir, fault.inner, path);
}

static lh_err sync_dir(struct lh_env *env, const char *path)
{
    (void)env;
    CALL(sync_dir, fault.inner, path);
}

// The function that is called for each name is the product's, so its failures count again.
struct listing {
    void (*each)(void *arg, const char *name);
    void *arg;
};

static void list_one(void *arg, const char *name)
{
    const struct listing *l = arg;
    fault.inside = false;
    l->each(l->arg, name);
    fault.inside = true;
}

static lh_err list(struct lh_env *env, const char *path, void (*each)(void *arg, const char *name),
                   void *arg)
{
    struct listing l = {each, arg};
    (void)env;
    CALL(list, fault.inner, path, list_one, &l);
}

// No test here has a loop or lanes, so those entries stay empty.
static void random_bytes(struct lh_env *env, void *out, size_t n)
{
    (void)env;
    fault.inner->ops->random(fault.inner, out, n);
}

static int64_t now_ns(struct lh_env *env)
{
    (void)env;
    return fault.inner->ops->now_ns(fault.inner);
}

static void boot_id(struct lh_env *env, uint8_t out[16])
{
    (void)env;
    fault.inner->ops->boot_id(fault.inner, out);
}

static lh_err room(struct lh_env *env, const char *path, uint64_t *bytes)
{
    (void)env;
    return fault.inner->ops->files->room(fault.inner, path, bytes);
}

struct lh_env *fault_env(struct lh_env *inner)
{
    static struct lh_files_ops files;
    static struct lh_env_ops ops;
    static struct lh_env env;
    fault.inner = inner;
    files = *inner->ops->files;
    files.open = open_file;
    files.close = close_file;
    files.read = read_file;
    files.write = write_file;
    files.size = size_of;
    files.resize = resize;
    files.sync = sync_file;
    files.rename = rename_file;
    files.remove = remove_file;
    files.make_dir = make_dir;
    files.sync_dir = sync_dir;
    files.list = list;
    files.room = room;
    ops = (struct lh_env_ops){
        .now_ns = now_ns, .random = random_bytes, .boot_id = boot_id, .files = &files};
    env.ops = &ops;
    return &env;
}
