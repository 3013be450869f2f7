/* A jam in C: adds up the payload, each value times the argument, and stores the sum. */
#include "jam.h"

JAM_PROPERTY(table, "jam-tests.Table@1");
JAM_IMPORT(uint64_t, table_push, (table *, int64_t));
JAM_IMPORT(uint64_t, table_panic, (table *, uint64_t));
JAM_SIGNATURE(table *, int64_t, int32_t);

int64_t JAM_ENTRY(jam_call *call)
{
    const int32_t *values = call->payload;
    int64_t weight = *(const int64_t *)call->args, sum = 0;
    if (weight == 0) table_panic(call->property, 9);
    for (size_t i = 0; i < call->payload_len / sizeof *values; i++) sum += weight * values[i];
    table_push(call->property, sum);
    return sum;
}
