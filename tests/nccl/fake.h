// A stream of the tests' device, as the tests' NCCL puts work on it.
#ifndef LH_TESTS_NCCL_FAKE_H
#define LH_TESTS_NCCL_FAKE_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fake_stream;
// Runs work(arg) on the stream's own thread after all that was queued before.
void fake_stream_queue(struct fake_stream *s, void (*work)(void *arg), void *arg);
// The same of work that waits for other processes, and touches no memory of the device's.
void fake_stream_outside(struct fake_stream *s, void (*work)(void *arg), void *arg);
// Takes the fault that this process has next, where it is one of the words `of` ("hang error"):
// the file fault-PID in the folder that LH_FAKE_NCCL_FAULTS names holds its word.
bool fake_fault(const char *of, char word[16]);
// For tests that open this library: its streams, events and pieces of memory that are not freed.
int fake_held(void);
int fake_used(void); // the device that was chosen last; -1: none was

#ifdef __cplusplus
}
#endif

#endif
