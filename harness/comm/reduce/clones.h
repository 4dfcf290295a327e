/* clones.h: loops for the widest vectors of the processor at hand, and what they may assume. */
#ifndef DPB_COMM_CLONES_H
#define DPB_COMM_CLONES_H

/* clang 14 cannot, and a sanitizer's run-time library is not there yet when the loader chooses. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                             \
        !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define DPB_COMM_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define DPB_COMM_CLONES
#endif

/* In front of a loop: no iteration reads what another one writes. */
#if defined(__clang__)
#define DPB_COMM_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define DPB_COMM_INDEPENDENT _Pragma("GCC ivdep")
#else
#define DPB_COMM_INDEPENDENT
#endif

#endif
