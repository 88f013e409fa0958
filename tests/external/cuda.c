// Parameters on CUDA: cuts that run beside the trainer's own work, against a runtime that does
// everything as late as it may (cudart.c). faults.py removes each wait in turn, and these tests
// must fail.
#include <dlfcn.h>

#include "tests/external/client_rig.h"

// Functions of the fake runtime, for steps on the device.
static int (*copy)(void *to, const void *from, size_t n, int kind, void *stream);
static int (*new_stream)(void **out, unsigned flags);
static int (*finish_stream)(void *stream);
static int (*chosen_device)(int *out);

// Trains a step on the device, as work of the default stream. The host knows the parameters before
// the device has computed them.
static void train(struct rig *r, float *known, float by)
{
    enum { ON_DEVICE = 3, STEPS = 4 };
    static float next[STEPS][N];
    static int step;
    float *to = next[step++ % STEPS];
    for (int i = 0; i < N; i++) to[i] = known[i] += by;
    assert_int_equal(copy(r->mine, to, N * sizeof *to, ON_DEVICE, NULL), 0);
}

static void join_on_device(struct rig *r, float *known)
{
    join_with(r, r->mine, LONGHAUL_FP32, LONGHAUL_CUDA);
    for (int i = 0; i < N; i++) assert_true(r->mine[i] == r->view[i]);
    memcpy(known, r->mine, sizeof r->mine);
}

// Trains a step of -3 and queues a cut of the result.
static void begin_cut(struct rig *r, float *known)
{
    train(r, known, -3);
    on_loop(r, want_now);
    assert_int_equal(boundary(r, 1), LONGHAUL_CUT);
    assert_int_equal(longhaul_cut(r->c), LONGHAUL_OK);
}

static uint64_t stored(struct rig *r)
{
    struct longhaul_state s = {.size = sizeof s};
    assert_int_equal(longhaul_state(r->c, &s), LONGHAUL_OK);
    return s.cuts;
}

// The thread's current device differs from that of the parameters, and is left unchanged.
IN_RIG(cuts_and_renews_as_on_the_host, struct rig *r)
{
    struct longhaul_state s = {.size = sizeof s};
    int device;
    setenv("CUDART_DEVICE", "1", 1);
    join_with(r, r->mine, LONGHAUL_FP32, LONGHAUL_CUDA);
    assert_int_equal(longhaul_state(r->c, &s), LONGHAUL_OK);
    assert_true(s.pinned_bytes >= 8 * N);
    check_rounds(r);
    longhaul_close(r->c);
    r->c = NULL;
    unsetenv("CUDART_DEVICE");
    assert_true(chosen_device(&device) == 0 && device == 0);
}

struct adder {
    float *to;
    uint64_t values;
    int calls, sparse, fails, ends;
};

static int add_here(void *arg, const struct longhaul_addition *a)
{
    struct adder *x = arg;
    if (!a->count) { // a piece of a renewal ends
        x->ends++;
        return 0;
    }
    x->calls++;
    if (a->index) x->sparse++;
    for (uint64_t i = 0; i < a->entries; i++) {
        uint64_t at = a->index ? (uint64_t)a->index[i] : i;
        assert_true(at < a->count && a->first + at < x->values);
        x->to[a->first + at] += a->value[i];
    }
    return x->fails;
}

static void join_with_adder(struct rig *r, struct adder *x)
{
    struct longhaul_tensor t = tensor("w", r->mine, LONGHAUL_FP32);
    t.memory = LONGHAUL_CUDA;
    t.add = add_here;
    t.add_arg = x;
    assert_int_equal(longhaul_parameter(r->c, &t), LONGHAUL_OK);
    assert_int_equal(longhaul_connect(r->c, TIMEOUT_MS), LONGHAUL_OK);
    assert_int_equal(longhaul_start(r->c), LONGHAUL_OK);
}

IN_RIG(the_loop_may_add_corrections_itself, struct rig *r)
{
    struct adder x = {.to = r->mine, .values = N};
    join_with_adder(r, &x);
    check_rounds(r);
    assert_int_equal(x.calls, 2);
    assert_int_equal(x.sparse, 2);
    assert_int_equal(x.ends, 1);
}

// Defers each correction until its piece ends. The cut of longhaul_finish(), which renews by
// itself, has to contain it.
static int add_at_the_end(void *arg, const struct longhaul_addition *a)
{
    static struct longhaul_addition later;
    static float value[N];
    static int32_t index[N];
    if (a->count) {
        later = *a;
        memcpy(value, a->value, a->entries * sizeof *value);
        if (a->index) memcpy(index, a->index, a->entries * sizeof *index);
        later.value = value;
        later.index = a->index ? index : NULL;
        return 0;
    }
    int err = later.count ? add_here(arg, &later) : 0;
    later.count = 0;
    return err;
}

IN_RIG(an_adder_may_put_corrections_off_to_the_end, struct rig *r)
{
    struct adder x = {.to = r->mine, .values = N};
    struct longhaul_tensor t = tensor("w", r->mine, LONGHAUL_FP32);
    t.memory = LONGHAUL_CUDA;
    t.add = add_at_the_end;
    t.add_arg = &x;
    assert_int_equal(longhaul_parameter(r->c, &t), LONGHAUL_OK);
    assert_int_equal(longhaul_connect(r->c, TIMEOUT_MS), LONGHAUL_OK);
    assert_int_equal(longhaul_start(r->c), LONGHAUL_OK);
    for (int i = 0; i < N; i += 100) r->view[i] += 8;
    on_loop(r, renew_now);
    on_loop(r, want_now);
    assert_int_equal(longhaul_finish(r->c, TIMEOUT_MS), LONGHAUL_OK);
    assert_int_equal(x.calls, 1);
    assert_int_equal(r->cuts, 1);
    for (int i = 0; i < N; i++) assert_true(r->delta[i] == 0); // the cut contains all of the view
}

static void add_and_compare(struct rig *r, uint64_t step)
{
    on_loop(r, renew_now);
    assert_int_equal(boundary(r, step), LONGHAUL_RENEW);
    assert_int_equal(longhaul_renew(r->c), LONGHAUL_OK);
    for (int i = 0; i < N; i++) assert_true(r->mine[i] == r->view[i]);
}

// Two tensors that meet within a chunk; each has its own stream and adder.
enum { MEET = 5000 };
struct two {
    uint64_t size[2];
    struct adder adder[2];
    void *stream[2], *copies_of_first;
};

static void join_two_tensors(struct rig *r, struct two *x)
{
    *x = (struct two){
        .size = {MEET, N - MEET},
        .adder = {{.to = r->mine, .values = MEET}, {.to = r->mine + MEET, .values = N - MEET}}};
    assert_int_equal(new_stream(&x->stream[1], 1), 0);
    x->copies_of_first = (char *)x->stream[1] + 1; // the runtime numbers streams in order
    for (int k = 0; k < 2; k++) {
        struct longhaul_tensor t = tensor(k ? "b" : "a", x->adder[k].to, LONGHAUL_FP32);
        t.memory = LONGHAUL_CUDA;
        t.shape = &x->size[k];
        t.stream = x->stream[k];
        t.add = add_here;
        t.add_arg = &x->adder[k];
        assert_int_equal(longhaul_parameter(r->c, &t), LONGHAUL_OK);
    }
    assert_int_equal(longhaul_connect(r->c, TIMEOUT_MS), LONGHAUL_OK);
    assert_int_equal(longhaul_start(r->c), LONGHAUL_OK);
}

// Trains a step to the view plus `by`, or, if `by` is 0, plus a different number for each value.
static void step_both(struct rig *r, const struct two *x, float by)
{
    enum { ON_DEVICE = 3, STEPS = 4 };
    static float next[STEPS][N];
    static int step;
    const float *from = next[step % STEPS];
    for (int i = 0; i < N; i++) next[step % STEPS][i] = r->view[i] + (by > 0 ? by : (float)(i % 3));
    step++;
    for (int k = 0; k < 2; k++)
        assert_int_equal(
            copy(x->adder[k].to, from + k * MEET, 4 * x->size[k], ON_DEVICE, x->stream[k]), 0);
}

IN_RIG(each_tensor_has_a_stream_and_an_adder, struct rig *r)
{
    struct two x;
    join_two_tensors(r, &x);
    const struct adder *a = &x.adder[0], *b = &x.adder[1];
    for (int i = 0; i < N; i++) r->view[i] += (float)(i % 7);
    add_and_compare(r, 1);
    assert_true(!a->sparse && !b->sparse && a->calls == 1 && b->calls == 1);
    for (int i = 0; i < N; i += i % 8 == 3 ? 2 : 9) r->view[i] += (float)(1 + i % 5);
    add_and_compare(r, 2);
    assert_true(a->sparse == 1 && b->sparse == 1);

    on_loop(r, want_now);
    assert_int_equal(boundary(r, 3), LONGHAUL_CUT);
    step_both(r, &x, 0);
    assert_int_equal(longhaul_cut(r->c), LONGHAUL_OK);
    assert_int_equal(longhaul_before_step(r->c), LONGHAUL_OK);
    step_both(r, &x, 50);
    await_cuts(r, 1);
    for (int i = 0; i < N; i++) assert_true(r->delta[i] == -(float)(i % 3));
}

static float taken[N]; // values for a cut, in place of the described memory

static int take_those(void *arg, const struct longhaul_taking *t)
{
    enum { TO_HOST = 2 };
    const struct adder *x = arg;
    assert_true(t->count && t->first + t->count <= x->values);
    return copy(t->to, taken + t->first, t->count * sizeof *t->to, TO_HOST, t->stream);
}

IN_RIG(the_loop_may_say_what_a_cut_holds, struct rig *r)
{
    struct adder x = {.to = r->mine, .values = N};
    struct longhaul_tensor t = tensor("w", r->mine, LONGHAUL_FP32);
    t.memory = LONGHAUL_CUDA;
    t.add = add_here;
    t.take = take_those;
    t.add_arg = &x;
    assert_int_equal(longhaul_parameter(r->c, &t), LONGHAUL_OK);
    assert_int_equal(longhaul_connect(r->c, TIMEOUT_MS), LONGHAUL_OK);
    assert_int_equal(longhaul_start(r->c), LONGHAUL_OK);
    for (int i = 0; i < N; i++) taken[i] = r->view[i] - (float)(i % 9);
    on_loop(r, want_now);
    assert_int_equal(boundary(r, 1), LONGHAUL_CUT);
    assert_int_equal(longhaul_cut(r->c), LONGHAUL_OK);
    assert_int_equal(stored(r), 0); // the copy is still in flight
    assert_int_equal(longhaul_before_step(r->c), LONGHAUL_OK);
    await_cuts(r, 1);
    for (int i = 0; i < N; i++) assert_true(r->delta[i] == (float)(i % 9));
}

IN_RIG(an_addition_that_fails_is_the_renewals_error, struct rig *r)
{
    struct adder x = {.to = r->mine, .values = N, .fails = 1};
    join_with_adder(r, &x);
    r->view[0] += 1;
    on_loop(r, renew_now);
    assert_int_equal(boundary(r, 1), LONGHAUL_RENEW);
    assert_int_equal(longhaul_renew(r->c), LONGHAUL_E_SYSTEM);
    assert_int_equal(x.calls, 1);
    assert_int_equal(x.ends, 1); // deferred work does not pass into another life
}

// Each rank pins the pages that its cuts write; no rank pins all slots.
TEST_TWO(ranks_pin_a_host_once, struct rig *r)
{
    static float theirs[N];
    enum { PAGES = 4 * 4096 }; // both ranges may begin and end within a page
    struct longhaul *second = join_two(r, theirs, LONGHAUL_CUDA), *both[] = {r->c, second};
    for (int k = 0; k < 2; k++) {
        struct longhaul_state s = {.size = sizeof s};
        assert_int_equal(longhaul_state(both[k], &s), LONGHAUL_OK);
        assert_in_range(s.pinned_bytes, N * sizeof(float) - PAGES, N * sizeof(float) + PAGES);
    }
    longhaul_close(second);
}

IN_RIG(does_without_pinned_memory, struct rig *r)
{
    struct longhaul_state s = {.size = sizeof s};
    setenv("CUDART_PINS", "nothing", 1);
    join_with(r, r->mine, LONGHAUL_FP32, LONGHAUL_CUDA);
    unsetenv("CUDART_PINS");
    assert_int_equal(longhaul_state(r->c, &s), LONGHAUL_OK);
    assert_int_equal(s.pinned_bytes, 0);
    assert_int_equal(copy(r->mine, r->view, sizeof r->mine, 3, NULL), 0); // a step finds no error
    check_rounds(r);
}

// The copy is queued when the next step changes the parameters: the worker gets the old values.
IN_RIG(the_next_step_waits_for_the_copy, struct rig *r)
{
    static float known[N];
    join_on_device(r, known);
    for (uint64_t round = 1; round < 6; round++) {
        train(r, known, -3);
        on_loop(r, want_now);
        assert_int_equal(boundary(r, 2 * round), LONGHAUL_CUT);
        assert_int_equal(longhaul_cut(r->c), LONGHAUL_OK);
        assert_int_equal(stored(r), round - 1);
        assert_int_equal(longhaul_before_step(r->c), LONGHAUL_OK);
        train(r, known, -100);
        assert_int_equal(boundary(r, 2 * round + 1), 0);
        await_cuts(r, round);
        for (int i = 0; i < N; i++) assert_true(r->delta[i] == (round > 1 ? 103 : 3));
    }
}

// The device has still to do the step before the boundary when the cut is queued.
IN_RIG(the_copy_waits_for_the_step_before, struct rig *r)
{
    static float known[N];
    join_on_device(r, known);
    setenv("CUDART", "caller_late", 1);
    begin_cut(r, known);
    assert_int_equal(longhaul_before_step(r->c), LONGHAUL_OK);
    assert_int_equal(stored(r), 0);
    train(r, known, -100);
    await_cuts(r, 1);
    unsetenv("CUDART");
    for (int i = 0; i < N; i++) assert_true(r->delta[i] == 3);
}

// A loop that waits for a lease trains nothing meanwhile, and the worker may need this cut.
IN_RIG(a_waiting_loop_looks_whether_the_copy_ended, struct rig *r)
{
    static float known[N];
    join_on_device(r, known);
    begin_cut(r, known);
    assert_int_equal(longhaul_before_step(r->c), LONGHAUL_OK);
    await_cuts(r, 1);
    for (int i = 0; i < N; i++) assert_true(r->delta[i] == 3);
    assert_int_equal(boundary(r, 2), 0);
}

IN_RIG(the_end_waits_for_the_copy, struct rig *r)
{
    static float known[N];
    join_on_device(r, known);
    train(r, known, -3);
    on_loop(r, want_now);
    assert_int_equal(boundary(r, 1), LONGHAUL_CUT);
    assert_int_equal(longhaul_finish(r->c, TIMEOUT_MS), LONGHAUL_OK);
    for (int i = 0; i < N; i++) assert_true(r->delta[i] == 3);
    for (int i = 0; i < N; i++) assert_true(r->mine[i] == r->view[i]);
}

// Closing, and beginning another life, free the memory that the copy writes to.
IN_RIG(closing_waits_for_the_copy, struct rig *r)
{
    static float known[N];
    join_on_device(r, known);
    begin_cut(r, known);
    assert_int_equal(longhaul_connect(r->c, TIMEOUT_MS), LONGHAUL_OK);
    assert_int_equal(longhaul_start(r->c), LONGHAUL_OK);
    while (sem_wait(&r->ended)) continue;
    on_loop(r, want_now);
    assert_int_equal(boundary(r, 1), LONGHAUL_CUT);
    assert_int_equal(longhaul_cut(r->c), LONGHAUL_OK);
    longhaul_close(r->c);
    r->c = NULL;
    while (sem_wait(&r->ended)) continue;
    assert_int_equal(r->cuts, 0); // neither cut was stored
}

static int add_late(void *arg, const struct longhaul_addition *a)
{
    if (!a->count) return 0;
    return copy(arg, a->value, a->entries * sizeof *a->value, 1, NULL);
}

// An adder may queue the correction on the device, which reads it later.
IN_RIG(closing_waits_for_additions, struct rig *r)
{
    struct longhaul_tensor t = tensor("w", r->mine, LONGHAUL_FP32);
    t.memory = LONGHAUL_CUDA;
    t.add = add_late;
    t.add_arg = r->mine;
    assert_int_equal(longhaul_parameter(r->c, &t), LONGHAUL_OK);
    assert_int_equal(longhaul_connect(r->c, TIMEOUT_MS), LONGHAUL_OK);
    assert_int_equal(longhaul_start(r->c), LONGHAUL_OK);
    for (int i = 0; i < N; i++) r->view[i] += (float)(i % 7 + 1);
    on_loop(r, renew_now);
    setenv("CUDART", "caller_late", 1);
    assert_int_equal(boundary(r, 1), LONGHAUL_RENEW);
    assert_int_equal(longhaul_renew(r->c), LONGHAUL_OK);
    for (int i = 0; i < N; i++) assert_true(r->mine[i] == (float)i); // it is not added yet
    longhaul_close(r->c);
    r->c = NULL;
    unsetenv("CUDART");
    for (int i = 0; i < N; i++) assert_true(r->mine[i] == (float)(i % 7 + 1));
}

// The copy has ended at the boundary, but a step ran beside it.
IN_RIG(says_when_a_step_did_not_wait, struct rig *r)
{
    enum { LOOKS = 5 };
    static float known[N];
    unsigned due;
    join_on_device(r, known);
    begin_cut(r, known);
    train(r, known, -100);
    for (int i = 0; i < LOOKS; i++) assert_int_equal(longhaul_wait(r->c, 2), LONGHAUL_E_TIMEOUT);
    assert_int_equal(longhaul_boundary(r->c, 2, 1, &due), LONGHAUL_E_STATE);
    assert_non_null(strstr(longhaul_text(r->c), "longhaul_before_step()"));
    assert_int_equal(longhaul_before_step(r->c), LONGHAUL_E_STATE); // it comes too late
    assert_int_equal(longhaul_boundary(r->c, 2, 1, &due), LONGHAUL_E_STATE);
    assert_int_equal(longhaul_wait(r->c, 1), LONGHAUL_E_STATE);
    assert_int_equal(longhaul_finish(r->c, 1), LONGHAUL_E_STATE);
    assert_int_equal(stored(r), 0);
    assert_int_equal(longhaul_connect(r->c, TIMEOUT_MS), LONGHAUL_OK);
    assert_int_equal(longhaul_start(r->c), LONGHAUL_OK);
    assert_int_equal(r->cuts, 0);
    assert_int_equal(boundary(r, 1), 0);
}

// A step ran beside the copies: one tensor's copy had ended before, the other's had not.
IN_RIG(the_end_takes_a_cut_again_that_nothing_waited_for, struct rig *r)
{
    struct two x;
    join_two_tensors(r, &x);
    on_loop(r, want_now);
    assert_int_equal(boundary(r, 1), LONGHAUL_CUT);
    assert_int_equal(longhaul_cut(r->c), LONGHAUL_OK);
    assert_int_equal(finish_stream(x.stream[0]), 0);
    assert_int_equal(finish_stream(x.copies_of_first), 0);
    step_both(r, &x, 50);
    assert_int_equal(finish_stream(x.stream[1]), 0);
    assert_int_equal(longhaul_finish(r->c, TIMEOUT_MS), LONGHAUL_OK);
    assert_int_equal(r->cuts, 1);
    for (int i = 0; i < N; i++) assert_true(r->delta[i] == -50);
}

// The trainer dies after it called for a cut and before the copy ended, so the cut's number is
// stored nowhere.
IN_RIG(a_cut_that_is_on_its_way_dies_with_the_trainer, struct rig *r)
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
        t.memory = LONGHAUL_CUDA;
        bool is = longhaul_open(&c) == LONGHAUL_OK && longhaul_parameter(c, &t) == LONGHAUL_OK &&
                  longhaul_connect(c, TIMEOUT_MS) == LONGHAUL_OK &&
                  longhaul_start(c) == LONGHAUL_OK && write(ready[1], &byte, 1) == 1 &&
                  read(go[0], &byte, 1) == 1 && longhaul_boundary(c, 1, 1, &due) == LONGHAUL_OK;
        _exit(is && due == LONGHAUL_CUT && longhaul_cut(c) == LONGHAUL_OK ? 0 : 1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    on_loop(r, want_now);
    assert_int_equal(write(go[1], &byte, 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    while (sem_wait(&r->ended)) continue;
    assert_int_equal(r->cuts, 0);
    for (int i = 0; i < 2; i++) close(ready[i]), close(go[i]);
}

// ---------------------------------------------------------------- bf16, pieces, ranks

// bf16 is copied to the end of the place for its fp32 values, and widened from there.
IN_RIG(bf16_is_widened_where_it_came, struct rig *r)
{
    static uint16_t mine[N];
    for (int i = 0; i < N; i++) r->view[i] = (float)(64 + i % 64) + 0.001f;
    join_with(r, mine, LONGHAUL_BF16, LONGHAUL_CUDA);
    for (int i = 0; i < N; i++) assert_true(wide(mine[i]) == (float)(64 + i % 64));
    for (int i = 0; i < N; i++) r->view[i] += 128;
    on_loop(r, renew_now);
    on_loop(r, want_now);
    assert_int_equal(boundary(r, 1), LONGHAUL_RENEW | LONGHAUL_CUT);
    assert_int_equal(longhaul_renew(r->c), LONGHAUL_OK);
    for (int i = 0; i < N; i++) assert_true(wide(mine[i]) == (float)(192 + i % 64));
    for (int i = 0; i < N; i += 2) mine[i] = 0x3f80; // 1
    on_threads(r, cut_and_hold);
    assert_int_equal(longhaul_cut_done(r->c), LONGHAUL_OK);
    assert_int_equal(longhaul_before_step(r->c), LONGHAUL_OK);
    for (int i = 0; i < N; i++) mine[i] = 0;
    assert_int_equal(boundary(r, 2), 0);
    await_cuts(r, 1);
    for (int i = 0; i < N; i++)
        assert_true(fabsf(r->delta[i] - (i % 2 ? 0 : (float)(191 + i % 64))) < 1e-3f);
}

IN_RIG(pieces_make_a_whole, struct rig *r)
{
    check_pieces(r, LONGHAUL_CUDA);
}

static void cut_by(struct longhaul *c, uint64_t step)
{
    unsigned due;
    assert_int_equal(longhaul_boundary(c, step, 1, &due), LONGHAUL_OK);
    assert_int_equal(due, step == 3 ? LONGHAUL_CUT : 0);
    if (due) assert_int_equal(longhaul_cut(c), LONGHAUL_OK);
    assert_int_equal(longhaul_before_step(c), LONGHAUL_OK);
}

// The cut is complete when both ranks' copies have ended; boundaries go on meanwhile.
TEST_TWO(each_rank_copies_its_share, struct rig *r)
{
    static float theirs[N];
    struct longhaul *second = join_two(r, theirs, LONGHAUL_CUDA);
    on_loop(r, want_now);
    for (uint64_t step = 1; step < 5; step++) {
        for (int i = 0; i < N; i++) theirs[i] = r->mine[i] -= 1;
        cut_by(r->c, step);
        cut_by(second, step);
    }
    await_cuts(r, 1);
    for (int i = 0; i < N; i++) assert_true(r->delta[i] == 3);
    longhaul_close(second);
}

static void find(void *library, const char *name, void *function)
{
    void *at = library ? dlsym(library, name) : NULL;
    LH_ASSERT(at);
    memcpy(function, &at, sizeof at);
}

int main(int argc, char **argv)
{
    setenv("LONGHAUL_CUDART", CUDART, 1);
    void *library = dlopen(CUDART, RTLD_NOW | RTLD_LOCAL);
    find(library, "cudaMemcpyAsync", &copy);
    find(library, "cudaStreamCreateWithFlags", &new_stream);
    find(library, "cudaStreamSynchronize", &finish_stream);
    find(library, "cudaGetDevice", &chosen_device);
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return test_run(NULL, NULL);
}
