// The built-in trainer of a region of peers: real processes with their own parameters, over TCP,
// train like one process with the same global batch, also if one of them is killed. They give the
// same bits as ranks in shared memory, in fp32 and in bf16. LH_TEST_NCCL replaces TCP by NCCL and a
// plugin (the fakes of tests/nccl).
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/env/env.h"
#include "tests/unit/worker/ranks/compare_step.h"
#include "worker/ranks/comm/comm_nccl.h"
#include "worker/ranks/comm/comm_tcp.h"
#include "worker/ranks/peer.h"
#include "worker/ranks/reduce_peers.h"

enum { RANKS = 3, STEPS = 12, KILLED_AT = 5, CHANGED_AT = 3 };
enum { SMALL_BUCKET = 4 * 5003 };

struct region {
    char name[WK_PEERS_NAME_BYTES];
    struct lh_env *env;
    struct wk_reduce *reduce;
    struct wk_shm_conf shm; // ranks in shared memory, unless `peers`
    bool peers;
    enum wk_sum_type sum;
    uint64_t bucket_bytes;
    int go;           // a byte into it starts the spare rank
    pid_t pid[RANKS]; // index 0: the spare
};

static lh_err open_comm(struct lh_env *env, uint32_t rank, struct wk_comm **out)
{
    const char *file = getenv("LH_TEST_NCCL");
    const struct wk_comm_nccl_conf conf = {
        .library = file, .plugin = file, .interface = "lo", .log_file = "", .rank = rank};
    const struct wk_comm_tcp_conf tcp = {.env = env, .address = ""};
    return file ? wk_comm_nccl_create(&conf, out) : wk_comm_tcp_create(&tcp, out);
}

static struct wk_peers_conf peers_conf(struct lh_env *env, const struct region *r, uint32_t rank)
{
    struct wk_peers_conf conf = {.env = env,
                                 .rank = rank,
                                 .ranks = RANKS,
                                 .sum = r->sum,
                                 .bucket_bytes = r->bucket_bytes,
                                 .address = "",
                                 .patience_ns = 600 * LH_SECOND,
                                 .gather_ns = 600 * LH_SECOND};
    snprintf(conf.name, sizeof conf.name, "%s", r->name);
    if (open_comm(env, rank, &conf.comm)) _exit(6);
    return conf;
}

static _Noreturn void be_peer(struct fixture *f, const struct region *r, uint32_t number)
{
    struct checked c = {.result = -1};
    struct wk_peer *peer;
    if (lh_env_real_create(&c.env)) _exit(4);
    struct wk_peer_conf conf = {.peers = peers_conf(c.env, r, number),
                                .manifest = f->manifest.hash,
                                .shape = f->shape,
                                .length = SEQUENCE,
                                .batch = BATCH,
                                .ended = ended,
                                .arg = &c.result};
    if (wk_peer_start(&conf, &peer)) _exit(5);
    run_until(&c);
}

// Forks before this process has threads. The spare at index 0 becomes rank 1 when it is started.
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
        if (i == 0 && (!r->peers || read(go[0], &byte, 1) != 1)) _exit(0);
        if (r->peers)
            be_peer(f, r, i ? i : 1);
        else
            be_rank(f, &r->shm, i);
    }
    close(go[0]);
    r->go = go[1];
}

// The bucket size does not divide the model, or one bucket holds all of it.
static void open_peers_with(struct fixture *f, struct region *r, enum wk_sum_type sum,
                            uint64_t bucket_bytes, int64_t gather_ns)
{
    *r = (struct region){.peers = true, .sum = sum, .bucket_bytes = bucket_bytes};
    snprintf(r->name, sizeof r->name, "/longhaul-peers-%d", (int)getpid());
    start_ranks(f, r);
    assert_int_equal(lh_env_real_create(&r->env), LH_OK);
    struct wk_reduce_peers_conf conf = {.peers = peers_conf(r->env, r, 0),
                                        .manifest = f->manifest.hash};
    conf.peers.gather_ns = gather_ns;
    assert_int_equal(wk_reduce_peers_create(&conf, &r->reduce), LH_OK);
}

static void open_peers(struct fixture *f, struct region *r, enum wk_sum_type sum, int64_t gather_ns)
{
    open_peers_with(f, r, sum, SMALL_BUCKET, gather_ns);
}

static void open_shared(struct fixture *f, struct region *r, enum wk_sum_type sum)
{
    *r = (struct region){.shm = {.manifest = f->manifest.hash,
                                 .values = f->manifest.values,
                                 .ranks = RANKS,
                                 .sequences = BATCH * ACCUMULATE,
                                 .length = SEQUENCE,
                                 .sum = sum,
                                 .patience_ms = 600000}};
    char place[64];
    snprintf(place, sizeof place, "peers of test %d", (int)getpid());
    wk_shm_name(place, r->shm.name);
    assert_int_equal(wk_shm_lead(&r->shm, &r->reduce), LH_OK);
    start_ranks(f, r);
    for (int i = 0; r->reduce->ops->watch(r->reduce, NULL) != RANKS; i++) {
        if (i > 20000) fail_msg("the ranks never came");
        usleep(2000);
    }
}

// The ranks that are alive were told that the run is over. The trainer is freed in the same order
// as in the worker.
static void close_region(struct region *r, struct wk_trainer *t)
{
    r->reduce->ops->close(r->reduce, true);
    t->ops->destroy(t);
    close(r->go);
    for (uint32_t i = 0; i < RANKS; i++) {
        int status = 0;
        if (!r->pid[i]) continue;
        assert_int_equal(waitpid(r->pid[i], &status, 0), r->pid[i]);
        assert_int_equal(status, 0);
    }
    if (r->env) lh_env_real_destroy(r->env);
}

static void kill_rank(struct region *r, uint32_t rank)
{
    kill(r->pid[rank], SIGKILL);
    assert_int_equal(waitpid(r->pid[rank], NULL, 0), r->pid[rank]);
    r->pid[rank] = 0;
}

static uint64_t failures(struct region *r)
{
    struct wk_peers_status is;
    wk_reduce_peers_status(r->reduce, &is);
    if (is.failures) print_message("%llu failed: %s\n", (unsigned long long)is.failures, is.cause);
    return is.failures;
}

// Changes the parameters between two steps, as a fold does.
static void change(struct wk_trainer *t, size_t values)
{
    float *x = copy_parameters(t, values);
    for (size_t i = 0; i < values; i += 7) x[i] += 0.01f;
    set_parameters(t, x, values);
    free(x);
}

#define IN_FIXTURE(name, parameter) TEST_WITH(name, parameter, setup, teardown)

IN_FIXTURE(peers_train_as_one_process, struct fixture *f)
{
    struct region r;
    open_peers(f, &r, WK_SUM_FP32, 600 * LH_SECOND);
    struct wk_builtin_conf one = conf_with(f, NULL), many = conf_with(f, r.reduce);
    struct wk_trainer *a = trainer_of(f, &many), *b = trainer_of(f, &one);
    for (uint64_t i = 0; i < STEPS; i++) {
        if (i % CHANGED_AT == 0) change(a, f->manifest.values);
        if (i == KILLED_AT) {
            kill_rank(&r, 1);
            assert_int_equal(write(r.go, "g", 1), 1);
        }
        compare_a_step(a, b, i, f->manifest.values);
        assert_int_equal(r.reduce->ops->watch(r.reduce, NULL), RANKS);
    }
    // at most that of the killed rank: no rank ever had other parameters
    assert_true(failures(&r) <= 1);
    b->ops->destroy(b);
    close_region(&r, a);
}

IN_FIXTURE(a_lost_rank_is_done_without, struct fixture *f)
{
    struct region r;
    open_peers(f, &r, WK_SUM_FP32, 5 * LH_SECOND);
    struct wk_builtin_conf one = conf_with(f, NULL), many = conf_with(f, r.reduce);
    struct wk_trainer *a = trainer_of(f, &many), *b = trainer_of(f, &one);
    compare_a_step(a, b, 0, f->manifest.values);
    assert_int_equal(r.reduce->ops->watch(r.reduce, NULL), RANKS);
    kill_rank(&r, 2);
    for (uint64_t i = 1; i < 4; i++) compare_a_step(a, b, i, f->manifest.values);
    assert_int_equal(r.reduce->ops->watch(r.reduce, NULL), RANKS - 1);
    kill_rank(&r, 1);
    for (uint64_t i = 4; i < 7; i++) compare_a_step(a, b, i, f->manifest.values);
    assert_int_equal(r.reduce->ops->watch(r.reduce, NULL), 1);
    b->ops->destroy(b);
    close_region(&r, a);
}

// Trains in shared memory, with small buckets beside the backward pass and with one bucket after
// it, and returns the parameters, which must be equal.
static float *the_same_bits_of(struct fixture *f, enum wk_sum_type sum)
{
    struct region r;
    size_t bytes = f->manifest.values * sizeof(float);
    float *first = malloc(bytes);
    assert_non_null(first);
    for (int run = 0; run < 3; run++) {
        if (run)
            open_peers_with(f, &r, sum, run == 1 ? SMALL_BUCKET : 0, 600 * LH_SECOND);
        else
            open_shared(f, &r, sum);
        struct wk_builtin_conf c = conf_with(f, r.reduce);
        struct wk_trainer *t = trainer_of(f, &c);
        for (uint64_t i = 0; i < STEPS; i++) take_step(t, i);
        if (run == 0)
            t->ops->copy(t, 0, f->manifest.values, first);
        else
            assert_true(has_parameters(t, first, f->manifest.values));
        if (run) assert_int_equal(failures(&r), 0);
        close_region(&r, t);
    }
    return first;
}

IN_FIXTURE(the_same_bits_as_in_shared_memory, struct fixture *f)
{
    float *fp32 = the_same_bits_of(f, WK_SUM_FP32);
    float *bf16 = the_same_bits_of(f, WK_SUM_BF16);
    assert_memory_not_equal(fp32, bf16, f->manifest.values * sizeof *fp32); // bf16 was in force
    free(fp32);
    free(bf16);
}

// Trains beside an fp32 trainer of one process, both from the same start. A bf16 gradient differs
// by at most RANKS / 256 of the parts' absolute values (reduce.h), so a step's gain differs by at
// most that share of the gains of all parts. Here these add up to the step's gain. Errors have both
// signs and many parameters take part, so the test asks for a tenth of that bound.
IN_FIXTURE(bf16_learns_what_fp32_learns, struct fixture *f)
{
    struct region r;
    open_peers(f, &r, WK_SUM_BF16, 600 * LH_SECOND);
    struct wk_builtin_conf one = conf_with(f, NULL), many = conf_with(f, r.reduce);
    struct wk_trainer *a = trainer_of(f, &many), *b = trainer_of(f, &one);
    double first = 0, most = 0, gained = 0;
    for (uint64_t i = 0; i < STEPS; i++) {
        if (i == KILLED_AT) {
            kill_rank(&r, 1);
            assert_int_equal(write(r.go, "g", 1), 1);
        }
        struct wk_step_out x = take_step(a, i), y = take_step(b, i);
        if (i == 0) first = (double)y.loss;
        if (i == 0) assert_true(fabs((double)x.loss / first - 1) < 1e-6); // no rounding yet
        gained = first - (double)y.loss;
        most = fmax(most, fabs((double)x.loss - (double)y.loss));
        assert_int_equal(r.reduce->ops->watch(r.reduce, NULL), RANKS);
    }
    print_message("loss %.4f, %.4f less than at first; at most %.5f between bf16 and fp32\n",
                  first - gained, gained, most);
    assert_true(gained > 0.1 && most < RANKS / 256.0 * gained / 10);
    assert_true(failures(&r) <= 1);
    b->ops->destroy(b);
    close_region(&r, a);
}

// ---------------------------------------------------------------- hooks around the reduce's calls

static struct {
    const struct wk_reduce_ops *own;
    struct wk_reduce_ops ops;
    bool spoils;           // overwrites the leader's first id after the ranks got theirs
    struct region *region; // NULL: kills no rank
    uint32_t killed;       // rank to kill once its part is dealt
    lh_err gathered;       // result of the last gather()
    uint32_t samples;      // number of samples after it
} tap;

static void tap_deal(struct wk_reduce *r, const struct wk_reduce_step *step, struct wk_part *own)
{
    tap.own->deal(r, step, own);
    assert_true(own->from == 0 && own->count > 0);
    uint32_t *ids = (uint32_t *)(uintptr_t)step->ids; // the trainer's own array
    if (tap.spoils) ids[0] = UINT32_MAX;
    if (tap.region) kill_rank(tap.region, tap.killed);
    tap.region = NULL;
}

static lh_err tap_gather(struct wk_reduce *r, bool fine, float *gradient, struct wk_gathered *sum,
                         struct wk_part *missing)
{
    tap.gathered = tap.own->gather(r, fine, gradient, sum, missing);
    tap.samples = sum->samples;
    return tap.gathered;
}

static void tap_on(struct wk_reduce *r)
{
    memset(&tap, 0, sizeof tap);
    tap.own = r->ops;
    tap.ops = *r->ops;
    tap.ops.deal = tap_deal;
    tap.ops.gather = tap_gather;
    r->ops = &tap.ops;
}

// Each rank's first pass is a sample of the noise, also the leader's when a step restarts.
IN_FIXTURE(a_step_that_begins_anew_is_measured_anew, struct fixture *f)
{
    struct region r;
    open_peers(f, &r, WK_SUM_FP32, 5 * LH_SECOND);
    struct wk_builtin_conf conf = conf_with(f, r.reduce);
    conf.warmup = (struct wk_warmup_conf){.threshold = 1e-9, .hold = 1, .cap_tokens = 1 << 20};
    struct wk_trainer *t = trainer_of(f, &conf);
    tap_on(r.reduce);
    take_step(t, 0);
    assert_int_equal(r.reduce->ops->watch(r.reduce, NULL), RANKS);
    assert_int_equal(tap.samples, RANKS);
    tap.region = &r;
    tap.killed = RANKS - 1;
    take_step(t, 1);
    assert_true(failures(&r) >= 1);
    assert_int_equal(tap.samples, RANKS - 1);
    close_region(&r, t);
}

static int64_t note(void *arg)
{
    atomic_store((_Atomic bool *)arg, true);
    return 0;
}

static void nothing(void *arg)
{
    (void)arg;
}

static uint64_t applied_by(const struct wk_peer *peer)
{
    struct lh_buf text = lh_buf(4096);
    assert_int_equal(wk_peer_status(peer, &text), LH_OK);
    lh_put_u8(&text, 0);
    const char *at = strstr((const char *)text.data, "\"applied\":");
    assert_non_null(at);
    uint64_t steps = strtoull(at + strlen("\"applied\":"), NULL, 10);
    lh_buf_free(&text);
    return steps;
}

// The leader finds an id outside the vocabulary in its part; the other rank, in this process, does
// not. Neither takes the step.
IN_FIXTURE(a_step_that_the_leader_cannot_compute_is_nobodys, struct fixture *f)
{
    struct region r = {.peers = true};
    struct wk_peer *peer;
    int result = -1;
    _Atomic bool rests = false;
    snprintf(r.name, sizeof r.name, "/longhaul-peers-%d", (int)getpid());
    assert_int_equal(lh_env_real_create(&r.env), LH_OK);
    struct wk_peer_conf one = {.peers = peers_conf(r.env, &r, 1),
                               .manifest = f->manifest.hash,
                               .shape = f->shape,
                               .length = SEQUENCE,
                               .batch = BATCH,
                               .ended = ended,
                               .arg = &result};
    struct wk_reduce_peers_conf lead = {.peers = peers_conf(r.env, &r, 0),
                                        .manifest = f->manifest.hash};
    one.peers.ranks = lead.peers.ranks = 2;
    assert_int_equal(wk_peer_start(&one, &peer), LH_OK);
    assert_int_equal(wk_reduce_peers_create(&lead, &r.reduce), LH_OK);
    struct wk_builtin_conf conf = conf_with(f, r.reduce);
    struct wk_trainer *t = trainer_of(f, &conf);
    tap_on(r.reduce);
    tap.spoils = true;
    struct wk_piece piece = {0, 0, t->ops->step_tokens(t)};
    struct wk_step_in in = {.piece = &piece, .pieces = 1, .learning_rate = 3e-3f};
    struct wk_step_out out;
    assert_int_equal(t->ops->step(t, &in, &out), LH_ERR_INVALID);
    assert_int_equal(tap.gathered, LH_ERR_NON_FINITE);
    r.reduce->ops->close(r.reduce, false);
    wk_peer_close(peer);
    r.env->ops->work(r.env, LH_LANE_COMPUTE, note, nothing, &rests);
    while (!atomic_load(&rests)) usleep(1000);
    assert_int_equal(applied_by(peer), 0);
    wk_peer_stop(peer);
    t->ops->destroy(t);
    lh_env_real_destroy(r.env);
}
