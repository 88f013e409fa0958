// Parameters on CUDA: which runtime, memory and streams are taken, and what happens when the n-th
// call of the runtime fails. The library reports an error, and gives back every stream, event and
// pinned page when it is closed.
#include <dlfcn.h>

#include "tests/external/client_rig.h"

enum { CALLS_MAX = 300, SLICE_MS = 10 };

static void (*fail_at)(int n);
static const char *(*failed)(void);
static int (*held)(void);

// One cut and one renewal. Returns the first error.
static int use(struct rig *r, uint64_t *cuts)
{
    struct longhaul_tensor t = tensor("w", r->mine, LONGHAUL_FP32);
    unsigned due = 0;
    t.memory = LONGHAUL_CUDA;
    int err = longhaul_parameter(r->c, &t);
    if (!err) err = longhaul_connect(r->c, TIMEOUT_MS);
    if (!err) err = longhaul_start(r->c);
    if (err) return err;
    on_loop(r, want_now);
    err = longhaul_boundary(r->c, 1, 1, &due);
    if (!err) err = longhaul_cut(r->c);
    if (!err) err = longhaul_before_step(r->c);
    for (int ms = 0; !err && !*cuts && ms < TIMEOUT_MS; ms += SLICE_MS) {
        err = longhaul_wait(r->c, SLICE_MS);
        if (err == LONGHAUL_E_TIMEOUT) err = LONGHAUL_OK;
        on_loop(r, see_cuts);
        *cuts = r->cuts_seen;
    }
    for (int i = 0; i < N; i++) r->view[i] += (float)(i % 7);
    on_loop(r, renew_now);
    if (!err) err = longhaul_boundary(r->c, 2, 1, &due);
    if (!err) err = longhaul_renew(r->c);
    return err;
}

// ---------------------------------------------------------------- libraries

// A host may have libraries of two CUDA versions, and a driver that is too old for the newer one.
IN_RIG(takes_the_library_that_finds_a_device, struct rig *r)
{
    char named[256];
    snprintf(named, sizeof named, "%s", getenv("LONGHAUL_CUDART"));
    void *none = dlopen(CUDART_13, RTLD_NOW), *some = dlopen(CUDART_12, RTLD_NOW);
    assert_true(none && some); // dlopen() finds a loaded library by its name
    struct longhaul_tensor t = tensor("w", r->mine, LONGHAUL_FP32), other = t;
    other.name = "other", other.data = r->view;
    t.memory = other.memory = LONGHAUL_CUDA;
    unsetenv("LONGHAUL_CUDART");
    assert_int_equal(longhaul_parameter(r->c, &t), LONGHAUL_OK);
    assert_int_equal(longhaul_parameter(r->c, &other), LONGHAUL_OK);
    longhaul_close(r->c);
    assert_int_equal(longhaul_open(&r->c), LONGHAUL_OK);
    setenv("LONGHAUL_CUDART", CUDART_13, 1); // a named library is the only one tried
    assert_int_equal(longhaul_parameter(r->c, &t), LONGHAUL_E_UNSUPPORTED);
    assert_non_null(strstr(longhaul_text(r->c), "CUDA finds no device here"));
    setenv("LONGHAUL_CUDART", named, 1);
    dlclose(none);
    dlclose(some);
    assert_null(dlopen(CUDART_13, RTLD_NOW | RTLD_NOLOAD)); // neither is still open
    assert_null(dlopen(CUDART_12, RTLD_NOW | RTLD_NOLOAD));
}

IN_RIG(a_library_without_all_functions_is_no_runtime, struct rig *r)
{
    char named[256];
    snprintf(named, sizeof named, "%s", getenv("LONGHAUL_CUDART"));
    struct longhaul_tensor t = tensor("w", r->mine, LONGHAUL_FP32);
    t.memory = LONGHAUL_CUDA;
    setenv("LONGHAUL_CUDART", "libm.so.6", 1);
    assert_int_equal(longhaul_parameter(r->c, &t), LONGHAUL_E_UNSUPPORTED);
    assert_non_null(strstr(longhaul_text(r->c), "CUDA finds no device here"));
    setenv("LONGHAUL_CUDART", named, 1);
    assert_int_equal(longhaul_parameter(r->c, &t), LONGHAUL_OK);
}

// ---------------------------------------------------------------- memory and streams

enum { OF_A_LANE = 3, LANES = 16, FREE_STREAM = 17 }; // a lane holds a stream and two events

// Describes value i of the model, which is on this device and this stream.
static int describe(struct rig *r, int i, const char *device, intptr_t stream)
{
    static const uint64_t one[] = {1};
    char name[16];
    snprintf(name, sizeof name, "p%d", i);
    struct longhaul_tensor t = tensor(name, r->mine + i, LONGHAUL_FP32);
    t.shape = one;
    t.memory = LONGHAUL_CUDA;
    t.stream = (void *)stream; // NOLINT(performance-no-int-to-ptr): a handle
    setenv("CUDART_DEVICE", device, 1);
    int err = longhaul_parameter(r->c, &t);
    unsetenv("CUDART_DEVICE");
    return err;
}

IN_RIG(parameters_of_a_device_and_a_stream_share_a_lane, struct rig *r)
{
    const struct {
        const char *device;
        intptr_t stream;
        int lanes; // then held
    } row[] = {{"0", 0, 1},
               {"0", 0, 1},
               {"0", FREE_STREAM, 2},
               {"1", FREE_STREAM, 3},
               {"1", FREE_STREAM, 3},
               {"0", FREE_STREAM, 3},
               {"0", 0, 3}};
    int i = 0, before = held(), lanes = 3;
    for (; i < (int)(sizeof row / sizeof *row); i++) {
        assert_int_equal(describe(r, i, row[i].device, row[i].stream), LONGHAUL_OK);
        assert_int_equal(held() - before, row[i].lanes * OF_A_LANE);
    }
    for (; lanes < LANES; lanes++, i++)
        assert_int_equal(describe(r, i, "0", FREE_STREAM - 2 + lanes), LONGHAUL_OK);
    assert_int_equal(describe(r, i, "0", FREE_STREAM - 2 + lanes), LONGHAUL_E_INVALID);
    assert_non_null(strstr(longhaul_text(r->c), "more than 16 streams"));
    assert_int_equal(describe(r, i, "1", FREE_STREAM), LONGHAUL_OK);
    assert_int_equal(held() - before, LANES * OF_A_LANE);
    longhaul_close(r->c);
    r->c = NULL;
    assert_int_equal(held(), before);
}

// A rank that holds none of a tensor has no pointer to ask about.
IN_RIG(a_tensor_of_another_rank_needs_no_stream_of_its_own, struct rig *r)
{
    struct longhaul_tensor t = tensor("w", NULL, LONGHAUL_FP32);
    int before = held();
    assert_int_equal(describe(r, 0, "0", 0), LONGHAUL_OK);
    t.memory = LONGHAUL_CUDA;
    t.first = N;
    t.stream = r; // any other one
    assert_int_equal(longhaul_parameter(r->c, &t), LONGHAUL_OK);
    assert_int_equal(held() - before, OF_A_LANE);
}

IN_RIG(takes_memory_of_a_device_only, struct rig *r)
{
    setenv("CUDART_MEMORY", "host", 1);
    assert_int_equal(describe(r, 0, "0", 0), LONGHAUL_E_INVALID);
    assert_non_null(strstr(longhaul_text(r->c), "CUDA finds no device memory there"));
    setenv("CUDART_MEMORY", "managed", 1);
    assert_int_equal(describe(r, 0, "0", 0), LONGHAUL_OK);
    unsetenv("CUDART_MEMORY");
    assert_int_equal(describe(r, 1, "0", 0), LONGHAUL_OK);
}

// A rank's copies write two ranges, and only the first one can be pinned.
TEST_TWO(pins_all_ranges_or_none, struct rig *r)
{
    static float theirs[N];
    int before = held();
    setenv("CUDART_PINS", "every_other", 1);
    struct longhaul *second = join_two(r, theirs, LONGHAUL_CUDA), *both[] = {r->c, second};
    unsetenv("CUDART_PINS");
    for (int k = 0; k < 2; k++) {
        struct longhaul_state s = {.size = sizeof s};
        assert_int_equal(longhaul_state(both[k], &s), LONGHAUL_OK);
        assert_int_equal(s.pinned_bytes, 0);
    }
    assert_int_equal(held() - before, 2 * OF_A_LANE);
    longhaul_close(second);
}

static void find(void *library, const char *name, void *function)
{
    void *at = library ? dlsym(library, name) : NULL;
    LH_ASSERT(at);
    memcpy(function, &at, sizeof at);
}

// The only failures that are no errors: no memory can be pinned, which makes copies slower, and the
// three calls of a new life that wait for copies of the life before.
enum { NO_ERRORS = 1 + 3 };

TEST(each_call_may_fail)
{
    const char *call = "";
    int no_errors = 0;
    for (int n = 1; call; n++) {
        struct rig *r;
        void *at;
        uint64_t cuts = 0;
        assert_true(n < CALLS_MAX);
        assert_int_equal(set_up(&at), 0);
        r = at;
        int before = held();
        fail_at(n);
        int err = use(r, &cuts);
        no_errors += !err && failed();
        assert_true(err ? failed() != NULL : cuts == 1);
        longhaul_close(r->c);
        r->c = NULL;
        call = failed();
        bool no_device = call && !err && !strcmp(call, "cudaGetDevice"); // nothing can be released
        if (held() != before && !no_device)
            fail_msg("call %d, %s, fails: %d are held", n, call, held() - before);
        assert_int_equal(tear_down(&at), 0);
    }
    assert_int_equal(no_errors, NO_ERRORS);
}

int main(void)
{
    setenv("LONGHAUL_CUDART", CUDART, 1);
    void *library = dlopen(CUDART, RTLD_NOW | RTLD_LOCAL);
    find(library, "cudart_fail", &fail_at);
    find(library, "cudart_failed", &failed);
    find(library, "cudart_held", &held);
    return test_run(NULL, NULL);
}
