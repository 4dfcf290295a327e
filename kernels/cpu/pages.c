/* Memory whose pages are there before anything is timed. */
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "cpu_device.h"

/* Transparent huge pages, where the system gives them on request: the processor's table of pages
 * covers more, and touching is faster. Only what lies in whole huge pages is asked for, so that
 * arrays keep beginning where malloc puts them: all of them at the start of a huge page would share
 * the same sets of the caches. A refusal changes nothing. */
static void prefer_huge_pages(char *memory, size_t bytes)
{
    const uintptr_t huge = (uintptr_t)1 << 21;
    const uintptr_t begin = ((uintptr_t)memory + huge - 1) & ~(huge - 1);
    const uintptr_t end = ((uintptr_t)memory + bytes) & ~(huge - 1);

    if (begin < end)
        madvise(memory + (begin - (uintptr_t)memory), end - begin, MADV_HUGEPAGE);
}

void dpb_cpu_pages_touch(void *memory, size_t bytes)
{
    prefer_huge_pages(memory, bytes);
    /* Touching a page costs 8 to 15 us on some virtual machines: here, and not in a timed step. */
    memset(memory, 0, bytes);
}
