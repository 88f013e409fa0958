// Runs an operator's command: see command.h.
//
// 1. The end of the command counts, not the end of its output: its background children may hold the
//    pipe for ever.
// 2. A command past its deadline gets SIGTERM and a second later SIGKILL, with its whole process
//    group. After a normal end, its children keep running.
// 3. It inherits only descriptors 0 to 2, and no blocked or ignored signals.
// 4. If this process is killed with -9, the command runs to its own end.
// 5. The whole input is in a pipe before the start, so that a command that reads nothing blocks
//    nothing, and no write meets a closed pipe.
#include "server/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/check.h"

enum { LOOK_MS = 20, EXTRA_MAX = 16 };
static const int64_t GRACE = LH_SECOND; // between SIGTERM and SIGKILL

// ---------------------------------------------------------------- words

lh_err ps_command_parse(const char *text, struct ps_command *out)
{
    static const char BLANKS[] = " \t\r\n", SHELL[] = "|&;<>$`'\"\\*?(){}[]~#";
    size_t len = strlen(text), odd = strcspn(text, SHELL);
    *out = (struct ps_command){0};
    if (len >= sizeof out->text)
        return lh_fail(LH_ERR_CONFIG, "the command is longer than %zu bytes", sizeof out->text - 1);
    if (text[odd])
        return lh_fail(LH_ERR_CONFIG,
                       "%c is special in a shell, but no shell runs this: blanks separate words; "
                       "put anything else into a script",
                       text[odd]);
    memcpy(out->text, text, len);
    for (char *at = out->text + strspn(out->text, BLANKS); *at; at += strspn(at, BLANKS)) {
        if (out->words == PS_COMMAND_WORDS_MAX)
            return lh_fail(LH_ERR_CONFIG, "the command has more than %d words",
                           PS_COMMAND_WORDS_MAX);
        out->word[out->words++] = at;
        at += strcspn(at, BLANKS);
        if (*at) *at++ = 0;
    }
    return LH_OK;
}

// ---------------------------------------------------------------- start

struct running {
    struct lh_env *env;
    pid_t pid;
    int out; // the pipe of its output; -1: closed
    struct ps_command_end *end;
};

static bool is_in(char *const *list, const char *assignment)
{
    size_t name = strcspn(assignment, "=");
    for (; *list; list++)
        if (!strncmp(*list, assignment, name) && (*list)[name] == '=') return true;
    return false;
}

// This process's environment; `extra` replaces variables of the same name.
static char **environment(char *const *extra)
{
    size_t own = 0, n = 0;
    while (environ[own]) own++;
    char **all = calloc(own + EXTRA_MAX + 1, sizeof *all);
    if (!all) return NULL;
    while (extra[n] && n < EXTRA_MAX) {
        all[n] = extra[n];
        n++;
    }
    for (size_t i = 0; i < own; i++)
        if (!is_in(extra, environ[i])) all[n++] = environ[i];
    return all;
}

// Returns an errno. `in` -1: empty stdin.
static int spawn(const struct ps_command *c, char *const *environment, int in, int out, pid_t *pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int err = posix_spawn_file_actions_init(&files);
    if (err) return err;
    err = posix_spawnattr_init(&how);
    if (err) {
        posix_spawn_file_actions_destroy(&files);
        return err;
    }
    err = posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                             POSIX_SPAWN_SETSIGDEF);
    if (!err) err = posix_spawnattr_setpgroup(&how, 0);
    if (!err) err = posix_spawnattr_setsigmask(&how, &none);
    if (!err) err = posix_spawnattr_setsigdefault(&how, &all);
    if (!err && in < 0) err = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    if (!err && in >= 0) err = posix_spawn_file_actions_adddup2(&files, in, 0);
    if (!err) err = posix_spawn_file_actions_adddup2(&files, out, 1);
    if (!err) err = posix_spawn_file_actions_adddup2(&files, out, 2);
    if (!err) err = posix_spawn_file_actions_addclosefrom_np(&files, 3);
    if (!err) err = posix_spawnp(pid, c->word[0], &files, &how, c->word, environment);
    posix_spawnattr_destroy(&how);
    posix_spawn_file_actions_destroy(&files);
    return err;
}

// Makes a pipe that holds the input, then end of file. Returns an errno. *in -1: no input.
static int fill(struct lh_span input, int *in)
{
    int pipes[2], err = 0;
    *in = -1;
    LH_ASSERT(input.len <= PS_COMMAND_INPUT_MAX);
    if (!input.len) return 0;
    if (pipe2(pipes, O_CLOEXEC)) return errno;
    ssize_t n = write(pipes[1], input.data, input.len);
    if (n != (ssize_t)input.len) err = n < 0 ? errno : EIO;
    close(pipes[1]);
    if (err)
        close(pipes[0]);
    else
        *in = pipes[0];
    return err;
}

static int start(struct running *r, const struct ps_command *c, char *const *extra,
                 struct lh_span input)
{
    int pipes[2], in, err = fill(input, &in);
    if (err) return err;
    if (pipe2(pipes, O_CLOEXEC | O_NONBLOCK)) {
        err = errno;
        if (in >= 0) close(in);
        return err;
    }
    char **all = environment(extra);
    // The command's end blocks, as commands expect of their output.
    err = all && !fcntl(pipes[1], F_SETFL, 0) ? spawn(c, all, in, pipes[1], &r->pid) : ENOMEM;
    free(all);
    close(pipes[1]);
    if (in >= 0) close(in);
    if (err)
        close(pipes[0]);
    else
        r->out = pipes[0];
    return err;
}

// ---------------------------------------------------------------- until its end

static void hear(struct ps_command_end *end, const char *bytes, size_t n)
{
    size_t has = strlen(end->says);
    for (size_t i = 0; i < n && has + 1 < sizeof end->says; i++) {
        bool shown = bytes[i] > ' ' && bytes[i] < 127 && bytes[i] != '"';
        if (!shown && (!has || end->says[has - 1] == ' ')) continue; // one blank for many
        end->says[has++] = shown ? bytes[i] : ' ';
        end->says[has] = 0;
    }
}

static void close_out(struct running *r)
{
    if (r->out >= 0) close(r->out);
    r->out = -1;
}

// Reads the output available now.
static void read_on(struct running *r)
{
    char bytes[1024];
    ssize_t n;
    while (r->out >= 0 && (n = read(r->out, bytes, sizeof bytes)) != 0) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n < 0) break;
        hear(r->end, bytes, (size_t)n);
    }
    close_out(r);
}

static void wait_a_little(struct running *r)
{
    struct pollfd fd = {.fd = r->out, .events = POLLIN}; // poll() ignores -1
    (void)poll(&fd, 1, LOOK_MS);
    read_on(r);
}

// Has it ended? It is not reaped yet, so its process number is not reused.
static bool ended(const struct running *r)
{
    siginfo_t what = {0};
    return waitid(P_PID, (id_t)r->pid, &what, WEXITED | WNOHANG | WNOWAIT) != 0 ||
           what.si_pid == r->pid;
}

static void put_down(struct running *r)
{
    int64_t until = lh_now(r->env) + GRACE;
    kill(-r->pid, SIGTERM);
    while (!ended(r) && lh_now(r->env) < until) wait_a_little(r);
    kill(-r->pid, SIGKILL);
}

void ps_command_run(const struct ps_command *c, struct lh_env *env, char *const *extra,
                    struct lh_span input, int64_t timeout_ns, const atomic_bool *stop,
                    struct ps_command_end *end)
{
    *end = (struct ps_command_end){.fate = PS_COMMAND_NO_START};
    struct running r = {env, 0, -1, end};
    int64_t began = lh_now(env);
    int status = 0;
    end->number = start(&r, c, extra, input);
    if (end->number) return;
    end->fate = PS_COMMAND_EXITED;
    while (end->fate == PS_COMMAND_EXITED && !ended(&r)) {
        wait_a_little(&r);
        if (atomic_load(stop))
            end->fate = PS_COMMAND_STOPPED;
        else if (lh_now(env) - began >= timeout_ns)
            end->fate = PS_COMMAND_TOO_LATE;
    }
    if (end->fate != PS_COMMAND_EXITED) put_down(&r);
    read_on(&r);
    close_out(&r);
    while (waitpid(r.pid, &status, 0) < 0 && errno == EINTR) continue;
    end->took_ns = lh_now(env) - began;
    if (end->fate == PS_COMMAND_EXITED && WIFSIGNALED(status)) end->fate = PS_COMMAND_KILLED;
    end->number = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}
