// The life of a process. See program.h.
//
//  1. A thread of its own takes signals (sigwait) and posts them to the loop; no other thread
//     receives them, because main() blocks them before it makes any thread.
//  2. The end has this order: render the last status, close the application, let its lanes finish,
//     destroy the transport (every call gets its on_close), free the memory.
#include "common/app/program.h"

#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <ucontext.h>
#include <unistd.h>

#include "common/app/http.h"
#include "common/app/notify.h"
#include "common/app/status.h"
#include "common/app/tensorboard.h"
#include "common/base/exit.h"
#include "common/env/environment.h"
#include "common/net/grpc/transport_grpc.h"
#include "common/net/leader.h"
#include "common/security/certs.h"
#include "common/security/keyfile.h"

enum { HEAPS_MAX = 2 }; // without it each gRPC thread keeps a heap of its peak size
enum { HISTORY_S = 5 }; // initial interval of the page's curves
enum {
    STATUS_NS = 1000000000,
    OVER_NS = STATUS_NS / 10,
    LEAVE_NS = OVER_NS / 5,
    MANIFEST_BYTES = 32 << 20
};

// Standard error may be a pipe that nobody reads: then the words are dropped.
static void tell(const struct lh_program *p, const char *text)
{
    struct pollfd to = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&to, 1, 0) == 1 && (to.revents & POLLOUT))
        fprintf(stderr, "longhaul-%s: %s\n", p->app->table->kind, text);
}

static void complain(const struct lh_program *p, lh_err err)
{
    char text[512];
    snprintf(text, sizeof text, "%s", lh_err_text(err));
    tell(p, text);
    if (p->log && p->node->log.file[0]) lh_logf(p->log, LH_ERROR, "program.start", "%s", text);
}

// ---------------------------------------------------------------- signals

struct signals {
    struct lh_program *p;
    pthread_t thread;
    bool started;
};

static void signal_set(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGUSR1); // ours: ends the signal thread
}

static void leave(void *arg)
{
    struct lh_program *p = arg;
    int64_t now = lh_now(p->env);
    bool asked = p->leave_by != 0;
    if (p->ended) return;
    p->leave_timer = 0;
    if (!asked) p->leave_by = now + LH_LEAVE_S * LH_SECOND;
    if (!p->app->leave || p->app->leave(p->self, asked)) {
        lh_program_end(p, LH_OK);
    } else if (now >= p->leave_by) {
        lh_logf(p->log, LH_WARN, "program.end", "not everything was finished within %d s",
                LH_LEAVE_S);
        lh_program_end(p, LH_OK);
    } else {
        p->leave_timer = lh_after(p->env, LEAVE_NS, leave, p);
    }
}

static void asked_to_end(void *arg)
{
    struct lh_program *p = arg;
    if (!p->ended) lh_logf(p->log, LH_INFO, "program.end", "asked to end by a signal");
    p->asked = true;
    (void)lh_notify("STOPPING=1");
    leave(p);
}

static void *wait_for_signals(void *arg)
{
    struct lh_program *p = arg;
    sigset_t set;
    int number = 0;
    signal_set(&set);
    for (int asked = 0;; asked++) {
        if (sigwait(&set, &number) || number == SIGUSR1) return NULL;
        if (asked) _exit(LH_EXIT_STOPPED); // the second signal ends the process at once
        lh_post(p->env, asked_to_end, p);
    }
}

// A library may have started threads before main() blocked the signals (OpenBLAS does, at load),
// and the default action would end the process. Such a thread runs this handler once: it sends the
// signal to the process again and blocks it for itself, so the waiting thread gets it in the end.
static void send_on(int number, siginfo_t *info, void *context)
{
    (void)info;
    sigaddset(&((ucontext_t *)context)->uc_sigmask, number);
    kill(getpid(), number);
}

static LH_MUST lh_err watch_signals(struct signals *s, struct lh_program *p)
{
    const struct sigaction action = {.sa_sigaction = send_on, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    s->p = p;
    s->started = pthread_create(&s->thread, NULL, wait_for_signals, p) == 0;
    return s->started ? LH_OK : lh_fail(LH_ERR_NO_MEMORY, "cannot start the thread for signals");
}

static void unwatch_signals(struct signals *s)
{
    if (!s->started) return;
    pthread_kill(s->thread, SIGUSR1);
    pthread_join(s->thread, NULL);
}

// ---------------------------------------------------------------- the coordinator's number

static LH_MUST lh_err save_leader(struct lh_program *p)
{
    lh_err err = lh_leader_save(p->env, p->node->dir, p->leader);
    p->leader_unsaved = err != LH_OK;
    return err;
}

// The answers of a later leader count even if the disk is full; the number is stored when there is
// space.
static lh_err on_leader(void *arg, uint64_t number)
{
    struct lh_program *p = arg;
    p->leader = number;
    lh_err err = save_leader(p);
    if (!err || err == LH_ERR_DISK_FULL) return LH_OK;
    lh_program_fatal(p, err, lh_err_text(err));
    return err;
}

static LH_MUST lh_err load_leader(struct lh_program *p)
{
    lh_err err = lh_leader_load(p->env, p->node->dir, &p->leader);
    if (err == LH_ERR_CORRUPT) lh_logf(p->log, LH_WARN, "leader.damaged", "%s", lh_err_text(err));
    return err == LH_ERR_NOT_FOUND || err == LH_ERR_CORRUPT ? LH_OK : err;
}

// ---------------------------------------------------------------- beat

static void on_timer(void *arg)
{
    struct lh_program *p = arg;
    p->timer = lh_after(p->env, STATUS_NS, on_timer, p);
    if (p->watchdog) (void)lh_notify("WATCHDOG=1"); // the loop is alive
    lh_log_look(p->log);
    if (p->leader_unsaved) (void)!save_leader(p);
    if (p->app->tick) p->app->tick(p->self);
    if (!p->ended) lh_status_write(p);
}

// Programs that wait for the run's end read status.json, so it must not be a second late.
static void look_for_the_end(void *arg)
{
    struct lh_program *p = arg;
    p->over_timer = 0;
    if (p->ended) return;
    if (p->app->over(p->self) && !p->status_writing)
        lh_status_write(p);
    else
        p->over_timer = lh_after(p->env, OVER_NS, look_for_the_end, p);
}

// ---------------------------------------------------------------- parts

lh_err lh_program_load(struct lh_program *p, const char *key, const char *path, size_t max,
                       struct lh_buf *out)
{
    *out = lh_buf(max);
    lh_err err = lh_file_load(p->env, path, out);
    if (!err) return LH_OK;
    lh_buf_free(out);
    return lh_fail(err, "%s: %s", key, lh_err_text(err));
}

void lh_program_listening(const char *address)
{
    printf("listening %s\n", address);
    fflush(stdout);
}

static LH_MUST lh_err load_manifest(struct lh_program *p)
{
    struct lh_buf json;
    LH_TRY(lh_program_load(p, "model.manifest", p->node->model.manifest, MANIFEST_BYTES, &json));
    lh_err err = lh_manifest_parse(&p->manifest, lh_buf_span(&json));
    lh_buf_free(&json);
    return err ? lh_fail(err, "%s: %s", p->node->model.manifest, lh_err_text(err)) : LH_OK;
}

static LH_MUST lh_err load_keys(struct lh_program *p)
{
    if (!p->node->seal.keys[0]) return LH_OK;
    LH_TRY(lh_keyring_create(&p->keys));
    lh_err err = lh_keyring_load(p->keys, p->node->seal.keys);
    if (err) return lh_fail(err, "seal.keys: %s", lh_err_text(err));
    if (!lh_cipher_available(lh_node_cipher(p->node)))
        return lh_fail(LH_ERR_CONFIG, "seal.cipher: this processor has no AES; take xchacha20");
    return LH_OK;
}

// Like its peers, the process takes its domain, run, region and name from its certificate.
static LH_MUST lh_err who_am_i(struct lh_program *p)
{
    struct lh_certs_info info;
    enum lh_role role = p->app->role(p->settings);
    LH_TRY(lh_node_identity(p->node, &info));
    p->peer = info.peer;
    p->limits.certificate_ends_s = info.not_after;
    lh_job_id(p->peer.domain, p->peer.run, p->job);
    if (p->peer.role == role) return LH_OK;
    return lh_fail(LH_ERR_DENIED, "tls.cert: %s is the certificate of a %s, this is a %s",
                   p->node->tls.cert, lh_role_name(p->peer.role), lh_role_name(role));
}

static LH_MUST lh_err open_log(struct lh_program *p)
{
    char who[160], number[16] = "";
    unsigned part = p->app->part ? p->app->part(p->settings) : 0;
    if (part) snprintf(number, sizeof number, ".%u", part);
    snprintf(who, sizeof who, "%s/%s/%s%s", lh_role_name(p->peer.role), p->peer.region,
             p->peer.name, number);
    const char *file = p->node->log.file[0] ? p->node->log.file : NULL;
    LH_TRY(lh_log_open(&p->log, p->env, who, (enum lh_level)p->node->log.level,
                       p->node->log.format == 1, file));
    return lh_log_apart(p->log); // its disk may hang, as may a pipe that standard error is
}

// Each process writes status.json and lock, so roles that take turns in one directory mislead
// whoever reads it. A process that is coordinator and server has a coordinator's certificate.
static LH_MUST lh_err check_dir(const struct lh_program *p)
{
    static const struct {
        const char *file, *what;
        unsigned refuses; // roles
    } others[] = {
        {"units.json", "a run's data (units.json)", LH_W | LH_S | LH_C},
        {"outbox", "a worker's state (outbox)", LH_S | LH_C},
        {"checkpoints", "a server's state (checkpoints)", LH_W},
        {"store", "a coordinator's state (store)", LH_W | LH_S},
    };
    char path[LH_PATH_BYTES];
    struct stat is;
    for (size_t i = 0; i < LH_COUNT(others); i++) {
        LH_TRY(lh_path(path, sizeof path, p->node->dir, "%s", others[i].file));
        if (!(others[i].refuses & p->peer.role) || stat(path, &is)) continue;
        return lh_fail(LH_ERR_CONFIG,
                       "dir: %s holds %s: give this %s a directory of its own, which it makes",
                       p->node->dir, others[i].what, lh_role_name(p->peer.role));
    }
    return LH_OK;
}

static LH_MUST lh_err take_dir(struct lh_program *p)
{
    char path[LH_PATH_BYTES];
    const struct lh_files_ops *files = p->env->ops->files;
    LH_TRY(check_dir(p));
    LH_TRY(files->make_dir(p->env, p->node->dir));
    if (!p->app->lock) return LH_OK;
    LH_TRY(lh_path(path, sizeof path, p->node->dir, "lock"));
    lh_err err = files->open(p->env, path, LH_OPEN_WRITE | LH_OPEN_CREATE | LH_OPEN_LOCK, &p->lock);
    if (err != LH_ERR_BUSY) return err;
    return lh_fail(LH_ERR_BUSY,
                   "%s is used by another process; give each one a directory of its own (setting "
                   "dir)",
                   p->node->dir);
}

// The transport accepts a key file of any mode; a real host must protect it like the job key.
static LH_MUST lh_err check_tls_key(const struct lh_program *p)
{
    char pem[LH_KEYFILE_BYTES_MAX];
    size_t len;
    lh_err err = lh_keyfile_read(p->node->tls.key, LH_KEYFILE_SECRET, pem, sizeof pem, &len);
    explicit_bzero(pem, sizeof pem);
    return err ? lh_fail(err, "tls.key: %s", lh_err_text(err)) : LH_OK;
}

// Keeps keys out of core dumps and from debuggers, root's excepted.
static void hide_memory(void)
{
    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); // a limit may always be lowered
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

// The log's file: the setting's, or the file behind standard error; "": none.
static const char *log_path(const struct lh_program *p, char out[LH_PATH_BYTES])
{
    struct stat is;
    ssize_t n = readlink("/proc/self/fd/2", out, LH_PATH_BYTES - 1);
    if (p->node->log.file[0]) return p->node->log.file;
    out[n > 0 ? n : 0] = 0;
    return out[0] == '/' && !stat(out, &is) && S_ISREG(is.st_mode) ? out : "";
}

static LH_MUST lh_err open_http(struct lh_program *p)
{
    char log[LH_PATH_BYTES];
    if (!p->node->http.listen[0]) return LH_OK;
    const char *page = p->app->page ? p->app->page(p->settings) : NULL;
    const struct lh_http_conf conf = {p->node->http.listen, p->env, log_path(p, log), page,
                                      page ? HISTORY_S : 0};
    LH_TRY(lh_http_start(&conf, &p->http));
    lh_logf(p->log, LH_INFO, "http.listening", "http://%s/", lh_http_address(p->http));
    return LH_OK;
}

static LH_MUST lh_err open_tensorboard(struct lh_program *p)
{
    char folder[LH_PATH_BYTES], process[200];
    if (!p->node->log.tensorboard[0]) return LH_OK;
    LH_TRY(lh_path(folder, sizeof folder, p->node->log.tensorboard, "%s", p->peer.name));
    snprintf(process, sizeof process, "%s.%d", p->peer.name, (int)getpid());
    lh_err err = lh_tensorboard_open(p->env, folder, process, &p->tensorboard);
    return err ? lh_fail(err, "log.tensorboard: %s", lh_err_text(err)) : LH_OK;
}

static LH_MUST lh_err open_parts(struct lh_program *p)
{
    hide_memory();
    LH_TRY(who_am_i(p));
    LH_TRY(open_log(p));
    LH_TRY(take_dir(p));
    lh_status_last_exit(p);
    lh_logf(p->log, LH_INFO, "program.begin", "longhaul-%s %s, process %d", p->app->table->kind,
            LH_VERSION, (int)getpid()); // the first line of a life, for `longhaul events`
    LH_TRY(load_keys(p));
    LH_TRY(load_manifest(p));
    LH_TRY(check_tls_key(p));
    LH_TRY(load_leader(p));
    LH_TRY(open_http(p));
    LH_TRY(open_tensorboard(p));
    const struct lh_grpc_conf net = {.env = p->env,
                                     .log = p->log,
                                     .ca = p->node->tls.ca,
                                     .cert = p->node->tls.cert,
                                     .key = p->node->tls.key,
                                     .revoked = p->node->tls.revoked,
                                     .run = p->peer.run,
                                     .domain = p->peer.domain,
                                     .connect_ms = LH_GRPC_CONNECT_FAR_MS,
                                     .connect_max_ms = LH_GRPC_CONNECT_MS_MAX,
                                     .led = p->leader,
                                     .heard = on_leader,
                                     .heard_self = p};
    return lh_transport_grpc_create(&net, &p->transport);
}

static void close_parts(struct lh_program *p)
{
    lh_http_stop(p->http);
    lh_tensorboard_close(p->tensorboard);
    lh_manifest_free(&p->manifest);
    lh_keyring_destroy(p->keys);
    if (p->lock) p->env->ops->files->close(p->lock);
    lh_log_close(p->log);
    lh_env_real_destroy(p->env);
    lh_config_destroy(p->config);
}

// ---------------------------------------------------------------- run, end

void lh_program_end(struct lh_program *p, lh_err result)
{
    if (p->ended) return;
    p->ended = true;
    p->result = result;
    lh_env_real_stop(p->env);
}

void lh_program_fatal(void *arg, lh_err err, const char *text)
{
    struct lh_program *p = arg;
    if (!p->ended && p->node->log.file[0]) tell(p, text);
    lh_program_end(p, err);
}

static int64_t nothing(void *arg)
{
    (void)arg;
    return 0;
}

static void lane_is_idle(void *arg)
{
    struct lh_program *p = arg;
    if (--p->lanes_busy == 0) lh_env_real_stop(p->env);
}

static void stop_loop(void *arg)
{
    lh_env_real_stop(arg);
}

// Waits until all jobs on the lanes and in the loop's queue are done.
static void come_to_rest(struct lh_program *p)
{
    p->lanes_busy = LH_LANE_COUNT;
    for (int i = 0; i < LH_LANE_COUNT; i++)
        p->env->ops->work(p->env, (enum lh_lane)i, nothing, lane_is_idle, p);
    while (p->lanes_busy) lh_env_real_run(p->env);
}

static void run(struct lh_program *p)
{
    while (!p->ended) lh_env_real_run(p->env);
    lh_cancel(p->env, &p->timer);
    lh_cancel(p->env, &p->over_timer);
    lh_cancel(p->env, &p->leave_timer);
    lh_status_keep(p); // before anything is closed
}

static void settle(struct lh_program *p)
{
    lh_err err = p->asked && p->app->settle ? p->app->settle(p->self) : LH_OK;
    if (!err) return;
    lh_logf(p->log, LH_ERROR, "program.settle", "%s", lh_err_text(err));
    p->result = err;
}

static void end(struct lh_program *p, bool started)
{
    if (started) {
        p->app->close(p->self);
        come_to_rest(p);
        lh_status_last(p);
        settle(p);
    }
    lh_transport_grpc_destroy(p->transport);
    lh_post(p->env, stop_loop, p->env); // runs after the functions that the transport posted
    lh_env_real_run(p->env);
    if (started) p->app->stop(p->self);
}

static LH_MUST lh_err read_settings(struct lh_program *p, int argc, char **argv, bool *shown)
{
    struct lh_buf text = lh_buf(1 << 20);
    LH_TRY(lh_config_create(p->app->table, &p->config));
    lh_err err =
        lh_config_main(p->config, p->app->table, p->env, lh_environment, argc, argv, &text);
    *shown = !err && text.len > 0;
    if (*shown) fwrite(text.data, 1, text.len, stdout);
    lh_buf_free(&text);
    if (err || *shown) return err;
    p->settings = lh_config_settings(p->config);
    p->node = p->settings; // their first member
    return LH_OK;
}

static LH_MUST lh_err live(struct lh_program *p)
{
    struct signals signals = {0};
    bool started = false;
    lh_err err = open_parts(p);
    if (!err) err = watch_signals(&signals, p);
    if (!err) err = p->app->start(p->self, p);
    if (err) {
        complain(p, err);
    } else {
        started = true;
        p->watchdog = lh_notify_watchdog();
        on_timer(p);
        if (p->app->over) look_for_the_end(p);
        run(p);
    }
    if (p->transport) end(p, started);
    if (started) err = p->result;
    unwatch_signals(&signals);
    return err;
}

int lh_program_main(const struct lh_app *app, void *self, int argc, char **argv)
{
    struct lh_program p = {.app = app, .self = self};
    sigset_t set;
    bool shown = false;
    mallopt(M_ARENA_MAX, HEAPS_MAX);
    signal_set(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    lh_err err = lh_env_real_create(&p.env);
    if (!err) {
        p.started_ns = lh_now(p.env);
        err = read_settings(&p, argc, argv, &shown);
    }
    if (err)
        complain(&p, err);
    else if (!shown)
        err = live(&p);
    close_parts(&p);
    return (int)lh_exit_of(err);
}
