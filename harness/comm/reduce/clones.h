/* clones.h: loops for the widest vectors that the processor at hand has. */
#ifndef DPB_COMM_CLONES_H
#define DPB_COMM_CLONES_H

/* clang 14 cannot, and a sanitizer's run-time library is not there yet when the loader chooses. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                             \
        !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define DPB_COMM_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define DPB_COMM_CLONES
#endif

#endif
