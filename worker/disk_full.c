// Disk full: a worker's full disk (deploy/docs/full-disk.md#a-worker): what is told of it, and when
// it is tried again.
//
// A commit that finds no room leaves everything as it was (commit.h), so all there is to do is to
// try again: training goes on, pushes wait.
#include "worker/disk_full.h"

static const struct {
    const char *full, *room;
} EVENT[WK_DISK_FULL_COUNT] = {
    [WK_DISK_FULL_OUTBOX] = {"outbox.disk_full", "outbox.room"},
    [WK_DISK_FULL_REPLICA] = {"replica.disk_full", "replica.room"},
    [WK_DISK_FULL_SNAPSHOT] = {"snapshot.disk_full", "snapshot.room"},
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

static void try_again(void *arg)
{
    struct wk_shard *s = arg;
    s->disk.timer = 0;
    s->worker->hooks->room(s);
}

void wk_disk_full_wait(struct wk_shard *s)
{
    struct wk_worker *w = s->worker;
    if (w->stopped || s->disk.timer) return;
    s->disk.timer =
        lh_after(w->conf.env, wk_backoff(w, &s->disk.tries, LH_ERR_DISK_FULL), try_again, s);
}
