// Entering the network of a run's coordinator: nothing to do on loopback, and a clear message when
// its links are down.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "deploy/ask/links.h"
#include "deploy/tool/files.h"
#include "tests/test.h"

static void write_links(const char *dir, const char *text)
{
    char path[DP_PATH_BYTES];
    assert_int_equal(dp_path(path, "%s/links.json", dir), LH_OK);
    assert_int_equal(dp_file_write(path, lh_span_str(text), 0666), LH_OK);
}

TEST(a_folder_says_where)
{
    char dir[] = "/tmp/longhaul-links-XXXXXX";
    assert_non_null(mkdtemp(dir));
    assert_int_equal(dp_links_enter(dir), LH_OK); // loopback
    assert_int_equal(dp_links_keep(dir, "lh-no-such", "eu"), LH_OK);
    lh_err err = dp_links_enter(dir);
    assert_int_equal(err, geteuid() ? LH_ERR_DENIED : LH_ERR_UNAVAILABLE);
    assert_non_null(strstr(lh_err_text(err), geteuid() ? "as root" : "links of this run are down"));
    dp_links_forget(dir);
    assert_int_equal(dp_links_enter(dir), LH_OK);
    dp_links_forget(dir);
    assert_int_equal(rmdir(dir), 0);
}

TEST(nonsense_is_refused)
{
    static const char *const nonsense[] = {
        "", "{}", "{\"instance\": 7, \"region\": \"eu\"}",
        "{\"instance\": \"lh-012345678901234567890\", \"region\": \"eu\"}"}; // one byte too long
    char dir[] = "/tmp/longhaul-links-XXXXXX";
    assert_non_null(mkdtemp(dir));
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
        write_links(dir, nonsense[i]);
        assert_int_equal(dp_links_enter(dir), LH_ERR_MALFORMED);
    }
    dp_links_forget(dir);
    assert_int_equal(rmdir(dir), 0);
}
