// The `longhaul` tool: its commands, its exit codes, its flags.
#ifndef DP_CLI_H
#define DP_CLI_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/exit.h"

// Exit codes of every command, shared by all programs (common/base/exit.h).
#define DP_EXIT_ENUM(id, code, name, meaning) DP_##id = code,
enum dp_exit { LH_EXITS(DP_EXIT_ENUM) };
#undef DP_EXIT_ENUM

// A command: argv[0] is its name; normal output goes to stdout. It has one of the two functions.
struct dp_command {
    const char *name;
    lh_err (*run)(int argc, char **argv);
    lh_err (*ends)(int argc, char **argv, enum dp_exit *exit); // *exit: DP_OK, or what it sets
    const char *help;                                          // one line
    const char *words; // allowed first words, separated by blanks; NULL: any
    bool own;          // each of these words is a command with its own flags
};
extern const struct dp_command dp_commands[]; // the rows of commands.h; ends with a NULL name

// The whole tool. Returns the exit code.
int dp_main(int argc, char **argv);
// Runs the command argv[0]. An error is printed to stderr as "longhaul NAME: text". Returns the
// exit code.
int dp_command(int argc, char **argv);

// The i-th exit code: name and meaning; NULL: no more.
const char *dp_exit_name(unsigned i, enum dp_exit *code, const char **meaning);

// ---- flags: one small table a command
enum dp_flag_kind {
    DP_SWITCH, // bool
    DP_TEXT,   // const char *
    DP_FORM,   // bool: "json", not "table"
    DP_EACH,   // struct dp_texts, may repeat
};
enum { DP_TEXTS_MAX = 64 };
struct dp_texts {
    const char *at[DP_TEXTS_MAX];
    unsigned count;
};
struct dp_flag {
    const char *name; // "--dir"
    enum dp_flag_kind kind;
    void *out;
    const char *value; // name of the value in --help; NULL for a switch
    const char *help;
};
struct dp_usage {
    const char *line; // "longhaul up TOPOLOGY [flags]"
    const char *text; // paragraphs after it
    const struct dp_flag *flag;
    unsigned flags;
};

// Parses the flags and returns the other arguments in `rest` (NULL: none are allowed).
// LH_ERR_INVALID: a wrong line, with the nearest flag. *help is set after --help, printed to
// stdout; also after --help=json, which prints {"usage", "text", "flags": [{"name", "value",
// "help", "repeats"}]} (manual.c reads it).
LH_MUST lh_err dp_flags(const struct dp_usage *usage, int argc, char **argv, struct dp_texts *rest,
                        bool *help);

// A command of several verbs, each with its own flags.
struct dp_verb {
    const char *name;
    lh_err (*run)(int argc, char **argv); // argv[0] is the verb
};
// Runs the verb in argv[1], or prints the help for --help. LH_ERR_INVALID: an unknown verb.
LH_MUST lh_err dp_verbs(const struct dp_usage *usage, const struct dp_verb *verb, size_t count,
                        int argc, char **argv);

// Parses a flag's whole number from min to max. `text` NULL (flag not given): *out is unchanged.
// LH_ERR_INVALID.
LH_MUST lh_err dp_number(const char *flag, const char *text, uint64_t min, uint64_t max,
                         uint64_t *out);
// The same for a real number.
LH_MUST lh_err dp_real(const char *flag, const char *text, double min, double max, double *out);
// Parses -o, as a DP_FORM is parsed. LH_ERR_INVALID.
LH_MUST lh_err dp_form(const char *text, bool *json);

#endif
