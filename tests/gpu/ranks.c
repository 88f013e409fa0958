// Ranks of a region that train on emulated devices beside the same ranks on the CPU: real
// processes, over TCP, or with LH_TEST_NCCL set by the tests' NCCL in the devices' own memory.
// Losses, norms and parameters agree to rounding, also when a rank is killed and replaced. A rank
// that trains on the CPU is refused.
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/env/env.h"
#include "tests/unit/worker/train/trainer_case.h"
#include "worker/ranks/comm/comm_nccl.h"
#include "worker/ranks/comm/comm_tcp.h"
#include "worker/ranks/peer.h"
#include "worker/ranks/reduce_peers.h"
#include "worker/state/state_device.h"
#include "worker/train/device.h"

enum {
    RANKS = 3,
    STEPS = 5,
    KILLED_AT = 2,
    CHANGED_AT = 3,
    SMALL_BUCKET = 4 * 5003,
    SHARDS_MAX = 2
};

struct region {
    char name[WK_PEERS_NAME_BYTES];
    struct lh_env *env;
    struct wk_reduce *reduce;
    struct wk_device *device; // The leader's; NULL: the CPU trains.
    enum wk_sum_type sum;
    bool cuda, peers_cuda;
    bool measured; // The noise is measured, so no value of a step's first pass is final.
    bool norms;    // Norms are computed in each step.
    bool state;    // The leader's state on its device changes the parameters, not the host.
    struct wk_shard_state *shard[SHARDS_MAX]; // NULL: not created yet
    struct wk_device_counts counts;
    uint32_t sequences; // A step's; 0: two batches.
    int go;             // writing a byte starts the spare rank
    pid_t pid[RANKS];   // place 0: the spare
};

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    assert_non_null(value);
    return value;
}

static struct wk_device *device_of(const struct fixture *f, uint32_t rank)
{
    struct wk_device *d;
    const struct wk_device_conf conf = {
        .plugin = variable("LH_TEST_EMULATED_PLUGIN"),
        .products = variable("LH_TEST_EMULATED_PLUGIN"),
        .rank = rank,
        .model = {f->shape, SEQUENCE, (size_t)BATCH * SEQUENCE, true},
    };
    lh_err err = wk_device_open(&conf, &d);
    if (err) fail_msg("%s", lh_err_text(err));
    return d;
}

static lh_err open_comm(struct lh_env *env, const struct region *r, uint32_t rank,
                        struct wk_comm **out)
{
    const char *file = getenv("LH_TEST_NCCL");
    const struct wk_comm_nccl_conf conf = {
        .library = file, .plugin = file, .interface = "lo", .log_file = "", .rank = rank};
    const struct wk_comm_tcp_conf tcp = {.env = env, .address = ""};
    return file && r->cuda ? wk_comm_nccl_create(&conf, out) : wk_comm_tcp_create(&tcp, out);
}

static struct wk_peers_conf peers_conf(struct lh_env *env, const struct region *r, uint32_t rank)
{
    struct wk_peers_conf conf = {.env = env,
                                 .rank = rank,
                                 .ranks = RANKS,
                                 .sum = r->sum,
                                 .bucket_bytes = SMALL_BUCKET,
                                 .address = "",
                                 .patience_ns = 600 * LH_SECOND,
                                 .gather_ns = 600 * LH_SECOND};
    snprintf(conf.name, sizeof conf.name, "%s", r->name);
    if (open_comm(env, r, rank, &conf.comm)) _exit(6);
    return conf;
}

// ---------------------------------------------------------------- another rank's process

static void ended(void *arg, lh_err err, const char *text)
{
    bool backend = strstr(text, "has trainer.backend cpu, the leader cuda") != NULL;
    if (err) fprintf(stderr, "rank: %s\n", text);
    *(int *)arg = !err ? 0 : backend ? 7 : 3;
}

struct checked {
    struct lh_env *env;
    int result; // -1: goes on
};

static void look(void *arg)
{
    struct checked *c = arg;
    if (c->result >= 0)
        lh_env_real_stop(c->env);
    else
        (void)lh_after(c->env, 20 * LH_MS, look, c);
}

static _Noreturn void be_peer(struct fixture *f, const struct region *r, uint32_t number)
{
    struct checked c = {.result = -1};
    struct wk_peer *peer;
    if (lh_env_real_create(&c.env)) _exit(4);
    struct wk_device *device = r->peers_cuda ? device_of(f, number) : NULL;
    struct wk_peer_conf conf = {.peers = peers_conf(c.env, r, number),
                                .manifest = f->manifest.hash,
                                .shape = f->shape,
                                .length = SEQUENCE,
                                .batch = BATCH,
                                .device = device,
                                .ended = ended,
                                .arg = &c.result};
    if (wk_peer_start(&conf, &peer)) _exit(5);
    look(&c);
    lh_env_real_run(c.env);
    _exit(c.result);
}

// Forks before this process has threads. The spare, place 0, starts as rank 1 when it is told.
static void start_ranks(struct fixture *f, struct region *r)
{
    int go[2];
    assert_int_equal(pipe(go), 0);
    for (uint32_t i = 0; i < RANKS; i++) {
        char byte;
        r->pid[i] = fork();
        assert_true(r->pid[i] >= 0);
        if (r->pid[i]) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(go[1]);
        if (i == 0 && read(go[0], &byte, 1) != 1) _exit(0);
        be_peer(f, r, i ? i : 1);
    }
    close(go[0]);
    r->go = go[1];
}

// ---------------------------------------------------------------- a region

static struct wk_trainer *open_region(struct fixture *f, struct region *r, int64_t gather_ns)
{
    snprintf(r->name, sizeof r->name, "/longhaul-gpu-ranks-%d", (int)getpid());
    start_ranks(f, r);
    assert_int_equal(lh_env_real_create(&r->env), LH_OK);
    struct wk_reduce_peers_conf conf = {.peers = peers_conf(r->env, r, 0),
                                        .manifest = f->manifest.hash};
    conf.peers.gather_ns = gather_ns;
    assert_int_equal(wk_reduce_peers_create(&conf, &r->reduce), LH_OK);
    struct wk_builtin_conf c = conf_of(f);
    if (r->cuda) r->device = device_of(f, 0);
    // The emulator is slow: LH_TEST_QUICK halves the batches.
    c.accumulate = getenv("LH_TEST_QUICK") ? 1 : 2;
    if (r->sequences) c.batch = r->sequences;
    if (r->sequences) c.accumulate = 1;
    c.clip = 0.5; // the norm counts
    c.reduce = r->reduce;
    c.device = r->device;
    if (r->measured) c.warmup = (struct wk_warmup_conf){1e9, 0.5, UINT64_MAX, 1};
    return trainer_of(f, &c);
}

static void wait_for(struct region *r, uint32_t rank, int should)
{
    int status = 0;
    assert_int_equal(waitpid(r->pid[rank], &status, 0), r->pid[rank]);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), should);
    r->pid[rank] = 0;
}

// The living ranks hear that the run is over, and end.
static void close_region(struct region *r, struct wk_trainer *t)
{
    assert_true(r->reduce->ops->close(r->reduce, true));
    t->ops->destroy(t);
    wk_device_close(r->device);
    close(r->go);
    for (uint32_t i = 0; i < RANKS; i++)
        if (r->pid[i]) wait_for(r, i, 0);
    lh_env_real_destroy(r->env);
}

static void kill_rank(struct region *r, uint32_t rank)
{
    kill(r->pid[rank], SIGKILL);
    assert_int_equal(waitpid(r->pid[rank], NULL, 0), r->pid[rank]);
    r->pid[rank] = 0;
}

static struct wk_peers_status status_of(struct region *r)
{
    struct wk_peers_status is;
    wk_reduce_peers_status(r->reduce, &is);
    if (is.failures) print_message("%llu failed: %s\n", (unsigned long long)is.failures, is.cause);
    return is;
}

// Changes the parameters between two steps, as a fold does.
static void change(struct wk_trainer *t, size_t values)
{
    float *x = copy_parameters(t, values);
    for (size_t i = 0; i < values; i += 7) x[i] += 0.01f;
    set_parameters(t, x, values);
    free(x);
}

// Changes the parameters in the same way, by a renewal of the state on the leader's device. The
// states live on, because destroying them would wait for the queued work.
static void change_by_states(const struct fixture *f, struct region *r, struct wk_trainer *t)
{
    float *x = copy_parameters(t, f->manifest.values);
    float *residual = calloc(f->manifest.values, sizeof *residual);
    assert_non_null(residual);
    assert_true(f->manifest.shards <= SHARDS_MAX);
    for (size_t i = 0; i < f->manifest.values; i += 7) x[i] += 0.01f;
    for (uint32_t i = 0; i < f->manifest.shards; i++) {
        struct wk_device_state_conf conf = {.trainer = wk_device_lend(r->device),
                                            .layout = &f->manifest.shard[i],
                                            .counts = &r->counts};
        assert_int_equal(lk_codec_parse("topk-sign", &conf.codec), LH_OK);
        conf.codec.density = 64.0f / 4096;
        assert_int_equal(wk_device_state_create(&conf, &r->shard[i]), LH_OK);
        const struct lk_replica replica = {.theta = x + f->manifest.shard[i].first};
        const struct wk_shard_state_of of = {&replica, residual, 1};
        r->shard[i]->conf = (struct wk_shard_state_conf){t, &f->manifest.shard[i], 0};
        r->shard[i]->ops->start(r->shard[i], &of);
    }
    free(residual);
    free(x);
}

static void close_states(struct region *r)
{
    for (int i = 0; i < SHARDS_MAX; i++)
        if (r->shard[i]) r->shard[i]->ops->destroy(r->shard[i]);
}

static double apart(const float *a, const float *b, uint64_t n)
{
    double sum = 0, square = 0;
    for (uint64_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        sum += d * d;
        square += (double)b[i] * (double)b[i];
    }
    return sqrt(sum / square);
}

static void near(double a, double b, double most, const char *what, uint64_t number)
{
    if (!(fabs(a - b) <= most * fabs(b)))
        fail_msg("%s %llu: %.9g, not %.9g", what, (unsigned long long)number, a, b);
}

// Kills rank 1 when the next step is dealt, so that the leader computes its part for nothing.
static struct {
    const struct wk_reduce_ops *own;
    struct wk_reduce_ops ops;
    struct region *region; // NULL: no kill
} tap;

static void tap_deal(struct wk_reduce *r, const struct wk_reduce_step *step, struct wk_part *own)
{
    tap.own->deal(r, step, own);
    if (!tap.region) return;
    kill_rank(tap.region, 1);
    assert_int_equal(write(tap.region->go, "g", 1), 1);
    tap.region = NULL;
}

static void tap_on(struct wk_reduce *r)
{
    tap.own = r->ops;
    tap.ops = *r->ops;
    tap.ops.deal = tap_deal;
    r->ops = &tap.ops;
}

enum { TENSORS_MAX = 32 };
struct course {
    struct wk_step_out out[STEPS];
    struct wk_tensor_norms norms[TENSORS_MAX]; // the last step's, where requested
    float *value;                              // after the last step
    struct lh_buf all;                         // the optimizer's state, as saved
};

static void free_course(struct course *c)
{
    free(c->value);
    lh_buf_free(&c->all);
}

static struct course train(struct fixture *f, struct region *r, bool kills)
{
    struct course c = {.all = lh_buf(1 << 24)};
    struct wk_trainer *t = open_region(f, r, 600 * LH_SECOND);
    tap_on(r->reduce);
    for (uint64_t i = 0; i < STEPS; i++) {
        if (i == CHANGED_AT && r->state) change_by_states(f, r, t);
        if (i == CHANGED_AT && !r->state) change(t, f->manifest.values);
        if (i == KILLED_AT && kills) tap.region = r;
        c.out[i] = take_step_with(t, i, r->norms ? c.norms : NULL);
        assert_int_equal(r->reduce->ops->watch(r->reduce, NULL), RANKS);
    }
    c.value = copy_parameters(t, f->manifest.values);
    assert_int_equal(t->ops->save(t, &c.all), LH_OK);
    // A rank whose parameters differ from the leader's fails an epoch.
    assert_true(status_of(r).failures <= kills);
    assert_true(status_of(r).counts.buckets > STEPS);
    r->reduce->ops = tap.own;
    close_states(r);
    close_region(r, t);
    return c;
}

static void compare(const struct fixture *f, const struct course *gpu, const struct course *cpu,
                    double most)
{
    uint64_t n = f->manifest.values;
    for (uint64_t i = 0; i < STEPS; i++) {
        near(gpu->out[i].loss, cpu->out[i].loss, most / 10, "loss of step", i);
        near(gpu->out[i].grad_norm, cpu->out[i].grad_norm, most, "norm of the gradient of step", i);
        near(gpu->out[i].noise, cpu->out[i].noise, 10 * most, "noise of step", i);
    }
    assert_true(cpu->out[STEPS - 1].loss < cpu->out[0].loss - 0.05F); // it learns
    double d = apart(gpu->value, cpu->value, n);
    if (!(d < most)) fail_msg("parameters are %.2e apart", d);
    const float *a = (const float *)(const void *)(gpu->all.data + 96);
    const float *b = (const float *)(const void *)(cpu->all.data + 96);
    d = apart(a, b, n);
    if (!(d < 10 * most)) fail_msg("first moments are %.2e apart", d);
    d = apart(a + n, b + n, n);
    if (!(d < 10 * most)) fail_msg("second moments are %.2e apart", d);
}

static void on_devices_as_on_the_cpu(struct fixture *f, const struct region *like, double most)
{
    struct region there = *like, here = *like;
    there.cuda = there.peers_cuda = true;
    struct course cpu = train(f, &here, false), gpu = train(f, &there, false);
    compare(f, &gpu, &cpu, most);
    assert_true(!like->measured || gpu.out[0].noise > 0);
    for (uint32_t i = 0; like->norms && i < f->manifest.tensors; i++) {
        const struct wk_tensor_norms *is = &gpu.norms[i], *should = &cpu.norms[i];
        assert_true(should->weight > 0 && should->gradient > 0 && should->update > 0);
        near(is->weight, should->weight, most, "norm of tensor", i);
        near(is->gradient, should->gradient, 10 * most, "norm of the gradient of tensor", i);
        near(is->update, should->update, 10 * most, "norm of the change of tensor", i);
    }
    free_course(&cpu);
    free_course(&gpu);
}

#define IN_FIXTURE(name, parameter) TEST_WITH(name, parameter, setup, teardown)

IN_FIXTURE(fp32_as_on_the_cpu, struct fixture *f)
{
    const struct region r = {.measured = true, .norms = true};
    on_devices_as_on_the_cpu(f, &r, 1e-4);
}

// Sums begin while the backward pass is queued or running.
IN_FIXTURE(buckets_beside_the_backward_pass, struct fixture *f)
{
    const struct region r = {.measured = false};
    on_devices_as_on_the_cpu(f, &r, 1e-4);
}

// Two ranks have nothing to compute: their gradient is zero.
IN_FIXTURE(empty_parts_are_zeros, struct fixture *f)
{
    const struct region r = {.sequences = 1};
    on_devices_as_on_the_cpu(f, &r, 1e-4);
}

// A gradient's value close to a rounding boundary may round the other way, by 1/256 of it.
IN_FIXTURE(bf16_as_on_the_cpu, struct fixture *f)
{
    const struct region r = {.sum = WK_SUM_BF16};
    on_devices_as_on_the_cpu(f, &r, 1e-3);
}

// The killed rank's step is trained again; its replacement receives parameters and moments.
IN_FIXTURE(a_killed_rank_is_replaced, struct fixture *f)
{
    struct region killed = {.cuda = true, .peers_cuda = true}, whole = killed;
    struct course a = train(f, &killed, true), b = train(f, &whole, false);
    compare(f, &a, &b, 1e-6);
    free_course(&a);
    free_course(&b);
}

static void same(const void *a, const void *b, size_t bytes, const char *what)
{
    if (memcmp(a, b, bytes)) fail_msg("%s differ", what);
}

// A renewal by a state on the leader's device reaches all ranks.
IN_FIXTURE(a_renewal_on_the_device_reaches_all, struct fixture *f)
{
    struct region there = {.cuda = true, .peers_cuda = true, .state = true}, here = there;
    here.state = false;
    struct course a = train(f, &there, false), b = train(f, &here, false);
    for (uint64_t i = 0; i < STEPS; i++)
        same(&a.out[i].loss, &b.out[i].loss, sizeof a.out[i].loss, "losses");
    same(a.value, b.value, f->manifest.values * sizeof *a.value, "parameters");
    free_course(&a);
    free_course(&b);
}

IN_FIXTURE(a_rank_on_the_cpu_is_refused, struct fixture *f)
{
    struct region r = {.cuda = true, .peers_cuda = false};
    struct wk_trainer *t = open_region(f, &r, 100 * LH_MS);
    take_step(t, 0);
    assert_int_equal(r.reduce->ops->watch(r.reduce, NULL), 1);
    for (uint32_t rank = 1; rank < RANKS; rank++) wait_for(&r, rank, 7);
    close_region(&r, t);
}

int main(void)
{
    const char *only = getenv("LH_TEST_ONLY");
    if (only) cmocka_set_test_filter(only);
    return test_run(NULL, NULL);
}
