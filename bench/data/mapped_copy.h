/* mapped_copy.h: reading mapped files that may become shorter meanwhile. */
#ifndef BENCH_MAPPED_COPY_H
#define BENCH_MAPPED_COPY_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Handle SIGBUS in this process from now on; signals from elsewhere go where they went before.
 * Called before a file is mapped, again and again, since libraries take the signal, too. */
void dpb_mapped_copy_prepare(void);

/* memcpy() out of a mapped file, from any thread in which SIGBUS is not blocked. False when a page
 * is not there, since the file has been cut or cannot be read: the process would have ended of
 * SIGBUS. `fault` is the address then. What is behind the end but on the last page is zeroes: ask
 * for the file's size, too. */
bool dpb_mapped_copy(void *to, const void *from, size_t bytes, const void **fault);

#ifdef __cplusplus
}
#endif
#endif
