// Assertions about ourselves. They stay on in release: a failed one means our bug, never a peer's.
#ifndef LH_COMMON_CHECK_H
#define LH_COMMON_CHECK_H

#include <stdbool.h>

_Noreturn void lh_assert_failed(const char *expression, const char *file, int line);

#define LH_ASSERT(expression)                                                                      \
    ((expression) ? (void)0 : lh_assert_failed(#expression, __FILE__, __LINE__))
#define LH_STATIC_ASSERT(expression, text) _Static_assert(expression, text)
#define LH_COUNT(array) (sizeof(array) / sizeof((array)[0]))

// Planted bugs (tests/model BUGS): compiled in by -DLH_BUGS=ON only; the test names the active one.
// In every other build LH_BUG() is the constant false and the branch disappears.
#ifdef LH_PLANTED_BUGS
bool lh_bug_is(const char *name);
void lh_bug_plant(const char *name); // NULL: none
const char *lh_bug_planted(void);    // the one of this thread; NULL: none
#define LH_BUG(name) lh_bug_is(name)
#else
#define LH_BUG(name) false
#endif

// Failpoints: places where a process may be made to die, in the same builds only. With
// LONGHAUL_FAILPOINT=NAME@N in its environment a process sends itself SIGKILL at the N-th passage
// of NAME. Names are an interface: tests/crash/failpoints.py reads this list and shows that each
// one fires.
#define LH_FAILPOINTS(X)                                                                           \
    X("wal.write", server, "a group is decided, not written")                                      \
    X("wal.sync", server, "written, not synced")                                                   \
    X("wal.synced", server, "synced, not folded")                                                  \
    X("wal.roll", server, "a new segment has its header, not synced")                              \
    X("group.folded", server, "folded, not answered")                                              \
    X("group.answered", server, "answered, not published to followers")                            \
    X("checkpoint.write", server, "a checkpoint is due, not begun")                                \
    X("checkpoint.written", server, "renamed, nothing removed yet")                                \
    X("checkpoint.trimmed", server, "older ones and the log's beginning are removed")              \
    X("recover.scanned", server, "the log is read, the next segment not begun")                    \
    X("recover.ready", server, "recovered, nothing served yet")                                    \
    X("cut.kept", worker, "the frame is in the outbox, the slot not flipped")                      \
    X("cut.flipped", worker, "committed, not sent")                                                \
    X("push.decided", worker, "the answer is here, nothing noted")                                 \
    X("replica.written", worker, "a durable copy is there, not reported")                          \
    X("store.write", coordinator, "a commit is due, not written")                                  \
    X("store.sync", coordinator, "written, not synced")                                            \
    X("store.committed", coordinator, "synced, not answered")                                      \
    X("file.rename", server, "a whole file is synced under its passing name")                      \
    X("file.renamed", server, "renamed, the directory not synced")
#ifdef LH_PLANTED_BUGS
void lh_failpoint(const char *name);
#define LH_FAILPOINT(name) lh_failpoint(name)
#else
#define LH_FAILPOINT(name) ((void)0)
#endif

#endif
