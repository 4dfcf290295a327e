/* forked.h: run a body in `ranks` processes that share memory for what they report.
 *
 * Bodies do not use cmocka's assertions, which would jump back into the parent's copy of the test
 * runner: they report, and the parent asserts. */
#ifndef DPB_TESTS_FORKED_H
#define DPB_TESTS_FORKED_H

#include <stddef.h>

#define FORKED_SECONDS_MAX 200 /* a body that takes longer is ended */

/* `shared` is what forked_memory() returned. */
typedef void (*forked_body)(int rank, void *shared);

/* Zeroed memory that parent and children share. */
void *forked_memory(size_t bytes);
void forked_memory_free(void *memory, size_t bytes);

/* Returns the number of processes that did not end well (a signal, a sanitizer, the time limit). */
int forked_run(int ranks, forked_body body, void *shared);

#endif
