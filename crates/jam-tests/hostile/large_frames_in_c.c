/* Uses more stack at once than a guard behind it may have: as large_frames.rs. */
#include "jam.h"

JAM_SIGNATURE(void, int64_t, void);

static __attribute__((noinline)) int64_t down(int64_t levels)
{
    volatile unsigned char frame[256 << 10];
    frame[0] = 1;
    return (levels == 0 ? 0 : down(levels - 1)) + frame[0];
}

int64_t JAM_ENTRY(jam_call *call)
{
    return down(*(const int64_t *)call->args);
}
