// A command of an operator's that the process runs: words, no shell, a bounded time.
#ifndef PS_COMMAND_H
#define PS_COMMAND_H

#include <stdatomic.h>

#include "common/env/env.h"

enum {
    PS_COMMAND_WORDS_MAX = 32,
    PS_COMMAND_BYTES = 1025,
    PS_COMMAND_SAYS = 256,
    PS_COMMAND_INPUT_MAX = 4096, // a pipe takes so many at once (PIPE_BUF)
};

struct ps_command {                       // not to be copied
    char *word[PS_COMMAND_WORDS_MAX + 1]; // ends with NULL; they lie in `text`
    char text[PS_COMMAND_BYTES];
    uint32_t words;
};

enum ps_command_fate {
    PS_COMMAND_EXITED,   // It ended by itself; `number` is its exit status.
    PS_COMMAND_KILLED,   // A signal that is not ours ended it; `number` names it.
    PS_COMMAND_TOO_LATE, // We ended it: its time was over.
    PS_COMMAND_STOPPED,  // We ended it: the process ends.
    PS_COMMAND_NO_START, // `number` is the errno
};

struct ps_command_end {
    enum ps_command_fate fate;
    int number;
    int64_t took_ns;
    // The beginning of what it wrote to stdout and stderr, on one line, printable characters alone.
    char says[PS_COMMAND_SAYS];
};

// Splits at blanks. LH_ERR_CONFIG, without a key: it is too long, or has a character that only a
// shell would understand. No word at all is none.
LH_MUST lh_err ps_command_parse(const char *text, struct ps_command *out);
// Runs it in a process group of its own, with the environment of this process and `extra`
// ("NAME=value", ends with NULL), `input` on its stdin (PS_COMMAND_INPUT_MAX bytes at most), and
// reads what it writes. Blocks until it ended, for `timeout_ns` at most and about a second more;
// *stop ends it early. On any thread.
void ps_command_run(const struct ps_command *c, struct lh_env *env, char *const *extra,
                    struct lh_span input, int64_t timeout_ns, const atomic_bool *stop,
                    struct ps_command_end *end);

#endif
