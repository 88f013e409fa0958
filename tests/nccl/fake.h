// A stream of the tests' device, for the work of the tests' NCCL.
#ifndef LH_TESTS_NCCL_FAKE_H
#define LH_TESTS_NCCL_FAKE_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fake_stream;
// Runs work(arg) on the stream's own thread after all that was queued before.
void fake_stream_queue(struct fake_stream *s, void (*work)(void *arg), void *arg);
// The same for work that waits for other processes and touches no device memory.
void fake_stream_outside(struct fake_stream *s, void (*work)(void *arg), void *arg);
// Takes this process's next fault if it is one of the words `of` ("hang error"): the file fault-PID
// in the folder that LH_FAKE_NCCL_FAULTS names holds its word.
bool fake_fault(const char *of, char word[16]);
// For tests that open this library: its streams, events and memory that are not freed yet.
int fake_held(void);
int fake_used(void); // the device that was chosen last; -1: none was

#ifdef __cplusplus
}
#endif

#endif
