// Parameters on CUDA when the n-th call of the runtime fails: the library reports an error, and
// gives back every stream, event and pinned page when it is closed.
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

// The only failures that are no errors: no memory can be pinned, which makes copies slower, and the
// three calls of a new life that wait for copies of the life before.
enum { NO_ERRORS = 1 + 3 };

static void each_call_may_fail(void **state)
{
    (void)state;
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

static void find(void *library, const char *name, void *function)
{
    void *at = library ? dlsym(library, name) : NULL;
    LH_ASSERT(at);
    memcpy(function, &at, sizeof at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_call_may_fail)};
    setenv("LONGHAUL_CUDART", CUDART, 1);
    void *library = dlopen(CUDART, RTLD_NOW | RTLD_LOCAL);
    find(library, "cudart_fail", &fail_at);
    find(library, "cudart_failed", &failed);
    find(library, "cudart_held", &held);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
