// longhaul run: the environment of the user's command, and the settings with which it is not
// started.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deploy/tool/cli.h"
#include "tests/test.h"

static char settings[] = "/tmp/longhaul-run-XXXXXX";

static int write_settings(void **state)
{
    (void)state;
    int fd = mkstemp(settings);
    const char *text = "coordinator: c:1\n"
                       "tls: {ca: a, cert: b, key: c}\nmodel.manifest: m/model.json\n"
                       "dir: d\ndata.units: u\nseal.keys: k\ntrainer.kind: external\n";
    ssize_t put = write(fd, text, strlen(text));
    return close(fd) || put != (ssize_t)strlen(text);
}

static int remove_settings(void **state)
{
    (void)state;
    return unlink(settings);
}

// Returns the exit status of the tool, or of the command that replaced it or, if `tended`, that ran
// below it.
static int run(const char *set, const char *command, bool tended)
{
    char *argv[] = {"longhaul",
                    "run",
                    "--config",
                    settings,
                    "--set",
                    (char *)(uintptr_t)set,
                    "--tend",
                    "--",
                    "sh",
                    "-c",
                    (char *)(uintptr_t)command,
                    NULL};
    for (int i = 6; !tended && i < 11; i++) argv[i] = argv[i + 1];
    pid_t child = fork();
    if (!child) _exit(dp_main(tended ? 11 : 10, argv));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(the_command_finds_socket_and_manifest)
{
    for (int tended = 0; tended < 2; tended++) {
        assert_int_equal(run("trainer.batch=2",
                             "test \"$LONGHAUL_SOCKET\" = \"$PWD/d/trainer.sock\" && "
                             "test \"$LONGHAUL_MANIFEST\" = \"$PWD/m/model.json\" && exit 41",
                             tended),
                         41);
    }
}

TEST(invalid_settings_and_commands_start_nothing)
{
    assert_int_equal(run("trainer.kind=builtin", "exit 41", false), DP_CONFIG);
    assert_int_equal(run("trainer.kind=nonsense", "exit 41", false), DP_CONFIG);
    char *bare[] = {"longhaul", "run", "--config", settings, NULL};
    assert_int_equal(dp_main(4, bare), DP_USAGE);
    char *nobody[] = {
        "longhaul",         "run", "--config", settings, "--set", "trainer.kind=external", "--",
        "/nowhere/trainer", NULL};
    assert_int_not_equal(dp_main(8, nobody), DP_OK);
}

int main(void)
{
    return test_run(write_settings, remove_settings);
}
