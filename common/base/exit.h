// The beginning and end of every program: its standard streams, and its exit codes for supervisors
// and scripts.
#ifndef LH_COMMON_EXIT_H
#define LH_COMMON_EXIT_H

#include "common/base/err.h"

// X(id, code, name, meaning). `longhaul help exit-codes` prints them.
#define LH_EXITS(X)                                                                                \
    X(OK, 0, "ok", "done, and everything that was checked holds")                                  \
    X(FAILED, 1, "failed", "another failure; the last line says what failed")                      \
    X(USAGE, 2, "usage", "wrong command line")                                                     \
    X(MISSING, 3, "missing", "a prerequisite is not there: a program, a file, a device, data")     \
    X(UNREACHABLE, 4, "unreachable", "a peer does not answer")                                     \
    X(UNVERIFIED, 5, "unverified",                                                                 \
      "a check failed: replicas differ, damaged bytes, a language learned nothing")                \
    X(CONFIG, 6, "config", "a configuration or topology file is refused")                          \
    X(DENIED, 7, "denied", "this identity may not do that")                                        \
    X(STOPPED, 8, "stopped", "stopped before its end; the same command goes on from there")

#define LH_EXIT_ENUM(id, code, name, meaning) LH_EXIT_##id = code,
enum lh_exit { LH_EXITS(LH_EXIT_ENUM) };
#undef LH_EXIT_ENUM

// The exit code that fits an error best.
enum lh_exit lh_exit_of(lh_err err);

// Opens /dev/null as each standard stream that is closed. Call it first in main(): otherwise the
// next file that the process opens gets the stream's number, and lines of the log go into it.
void lh_open_streams(void);

// Ends the process with this status, at the end of main(). Flushes streams but skips exit handlers:
// gRPC's last threads run on for some time after grpc_shutdown() (1.51 does not join its event
// engine's), and the handlers would destroy gRPC's and OpenSSL's globals under them. Builds that
// need exit handlers (leak check, coverage) run them.
_Noreturn void lh_leave(int status);

#endif
