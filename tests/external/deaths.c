// The client library against the worker's end, in one process: either side outlives the other.
#include <sys/socket.h>
#include <sys/un.h>

#include "common/base/limits.h"
#include "tests/external/client_rig.h"
#include "worker/external/socket.h"

enum { WORDS = 20000 };

IN_RIG(trains_on_without_a_worker_for_a_while, struct rig *r)
{
    join_with(r, r->mine, LONGHAUL_FP32, LONGHAUL_HOST);
    assert_int_equal(boundary(r, 1), 0);
    stop_worker(r);
    for (uint64_t step = 2; step < 7; step++) assert_int_equal(boundary(r, step), 0);
    assert_int_equal(boundary(r, 7), LONGHAUL_WAIT); // run_on allows five steps
    struct longhaul_state s = {.size = sizeof s};
    assert_int_equal(longhaul_state(r->c, &s), LONGHAUL_OK);
    assert_int_equal(s.worker_lives, 0);
    assert_int_equal(s.away_steps, 5);
    assert_int_equal(longhaul_wait(r->c, 1), LONGHAUL_E_TIMEOUT);
}

// The life's memory goes to the worker's next process, whatever the number of its descriptor. The
// number may be 0 in a process that was started with its input closed.
IN_RIG(a_worker_that_comes_back_goes_on_with_the_life, struct rig *r)
{
    struct longhaul_state s = {.size = sizeof s};
    int input = dup(0);
    r->lends_zero = true;
    join_with(r, r->mine, LONGHAUL_FP32, LONGHAUL_HOST);
    assert_false(r->lends_zero);
    assert_int_equal(boundary(r, 1), 0);
    stop_worker(r);
    assert_int_equal(boundary(r, 2), 0); // the worker's absence is noticed
    start_worker(r);
    for (int err = LONGHAUL_OK; !s.worker_lives;) {
        err = longhaul_wait(r->c, TIMEOUT_MS);
        if (err) fail_msg("%s: %s", longhaul_error_name(err), longhaul_text(r->c));
        assert_int_equal(longhaul_state(r->c, &s), LONGHAUL_OK);
    }
    assert_int_equal(r->overs, 0);
    for (int i = 0; i < N; i++) r->mine[i] -= 3;
    on_loop(r, want_now);
    assert_int_equal(boundary(r, 3), LONGHAUL_CUT);
    assert_int_equal(longhaul_cut(r->c), LONGHAUL_OK);
    await_cuts(r, 1);
    for (int i = 0; i < N; i++) assert_true(r->delta[i] == 3);
    longhaul_close(r->c); // closes 0 as well
    r->c = NULL;
    if (input >= 0) {
        dup2(input, 0);
        close(input);
    }
}

static void pause_now(struct rig *r)
{
    wk_external_pause(r->x, true);
}

static void resume_now(struct rig *r)
{
    wk_external_pause(r->x, false);
}

static void lease_now(struct rig *r)
{
    LH_ASSERT(wk_external_lease(r->x, 0, 33, 0, 64) == LH_OK);
}

static void drain_now(struct rig *r)
{
    wk_external_drain(r->x);
}

// A paused loop stands still until the run resumes or drains, even if its worker dies or other
// messages come.
IN_RIG(a_loop_stands_still_while_the_run_is_paused, struct rig *r)
{
    join_with(r, r->mine, LONGHAUL_FP32, LONGHAUL_HOST);
    assert_int_equal(boundary(r, 1), 0);
    on_loop(r, pause_now);
    assert_int_equal(boundary(r, 2), LONGHAUL_PAUSE);
    on_loop(r, credit_more);
    on_loop(r, lease_now); // news that would end another wait
    assert_int_equal(longhaul_wait(r->c, 1), LONGHAUL_E_TIMEOUT);
    assert_string_equal(longhaul_text(r->c), "the run is paused");
    stop_worker(r);
    assert_int_equal(longhaul_wait(r->c, 1), LONGHAUL_E_TIMEOUT);
    start_worker(r);
    on_loop(r, pause_now); // the worker knows before its trainer connects
    struct longhaul_state s = {.size = sizeof s};
    while (!s.worker_lives) {
        assert_int_equal(longhaul_wait(r->c, 20), LONGHAUL_E_TIMEOUT);
        assert_int_equal(longhaul_state(r->c, &s), LONGHAUL_OK);
    }
    on_loop(r, resume_now);
    assert_int_equal(longhaul_wait(r->c, TIMEOUT_MS), LONGHAUL_OK);
    assert_int_equal(boundary(r, 3), 0);
    on_loop(r, pause_now);
    assert_int_equal(boundary(r, 4), LONGHAUL_PAUSE);
    on_loop(r, drain_now);
    assert_int_equal(longhaul_wait(r->c, TIMEOUT_MS), LONGHAUL_OK);
    assert_int_equal(boundary(r, 5), LONGHAUL_DRAIN);
}

// Rank 0 names the step at which both stop, two ahead, so neither waits in a step for the other.
TEST_TWO(ranks_stand_still_at_one_step, struct rig *r)
{
    static float theirs[N];
    struct longhaul *second = join_two(r, theirs, LONGHAUL_HOST), *both[] = {r->c, second};
    uint64_t step = 1;
    for (int pauses = 0; pauses < 3; pauses++) {
        unsigned due[2] = {0, 0};
        on_loop(r, pause_now);
        for (int more = 0; more < 3; more++, step++)
            for (int i = 0; i < 2; i++) {
                assert_int_equal(longhaul_boundary(both[i], step, 1, &due[i]), LONGHAUL_OK);
                assert_int_equal(due[i], more < 2 ? 0 : LONGHAUL_PAUSE);
            }
        for (int i = 0; i < 2; i++) assert_int_equal(longhaul_wait(both[i], 1), LONGHAUL_E_TIMEOUT);
        on_loop(r, resume_now);
        for (int i = 0; i < 2; i++)
            assert_int_equal(longhaul_wait(both[i], TIMEOUT_MS), LONGHAUL_OK);
    }
    longhaul_close(second);
}

static bool both_have_a_worker(struct longhaul *first, struct longhaul *second)
{
    struct longhaul_state a = {.size = sizeof a}, b = {.size = sizeof b};
    assert_int_equal(longhaul_state(first, &a), LONGHAUL_OK);
    assert_int_equal(longhaul_state(second, &b), LONGHAUL_OK);
    return a.worker_lives && b.worker_lives;
}

static void wait_both(struct longhaul *first, struct longhaul *second)
{
    int one = longhaul_wait(first, 20), two = longhaul_wait(second, 20);
    assert_true(one == LONGHAUL_OK || one == LONGHAUL_E_TIMEOUT);
    assert_true(two == LONGHAUL_OK || two == LONGHAUL_E_TIMEOUT);
}

// One rank asks for the clock before the worker dies, the other after the worker is back; both ask
// before their first step.
TEST_TWO(ranks_begin_with_one_clock_though_the_worker_dies, struct rig *r)
{
    static float theirs[N];
    on_loop(r, credit_more);
    struct longhaul *second = join_two(r, theirs, LONGHAUL_HOST);
    uint64_t tokens = clock_of(r->c);
    assert_int_equal(tokens, r->credited);
    stop_worker(r);
    while (both_have_a_worker(r->c, second)) wait_both(r->c, second);
    start_worker(r);
    while (!both_have_a_worker(r->c, second)) wait_both(r->c, second); // each connects again
    assert_int_equal(clock_of(second), tokens);
    longhaul_close(second);
}

static void held_up(void *arg)
{
    struct rig *r = arg;
    while (sem_wait(&r->go)) continue;
}

// The child cuts and dies. It left more messages than the worker reads at a time; the worker reads
// all of them, and takes the last cut, before it handles the death.
IN_RIG(a_trainer_s_last_cut_comes_before_its_death, struct rig *r)
{
    int ready[2], go[2], status;
    char byte = 0;
    assert_false(pipe(ready) || pipe(go));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct longhaul *c;
        struct longhaul_tensor t = tensor("w", r->mine, LONGHAUL_FP32);
        unsigned due = 0;
        bool is = longhaul_open(&c) == LONGHAUL_OK && longhaul_parameter(c, &t) == LONGHAUL_OK &&
                  longhaul_connect(c, TIMEOUT_MS) == LONGHAUL_OK &&
                  longhaul_start(c) == LONGHAUL_OK && write(ready[1], &byte, 1) == 1 &&
                  read(go[0], &byte, 1) == 1 && longhaul_boundary(c, 1, 1, &due) == LONGHAUL_OK;
        r->mine[0] -= 1;
        struct longhaul_unit none;
        for (int i = 0; is && i < WORDS; i++)
            is = longhaul_lease(c, &none) == LONGHAUL_E_AGAIN; // each sends a message
        _exit(is && due == LONGHAUL_CUT && longhaul_cut(c) == LONGHAUL_OK ? 0 : 1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    on_loop(r, want_now);
    lh_post(r->env, held_up, r);
    assert_int_equal(write(go[1], &byte, 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(r->overs, 0);
    sem_post(&r->go);
    while (sem_wait(&r->ended)) continue;
    assert_int_equal(r->cuts, 1);
    assert_true(r->delta[0] == 1 && r->delta[1] == 0);
    for (int i = 0; i < 2; i++) close(ready[i]), close(go[i]);
}

// ---------------------------------------------------------------- the socket's file

static lh_err listen_at(struct rig *r, const char *path, struct wk_external **out)
{
    static const uint64_t first[] = {0, N};
    struct wk_external_conf conf = {
        .env = r->env, .values = N, .parts = 1, .first = first, .ranks = 1};
    *out = NULL;
    return wk_external_listen(&conf, &ops, r, path, out);
}

// A worker takes the place of a dead one, and of nothing else.
IN_RIG(a_socket_belongs_to_one_worker, struct rig *r)
{
    struct wk_external *x;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char path[96], far[LH_PATH_BYTES + 1] = "/";
    lh_err err = listen_at(r, r->path, &x);
    assert_int_equal(err, LH_ERR_BUSY);
    assert_non_null(strstr(lh_err_text(err), "another worker listens"));
    snprintf(path, sizeof path, "%s/file", r->dir);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    err = listen_at(r, path, &x);
    assert_int_equal(err, LH_ERR_EXISTS);
    assert_int_equal(unlink(path), 0); // it was left alone
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int dead = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    assert_int_equal(bind(dead, (struct sockaddr *)&address, sizeof address), 0);
    close(dead);
    err = listen_at(r, path, &x);
    assert_int_equal(err, LH_OK);
    wk_external_stop(x);
    assert_int_equal(access(path, F_OK), -1);
    memset(far + 1, 'f', LH_PATH_BYTES - 1);
    err = listen_at(r, far, &x);
    assert_int_equal(err, LH_ERR_CONFIG);
    snprintf(path, sizeof path, "%s/none/s", r->dir);
    err = listen_at(r, path, &x);
    assert_int_equal(err, LH_ERR_IO);
    join_with(r, r->mine, LONGHAUL_FP32, LONGHAUL_HOST); // the first one still listens
}
