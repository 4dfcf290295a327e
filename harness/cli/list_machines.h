/* list_machines.h: the list of machines of `dpbench list`. */
#ifndef LIST_MACHINES_H
#define LIST_MACHINES_H

#include <stdbool.h>

#include "dpb_status.h"

/* All that come with the program as a table, or every figure of the one of that name or file, with
 * its source; `json`: the same as JSON. */
dpb_status list_machines(const char *name, bool json);

#endif
