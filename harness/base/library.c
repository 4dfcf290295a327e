#include "dpb_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first of the names that opens; NULL with the first name's reason: later names are only other
 * spellings of it. */
static void *open_any(const struct dpb_library *library, char *reason, size_t reason_bytes)
{
    const char *given = library->variable ? getenv(library->variable) : NULL;
    const char *const only[] = {given, NULL};
    const char *const *names = given && given[0] ? only : library->names;

    for (int i = 0; names[i]; i++) {
        void *handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (handle)
            return handle;
        if (i == 0)
            snprintf(reason, reason_bytes, "%s", dlerror());
    }
    return NULL;
}

dpb_status dpb_library_open(const struct dpb_library *library, void *table, char *why,
                            size_t why_bytes)
{
    char reason[512] = "";
    void *handle = open_any(library, reason, sizeof(reason));
    if (!handle) {
        snprintf(why, why_bytes, "%s: %s; %s", library->what, reason, library->remedy);
        return DPB_ERR_UNAVAILABLE;
    }
    for (size_t i = 0; i < library->symbol_count; i++) {
        if (!dlsym(handle, library->symbols[i].name)) {
            snprintf(why, why_bytes, "%s has no function %s: it is too old or too new; %s",
                     library->what, library->symbols[i].name, library->remedy);
            return DPB_ERR_UNAVAILABLE;
        }
    }
    for (size_t i = 0; i < library->symbol_count; i++) {
        void *function = dlsym(handle, library->symbols[i].name);
        memcpy((char *)table + library->symbols[i].offset, &function, sizeof(function));
    }
    return DPB_OK;
}
