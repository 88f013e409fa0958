// OpenBLAS runs the kernels that the processor supports, even where its own list of models is older
// than the processor.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/blas.h"
#include "kernels/cpu/cpu_features.h"
#include "tests/test.h"

static const char *path;   // path of this program
static const char *before; // OPENBLAS_CORETYPE at the first start; NULL: not set

TEST(a_core_without_avx2_is_not_left_where_there_is_avx2)
{
    const char *want = lk_cpu_has_avx512() ? "SkylakeX" : lk_cpu_has_avx2() ? "Haswell" : NULL;
    const char *better = lk_blas_better("Prescott");
    assert_true(want == NULL ? better == NULL : better != NULL && !strcmp(better, want));
    assert_true((want == NULL) == (lk_blas_better("Sandybridge") == NULL));
    assert_null(lk_blas_better("Haswell"));
    assert_null(lk_blas_better("Zen"));
    assert_null(lk_blas_better("SapphireRapids"));
    assert_null(lk_blas_better("a core of tomorrow"));
}

TEST(this_program_runs_what_the_processor_can)
{
    if (before == NULL) assert_null(lk_blas_better(lk_blas_core()));
    assert_true(strlen(lk_blas_core()) > 0);
}

// Starts this program again with OPENBLAS_CORETYPE=`type`; it prints the core that OpenBLAS chose.
static void core_of(const char *type, char *out, size_t room)
{
    char line[4300];
    int n = snprintf(line, sizeof line, "OPENBLAS_CORETYPE=%s '%s' core", type, path);
    assert_true(n > 0 && (size_t)n < sizeof line);
    FILE *f = popen(line, "r");
    assert_non_null(f);
    assert_non_null(fgets(out, (int)room, f));
    assert_int_equal(pclose(f), 0);
    out[strcspn(out, "\n")] = 0;
}

TEST(a_core_type_that_was_set_stays)
{
#if defined(__x86_64__)
    char core[64];
    core_of("Prescott", core, sizeof core);
    assert_string_equal(core, "Prescott");
    if (!lk_cpu_has_avx2()) return;
    core_of("Haswell", core, sizeof core);
    assert_string_equal(core, "Haswell");
#endif
}

int main(int argc, char **argv)
{
    before = getenv("OPENBLAS_CORETYPE");
    const char *marked = getenv("BLAS_TEST_BEFORE");
    if (marked)
        before = *marked ? marked : NULL;
    else
        setenv("BLAS_TEST_BEFORE", before ? before : "", 1);
    lk_blas_choose(argv);
    if (argc > 1) return puts(lk_blas_core()) < 0;
    path = argv[0];
    return test_run(NULL, NULL);
}
