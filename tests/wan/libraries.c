// Tests dp_libraries_absolute: a search path for libraries without the current folder.
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "deploy/wan/libraries.h"
#include "tests/test.h"

TEST(only_absolute_elements)
{
    static const struct {
        const char *path, *kept;
        bool all;
    } row[] = {
        {"", "", true},
        {"/opt/lib", "/opt/lib", true},
        {"/opt/lib:/usr/lib", "/opt/lib:/usr/lib", true},
        {"/opt/lib;/usr/lib", "/opt/lib:/usr/lib", true},
        {":", "", false},
        {"/opt/lib:", "/opt/lib", false},
        {":/opt/lib", "/opt/lib", false},
        {"/opt/lib::/usr/lib", "/opt/lib:/usr/lib", false},
        {".", "", false},
        {"lib:/usr/lib:../lib", "/usr/lib", false},
    };
    char kept[DP_LIBRARIES_BYTES];
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        assert_int_equal(dp_libraries_absolute(row[i].path, kept), row[i].all);
        assert_string_equal(kept, row[i].kept);
    }
}

TEST(a_path_that_is_too_long)
{
    char path[DP_LIBRARIES_BYTES + 1], kept[DP_LIBRARIES_BYTES];
    memset(path, '/', sizeof path - 1);
    path[sizeof path - 1] = 0;
    assert_false(dp_libraries_absolute(path, kept));
    assert_string_equal(kept, "");
}

TEST(empty_entries_leave_the_library_path)
{
    setenv("LD_LIBRARY_PATH", "/opt/lib:", 1);
    dp_libraries_clean();
    assert_string_equal(getenv("LD_LIBRARY_PATH"), "/opt/lib");
    setenv("LD_LIBRARY_PATH", ":", 1);
    dp_libraries_clean();
    assert_null(getenv("LD_LIBRARY_PATH"));
}
