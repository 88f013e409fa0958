// Exit codes: one for each kind of failure, and the code of every error at a program's start.
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/exit.h"
#include "tests/test.h"

TEST(codes_differ_and_are_documented_in_order)
{
    static const int code[] = {
#define CODE(id, number, name, meaning) LH_EXIT_##id,
        LH_EXITS(CODE)
#undef CODE
    };
    for (size_t i = 0; i < LH_COUNT(code); i++) assert_int_equal(code[i], i);
}

TEST(errors_have_their_codes)
{
    static const struct {
        lh_err err;
        enum lh_exit exit;
    } row[] = {
        {LH_OK, LH_EXIT_OK},
        {LH_ERR_INVALID, LH_EXIT_USAGE},
        {LH_ERR_CONFIG, LH_EXIT_CONFIG},
        {LH_ERR_MANIFEST, LH_EXIT_CONFIG},
        {LH_ERR_NOT_FOUND, LH_EXIT_MISSING},
        {LH_ERR_CORRUPT, LH_EXIT_UNVERIFIED},
        {LH_ERR_UNAUTHENTICATED, LH_EXIT_DENIED},
        {LH_ERR_DENIED, LH_EXIT_DENIED},
        {LH_ERR_EXISTS, LH_EXIT_FAILED},
        {LH_ERR_BUSY, LH_EXIT_FAILED},
        {LH_ERR_IO, LH_EXIT_FAILED},
    };
    for (size_t i = 0; i < LH_COUNT(row); i++)
        assert_int_equal(lh_exit_of(row[i].err), row[i].exit);
    for (int err = 1; err < LH_ERR_COUNT; err++) // no error gives the exit code of success
        assert_int_not_equal(lh_exit_of((lh_err)err), LH_EXIT_OK);
}

static void say_handler(void)
{
    fputs("handler\n", stdout);
    fflush(stdout);
}

// Reads the output of a child that leaves with status 3 while an exit handler is registered.
static int say_and_leave(char *out, size_t size)
{
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        dup2(ends[1], STDOUT_FILENO);
        atexit(say_handler);
        fputs("said\n", stdout); // stays in the buffer: stdout is a pipe
        lh_leave(3);
    }
    close(ends[1]);
    size_t len = 0;
    for (ssize_t n; len + 1 < size && (n = read(ends[0], out + len, size - 1 - len)) > 0;)
        len += (size_t)n;
    out[len] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(leaving_writes_streams_and_runs_no_handlers)
{
    char said[64];
    fflush(NULL); // otherwise the child would inherit buffered output
    assert_int_equal(say_and_leave(said, sizeof said), 3);
#ifdef LH_EXIT_HANDLERS
    assert_string_equal(said, "said\nhandler\n");
#else
    assert_string_equal(said, "said\n");
#endif
}

// A child without these streams opens them, then a file; its status is the file's number, or 1 if a
// stream is closed or another device than /dev/null.
static int number_of_a_file(const bool closed[3])
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        struct stat null, is;
        for (int i = 0; i < 3; i++)
            if (closed[i]) close(i);
        lh_open_streams();
        bool good = !stat("/dev/null", &null);
        for (int i = 0; i < 3; i++)
            good = good && !fstat(i, &is) && (!closed[i] || is.st_rdev == null.st_rdev);
        _exit(good ? dup(STDIN_FILENO) : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(closed_streams_are_no_files)
{
    const int first = number_of_a_file((bool[3]){false, false, false});
    for (int set = 1; set < 8; set++)
        assert_int_equal(number_of_a_file((bool[3]){set & 1, set & 2, set & 4}), first);
}
