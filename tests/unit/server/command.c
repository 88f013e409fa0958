// labels: tsan
// server/command.c with real commands. No test depends on the speed of the machine: a command that
// must be killed would run for ever, and one that may exit by itself has ample time.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/check.h"
#include "server/command.h"
#include "tests/test.h"

static const int64_t LONG = 600 * LH_SECOND;

struct world {
    struct lh_env *env;
    atomic_bool stop;
    char script[64];
    struct lh_span input; // the commands' standard input
};

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    *state = w;
    snprintf(w->script, sizeof w->script, "/tmp/longhaul-command-XXXXXX");
    int fd = mkstemp(w->script);
    return !w || fd < 0 || close(fd) || lh_env_real_create(&w->env) != LH_OK;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    lh_env_real_destroy(w->env);
    int err = unlink(w->script);
    free(w);
    return err;
}

static struct ps_command_end run(struct world *w, const char *script, char *const *extra,
                                 int64_t timeout_ns)
{
    char line[128];
    struct ps_command c;
    struct ps_command_end end;
    FILE *f = fopen(w->script, "w");
    assert_non_null(f);
    assert_true(fputs(script, f) >= 0);
    assert_int_equal(fclose(f), 0);
    snprintf(line, sizeof line, "sh %s one two", w->script);
    assert_int_equal(ps_command_parse(line, &c), LH_OK);
    ps_command_run(&c, w->env, extra, w->input, timeout_ns, &w->stop, &end);
    return end;
}

static char *const nothing[] = {NULL};

#define IN_WORLD(name, parameter) TEST_WITH(name, parameter, NULL, NULL)

IN_WORLD(it_gets_words_and_environment, struct world *w)
{
    char *const extra[] = {(char[]){"LONGHAUL_WANTED=64"}, (char[]){"PATH=/nowhere"}, NULL};
    struct ps_command_end end =
        run(w, "echo $1,$2,$#,$LONGHAUL_WANTED,$PATH; echo to \\\"stderr >&2; cat; exit 3", extra,
            LONG);
    // PATH has no cat; echo is a built-in of the shell
    assert_int_equal(end.fate, PS_COMMAND_EXITED);
    assert_int_equal(end.number, 3);
    assert_memory_equal(end.says, "one,two,2,64,/nowhere to stderr", 31);
}

IN_WORLD(it_reads_its_input_to_the_end, struct world *w)
{
    char long_one[PS_COMMAND_INPUT_MAX];
    memset(long_one, 'x', sizeof long_one);
    w->input = lh_span("{\"to\":1}", 8);
    struct ps_command_end end = run(w, "tr -d '\"'; echo; echo end", nothing, LONG);
    assert_memory_equal(end.says, "{to:1} end", 10);
    w->input = lh_span(long_one, sizeof long_one);
    end = run(w, "wc -c", nothing, LONG);
    assert_int_equal(strtol(end.says, NULL, 10), PS_COMMAND_INPUT_MAX);
    end = run(w, "exec <&-; echo end; exit 2", nothing, LONG); // a command need not read its input
    assert_int_equal(end.fate, PS_COMMAND_EXITED);
    assert_int_equal(end.number, 2);
    assert_memory_equal(end.says, "end", 3);
    w->input = lh_span(NULL, 0);
    end = run(w, "wc -c", nothing, LONG);
    assert_int_equal(strtol(end.says, NULL, 10), 0);
    assert_int_equal(end.number, 0);
}

IN_WORLD(it_inherits_no_descriptor, struct world *w)
{
    int fd = dup(2); // not closed by exec
    assert_true(fd >= 3);
    struct ps_command_end end = run(w,
                                    "for i in 3 4 5 6 7 8 9; do { true >&$i; } 2>/dev/null "
                                    "&& echo has $i; done; echo end",
                                    nothing, LONG);
    close(fd);
    assert_memory_equal(end.says, "end", 3);
}

IN_WORLD(its_output_is_cut_and_made_one_line, struct world *w)
{
    struct ps_command_end end = run(w,
                                    "printf '\\n\\n a\\tb\\033[31m\\377\\n\\nc'; i=0; "
                                    "while [ $i -lt 40000 ]; do echo 0123456789; i=$((i+1)); done",
                                    nothing, LONG);
    assert_int_equal(end.fate, PS_COMMAND_EXITED);
    assert_int_equal(end.number, 0);
    assert_memory_equal(end.says, "a b [31m c0123456789 0123456789 ", 32);
    assert_int_equal(strlen(end.says), sizeof end.says - 1);
}

IN_WORLD(a_slow_command_is_ended, struct world *w)
{
    struct ps_command_end end =
        run(w, "echo here; while true; do sleep 1; done", nothing, LH_SECOND);
    assert_int_equal(end.fate, PS_COMMAND_TOO_LATE);
    assert_int_equal(end.number, SIGTERM);
    assert_true(end.took_ns >= LH_SECOND);
}

IN_WORLD(a_command_that_ignores_sigterm_is_killed, struct world *w)
{
    struct ps_command_end end =
        run(w, "trap '' TERM; while true; do sleep 1; done", nothing, LH_SECOND);
    assert_int_equal(end.fate, PS_COMMAND_TOO_LATE);
    // the shell ignores SIGTERM, unless the signal came before the trap
    assert_true(end.number == SIGKILL || end.number == SIGTERM);
}

// The background process still holds the pipe when the command has exited.
IN_WORLD(a_background_process_is_not_waited_for, struct world *w)
{
    struct ps_command_end end = run(w, "sleep 1000 & echo $!", nothing, LONG);
    assert_int_equal(end.fate, PS_COMMAND_EXITED);
    assert_int_equal(end.number, 0);
    long pid = strtol(end.says, NULL, 10);
    assert_true(pid > 1);
    assert_int_equal(kill((pid_t)pid, SIGKILL), 0);
}

IN_WORLD(a_signal_is_named, struct world *w)
{
    struct ps_command_end end =
        run(w, "kill -USR1 $$; while true; do sleep 1; done", nothing, LONG);
    assert_int_equal(end.fate, PS_COMMAND_KILLED);
    assert_int_equal(end.number, SIGUSR1);
}

static void *stop_soon(void *arg)
{
    struct world *w = arg;
    usleep(20000); // any delay will do: the command would run for ever
    atomic_store(&w->stop, true);
    return NULL;
}

IN_WORLD(the_end_of_the_process_ends_it, struct world *w)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, stop_soon, w), 0);
    struct ps_command_end end = run(w, "while true; do sleep 1; done", nothing, LONG);
    pthread_join(thread, NULL);
    atomic_store(&w->stop, false);
    assert_int_equal(end.fate, PS_COMMAND_STOPPED);
}

IN_WORLD(a_missing_program_does_not_start, struct world *w)
{
    struct ps_command c;
    struct ps_command_end end;
    assert_int_equal(ps_command_parse("/nowhere/at/all", &c), LH_OK);
    ps_command_run(&c, w->env, nothing, lh_span("x", 1), LONG, &w->stop, &end);
    assert_int_equal(end.fate, PS_COMMAND_NO_START);
    assert_int_equal(end.number, ENOENT);
}

TEST(words_are_split_at_blanks_alone)
{
    struct ps_command c;
    char text[1100];
    assert_int_equal(ps_command_parse("  /opt/scale  --to=a,b\t-x ", &c), LH_OK);
    assert_int_equal(c.words, 3);
    assert_string_equal(c.word[0], "/opt/scale");
    assert_string_equal(c.word[1], "--to=a,b");
    assert_string_equal(c.word[2], "-x");
    assert_null(c.word[3]);
    assert_int_equal(ps_command_parse(" ", &c), LH_OK);
    assert_int_equal(c.words, 0);
    static const char *const wrong[] = {"a | b", "a $X", "a 'b'", "a \"b\"", "a; b", "a > b"};
    for (size_t i = 0; i < LH_COUNT(wrong); i++)
        assert_int_equal(ps_command_parse(wrong[i], &c), LH_ERR_CONFIG);
    text[0] = 0;
    for (int i = 0; i < PS_COMMAND_WORDS_MAX; i++) memcpy(text + 2 * i, "w ", 3);
    assert_int_equal(ps_command_parse(text, &c), LH_OK);
    memcpy(text + 2 * PS_COMMAND_WORDS_MAX, "w", 2);
    assert_int_equal(ps_command_parse(text, &c), LH_ERR_CONFIG);
    memset(text, 'w', sizeof text);
    text[sizeof c.text] = 0; // one byte too long, with its terminator
    assert_int_equal(ps_command_parse(text, &c), LH_ERR_CONFIG);
    text[sizeof c.text - 1] = 0;
    assert_int_equal(ps_command_parse(text, &c), LH_OK);
    assert_string_equal(c.word[0], text);
}

int main(void)
{
    return test_run(set_up, tear_down);
}
