/* Weighted sum, in C: adds up the payload, each value times a weight of the receiver's, and stores
 * the sum. */
#include "jam.h"

JAM_PROPERTY(results, "bench.Results@1");
JAM_IMPORT(int64_t, weight_of, (uint64_t));
JAM_IMPORT(uint64_t, results_push, (results *, int64_t));
JAM_IMPORT(bool, text_equal, (jam_text, const char *, size_t));
JAM_SIGNATURE(results *, uint64_t, int32_t);

typedef int64_t (*function)(uint64_t);

static int64_t __attribute__((noinline)) half(uint64_t value) { return (int64_t)(value / 2); }

/* Addresses of a function of the jam and of an import, in data. */
static const function FUNCTIONS[2] = {weight_of, half};
static const char DONE[] = "sum is stored";

int64_t JAM_ENTRY(jam_call *call)
{
    const int32_t *values = call->payload;
    uint64_t mode = *(const uint64_t *)call->args;
    int64_t sum = 0;
    for (size_t i = 0; i < call->payload_len / sizeof *values; i++)
        sum += values[i] * FUNCTIONS[mode & 1](i);
    results_push(call->property, sum);
    jam_text done = {(const uint8_t *)DONE, sizeof DONE - 1};
    if (text_equal(done, DONE, sizeof DONE - 1)) jam_log(call, DONE, sizeof DONE - 1);
    return sum;
}
