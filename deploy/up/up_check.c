// Compares this machine with the needs. See up_check.h.
//
// Each line has "ok", "warn" (may go wrong) or "FAIL" (will), the finding, and a remedy. Changes
// nothing; only checks whether peers listen.
#include "deploy/up/up_check.h"

#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/format/json.h"
#include "common/format/manifest_pace.h"
#include "common/objects/address.h"
#include "common/security/certs.h"
#include "deploy/ask/up_status.h"
#include "deploy/up/doctor_run.h"
#include "server/coordinator/store/etcd_wire.h"

enum { FILES_A_NODE = 64, FILES_LEAST = 1024, DAY_S = 86400, CERT_DAYS_LEFT = 14 };

// ---------------------------------------------------------------- disk, memory, limits

// The file system of the folder, or of its nearest existing parent. False: none.
static bool free_disk(const char *dir, double *bytes)
{
    char path[DP_PATH_BYTES];
    struct statvfs fs;
    if (dp_path(path, "%s", dir)) return false;
    while (statvfs(path, &fs)) {
        char *slash = strrchr(path, '/');
        if (!strcmp(path, ".") || !strcmp(path, "/")) return false;
        if (!slash)
            snprintf(path, sizeof path, ".");
        else
            slash[slash == path] = 0;
    }
    *bytes = (double)fs.f_bavail * (double)fs.f_frsize;
    return true;
}

static void check_disk(struct dp_check *c, const char *dir, double needed)
{
    char a[16], b[16];
    double bytes;
    if (!free_disk(dir, &bytes)) {
        dp_check_say(c, DP_MAY_FAIL, "disk: the free space of %s can't be read", dir);
        return;
    }
    const char *is = dp_bytes_text(bytes, a), *want = dp_bytes_text(needed, b);
    if (bytes < needed)
        dp_check_say(
            c, DP_FAILS,
            "disk: %s free at %s, about %s are needed: free some space, or use another folder (a "
            "full disk stops pushes until it has space, deploy/docs/full-disk.md)",
            is, dir, want);
    else
        dp_check_say(c, bytes < 2 * needed ? DP_MAY_FAIL : DP_FINE,
                     "disk: %s free at %s, about %s are needed", is, dir, want);
}

// MemAvailable of /proc/meminfo; 0: not known.
static double free_memory(void)
{
    FILE *in = fopen("/proc/meminfo", "re");
    char line[128];
    double kb = 0;
    while (in && fgets(line, sizeof line, in))
        if (sscanf(line, "MemAvailable: %lf", &kb) == 1) break;
    if (in) fclose(in);
    return kb * 1024;
}

static void check_memory(struct dp_check *c, double needed, bool loops)
{
    char a[16], b[16];
    double is = free_memory();
    const char *apart = loops ? ", without the commands' own" : ", without activations";
    if (is <= 0) return;
    if (is < needed)
        dp_check_say(c, DP_FAILS,
                     "memory: %s available, about %s are needed%s: use a smaller model, fewer "
                     "workers, or another machine",
                     dp_bytes_text(is, a), dp_bytes_text(needed, b), apart);
    else
        dp_check_say(c, is < 1.5 * needed ? DP_MAY_FAIL : DP_FINE,
                     "memory: %s available, about %s are needed%s", dp_bytes_text(is, a),
                     dp_bytes_text(needed, b), apart);
}

static void check_limits(struct dp_check *c, unsigned nodes)
{
    struct rlimit files;
    rlim_t needed = FILES_LEAST > nodes * FILES_A_NODE ? FILES_LEAST : nodes * FILES_A_NODE;
    if (getrlimit(RLIMIT_NOFILE, &files)) return;
    if (files.rlim_cur < needed)
        dp_check_say(
            c, DP_MAY_FAIL,
            "open files: the limit is %llu, at least %llu are recommended: `ulimit -n %llu`",
            (unsigned long long)files.rlim_cur, (unsigned long long)needed,
            (unsigned long long)needed);
    else
        dp_check_say(c, DP_FINE, "open files: the limit is %llu",
                     (unsigned long long)files.rlim_cur);
}

// Both ends judge certificates by the wall clock.
static void check_clock(struct dp_check *c)
{
    struct timex t = {0};
    int state = adjtimex(&t);
    bool unsynced = state == TIME_ERROR || (t.status & STA_UNSYNC);
    if (time(NULL) < 1700000000)
        dp_check_say(
            c, DP_FAILS,
            "clock: it shows a date before 2023, when certificates are not valid yet: set it");
    else if (unsynced)
        dp_check_say(c, DP_MAY_FAIL,
                     "clock: the kernel reports no synchronisation (NTP); for certificates it must "
                     "be right to within minutes");
    else
        dp_check_say(c, DP_FINE, "clock: synchronised");
}

// ---------------------------------------------------------------- data

static void check_budget(struct dp_check *c, const char *data, const struct lh_units *units,
                         uint64_t epochs, uint64_t budget)
{
    uint64_t tokens = 0;
    for (uint64_t u = 0; u < units->count; u++) tokens += units->unit[u].tokens;
    unsigned long long all = (unsigned long long)(tokens * epochs);
    if (!budget) return;
    if (all < budget)
        dp_check_say(c, DP_MAY_FAIL,
                     "budget: %llu tokens, but %s has %llu in %llu epochs: the run will end there, "
                     "before its learning rate has decayed; raise epochs, or lower the budget",
                     (unsigned long long)budget, data, all, (unsigned long long)epochs);
    else
        dp_check_say(c, DP_FINE, "budget: %llu tokens of the %llu that %s has in %llu epochs",
                     (unsigned long long)budget, all, data, (unsigned long long)epochs);
}

// ---------------------------------------------------------------- certificates, ports

static void check_cert(struct dp_check *c, const char *what, const char *path)
{
    struct lh_certs_info info;
    int64_t now = (int64_t)time(NULL);
    lh_err err = lh_certs_inspect(path, &info);
    if (err)
        dp_check_say(c, DP_FAILS, "%s: %s: `longhaul certs` makes one", what, lh_err_text(err));
    else if (now < info.not_before)
        dp_check_say(c, DP_FAILS, "%s: %s is not valid yet: is the clock right?", what, path);
    else if (now >= info.not_after)
        dp_check_say(c, DP_FAILS, "%s: %s has expired: issue a new one (`longhaul certs issue`)",
                     what, path);
    else if (info.not_after - now < (int64_t)CERT_DAYS_LEFT * DAY_S)
        dp_check_say(c, DP_MAY_FAIL, "%s: %s expires in %lld days: issue a new one", what, path,
                     (long long)((info.not_after - now) / DAY_S));
    else
        dp_check_say(c, DP_FINE, "%s: %s is valid for %lld more days", what, path,
                     (long long)((info.not_after - now) / DAY_S));
}

static void check_file(struct dp_check *c, const char *what, const char *path)
{
    if (!path[0]) return;
    if (access(path, R_OK))
        dp_check_say(c, DP_FAILS, "%s: %s can't be read: %s", what, path, strerror(errno));
}

// The first address of "host:port"; NULL: error already printed.
static struct addrinfo *resolve(struct dp_check *c, const char *what, const char *address)
{
    char host[256];
    const char *colon = strrchr(address, ':');
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    if (!colon) return NULL;
    snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
    size_t n = strlen(host);
    bool brackets = host[0] == '[' && n > 2;
    if (brackets) host[n - 1] = 0;
    int why = getaddrinfo(host + brackets, colon + 1, &hints, &list);
    if (!why) return list;
    dp_check_say(c, DP_FAILS, "%s: %s: %s: is the name right, and known to this host?", what,
                 address, gai_strerror(why));
    return NULL;
}

static void check_listen(struct dp_check *c, const char *address)
{
    struct addrinfo *at = resolve(c, "listen", address);
    if (!at) return;
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (fd < 0 || bind(fd, at->ai_addr, at->ai_addrlen) || listen(fd, 1))
        dp_check_say(c, DP_FAILS,
                     "listen: %s: %s: another process uses it (this node, if it runs), or it is "
                     "not an address of this host",
                     address, strerror(errno));
    else
        dp_check_say(c, DP_FINE, "listen: %s is free", address);
    if (fd >= 0) close(fd);
    freeaddrinfo(at);
}

static void check_reach(struct dp_check *c, const char *what, const char *address)
{
    struct addrinfo *at = address[0] ? resolve(c, what, address) : NULL;
    const struct timeval wait = {5, 0};
    if (!at) return;
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    if (fd < 0 || connect(fd, at->ai_addr, at->ai_addrlen))
        dp_check_say(c, DP_MAY_FAIL, "%s: %s: %s: it does not run yet, or a firewall blocks it",
                     what, address, errno == EINPROGRESS ? "no answer in 5 s" : strerror(errno));
    else
        dp_check_say(c, DP_FINE, "%s: something listens at %s", what, address);
    if (fd >= 0) close(fd);
    freeaddrinfo(at);
}

// One address or more, separated by commas.
static void check_reach_each(struct dp_check *c, const char *what, const char *addresses)
{
    char one[LH_ADDRESS_BYTES];
    for (const char *at = addresses; *at; at += *at == ',') {
        size_t n = strcspn(at, ",");
        snprintf(one, sizeof one, "%.*s", (int)n, at);
        check_reach(c, what, one);
        at += n;
    }
}

// The members of the etcd that keeps the coordinators' state.
static void check_etcd(struct dp_check *c, const char *store)
{
    struct ps_etcd_place place;
    if (!store[0] || ps_etcd_parse(store, &place)) return; // the settings' check refuses it
    for (uint32_t i = 0; i < place.members; i++)
        check_reach(c, "coordinator.store", place.member[i]);
}

// ---------------------------------------------------------------- whole

static double disk_of(const struct dp_up *up)
{
    const struct dp_plan *p = &up->plan;
    double values = (double)p->parameters * 4; // weights.bin, final.bin
    return p->server_disk_bytes * up->t->servers + p->worker_disk_bytes * up->t->workers +
           2 * values;
}

static double memory_of(const struct dp_up *up)
{
    const struct dp_plan *p = &up->plan;
    return p->server_memory_bytes * up->t->servers + p->worker_memory_bytes * up->t->workers;
}

static void check_secrets(struct dp_check *c, const char *dir)
{
    char path[DP_PATH_BYTES];
    if (dp_path(path, "%s/secrets/ca.pem", dir) || !dp_file_exists(path)) return;
    check_cert(c, "certificates", path);
}

void dp_check_topology(struct dp_check *c, struct dp_up *up)
{
    char dir[DP_PATH_BYTES], path[DP_PATH_BYTES];
    unsigned nodes = 1 + dp_topology_pair(up->t) + up->t->servers + up->t->workers +
                     up->t->helpers + up->t->trainers;
    lh_err err =
        up->flags.dir ? dp_path(dir, "%s", up->flags.dir) : dp_path(dir, "run/%s", up->t->run->run);
    if (!err) err = dp_path(path, "%s/units.json", up->flags.data);
    if (err) return;
    fprintf(c->out, "\nthis machine\n");
    check_disk(c, dir, disk_of(up));
    check_memory(c, memory_of(up), up->t->trainers > 0);
    check_limits(c, nodes);
    check_clock(c);
    check_secrets(c, dir);
    if (dp_topology_own_data(up->t) || lh_objects_is(up->flags.data)) return;
    if (!dp_file_exists(path)) {
        dp_check_say(c, DP_MAY_FAIL,
                     "data: no %s: `longhaul data prepare` or longhaul.save_units makes it, --data "
                     "names its folder",
                     path);
        return;
    }
    struct lh_units units = {0};
    err = dp_units_load(up->flags.data, &units);
    if (err)
        dp_check_say(c, DP_FAILS, "data: %s", lh_err_text(err));
    else
        check_budget(c, up->flags.data, &units, (uint64_t)up->t->run->epochs,
                     (uint64_t)up->t->run->budget_tokens);
    lh_units_free(&units);
}

static void check_node(struct dp_check *c, const struct lh_node *node)
{
    check_cert(c, "tls.ca", node->tls.ca);
    check_cert(c, "tls.cert", node->tls.cert);
    check_file(c, "tls.key", node->tls.key);
    check_file(c, "seal.keys", node->seal.keys);
    check_file(c, "model.manifest", node->model.manifest);
    check_limits(c, 1);
    check_clock(c);
    check_reach_each(c, "coordinator", node->coordinator);
}

static double parameters_of(const char *manifest)
{
    struct lh_manifest m = {0};
    double values = dp_manifest_load(manifest, &m) ? 0 : (double)m.values;
    lh_manifest_free(&m);
    return values;
}

enum { HANGS_S = 30 }; // a process writes its status every second

// Is it one of our processes? Another may have got its number.
static bool is_ours(json_int_t pid)
{
    char path[64], name[32] = "";
    if (pid <= 0) return false;
    snprintf(path, sizeof path, "/proc/%lld/comm", (long long)pid);
    FILE *in = fopen(path, "re");
    if (in && !fgets(name, sizeof name, in)) name[0] = 0;
    if (in) fclose(in);
    return !strncmp(name, "longhaul", strlen("longhaul"));
}

// The status of the node that runs in this folder; NULL: none does.
static json_t *running(const char *dir)
{
    char path[DP_PATH_BYTES];
    struct lh_buf bytes = lh_buf(DP_STATUS_BYTES_MAX);
    json_t *is = NULL;
    if (!dp_path(path, "%s/status.json", dir) && !dp_file_read(path, &bytes))
        is = json_loadb((const char *)bytes.data, bytes.len, 0, NULL);
    lh_buf_free(&bytes);
    if (is_ours(json_integer_value(json_object_get(is, "pid")))) return is;
    json_decref(is);
    return NULL;
}

// Judges a node that runs. Its ports are its own, and the memory that it needs is not free.
static bool check_running(struct dp_check *c, const char *dir, bool loops)
{
    json_t *is = running(dir);
    if (!is) return false;
    long long pid = json_integer_value(json_object_get(is, "pid"));
    long long silent = (long long)time(NULL) - json_integer_value(json_object_get(is, "time_s"));
    if (silent > HANGS_S)
        dp_check_say(c, DP_FAILS,
                     "process: %lld runs, but has written no status for %lld s: check its disk, "
                     "then restart it",
                     pid, silent);
    else
        dp_check_say(c, DP_FINE, "process: %lld runs", pid);
    check_memory(c, 0.1 * lh_json_number(is, "peak_bytes"), loops);
    dp_check_process(c, "process", is);
    json_decref(is);
    return true;
}

void dp_check_server(struct dp_check *c, const char *file, const struct ps_settings *s)
{
    double values = 4 * parameters_of(s->node.model.manifest); // it serves all shards at most
    fprintf(c->out, "%s\n", file);
    check_node(c, &s->node);
    if (check_running(c, s->node.dir, true)) return;
    check_listen(c, s->listen);
    check_etcd(c, s->coordinator.store);
    if (s->role == PS_ROLE_COORDINATOR) values = 0;
    check_disk(c, s->node.dir, values * (double)s->checkpoint.keep + 2.0 * LH_SEGMENT_BYTES_MAX);
    if (values > 0) check_memory(c, 2 * values, true);
}

void dp_check_worker(struct dp_check *c, const char *file, const struct wk_settings *s)
{
    double values = 4 * parameters_of(s->node.model.manifest);
    struct lh_units units = {0};
    struct lh_buf json = lh_buf(1 << 30);
    fprintf(c->out, "%s\n", file);
    check_node(c, &s->node);
    bool loops = s->trainer.kind == WK_TRAINER_EXTERNAL;
    bool runs = check_running(c, s->node.dir, loops);
    if (!runs) check_disk(c, s->node.dir, 6 * values);
    if (!runs) check_memory(c, 8 * values, loops);
    // A manifest in a store has a copy in the node's directory after the first start.
    char path[LH_PATH_BYTES];
    bool stored = lh_objects_is(s->node.data.units);
    lh_err err = lh_path(path, sizeof path, stored ? s->node.dir : "", "%s",
                         stored ? "units-copy.json" : s->node.data.units);
    if (!err) err = dp_file_read(path, &json);
    if (!err) err = lh_units_parse(&units, lh_buf_span(&json));
    if (err && !stored) dp_check_say(c, DP_FAILS, "data.units: %s", lh_err_text(err));
    if (!err)
        check_budget(c, s->node.data.units, &units,
                     s->node.run.epochs ? (uint64_t)s->node.run.epochs : 1,
                     (uint64_t)s->node.run.budget_tokens);
    lh_units_free(&units);
    lh_buf_free(&json);
}
