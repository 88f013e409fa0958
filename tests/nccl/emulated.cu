// Runs the work of the tests' NCCL on the streams of the emulated device (tests/simt), in place of
// fake_device.c: ranks that train there sum in its memory.
#include "tests/nccl/fake.h"

#include <simt.h>

void fake_stream_queue(struct fake_stream *s, void (*work)(void *arg), void *arg)
{
    simt_queue((cudaStream_t)(void *)s, [=] { work(arg); });
}

void fake_stream_outside(struct fake_stream *s, void (*work)(void *arg), void *arg)
{
    simt_queue_outside((cudaStream_t)(void *)s, [=] { work(arg); });
}
