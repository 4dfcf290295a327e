/* dpb_library.h: shared libraries that are opened when they are needed, as tables of functions.
 *
 * A vendor's library is one struct of function pointers; this fills it. So a program that never
 * needs the library neither links nor loads it, and a test puts functions of its own there. */
#ifndef DPB_LIBRARY_H
#define DPB_LIBRARY_H

#include <stddef.h>

#include "dpb_status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dpb_library_symbol {
    const char *name;
    size_t offset; /* of the pointer to the function in the table */
};

/* A row for `member` of `struct table`, which has the function's own name. */
#define DPB_LIBRARY_SYMBOL(table, member)                                                          \
    {                                                                                              \
#member, offsetof(struct table, member)                                                    \
    }

struct dpb_library {
    const char *what;         /* "cuDNN" */
    const char *const *names; /* file names, tried in this order; the last is NULL */
    const char *variable;     /* environment variable with a path that is tried instead; or NULL */
    const char *remedy;       /* "install cuDNN 9, or add its folder to LD_LIBRARY_PATH" */
    const struct dpb_library_symbol *symbols;
    size_t symbol_count;
};

/* Open the library and fill `table` (unchanged on failure). It is never closed: vendors' libraries
 * do not survive that. DPB_ERR_UNAVAILABLE with one line in `why` ("cuDNN: libcudnn.so.9: cannot
 * open shared object file; install ..."): not found, not loadable, or a function is missing. */
dpb_status dpb_library_open(const struct dpb_library *library, void *table, char *why,
                            size_t why_bytes);

#ifdef __cplusplus
}
#endif
#endif
