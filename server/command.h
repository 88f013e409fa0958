// Runs an operator's command: words, no shell, a bounded time.
#ifndef PS_COMMAND_H
#define PS_COMMAND_H

#include <stdatomic.h>

#include "common/env/env.h"

enum {
    PS_COMMAND_WORDS_MAX = 32,
    PS_COMMAND_BYTES = 1025,
    PS_COMMAND_SAYS = 256,
    PS_COMMAND_INPUT_MAX = 4096, // written to a pipe at once (PIPE_BUF)
};

struct ps_command {                       // not copyable: `word` points into `text`
    char *word[PS_COMMAND_WORDS_MAX + 1]; // ends with NULL; points into `text`
    char text[PS_COMMAND_BYTES];
    uint32_t words;
};

enum ps_command_fate {
    PS_COMMAND_EXITED,   // a normal end; `number` is the exit status
    PS_COMMAND_KILLED,   // ended by a signal that is not ours; `number` is the signal
    PS_COMMAND_TOO_LATE, // past the deadline: we ended it
    PS_COMMAND_STOPPED,  // this process ends: we ended it
    PS_COMMAND_NO_START, // `number` is the errno
};

struct ps_command_end {
    enum ps_command_fate fate;
    int number;
    int64_t took_ns;
    // The beginning of its stdout and stderr, on one line, printable characters only.
    char says[PS_COMMAND_SAYS];
};

// Splits at blanks. LH_ERR_CONFIG, without a key: too long, or a character with a meaning only in a
// shell. No words is valid.
LH_MUST lh_err ps_command_parse(const char *text, struct ps_command *out);
// Runs the command in its own process group, with this process's environment plus `extra`
// ("NAME=value", ends with NULL) and `input` on stdin (PS_COMMAND_INPUT_MAX bytes at most), and
// reads its output. Blocks until its end, for `timeout_ns` and about a second more at most; *stop
// ends it early. Any thread.
void ps_command_run(const struct ps_command *c, struct lh_env *env, char *const *extra,
                    struct lh_span input, int64_t timeout_ns, const atomic_bool *stop,
                    struct ps_command_end *end);

#endif
