// The real env: order of posts, timers and jobs; stopping from a signal handler; random numbers.
// labels: tsan
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/env/env.h"
#include "tests/test.h"

static int make_env(void **state)
{
    struct lh_env *env;
    if (lh_env_real_create(&env)) return -1;
    *state = env;
    return 0;
}

static int drop_env(void **state)
{
    lh_env_real_destroy(*state);
    return 0;
}

static void stop(void *env)
{
    lh_env_real_stop(env);
}

// ---------------------------------------------------------------- posts

enum { POSTERS = 3, POSTS = 5000 };

struct posters {
    struct lh_env *env;
    pthread_t loop;
    int next[POSTERS], total;
    bool in_order, on_loop;
};
struct posted {
    struct posters *all;
    int poster, number;
};

static void take_post(void *arg)
{
    struct posted *p = arg;
    struct posters *all = p->all;
    if (all->next[p->poster]++ != p->number) all->in_order = false;
    if (!pthread_equal(pthread_self(), all->loop)) all->on_loop = false;
    if (++all->total == POSTERS * POSTS) lh_env_real_stop(all->env);
}

static void *post_many(void *arg)
{
    struct posted *p = arg;
    for (int i = 0; i < POSTS; i++) lh_post(p[i].all->env, take_post, &p[i]);
    return NULL;
}

#define ON_ENV(name, parameter) TEST_WITH(name, parameter, make_env, drop_env)

ON_ENV(posts_of_many_threads_arrive_in_order, struct lh_env *env)
{
    struct posters all = {.env = env, .loop = pthread_self(), .in_order = true, .on_loop = true};
    struct posted *p = test_calloc(POSTERS * POSTS, sizeof *p);
    pthread_t thread[POSTERS];
    for (int t = 0; t < POSTERS; t++) {
        for (int i = 0; i < POSTS; i++) p[t * POSTS + i] = (struct posted){&all, t, i};
        assert_int_equal(pthread_create(&thread[t], NULL, post_many, &p[t * POSTS]), 0);
    }
    lh_env_real_run(all.env);
    for (int t = 0; t < POSTERS; t++) pthread_join(thread[t], NULL);
    assert_int_equal(all.total, POSTERS * POSTS);
    assert_true(all.in_order);
    assert_true(all.on_loop);
    test_free(p);
}

static void count(void *arg)
{
    ++*(int *)arg;
}

ON_ENV(run_goes_on_after_a_stop, struct lh_env *env)
{
    int before = 0, after = 0;
    lh_post(env, count, &before);
    lh_post(env, stop, env);
    lh_post(env, count, &after);
    lh_env_real_run(env);
    assert_int_equal(before, 1);
    assert_int_equal(after, 0); // a stop takes effect between two functions
    lh_post(env, stop, env);
    lh_env_real_run(env);
    assert_int_equal(after, 1); // no post is lost
}

ON_ENV(stop_before_run_returns_at_once, struct lh_env *env)
{
    int ran = 0;
    lh_post(env, count, &ran);
    lh_env_real_stop(env);
    lh_env_real_run(env);
    assert_int_equal(ran, 0);
}

static struct lh_env *signalled; // on_signal() stops it

static void on_signal(int number)
{
    (void)number;
    lh_env_real_stop(signalled);
}

ON_ENV(stop_wakes_a_sleeping_loop_from_a_signal, struct lh_env *env)
{
    signalled = env;
    struct sigaction act = {.sa_handler = on_signal}, old;
    assert_int_equal(sigaction(SIGALRM, &act, &old), 0);
    struct itimerval soon = {.it_value = {.tv_usec = 20000}};
    assert_int_equal(setitimer(ITIMER_REAL, &soon, NULL), 0);
    int ran = 0;
    lh_after(env, 3600 * LH_SECOND, count, &ran);
    lh_env_real_run(env); // if it never returned, ctest's time limit would fail the test
    assert_int_equal(ran, 0);
    sigaction(SIGALRM, &old, NULL);
}

// ---------------------------------------------------------------- timers

struct order {
    struct lh_env *env;
    int64_t latest; // highest lower bound among the timers that fired
    int fired, wrong, early, stop_at;
};
struct timed {
    struct order *order;
    int64_t least, most; // bounds of the due time that the env computed
    uint64_t id;
};

static void arm(struct order *o, struct timed *t, int64_t delay, lh_fn fn)
{
    *t = (struct timed){.order = o, .least = lh_now(o->env) + delay};
    t->id = lh_after(o->env, delay, fn, t);
    t->most = lh_now(o->env) + delay;
    assert_int_not_equal(t->id, 0);
}

static void fire(void *arg)
{
    struct timed *t = arg;
    struct order *o = t->order;
    if (t->most < o->latest) o->wrong++; // surely due before one that already fired
    if (lh_now(o->env) < t->least) o->early++;
    if (t->least > o->latest) o->latest = t->least;
    if (++o->fired == o->stop_at) lh_env_real_stop(o->env);
}

ON_ENV(timers_fire_in_order_and_cancelled_ones_never, struct lh_env *env)
{
    enum { N = 400 };
    struct order o = {.env = env};
    struct timed t[N];
    int cancelled = 0;
    for (int i = 0; i < N; i++) arm(&o, &t[i], (i * 7919) % 100 * LH_MS / 10, fire);
    for (int i = 0; i < N; i += 3, cancelled++) {
        uint64_t id = t[i].id;
        lh_cancel(o.env, &t[i].id);
        assert_int_equal(t[i].id, 0);
        o.env->ops->cancel(o.env, id); // cancelling twice is ignored
    }
    // The old id does not cancel a new timer in the freed slot.
    struct timed fresh;
    uint64_t old = t[1].id;
    lh_cancel(o.env, &t[1].id);
    cancelled++;
    arm(&o, &fresh, 0, fire);
    o.env->ops->cancel(o.env, old);
    o.stop_at = N - cancelled + 1;
    lh_env_real_run(o.env);
    assert_int_equal(o.fired, o.stop_at);
    assert_int_equal(o.early, 0);
    assert_int_equal(o.wrong, 0);
}

static void same(void *arg)
{
    struct timed *t = arg;
    if (t->least != t->order->latest + 1) t->order->wrong++; // here `least` is a serial number
    t->order->latest = t->least;
    if (++t->order->fired == t->order->stop_at) lh_env_real_stop(t->order->env);
}

ON_ENV(timers_due_at_the_same_time_fire_as_armed, struct lh_env *env)
{
    struct order o = {.env = env, .stop_at = 100};
    struct timed t[100];
    for (int i = 0; i < 100; i++) {
        t[i] = (struct timed){.order = &o, .least = i + 1};
        lh_after(o.env, INT64_MAX, count, &o.early); // far timers between them
        lh_after(o.env, -i, same, &t[i]);            // a negative delay counts as 0
    }
    lh_env_real_run(o.env);
    assert_int_equal(o.fired, 100);
    assert_int_equal(o.wrong, 0);
    assert_int_equal(o.early, 0);
}

struct again {
    struct lh_env *env;
    int left;
};

static void again(void *arg)
{
    struct again *a = arg;
    if (--a->left)
        lh_after(a->env, 0, again, a);
    else
        lh_env_real_stop(a->env);
}

ON_ENV(a_timer_may_arm_the_next, struct lh_env *env)
{
    struct again a = {env, 1000};
    lh_after(a.env, 0, again, &a);
    lh_env_real_run(a.env);
    assert_int_equal(a.left, 0);
}

// ---------------------------------------------------------------- lanes

struct task {
    struct lh_env *env;
    sem_t *wait, *tell;
    int64_t least, done_at;
    int *order, number, *left;
};

static int64_t job(void *arg)
{
    struct task *t = arg;
    if (t->tell) sem_post(t->tell);
    if (t->wait) sem_wait(t->wait);
    return t->least;
}

static void done(void *arg)
{
    struct task *t = arg;
    t->done_at = lh_now(t->env);
    t->number = (*t->order)++;
    if (--*t->left == 0) lh_env_real_stop(t->env);
}

static void work(struct lh_env *env, enum lh_lane lane, lh_job run, lh_fn then, void *arg)
{
    env->ops->work(env, lane, run, then, arg);
}

ON_ENV(lanes_run_beside_each_other_and_jobs_in_order, struct lh_env *env)
{
    enum { N = 20 };
    sem_t go;
    sem_init(&go, 0, 0);
    int order = 0, left = N + 1;
    struct task t[N], other = {.env = env, .order = &order, .left = &left, .tell = &go};
    for (int i = 0; i < N; i++) {
        t[i] = (struct task){.env = env, .order = &order, .left = &left};
        if (i == 0) t[i].wait = &go; // freed by the other lane's job, so both need a thread
        work(env, LH_LANE_COMPUTE, job, done, &t[i]);
    }
    work(env, LH_LANE_DISK, job, done, &other);
    lh_env_real_run(env);
    for (int i = 1; i < N; i++) assert_true(t[i].number > t[i - 1].number);
    sem_destroy(&go);
}

static int64_t note_nice(void *arg)
{
    struct task *t = arg;
    return t->least = getpriority(PRIO_PROCESS, 0); // this thread's nice value
}

ON_ENV(long_copies_give_way, struct lh_env *env)
{
    int order = 0, left = 2, ours = getpriority(PRIO_PROCESS, 0);
    struct task copy = {.env = env, .order = &order, .left = &left}, disk = copy;
    work(env, LH_LANE_COPY, note_nice, done, &copy);
    work(env, LH_LANE_DISK, note_nice, done, &disk);
    lh_env_real_run(env);
    assert_int_equal(disk.least, ours);
    // copies run at nice 10, whatever this test runs at
    if (ours < 10) assert_true(copy.least > ours);
    assert_int_equal(getpriority(PRIO_PROCESS, 0), ours);
}

ON_ENV(a_job_lasts_at_least_what_it_returned, struct lh_env *env)
{
    int order = 0, left = 2;
    int64_t start = lh_now(env);
    struct task slow = {.env = env, .order = &order, .left = &left, .least = 30 * LH_MS};
    struct task behind = {.env = env, .order = &order, .left = &left};
    work(env, LH_LANE_COMPUTE, job, done, &slow);
    work(env, LH_LANE_COMPUTE, job, done, &behind);
    lh_env_real_run(env);
    assert_true(slow.done_at - start >= 30 * LH_MS);
    assert_true(behind.done_at - start >= 30 * LH_MS); // the lane was busy
    assert_int_equal(behind.number, 1);
}

struct failing {
    struct lh_env *env;
    const char *why; // NULL: the job succeeds
    char told[64];
};

static int64_t fail_there(void *arg)
{
    struct failing *f = arg;
    lh_err err = f->why ? lh_fail(LH_ERR_IO, "%s", f->why) : LH_OK;
    return err == LH_OK ? 0 : 1;
}

static void tell_here(void *arg)
{
    struct failing *f = arg;
    snprintf(f->told, sizeof f->told, "%s", lh_err_text(LH_ERR_IO));
}

// Each thread has its own error text. Without the hand-over, a worker's last message was "larger
// than its limit", without saying what was too large.
ON_ENV(a_lane_jobs_error_text_reaches_the_loop, struct lh_env *env)
{
    struct failing one = {env, "/a: no such disk", ""}, two = {env, "/b: no such disk", ""},
                   fine = {env, NULL, ""};
    int order = 0, left = 1;
    struct task last = {.env = env, .order = &order, .left = &left};
    work(env, LH_LANE_DISK, fail_there, tell_here, &one);
    work(env, LH_LANE_DISK, fail_there, tell_here, &two);
    work(env, LH_LANE_DISK, fail_there, tell_here, &fine);
    work(env, LH_LANE_DISK, job, done, &last);
    lh_env_real_run(env);
    assert_string_equal(one.told, "/a: no such disk");
    assert_string_equal(two.told, "/b: no such disk");
    assert_string_equal(fine.told, "/b: no such disk"); // no new error
}

TEST(destroy_drops_what_waits)
{
    struct lh_env *env;
    assert_int_equal(lh_env_real_create(&env), LH_OK);
    sem_t started;
    sem_init(&started, 0, 0);
    int order = 0, left = 2;
    struct task running = {
        .env = env, .order = &order, .left = &left, .tell = &started, .least = 3600 * LH_SECOND};
    struct task queued = running;
    queued.tell = NULL;
    work(env, LH_LANE_DISK, job, done, &running);
    work(env, LH_LANE_DISK, job, done, &queued);
    lh_after(env, LH_SECOND, count, &left);
    sem_wait(&started);
    lh_env_real_destroy(env); // does not wait for the hour
    assert_int_equal(left, 2);
    sem_destroy(&started);
}

// ---------------------------------------------------------------- random

ON_ENV(random_numbers_differ_and_stay_below, struct lh_env *env)
{
    uint8_t a[5000], b[5000];
    lh_random(env, a, sizeof a);
    lh_random(env, b, sizeof b);
    assert_memory_not_equal(a, b, sizeof a);
    long bits = 0;
    for (size_t i = 0; i < sizeof a; i++) bits += __builtin_popcount(a[i]);
    assert_in_range(bits, 20000 - 800, 20000 + 800); // sigma is 100
    assert_int_not_equal(lh_random_u64(env), lh_random_u64(env));
    int seen[6] = {0};
    for (int i = 0; i < 6000; i++) {
        int64_t v = lh_random_below(env, 6);
        assert_in_range(v, 0, 5);
        seen[v]++;
    }
    for (int i = 0; i < 6; i++) assert_in_range(seen[i], 700, 1300); // 1000, sigma 29
    assert_int_equal(lh_random_below(env, 1), 0);
    assert_int_equal(lh_random_below(env, 0), 0);
    assert_int_equal(lh_random_below(env, -5), 0);
    assert_true(lh_random_below(env, INT64_MAX) >= 0);
}

enum { DRAWERS = 1 + LH_LANE_COUNT, DRAWS = 40000 };

struct drawer {
    struct lh_env *env;
    int *left;
    uint64_t *number;
};

static int64_t draw(void *arg)
{
    struct drawer *d = arg;
    for (int i = 0; i < DRAWS; i++) d->number[i] = lh_random_u64(d->env);
    return 0;
}

static void drawn(void *arg)
{
    struct drawer *d = arg;
    if (--*d->left == 0) lh_env_real_stop(d->env);
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

// The loop seals pushes while a lane seals a checkpoint: a nonce must not be given to both.
ON_ENV(no_two_threads_are_given_the_same_numbers, struct lh_env *env)
{
    uint64_t *all = calloc(DRAWERS * DRAWS, sizeof *all);
    assert_non_null(all);
    struct drawer d[DRAWERS];
    int left = LH_LANE_COUNT;
    for (int i = 0; i < DRAWERS; i++) d[i] = (struct drawer){env, &left, all + i * DRAWS};
    for (int i = 0; i < LH_LANE_COUNT; i++) work(env, (enum lh_lane)i, draw, drawn, &d[i + 1]);
    draw(&d[0]);
    lh_env_real_run(env);
    qsort(all, DRAWERS * DRAWS, sizeof *all, by_number);
    assert_int_not_equal(all[0], 0); // returned numbers are wiped to 0: none is returned again
    for (int i = 1; i < DRAWERS * DRAWS; i++) assert_int_not_equal(all[i], all[i - 1]);
    free(all);
}

// ---------------------------------------------------------------- the machine's start

ON_ENV(one_boot_has_one_id, struct lh_env *env)
{
    struct lh_env *other;
    uint8_t a[16], b[16], zeros[16] = {0};
    env->ops->boot_id(env, a);
    assert_int_equal(lh_env_real_create(&other), LH_OK);
    other->ops->boot_id(other, b);
    lh_env_real_destroy(other);
    assert_memory_not_equal(a, zeros, sizeof a);
    if (access("/proc/sys/kernel/random/boot_id", R_OK) == 0) assert_memory_equal(a, b, sizeof a);
}

static void keep_the_loop(void *env)
{
    usleep(20000);
    lh_env_real_stop(env);
}

ON_ENV(a_long_callback_is_reported_once, struct lh_env *env)
{
    env->ops->post(env, keep_the_loop, env);
    lh_env_real_run(env);
    assert_true(lh_env_real_longest_ns(env) >= LH_SECOND / 50);
    assert_int_equal(lh_env_real_longest_ns(env), 0);
    env->ops->after(env, 0, keep_the_loop, env);
    lh_env_real_run(env);
    assert_true(lh_env_real_longest_ns(env) >= LH_SECOND / 50);
}
