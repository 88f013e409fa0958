// server/state/uploader.c: new checkpoints are stored beside training. A store that can't be
// reached only delays them, and a damaged checkpoint delays no other one. A standby uploads
// nothing. The end of a run is stored before the process exits.
// labels: tsan
#include "tests/unit/common/objects/fake_s3.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/storage/checkpoint_read.h"
#include "kernels/storage/stored.h"
#include "server/state/uploader.h"
#include "tests/history/rig.h"

struct rig {
    struct history_rig h;
    struct lh_env *env;
    struct ps_uploader *uploader;
    struct lh_log *log;
    char address[128], dir[128], folder[96], endpoint[64];
    uint32_t shards[2];
};

static void start(struct rig *r)
{
    const struct ps_uploader_conf conf = {.env = r->env,
                                          .log = r->log,
                                          .dir = r->dir,
                                          .shards = r->shards,
                                          .shard_count = 2,
                                          .keep = 2,
                                          .store = {.address = r->address,
                                                    .endpoint = r->endpoint,
                                                    .variable = variable,
                                                    .pause_ns = LH_MS},
                                          .look_ns = LH_MS,
                                          .again_ns = LH_MS};
    assert_int_equal(ps_uploader_start(&conf, &r->uploader), LH_OK);
}

static int set_up(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    history_rig_start(&r->h);
    history_rig_files(&r->h);
    assert_int_equal(lh_env_real_create(&r->env), LH_OK);
    snprintf(r->folder, sizeof r->folder, "%s/store", r->h.root);
    snprintf(r->address, sizeof r->address, "file://%s", r->folder);
    snprintf(r->dir, sizeof r->dir, "%s/server/checkpoints", r->h.root);
    r->shards[1] = 1;
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *r = *state;
    lh_env_real_destroy(r->env);
    history_rig_finish(&r->h);
    free(r);
    return 0;
}

static double said(struct rig *r, const char *field)
{
    json_t *status = ps_uploader_status(r->uploader);
    const json_t *value = json_object_get(status, field);
    assert_non_null(value);
    double number = json_is_boolean(value) ? json_is_true(value) : json_number_value(value);
    json_decref(status);
    return number;
}

static void until(struct rig *r, const char *field, double least)
{
    while (said(r, field) < least) (void)poll(NULL, 0, 1);
}

static size_t stored(struct rig *r, uint64_t *newest)
{
    const struct lh_objects_conf conf = {
        .env = r->env, .address = r->address, .variable = variable};
    struct lh_objects *o;
    struct lk_stored_list list;
    assert_int_equal(lh_objects_open(&conf, &o), LH_OK);
    assert_int_equal(lk_stored_list(o, LK_STORED_ALL, &list), LH_OK);
    size_t count = list.count;
    *newest = 0;
    for (size_t i = 0; i < count; i++)
        if (!list.at[i].name.weights && list.at[i].name.version > *newest)
            *newest = list.at[i].name.version;
    lk_stored_list_free(&list);
    lh_objects_close(o);
    return count;
}

#define IN_RIG(name, parameter) TEST_WITH(name, parameter, set_up, tear_down)

IN_RIG(the_newest_are_stored, struct rig *r)
{
    uint64_t newest;
    start(r);
    ps_uploader_serve(r->uploader, true);
    until(r, "uploads", 2);
    ps_uploader_stop(r->uploader);
    size_t count = stored(r, &newest);
    assert_true(count >= 2 && newest > 0);
    start(r); // a restarted process stores nothing twice
    ps_uploader_serve(r->uploader, true);
    ps_uploader_stop(r->uploader);
    assert_int_equal(stored(r, &newest), count);
}

IN_RIG(a_store_that_is_away_costs_age_alone, struct rig *r)
{
    uint64_t newest;
    assert_int_equal(lh_file_replace(r->env, r->folder, lh_span_str("no folder")), LH_OK);
    start(r);
    ps_uploader_serve(r->uploader, true);
    until(r, "failures", 3);
    assert_int_equal(said(r, "away"), 1);
    assert_true(said(r, "age_s") > 0);
    assert_int_equal(said(r, "uploads"), 0);
    assert_int_equal(unlink(r->folder), 0);
    until(r, "uploads", 2);
    while (said(r, "away") > 0 || said(r, "age_s") > 0) (void)poll(NULL, 0, 1);
    ps_uploader_stop(r->uploader);
    assert_true(stored(r, &newest) >= 2);
}

IN_RIG(a_damaged_checkpoint_keeps_no_other_waiting, struct rig *r)
{
    char path[LH_PATH_BYTES];
    const struct lk_checkpoint_name damaged = {.shard = 0, .version = UINT32_MAX};
    assert_int_equal(lk_checkpoint_path(r->dir, &damaged, path), LH_OK);
    assert_int_equal(lh_file_replace(r->env, path, lh_span_str("no checkpoint")), LH_OK);
    start(r);
    ps_uploader_serve(r->uploader, true);
    until(r, "uploads", 1); // shard 1's
    until(r, "failures", 3);
    assert_int_equal(said(r, "away"), 1);
    assert_int_equal(unlink(path), 0);
    until(r, "uploads", 2);
    ps_uploader_stop(r->uploader);
}

// To the uploader the store is away.
IN_RIG(a_file_that_the_store_does_not_take_keeps_no_other_waiting, struct rig *r)
{
    struct store s = {.f = {.away = "/0000-"}};
    start_store(&s, r->endpoint);
    snprintf(r->address, sizeof r->address, "s3://bucket/run");
    start(r);
    ps_uploader_serve(r->uploader, true);
    until(r, "uploads", 1); // shard 1's
    until(r, "failures", 3);
    assert_int_equal(said(r, "away"), 1);
    pthread_mutex_lock(&s.lock);
    s.f.away = NULL;
    pthread_mutex_unlock(&s.lock);
    until(r, "uploads", 2);
    ps_uploader_stop(r->uploader);
    stop_store(&s);
}

static bool logged(struct rig *r, const char *text)
{
    struct lh_buf all = lh_buf(1 << 20);
    assert_int_equal(lh_file_load(r->env, history_in_root(&r->h, "uploader.log"), &all), LH_OK);
    lh_put_u8(&all, 0);
    bool is = strstr((const char *)all.data, text) != NULL;
    lh_buf_free(&all);
    return is;
}

IN_RIG(missing_checkpoints_are_logged_at_the_end, struct rig *r)
{
    assert_int_equal(lh_log_open(&r->log, r->env, "server", LH_INFO, false,
                                 history_in_root(&r->h, "uploader.log")),
                     LH_OK);
    assert_int_equal(lh_file_replace(r->env, r->folder, lh_span_str("no folder")), LH_OK);
    start(r);
    ps_uploader_serve(r->uploader, true);
    until(r, "failures", 1);
    ps_uploader_stop(r->uploader);
    assert_true(logged(r, "lacks the newest checkpoints of 2 shards (shard 0: version "));
    assert_int_equal(unlink(r->folder), 0);
    lh_log_close(r->log);
    assert_int_equal(unlink(history_in_root(&r->h, "uploader.log")), 0);
    assert_int_equal(lh_log_open(&r->log, r->env, "server", LH_INFO, false,
                                 history_in_root(&r->h, "uploader.log")),
                     LH_OK);
    start(r);
    ps_uploader_serve(r->uploader, true);
    ps_uploader_stop(r->uploader);
    assert_true(logged(r, "checkpoint.stored") && !logged(r, "lacks"));
    lh_log_close(r->log);
    r->log = NULL;
}

IN_RIG(a_standby_stores_nothing, struct rig *r)
{
    uint64_t newest;
    start(r);
    ps_uploader_stop(r->uploader);
    assert_int_equal(stored(r, &newest), 0);
    start(r);
    ps_uploader_serve(r->uploader, true); // it took over, and is stopped at once
    ps_uploader_stop(r->uploader);
    assert_true(stored(r, &newest) >= 2);
}

static enum MHD_Result nothing_is_here(void *arg, struct MHD_Connection *c, const char *url,
                                       const char *method, const char *version, const char *data,
                                       size_t *len, void **own)
{
    (void)arg, (void)url, (void)method, (void)version, (void)data, (void)own;
    *len = 0;
    struct MHD_Response *none = MHD_create_response_from_buffer(0, "", MHD_RESPMEM_PERSISTENT);
    enum MHD_Result done = MHD_queue_response(c, 404, none);
    MHD_destroy_response(none);
    return done;
}

// A wrong endpoint answers 404 to everything; that does not mean that the checkpoint was pruned
// meanwhile.
IN_RIG(a_404_from_the_store_is_a_failure, struct rig *r)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct MHD_Daemon *daemon =
        MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, nothing_is_here, NULL,
                         MHD_OPTION_SOCK_ADDR, &at, MHD_OPTION_END);
    assert_non_null(daemon);
    snprintf(r->endpoint, sizeof r->endpoint, "http://127.0.0.1:%u",
             MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
    snprintf(r->address, sizeof r->address, "s3://bucket/run");
    start(r);
    ps_uploader_serve(r->uploader, true);
    until(r, "failures", 2);
    assert_int_equal(said(r, "away"), 1);
    ps_uploader_stop(r->uploader);
    MHD_stop_daemon(daemon);
}
