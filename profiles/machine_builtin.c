/* The machines that come with the program; their texts are embedded (CMakeLists.txt). */
#include <string.h>

#include "dpb_log.h"
#include "dpb_str.h"
#include "machine_builtin_list.h"
#include "machine_private.h"

/* machine_builtin_list.h is made by CMake: DPB_BUILTIN_MACHINES, identifier and name of each file
 * of machines/. */
#define BUILTIN_DECLARE(symbol, name)                                                              \
    extern const char symbol[];                                                                    \
    extern const size_t symbol##_bytes;
DPB_BUILTIN_MACHINES(BUILTIN_DECLARE)

static const struct {
    const char *name, *text;
    const size_t *bytes;
} builtins[] = {
#define BUILTIN_ROW(symbol, name) {name, symbol, &symbol##_bytes},
        DPB_BUILTIN_MACHINES(BUILTIN_ROW)};

#define BUILTINS (sizeof(builtins) / sizeof(builtins[0]))

size_t dpb_machine_builtin_count(void)
{
    return BUILTINS;
}

const char *dpb_machine_builtin_name(size_t index)
{
    return builtins[index].name;
}

static bool is_path(const char *name)
{
    const size_t length = strlen(name);

    return strchr(name, '/') || (length > 5 && strcmp(name + length - 5, ".yaml") == 0);
}

dpb_status dpb_machine_find(const char *name, struct dpb_machine *machine)
{
    const char *names[BUILTINS];

    if (is_path(name))
        return dpb_machine_read(name, machine);
    for (size_t i = 0; i < BUILTINS; i++) {
        names[i] = builtins[i].name;
        if (strcmp(name, names[i]) == 0)
            return dpb_machine_parse(builtins[i].text, *builtins[i].bytes, name, machine);
    }
    const char *nearest = dpb_suggest(name, names, BUILTINS);
    dpb_error("there is no machine \"%s\"", name);
    dpb_log_hint("%s%s%sdpbench list machines names them; a file of your own is a path, "
                 "./machine.yaml",
                 nearest ? "did you mean " : "", nearest ? nearest : "", nearest ? "? " : "");
    return DPB_ERR_USAGE;
}
