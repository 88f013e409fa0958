// status.json of a process. See status.h.
//
// Written to a temporary file and renamed, so a reader sees a whole one. Not synced: a status is of
// use only while the process runs.
#include "common/app/status.h"

#include "common/app/http.h"
#include "common/app/notify.h"
#include "common/app/tensorboard.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/net/grpc/transport_grpc.h"
#include "common/security/certs.h"

enum { STATUS_BYTES = 1 << 24, LOOK_S = 60 };

// Peak of resident memory; 0 if /proc has no figure.
static uint64_t peak_bytes(struct lh_program *p)
{
    const struct lh_files_ops *files = p->env->ops->files;
    struct lh_file *file;
    char text[4096];
    size_t got = 0;
    if (files->open(p->env, "/proc/self/status", LH_OPEN_READ, &file)) return 0;
    lh_err err = files->read(file, 0, text, sizeof text - 1, &got);
    files->close(file);
    text[err ? 0 : got] = 0;
    const char *at = strstr(text, "VmHWM:");
    return at ? 1024 * strtoull(at + strlen("VmHWM:"), NULL, 10) : 0;
}

// Processor seconds so far, user and system.
static double cpu_s(void)
{
    struct rusage u;
    if (getrusage(RUSAGE_SELF, &u)) return 0;
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

// Free disk space and the certificate's expiry, as the status lane read them for the previous
// status: reading them here could block the loop on a hanging disk.
void lh_status_tell(const struct lh_program *p, json_t *out)
{
    int64_t now = p->env->ops->wall_s(p->env);
    json_object_set_new(out, "version", json_string(LH_VERSION));
    json_object_set_new(out, "time_s", json_integer((json_int_t)now));
    if (p->limits.looked_s)
        json_object_set_new(out, "disk_free_bytes", json_integer((json_int_t)p->limits.disk_free));
    json_object_set_new(out, "certificate_expires_s",
                        json_integer(p->limits.certificate_ends_s - now));
    if (p->http) json_object_set_new(out, "http", json_string(lh_http_address(p->http)));
}

// On the status' lane.
static void look_at_limits(struct lh_program *p)
{
    struct lh_certs_info info;
    int64_t now = p->env->ops->wall_s(p->env);
    bool set_back = now < p->limits.looked_s, again = now - p->limits.looked_s >= LOOK_S;
    (void)p->env->ops->files->room(p->env, p->node->dir, &p->limits.next_disk_free);
    p->limits.next_ends_s = 0;
    if ((again || set_back) &&
        !lh_certs_inspect(p->node->tls.cert, &info)) // it may have been renewed
        p->limits.next_ends_s = info.not_after;
}

static const char *exit_of(const struct lh_program *p)
{
    return p->result ? lh_err_name(p->result) : p->asked ? "signal" : "ended";
}

// An error's name, or one of ours: a label of a metric takes no other text from a file.
static bool is_exit(const char *text)
{
    bool known = !strcmp(text, "signal") || !strcmp(text, "ended");
    for (int i = LH_OK + 1; i < LH_ERR_COUNT && !known; i++)
        known = !strcmp(text, lh_err_name((lh_err)i));
    return known;
}

void lh_status_last_exit(struct lh_program *p)
{
    char path[LH_PATH_BYTES];
    struct lh_buf json = lh_buf(STATUS_BYTES);
    const char *last = "none";
    json_t *root = NULL;
    if (!lh_path(path, sizeof path, p->node->dir, "status.json") &&
        !lh_file_load(p->env, path, &json)) {
        root = json_loadb((const char *)json.data, json.len, 0, NULL);
        const char *is = json_string_value(json_object_get(root, "exit"));
        last = is && is_exit(is) ? is : "killed";
    }
    snprintf(p->last_exit, sizeof p->last_exit, "%s", last);
    json_decref(root);
    lh_buf_free(&json);
}

static LH_MUST lh_err with_process(struct lh_program *p, struct lh_buf *json)
{
    struct lh_wire_bytes wire = {0};
    lh_transport_grpc_wire_bytes(p->transport, &wire);
    json_t *root = json_loadb((const char *)json->data, json->len, 0, NULL);
    json_t *mine =
        json_pack("{s:i s:f s:I s:I s:I s:f s:f}", "pid", (int)getpid(), "up_s",
                  (double)(lh_now(p->env) - p->started_ns) / (double)LH_SECOND, "wire_up_bytes",
                  (json_int_t)wire.sent, "wire_down_bytes", (json_int_t)wire.received, "peak_bytes",
                  (json_int_t)peak_bytes(p), "cpu_s", cpu_s(), "loop_longest_ms",
                  (double)lh_env_real_longest_ns(p->env) / 1e6);
    lh_status_tell(p, mine);
    json_object_set_new(mine, "last_exit", json_string(p->last_exit));
    if (p->ended) json_object_set_new(mine, "exit", json_string(exit_of(p)));
    bool merged = root && mine && json_object_update(root, mine) == 0;
    if (!p->told_ready && json_is_true(json_object_get(root, "ready")))
        p->told_ready = lh_notify("READY=1");
    char *text = merged ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    json_decref(mine);
    if (!text) return lh_fail(LH_ERR_INTERNAL, "the status is no JSON object");
    lh_buf_clear(json);
    lh_put(json, text, strlen(text));
    lh_put_u8(json, '\n');
    free(text);
    return lh_buf_err(json);
}

static LH_MUST lh_err replace_status(struct lh_program *p, struct lh_span json)
{
    const struct lh_files_ops *files = p->env->ops->files;
    char path[LH_PATH_BYTES], fresh[LH_PATH_BYTES];
    struct lh_file *file;
    LH_TRY(lh_path(path, sizeof path, p->node->dir, "status.json"));
    LH_TRY(lh_path(fresh, sizeof fresh, p->node->dir, "status.json.new"));
    LH_TRY(files->open(p->env, fresh, LH_OPEN_WRITE | LH_OPEN_CREATE | LH_OPEN_TRUNCATE, &file));
    lh_err err = files->write(file, 0, json);
    files->close(file);
    return err ? err : files->rename(p->env, fresh, path);
}

// Logs the first failure and the recovery; a failed write does not stop a run.
static void tell_status(struct lh_program *p, lh_err err, const char *text)
{
    if (err && !p->status_fails)
        lh_logf(p->log, LH_WARN, "status.unwritten", "%s; tried again every second", text);
    else if (!err && p->status_fails)
        lh_logf(p->log, LH_INFO, "status.written", "status.json is up to date again");
    p->status_fails = err != LH_OK;
}

static LH_MUST lh_err make_status(struct lh_program *p, struct lh_buf *out)
{
    *out = lh_buf(STATUS_BYTES);
    LH_TRY(p->app->status(p->self, out));
    return with_process(p, out);
}

// On the status' lane.
static lh_err write_metrics(struct lh_program *p)
{
    double now = (double)p->env->ops->wall_s(p->env);
    if (!p->tensorboard || !lh_tensorboard_due(p->tensorboard, now)) return LH_OK;
    json_t *status = json_loadb((const char *)p->status.data, p->status.len, 0, NULL);
    lh_err err = status ? lh_tensorboard_add(p->tensorboard, now, status) : LH_ERR_NO_MEMORY;
    json_decref(status);
    return err;
}

static int64_t status_job(void *arg)
{
    struct lh_program *p = arg;
    if (p->http) lh_http_publish(p->http, lh_buf_span(&p->status));
    atomic_store(&p->status_shown, true);
    look_at_limits(p);
    p->status_result = replace_status(p, lh_buf_span(&p->status));
    if (p->status_result)
        snprintf(p->status_text, sizeof p->status_text, "%s", lh_err_text(p->status_result));
    p->board_result = write_metrics(p);
    return 0;
}

static void status_done(void *arg)
{
    struct lh_program *p = arg;
    p->status_writing = false;
    p->limits.disk_free = p->limits.next_disk_free;
    if (p->limits.next_ends_s) p->limits.certificate_ends_s = p->limits.next_ends_s;
    if (p->limits.next_ends_s || !p->limits.looked_s)
        p->limits.looked_s = p->env->ops->wall_s(p->env);
    lh_buf_free(&p->status);
    tell_status(p, p->status_result, p->status_text);
    if (p->board_result && !p->board_fails)
        lh_logf(p->log, LH_WARN, "tensorboard.unwritten",
                "%s: an event file can't be written (%s); tried again", p->node->log.tensorboard,
                p->board_result == LH_ERR_DISK_FULL ? "no space: free some"
                                                    : lh_err_name(p->board_result));
    p->board_fails = p->board_result != LH_OK;
}

// While a slow disk writes one status, publishes the next over HTTP.
static void show_status(struct lh_program *p)
{
    struct lh_buf now;
    if (!p->http || !atomic_load(&p->status_shown)) return;
    lh_err err = make_status(p, &now);
    if (!err) lh_http_publish(p->http, lh_buf_span(&now));
    lh_buf_free(&now);
}

void lh_status_write(struct lh_program *p)
{
    if (p->status_writing) {
        show_status(p);
        return;
    }
    atomic_store(&p->status_shown, false);
    lh_err err = make_status(p, &p->status);
    p->status_writing = err == LH_OK;
    if (p->status_writing) {
        p->env->ops->work(p->env, LH_LANE_STATUS, status_job, status_done, p);
        return;
    }
    tell_status(p, err, lh_err_text(err));
    lh_buf_free(&p->status);
}

void lh_status_keep(struct lh_program *p)
{
    lh_err err = make_status(p, &p->last);
    if (err) tell_status(p, err, lh_err_text(err));
}

void lh_status_last(struct lh_program *p)
{
    lh_err err = p->last.len ? replace_status(p, lh_buf_span(&p->last)) : LH_OK;
    if (err) tell_status(p, err, lh_err_text(err));
    lh_buf_free(&p->last);
}
