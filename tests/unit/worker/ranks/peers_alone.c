// A leader without ranks takes its steps alone while strangers keep waking its thread. (A step that
// the thread took at once was once mistaken for one that was too large, and the worker ended.) And
// a leader whose communicator's abort hangs must not free what that thread may still use.
// labels: tsan
#include "worker/ranks/peers.h"

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/env/env.h"
#include "tests/test.h"
#include "worker/ranks/comm/comm_tcp.h"

enum { VALUES = 8, STEPS = 20000 };

struct arrays {
    float value[VALUES], m[VALUES], v[VALUES], gradient[VALUES + WK_FIGURES];
    uint64_t steps;
};

static struct wk_peers *start(struct lh_env *env, const char *name, struct arrays *a)
{
    const struct wk_comm_tcp_conf tcp = {.env = env, .address = ""};
    struct wk_peers *p;
    struct wk_peers_conf conf = {
        .env = env,
        .address = "",
        .ranks = 2,
        .patience_ns = 600 * LH_SECOND,
        .gather_ns = 0,
        .state = {.value = a->value,
                  .m = a->m,
                  .v = a->v,
                  .gradient = a->gradient,
                  .values = VALUES,
                  .steps = &a->steps},
    };
    snprintf(conf.name, sizeof conf.name, "%s", name);
    assert_int_equal(wk_comm_tcp_create(&tcp, &conf.comm), LH_OK);
    assert_int_equal(wk_peers_start(&conf, &p), LH_OK);
    return p;
}

struct stranger {
    const char *name;
    _Atomic bool over;
    unsigned came;
};

static void *knock(void *arg)
{
    struct stranger *s = arg;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    memcpy(at.sun_path + 1, s->name, strlen(s->name));
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(s->name));
    while (!atomic_load(&s->over)) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        s->came += fd >= 0 && !connect(fd, (struct sockaddr *)&at, bytes);
        if (fd >= 0) close(fd);
    }
    return NULL;
}

static enum wk_peers_what next(struct wk_peers *p, struct wk_peers_task *task)
{
    enum wk_peers_what is = wk_peers_wait(p, task);
    if (is == WK_PEERS_ENDED) fail_msg("the region ended: %s", task->text);
    return is;
}

TEST(every_step_is_taken)
{
    static const uint8_t payload[] = "a step";
    struct lh_env *env;
    struct arrays a = {0};
    struct wk_peers_task task;
    pthread_t thread;
    char name[WK_PEERS_NAME_BYTES];
    struct stranger stranger = {.name = name};
    snprintf(name, sizeof name, "/longhaul-alone-%d", (int)getpid());
    assert_int_equal(lh_env_real_create(&env), LH_OK);
    struct wk_peers *p = start(env, name, &a);
    assert_int_equal(pthread_create(&thread, NULL, knock, &stranger), 0);
    for (uint64_t step = 0; step < STEPS; step++) {
        wk_peers_want(p, step, lh_span(payload, sizeof payload), false);
        assert_int_equal(next(p, &task), WK_PEERS_COMPUTE);
        assert_int_equal(task.parts, 1);
        assert_int_equal(task.payload.len, sizeof payload);
        wk_peers_computed(p, true);
        assert_int_equal(next(p, &task), WK_PEERS_STEPPED);
    }
    atomic_store(&stranger.over, true);
    pthread_join(thread, NULL);
    assert_true(stranger.came > 0);
    wk_peers_stop(p, true);
    lh_env_real_destroy(env);
}

// ---------------------------------------------------------------- an abort that hangs

struct stuck {
    struct wk_comm base; // first
    sem_t begun, goes_on;
    int told; // result of fcntl() on the region's bell afterwards
};

static uint32_t version(struct wk_comm *c)
{
    (void)c;
    return 1;
}

// Hangs; afterwards it uses its arrays and the bell.
static void hang(struct wk_comm *c)
{
    struct stuck *s = (struct stuck *)c;
    sem_post(&s->begun);
    while (sem_wait(&s->goes_on)) continue;
    s->told = fcntl(c->told, F_GETFD);
    c->arrays.sum[0] = 1;
}

static void nothing(struct wk_comm *c)
{
    (void)c;
}

TEST(an_abort_that_hangs_keeps_its_memory)
{
    static const struct wk_comm_ops ops = {.version = version, .end = hang, .destroy = nothing};
    static struct wk_param tensor = {.name = "a", .role = WK_MATRIX, .len = VALUES};
    static const struct wk_params params = {.at = &tensor, .count = 1, .values = VALUES};
    struct stuck s = {.base = {.ops = &ops, .leave_ms = 20}, .told = -1};
    struct arrays a = {0};
    static struct wk_peers *p; // never freed; static, so that a leak checker finds it
    struct wk_peers_conf conf = {.address = "", .ranks = 2, .comm = &s.base};
    assert_int_equal(lh_env_real_create(&conf.env), LH_OK);
    sem_init(&s.begun, 0, 0);
    sem_init(&s.goes_on, 0, 0);
    conf.state =
        (struct wk_reduce_state){a.value, a.m, a.v, a.gradient, VALUES, &a.steps, &params, NULL};
    snprintf(conf.name, sizeof conf.name, "/longhaul-stuck-%d", (int)getpid());
    assert_int_equal(wk_comm_start(&s.base), LH_OK);
    assert_int_equal(wk_peers_start(&conf, &p), LH_OK);
    assert_false(wk_peers_stop(p, false));
    while (sem_wait(&s.begun)) continue;
    sem_post(&s.goes_on);
    assert_int_equal(pthread_join(s.base.thread, NULL), 0);
    assert_true(s.told >= 0);
    assert_true(a.gradient[0] == 1);
    // A real process would exit here; the test frees what is left.
    int left[] = {s.base.told, s.base.bell, s.base.wake, s.base.gone};
    for (size_t i = 0; i < LH_COUNT(left); i++) assert_int_equal(close(left[i]), 0);
    pthread_mutex_destroy(&s.base.lock);
    sem_destroy(&s.begun);
    sem_destroy(&s.goes_on);
    lh_env_real_destroy(conf.env);
}
