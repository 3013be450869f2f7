/* A jam in C that hands its payload on as text, which it does not check. */
#include "jam.h"

JAM_PROPERTY(table, "jam-tests.Table@1");
JAM_IMPORT(uint64_t, table_label, (table *, jam_text));
JAM_SIGNATURE(table *, void, uint8_t);

int64_t JAM_ENTRY(jam_call *call)
{
    jam_text text = { call->payload, call->payload_len };
    return (int64_t)table_label(call->property, text);
}
