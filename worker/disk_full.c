// Disk full: reports a full disk and schedules retries (deploy/docs/full-disk.md#a-worker); reports
// a disk that hangs.
//
// A commit on a full disk changes nothing (commit.h), so a retry is enough: training goes on,
// pushes wait.
#include "worker/disk_full.h"

#include <stdio.h>

static const struct {
    const char *full, *room;
} EVENT[WK_DISK_FULL_COUNT] = {
    [WK_DISK_FULL_OUTBOX] = {"outbox.disk_full", "outbox.room"},
    [WK_DISK_FULL_REPLICA] = {"replica.disk_full", "replica.room"},
    [WK_DISK_FULL_SNAPSHOT] = {"snapshot.disk_full", "snapshot.room"},
    [WK_DISK_FULL_WEIGHTS] = {"weights.disk_full", "weights.room"},
};

void wk_disk_full_say(struct wk_worker *w, enum wk_disk_full of, const char *text)
{
    if (w->full_said[of] || w->stopped) return;
    w->full_said[of] = true;
    lh_logf(w->conf.log, LH_ERROR, EVENT[of].full, "%s", text);
}

void wk_disk_full_over(struct wk_worker *w, enum wk_disk_full of)
{
    if (!w->full_said[of]) return;
    w->full_said[of] = false;
    lh_logf(w->conf.log, LH_INFO, EVENT[of].room, "%s has room again", w->conf.dir);
}

void wk_disk_slow_look(struct wk_shard *s, int64_t now)
{
    char what[64];
    snprintf(what, sizeof what, "a push of shard %u", s->id);
    lh_slow_look(&s->disk.slow, now, s->worker->conf.log, what, "the disk",
                 "training goes on, but the shard pushes nothing");
}

void wk_disk_slow_end(struct wk_shard *s)
{
    char what[64];
    snprintf(what, sizeof what, "a push of shard %u", s->id);
    lh_slow_end(&s->disk.slow, lh_now(s->worker->conf.env), s->worker->conf.log, what);
}

double wk_disk_slow_age_s(const struct wk_worker *w)
{
    double oldest = 0;
    for (uint32_t i = 0; i < w->shards; i++) {
        double age = lh_slow_age_s(&w->shard[i].disk.slow, lh_now(w->conf.env));
        if (age > oldest) oldest = age;
    }
    return oldest;
}

static void try_again(void *arg)
{
    struct wk_shard *s = arg;
    s->disk.timer = 0;
    s->worker->hooks->room(s);
}

void wk_disk_full_hold(struct wk_shard *s, const char *text)
{
    wk_disk_full_say(s->worker, WK_DISK_FULL_OUTBOX, text);
    wk_disk_full_wait(s);
}

void wk_disk_full_wait(struct wk_shard *s)
{
    struct wk_worker *w = s->worker;
    if (w->stopped || s->disk.timer) return;
    s->disk.timer =
        lh_after(w->conf.env, wk_backoff(w, &s->disk.tries, LH_ERR_DISK_FULL), try_again, s);
}
