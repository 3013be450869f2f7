/* The function of `doubled`, once more, in C: of a table whose places are multiples of 64. */
#include "jam.h"

JAM_PROPERTY(table, "jam-tests.Table@1");

RIED_EXPORT(uint64_t, table_scale, (table *, uint64_t));

uint64_t table_scale(table *table, uint64_t key)
{
    return 5 * 64 * key;
}
