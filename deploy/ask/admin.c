// Asks a running coordinator. See admin.h.
#include "deploy/ask/admin.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>

#include "common/app/node.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/format/json.h"
#include "common/net/grpc/transport_grpc.h"
#include "common/net/rpc.h"
#include "common/net/wire_admin.h"
#include "common/net/wire_shard.h"
#include "common/security/certs.h"
#include "deploy/ask/links.h"
#include "deploy/ask/up_status.h"

// Over a path of 3 s, the first attempt's time is too short to connect, but it measures the round
// trip; the second attempt then gets more time (FAR_WAIT_S).
enum { WAIT_S = 10, FAR_WAIT_S = 60, SERVER_WAIT_S = 3 };
// The longest time for which none of two coordinators leads (deploy/docs/etcd.md): the lease, and
// 3 s.
enum { NOBODY_LEADS_S = 10, LOOK_NS = 200000000 };
enum { STATUS_BYTES_MAX = 32 << 20 };
enum { HEAR_LOOKS = 30, HEAR_LOOK_NS = 200000000 };       // six seconds, longer than it is so
enum { RESTART_LOOKS = 50, RESTART_LOOK_NS = 200000000 }; // ten seconds in all

// ---------------------------------------------------------------- from a run's folder

// Is the process that wrote the last status gone? A folder of `up` belongs to this machine.
static bool is_gone(json_int_t pid)
{
    return pid > 0 && kill((pid_t)pid, 0) && errno == ESRCH;
}

// Does an `up` use the folder? It holds the folder's lock (up_dir.c); this only reads the lock
// table.
static bool has_up(const char *dir)
{
    struct stat is;
    FILE *in = stat(dir, &is) ? NULL : fopen("/proc/locks", "re");
    bool found = false;
    char line[256];
    while (in && !found && fgets(line, sizeof line, in)) {
        unsigned major, minor;
        unsigned long long inode;
        found = strstr(line, "FLOCK") &&
                sscanf(line, "%*s %*s %*s %*s %*s %x:%x:%llu", &major, &minor, &inode) == 3 &&
                inode == is.st_ino && makedev(major, minor) == is.st_dev;
    }
    if (in) fclose(in);
    return found;
}

// Adds the address in a coordinator's status. LH_ERR_UNAVAILABLE: its process is gone; *restarts:
// an `up` is running that restarts it.
static LH_MUST lh_err add_address(struct dp_admin *a, const char *path, bool *restarts)
{
    struct lh_buf bytes = lh_buf(DP_STATUS_BYTES_MAX);
    lh_err err = dp_file_read(path, &bytes);
    json_t *o = err ? NULL : json_loadb((const char *)bytes.data, bytes.len, 0, NULL);
    const char *address = json_string_value(json_object_get(o, "address"));
    const char *phase = json_string_value(json_object_get(o, "phase"));
    if (!err && !address) err = lh_fail(LH_ERR_MALFORMED, "%s names no address", path);
    if (!err && is_gone(json_integer_value(json_object_get(o, "pid")))) {
        *restarts = (!phase || strcmp(phase, "ended") != 0) && has_up(a->dir);
        err = lh_fail(LH_ERR_UNAVAILABLE,
                      "no coordinator runs in %s (it was at %s): %s (its last phase: %s); see "
                      "`longhaul events --dir %s`",
                      a->dir, address,
                      *restarts ? "`longhaul up` is there and starts it again"
                                : "the run has ended or was stopped",
                      phase ? phase : "unknown", a->dir);
    }
    size_t had = strlen(a->address), left = sizeof a->address - had;
    if (!err && (size_t)snprintf(a->address + had, left, "%s%s", had ? "," : "", address) >= left)
        err = lh_fail(LH_ERR_MALFORMED, "%s: address too long", path);
    json_decref(o);
    lh_buf_free(&bytes);
    return err;
}

// Waits for a coordinator that is being restarted, unless there is another one.
static LH_MUST lh_err find_address(struct dp_admin *a)
{
    char path[DP_PATH_BYTES], other[DP_PATH_BYTES];
    LH_TRY(dp_path(path, "%s/coordinator/status.json", a->dir));
    LH_TRY(dp_path(other, "%s/" DP_STANDBY_NAME "/status.json", a->dir));
    if (!dp_file_exists(path))
        return lh_fail(LH_ERR_NOT_FOUND,
                       "no run in %s (no coordinator/status.json): pass the folder that `longhaul "
                       "up` made, run/NAME, as --dir",
                       a->dir);
    for (int looks = 0;; looks++) {
        bool restarts = false;
        a->address[0] = 0;
        lh_err err = add_address(a, path, &restarts);
        if (dp_file_exists(other) && !add_address(a, other, &restarts)) return LH_OK;
        if (!restarts || looks == RESTART_LOOKS) return err;
        nanosleep(&(struct timespec){0, RESTART_LOOK_NS}, NULL);
    }
}

static LH_MUST lh_err complete(struct dp_admin *a)
{
    static const char *const file[] = {"ca.pem", "admin.pem", "admin.key"};
    const char **out[] = {&a->ca, &a->cert, &a->key};
    if (!a->coordinator && !a->dir)
        return lh_fail(LH_ERR_INVALID, "which run? pass --dir RUNDIR or --coordinator HOST:PORT");
    for (size_t i = 0; i < LH_COUNT(file); i++) {
        if (*out[i]) continue;
        if (!a->dir)
            return lh_fail(LH_ERR_INVALID, "--ca, --cert and --key are needed without --dir");
        LH_TRY(dp_path(a->path[i], "%s/secrets/%s", a->dir, file[i]));
        *out[i] = a->path[i];
    }
    if (!a->coordinator) return find_address(a);
    if ((size_t)snprintf(a->address, sizeof a->address, "%s", a->coordinator) >= sizeof a->address)
        return lh_fail(LH_ERR_INVALID, "--coordinator: address too long");
    if (lh_addresses_check("--coordinator", a->address)) // another error class: a wrong command
        return lh_fail(LH_ERR_INVALID, "--coordinator %.100s: want HOST:PORT", a->address);
    return LH_OK;
}

// ---------------------------------------------------------------- open, close

lh_err dp_admin_open(struct dp_admin *a)
{
    struct lh_certs_info own;
    LH_TRY(complete(a));
    LH_TRY(lh_certs_inspect(a->cert, &own));
    if (a->dir) LH_TRY(dp_links_enter(a->dir)); // before any other thread exists
    LH_TRY(lh_env_real_create(&a->env));
    const struct lh_grpc_conf conf = {.env = a->env,
                                      .ca = a->ca,
                                      .cert = a->cert,
                                      .key = a->key,
                                      .domain = own.domain,
                                      .run = own.peer.run};
    LH_TRY(lh_transport_grpc_create(&conf, &a->transport));
    return a->transport->ops->dial(a->transport, a->address, LH_C, LH_LINE_FIRST, &a->link);
}

void dp_admin_close(struct dp_admin *a)
{
    if (a->transport) lh_transport_grpc_destroy(a->transport);
    if (a->env) lh_env_real_destroy(a->env);
    a->transport = NULL;
    a->env = NULL;
}

// ---------------------------------------------------------------- questions

struct asked {
    struct lh_env *env;
    lh_err (*take)(void *arg, const void *answer);
    void *arg;
    lh_err err;
};

static void on_answer(void *self, lh_err err, const void *answer)
{
    struct asked *q = self;
    q->err = !err && q->take ? q->take(q->arg, answer) : err;
    lh_env_real_stop(q->env);
}

// The coordinator's process was there when its address was read: says how old its status is.
static LH_MUST lh_err no_answer(const struct dp_admin *a, const char *why)
{
    enum { OLD_S = 10 };
    char path[DP_PATH_BYTES] = "";
    struct lh_buf bytes = lh_buf(DP_STATUS_BYTES_MAX);
    json_t *o = NULL;
    if (!a->coordinator && !dp_path(path, "%s/coordinator/status.json", a->dir) &&
        !dp_file_read(path, &bytes))
        o = json_loadb((const char *)bytes.data, bytes.len, 0, NULL);
    lh_buf_free(&bytes);
    long long pid = json_integer_value(json_object_get(o, "pid"));
    long long old = (long long)time(NULL) - json_integer_value(json_object_get(o, "time_s"));
    bool silent = json_object_get(o, "time_s") && old > OLD_S && pid > 0 && !is_gone(pid);
    json_decref(o);
    if (silent)
        return lh_fail(LH_ERR_UNAVAILABLE,
                       "no coordinator answers: its process %lld runs, but has written no status "
                       "for %lld s: does its disk hang, or was the process stopped? (%s)",
                       pid, old, why);
    return lh_fail(LH_ERR_UNAVAILABLE, "no coordinator answers (is the run up?): %s", why);
}

lh_err dp_admin_ask(struct dp_admin *a, enum lh_rpc rpc, const struct lh_wire_type *type,
                    const void *question, lh_err (*take)(void *arg, const void *answer), void *arg)
{
    struct asked q = {a->env, take, arg, LH_OK};
    struct lh_unary *call;
    bool pair = strchr(a->address, ',') != NULL;
    int64_t begun = lh_now(a->env), first_ns = LH_GRPC_CONNECT_MS * LH_MS / 10 * 9;
    LH_TRY(lh_ask(a->link, rpc, WAIT_S * LH_SECOND, type, question, on_answer, &q, &call));
    lh_env_real_run(a->env);
    if (q.err == LH_ERR_UNAVAILABLE && lh_now(a->env) - begun >= first_ns) { // it took its time
        LH_TRY(lh_ask(a->link, rpc, FAR_WAIT_S * LH_SECOND, type, question, on_answer, &q, &call));
        lh_env_real_run(a->env);
    }
    int64_t patience = pair ? NOBODY_LEADS_S * LH_SECOND : 0;
    while (q.err == LH_ERR_UNAVAILABLE && lh_now(a->env) - begun < patience) {
        dp_admin_pause(a, LOOK_NS); // the link takes its next address then
        LH_TRY(lh_ask(a->link, rpc, WAIT_S * LH_SECOND, type, question, on_answer, &q, &call));
        lh_env_real_run(a->env);
    }
    if (lh_exit_of(q.err) != LH_EXIT_UNREACHABLE) return q.err;
    return no_answer(a, lh_err_text(q.err));
}

lh_err dp_admin_parse(const char *text, json_t **out)
{
    json_t *all = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const char *role = json_string_value(json_object_get(all, "role"));
    *out = NULL;
    if (!role || strcmp(role, "coordinator") != 0) {
        json_decref(all);
        return lh_fail(LH_ERR_MALFORMED, "the answer is not a coordinator's status");
    }
    *out = all;
    return LH_OK;
}

struct slices { // a state is fetched in slices of its text
    struct lh_buf text;
    uint64_t number, bytes;
};

static LH_MUST lh_err take_slice(void *arg, const void *answer)
{
    struct slices *s = arg;
    const struct lh_status_reply *m = answer;
    lh_put(&s->text, m->json, strlen(m->json));
    s->number = m->text;
    s->bytes = m->bytes;
    return lh_buf_err(&s->text);
}

static LH_MUST lh_err ask_slices(struct dp_admin *a, struct slices *s)
{
    lh_buf_clear(&s->text);
    s->number = 0;
    do {
        size_t had = s->text.len;
        struct lh_status_request question = {.text = s->number, .from = had};
        LH_TRY(
            dp_admin_ask(a, LH_RPC_STATUS, LH_MESSAGE(status_request, &question), take_slice, s));
        if (s->text.len == had) return lh_fail(LH_ERR_MALFORMED, "an empty slice of a state");
    } while (s->number && s->text.len < s->bytes);
    lh_put_u8(&s->text, 0);
    return lh_buf_err(&s->text);
}

// Starts over if another operator asks meanwhile.
static LH_MUST lh_err ask_status(struct dp_admin *a, json_t **out)
{
    enum { TRIES = 20 };
    struct slices s = {.text = lh_buf(STATUS_BYTES_MAX)};
    lh_err err = LH_ERR_BUSY;
    *out = NULL;
    for (int i = 0; err == LH_ERR_BUSY && i < TRIES; i++) err = ask_slices(a, &s);
    if (!err) err = dp_admin_parse((const char *)s.text.data, out);
    lh_buf_free(&s.text);
    return err;
}

// A coordinator that has just been started again has not heard of everybody yet: it would tell of
// fewer tokens than it did before.
lh_err dp_admin_status(struct dp_admin *a, json_t **out)
{
    for (int looks = 0;; looks++) {
        LH_TRY(ask_status(a, out));
        if (looks == HEAR_LOOKS || !lh_json_yes(*out, "hears")) return LH_OK;
        json_decref(*out);
        dp_admin_pause(a, HEAR_LOOK_NS);
    }
}

// The link to a server, dialled on first use.
static LH_MUST lh_err server_link(struct dp_admin *a, const char *address, struct lh_link **out)
{
    unsigned i = 0;
    while (i < a->servers && strcmp(a->server[i].address, address) != 0) i++;
    if (i == DP_SERVERS_ASKED_MAX)
        return lh_fail(LH_ERR_TOO_LARGE, "more than %d servers", DP_SERVERS_ASKED_MAX);
    if (i == a->servers) {
        if (strlen(address) >= sizeof a->server[i].address)
            return lh_fail(LH_ERR_MALFORMED, "a server's address is too long");
        LH_TRY(a->transport->ops->dial(a->transport, address, LH_S, LH_LINE_FIRST,
                                       &a->server[i].link));
        memcpy(a->server[i].address, address, strlen(address) + 1);
        a->servers++;
    }
    *out = a->server[i].link;
    return LH_OK;
}

struct server_asked {
    struct lh_env *env;
    unsigned *open; // calls that are not over
    json_t *servers;
    const char *address;
};

static void on_server(void *self, lh_err err, const void *answer)
{
    struct server_asked *q = self;
    const struct lh_status_reply *m = answer;
    json_t *all = err ? NULL : json_loads(m->json, 0, NULL);
    if (json_is_array(json_object_get(all, "shards"))) json_object_set(q->servers, q->address, all);
    json_decref(all);
    if (!--*q->open) lh_env_real_stop(q->env);
}

void dp_admin_servers(struct dp_admin *a, json_t *servers)
{
    static const struct lh_shard_status_request question = {0};
    struct server_asked asked[DP_SERVERS_ASKED_MAX];
    unsigned open = 0;
    const char *address;
    json_t *value;
    json_object_foreach(servers, address, value)
    {
        struct lh_link *link = NULL;
        struct lh_unary *call;
        if (server_link(a, address, &link)) continue;
        asked[open] = (struct server_asked){a->env, &open, servers, address};
        if (!lh_ask(link, LH_RPC_SHARD_STATUS, SERVER_WAIT_S * LH_SECOND,
                    LH_MESSAGE(shard_status_request, &question), on_server, &asked[open], &call))
            open++;
    }
    if (open) lh_env_real_run(a->env);
}

static void on_pause_over(void *arg)
{
    lh_env_real_stop(arg);
}

void dp_admin_pause(struct dp_admin *a, int64_t ns)
{
    (void)lh_after(a->env, ns, on_pause_over, a->env);
    lh_env_real_run(a->env);
}
