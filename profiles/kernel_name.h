/* kernel_name.h: what a kernel is, and a name for it that fits on a line, both from its name.
 * Private. */
#ifndef KERNEL_NAME_H
#define KERNEL_NAME_H

#include <stdbool.h>
#include <stddef.h>

/* Does a kernel of this name communicate? Every library's names have something in common, and the
 * parts change with versions: ncclKernel_..., ncclDevKernel_..., ncclSymDevKernel_... */
bool kernel_name_is_comm(const char *name);

/* The function's own name out of a mangled (Itanium C++ ABI) or demangled one: without return type,
 * namespaces, template arguments and parameters. "Kernel" and "Kernel2", which CUTLASS wraps around
 * all it has, give way to their first argument. A name that is neither stays as it is. Cut to
 * `bytes` - 1; never empty unless `name` is. */
void kernel_name_shorten(const char *name, char *text, size_t bytes);

#endif
